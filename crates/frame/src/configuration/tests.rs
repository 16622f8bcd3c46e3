//! What a user would lose if an error pointed to the wrong place, or hid another one.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::testing::STAGES;

fn errors(text: &str) -> Vec<String> {
    match parse(text, Path::new("tarn.toml"), STAGES) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_configuration_that_is_right_is_taken_in_packet_order() {
    let text = "[second]\n[first]\nset = [{ path = \"/a\", value = 1, note = \"é\" }]\n";
    let configured = parse(text, Path::new("tarn.toml"), STAGES).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(
        configured.stages.iter().map(|stage| stage.name).collect::<Vec<_>>(),
        ["first", "second"]
    );
}

#[test]
fn every_error_of_every_section_is_told_at_once_in_the_order_of_the_file() {
    let text = "\
[frist]
x = 1

[first]
thn = \"run\"
then = \"rum\"
set = [
  { path = \"/a\", value = \"one\" },
  { path = \"/b\", value = 70000 },
  { path = \"/c\", valeu = 1 },
  { path = \"/d\", value = 4 },
  \"/e\",
]

[[second.set]]
path = 7
value = 1

[[second.set]]
value = 2
colour = \"red\"
";
    let expected = [
        "tarn.toml:1:2: frist: there is no such section; did you mean `first`? Known here: first, second, events, page",
        "tarn.toml:5:1: first.thn: there is no such key; did you mean `then`? Known here: set, then, missing",
        "tarn.toml:6:8: first.then: `rum` is not a choice here; did you mean `run`? Known here: run, fail, \
         die-before-the-change, die-after-the-change, dawdle, fail-in-the-loop, never-end, tell-standard-error",
        "tarn.toml:8:26: first.set.value: is the text \"one\"; expected a whole number from 0 to 65535",
        "tarn.toml:9:26: first.set.value: is the whole number 70000; expected a whole number from 0 to 65535",
        "tarn.toml:10:3: first.set.value: is missing; add a line `value = ...`",
        "tarn.toml:10:18: first.set.valeu: there is no such key; did you mean `value`? Known here: path, value, note",
        "tarn.toml:12:3: first.set: is the text \"/e\"; expected a table with keys",
        "tarn.toml:16:8: second.set.path: is the whole number 7; expected a text in quotes",
        "tarn.toml:19:1: second.set.path: is missing; add a line `path = ...`",
        "tarn.toml:21:1: second.set.colour: there is no such key; known here: path, value, note",
    ];
    let found = errors(text);
    assert_eq!(found, expected, "\n{}", found.join("\n"));
}

#[test]
fn a_stage_s_own_refusals_bear_their_place_too() {
    let text = "[first]\nset = [\n  { path = \"/a\", value = 0 },\n  { path = \"/b\", value = 0 },\n]\n";
    assert_eq!(
        errors(text),
        [
            "tarn.toml:3:26: first.set.value: is 0; write 1 to 65535",
            "tarn.toml:4:26: first.set.value: is 0; write 1 to 65535",
        ]
    );
}

#[test]
fn a_section_that_is_none_is_told_how_to_write_it() {
    assert_eq!(
        errors("first = 3\n"),
        ["tarn.toml:1:9: first: is a whole number, not a section; write its keys below a line [first]"]
    );
    assert_eq!(errors("[[first]]\n").len(), 1);
}

#[test]
fn what_is_no_toml_is_told_with_its_place() {
    for (text, place) in [
        ("[first\n", "tarn.toml:1:7: "),
        ("[first]\nset = \n", "tarn.toml:2:7: "),
        ("[first]\n[first]\n", "tarn.toml:2:2: "),
        ("[first]\nthen = \"run\"\nthen = \"run\"\n", "tarn.toml:3:1: "),
        ("[first]\nthen = \"é\" x\n", "tarn.toml:2:12: "),
    ] {
        let found = errors(text);
        assert!(
            found
                .first()
                .is_some_and(|error| error.starts_with(place) && error.contains("not valid TOML")),
            "{found:?}"
        );
    }
}

#[test]
fn every_way_of_not_having_a_file_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let told = |path: &Path| read(path).unwrap_err().to_string();
    assert!(told(&directory.path().join("none")).contains("no such file"));
    assert!(told(directory.path()).contains("is a directory"));
    assert!(
        told(Path::new("/dev/zero")).contains("more than 64 MiB"),
        "a device that never ends is not read to its end"
    );
    let latin = directory.path().join("latin");
    std::fs::write(&latin, b"# one\n# caf\xe9\n").unwrap();
    assert!(
        told(&latin).contains("latin:2:6: this byte is not UTF-8"),
        "{}",
        told(&latin)
    );
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "# nothing\n").unwrap();
    let error = load(&empty, STAGES).err().unwrap();
    assert!(
        error
            .to_string()
            .contains("configures no stage: add a section, for example [first]"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn an_error_points_at_its_key_wherever_that_stands(
        before in proptest::collection::vec("(# [ -~é😀]{0,20}|)", 0..8),
        indent in " {0,9}",
        windows in any::<bool>(),
    ) {
        let end = if windows { "\r\n" } else { "\n" };
        let mut text = format!("[first]{end}");
        for line in &before {
            text.push_str(line);
            text.push_str(end);
        }
        text.push_str(&format!("{indent}wrong = 1{end}"));
        let place = format!("tarn.toml:{}:{}: first.wrong: ", before.len() + 2, indent.len() + 1);
        let found = errors(&text);
        prop_assert!(found.len() == 1 && found[0].starts_with(&place), "{:?} not at {}", found, place);
    }

    #[test]
    fn a_column_counts_characters_and_not_bytes(note in "[é😀a-z]{0,12}") {
        let text = format!("[first]\nset = [{{ note = \"{note}\", path = \"/a\", value = 70000 }}]\n");
        let column = text.lines().nth(1).unwrap().chars().take_while(|c| *c != '7').count() + 1;
        let found = errors(&text);
        let place = format!("tarn.toml:2:{column}: ");
        prop_assert!(found.len() == 1 && found[0].starts_with(&place), "{:?}", found);
    }

    #[test]
    fn no_text_makes_it_fail(text in "[\\[\\]{}=\".,a-c#\n 0-9]{0,60}") {
        errors(&text);
        errors(&format!("[first]\n{text}"));
        errors(&format!("[first]\nset = {text}"));
    }
}
