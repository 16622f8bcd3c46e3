//! What a package ships says what the program can do.

use std::process::Command as Process;

use super::*;
use crate::cli::verbs;
use crate::testing::STAGES;

fn all_pages() -> Vec<(String, String)> {
    let directory = tempfile::tempdir().unwrap();
    write_pages(verbs(STAGES, &[]), &directory.path().join("man8")).unwrap();
    let files = fs::read_dir(directory.path().join("man8")).unwrap();
    files
        .map(|file| file.unwrap())
        .map(|file| {
            let name = file.file_name().into_string().unwrap();
            (name, fs::read_to_string(file.path()).unwrap())
        })
        .collect()
}

/// A reader finds each verb by its name, and each of its options on its page.
#[test]
fn each_verb_has_a_page_with_all_its_options() {
    let pages = all_pages();
    let mut tree = verbs(STAGES, &[]).disable_help_subcommand(true);
    tree.build();
    let mut commands = vec![&tree];
    let mut found = 0;
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().filter(|below| !below.is_hide_set()));
        let name = format!("{}.8", command.get_display_name().unwrap_or("tarn"));
        let (_, text) = pages
            .iter()
            .find(|(page, _)| *page == name)
            .unwrap_or_else(|| panic!("{name}"));
        for long in command.get_arguments().filter_map(Arg::get_long) {
            assert!(
                text.contains(&format!("\\-\\-{}", long.replace('-', "\\-"))),
                "{name}: {long}\n{text}"
            );
        }
        found += 1;
    }
    assert_eq!(found, pages.len(), "pages of what is no verb");
    assert!(found > 10, "{found}");
}

#[test]
fn pages_show_notes_files_and_examples_as_help_does() {
    let pages = all_pages();
    let of = |name: &str| &pages.iter().find(|(page, _)| page == name).unwrap().1;
    let whole = of("tarn.8");
    assert!(
        whole.contains(".SH FILES") && whole.contains("/etc/tarn/tarn.toml"),
        "{whole}"
    );
    assert!(whole.contains("\\fBip\\-netns\\fR(8)"), "{whole}");
    assert!(whole.contains("\ntarn\\-up(8)\n"), "{whole}");
    let up = of("tarn-up.8");
    assert!(up.contains(".SH EXAMPLES\n.nf\ntarn up\n.fi"), "{up}");
    assert!(up.contains("\\fBtarn\\fR(8)") && !up.contains(".SH FILES"), "{up}");
    assert!(
        !pages.iter().any(|(name, _)| name.contains("man-pages")),
        "for packages only"
    );
}

/// What the tab key offers behind `line` in bash, one a line.
fn offered(line: &str) -> String {
    let script = completions(verbs(STAGES, &[]), Shell::Bash);
    let words: Vec<&str> = line.split(' ').collect();
    let last = words.len() - 1;
    let asked = format!(
        "{script}\nCOMP_WORDS=({line} '')\nCOMP_CWORD={last}\n_tarn tarn \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
    );
    let output = Process::new("bash").args(["--norc", "-c", &asked]).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_verbs_and_options() {
    assert_eq!(offered("tarn sta"), "status\n");
    assert_eq!(offered("tarn up --dr"), "--dry-run\n");
    assert_eq!(offered("tarn completions z"), "zsh\n");
    assert!(offered("tarn man").trim().is_empty(), "for packages only");
}

#[test]
fn other_shells_have_completions_too() {
    for shell in [Shell::Zsh, Shell::Fish] {
        assert!(completions(verbs(STAGES, &[]), shell).contains("dry-run"), "{shell}");
    }
}
