//! Tables as they stand in a file, held against results.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::experiment::{Case, Check, Measurement, Size};

const OPEN: &str = r#"# Title

<!-- table of redirect
head = ["", "who", "cost", "lost"]
cells = ["{cost:100} ({share:0.1} %)", "{dead|bad} ms"]
rows = [
    ["", "goal", "25 %", ""],
    ["first", "tarn", "tarn"],
    ["", "chance", "~chance"],
    ["", "none", "none"],
]
-->
"#;

const BODY: &str = "
|  | who | cost | lost |
| --- | --- | ---: | ---: |
|  | goal | 25 % |  |
| first | tarn | 12,700 (-0.1 %) | 5 ms |
|  | chance | 0 (0.0 %) | 7 ms |
|  | none |  |  |

";

const CLOSE: &str = "<!-- end of table: trixie, Linux 6.12.1, seed 1, quick size, rustc 1.95.0, clang 14.0.6, debug build -->\n\nText.\n";

fn case(name: &str, metrics: &[(&str, f64)]) -> Case {
    Case {
        name: name.into(),
        metrics: metrics
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect(),
        ..Case::default()
    }
}

/// A result in which tarn costs so much.
fn outcome(cost: f64) -> Outcome {
    Outcome {
        experiment: "redirect".into(),
        kernel: "6.12.1".into(),
        suite: "trixie".into(),
        seed: 1,
        size: Size::Quick,
        build: "rustc 1.95.0, clang 14.0.6, debug build".into(),
        tarn: "0.1.0".into(),
        measurement: Measurement {
            cases: vec![
                case("tarn", &[("cost", cost), ("share", -0.06), ("bad", 5.0)]),
                case("chance", &[("cost", -49.0), ("share", -0.04), ("dead", 7.0)]),
                case("none", &[]),
            ],
            ..Measurement::default()
        },
        reference: Vec::new(),
    }
}

fn file(text: &str) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("README.md");
    fs::write(&path, text).unwrap();
    (home, path)
}

fn written() -> (TempDir, PathBuf) {
    file(&format!("{OPEN}{BODY}{CLOSE}"))
}

/// How many tables are wrong, and what is said of them.
fn compared(path: &Path, outcome: Outcome) -> (usize, String) {
    let comparison = compare(path, &[outcome]).unwrap();
    (comparison.wrong, comparison.report.join("\n"))
}

#[test]
fn a_table_is_written_where_none_was_and_nothing_else_changes() {
    let (_home, path) = file(&format!("{OPEN}<!-- end of table -->\n\nText.\n"));
    let (wrong, report) = compared(&path, outcome(12_738.3));
    assert_eq!(wrong, 1, "a table that was never written is wrong: {report}");
    assert_eq!(write(&path, &[outcome(12_738.3)]).unwrap(), (1, Vec::new()));
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{OPEN}{BODY}{CLOSE}"));
    assert_eq!(compared(&path, outcome(12_738.3)), (0, String::new()));
}

#[test]
fn two_tables_are_written_in_their_places_and_other_experiments_left() {
    let other = OPEN.replace("redirect", "paths");
    let text = format!("{OPEN}old\n{CLOSE}{other}old\n{CLOSE}{OPEN}{CLOSE}");
    let (_home, path) = file(&text);
    assert_eq!(write(&path, &[outcome(12_700.0)]).unwrap(), (2, vec!["paths".into()]));
    let new = format!("{OPEN}{BODY}{CLOSE}{other}old\n{CLOSE}{OPEN}{BODY}{CLOSE}");
    assert_eq!(fs::read_to_string(&path).unwrap(), new);
    let (wrong, report) = compared(&path, outcome(12_700.0));
    assert_eq!(wrong, 0);
    assert!(report.contains("not compared: no result of paths"), "{report}");
}

/// A last place that the next build moves would fail `make test` for nothing.
#[test]
fn a_figure_may_be_its_unit_apart() {
    let (_home, path) = written();
    for near in [12_600.0, 12_649.0, 12_751.0, 12_800.0] {
        assert_eq!(compared(&path, outcome(near)), (0, String::new()), "{near}");
    }
    for far in [12_599.0, 12_801.0, 1_270.0, 127_000.0] {
        let (wrong, report) = compared(&path, outcome(far));
        assert_eq!(wrong, 1, "{far}: {report}");
        assert!(report.contains("README.md:3: the table differs"), "{report}");
        assert!(
            report.contains("\n  - | first | tarn | 12,700 (-0.1 %) | 5 ms |\n  + | first"),
            "{report}"
        );
    }
}

#[test]
fn titles_labels_and_rows_are_compared_to_the_letter() {
    for (from, to) in [
        ("| who |", "| whom |"),
        ("25 %", "24 %"),
        ("|  | none |  |  |\n", ""),
        ("|  |\n\n", "|  |\n|  | more |  |  |\n\n"),
    ] {
        let (_home, path) = file(&format!("{OPEN}{}{CLOSE}", BODY.replacen(from, to, 1)));
        assert_eq!(compared(&path, outcome(12_700.0)).0, 1, "{to:?}");
    }
}

/// Another kernel or compiler gives other figures, and whoever has it cannot help that.
#[test]
fn what_was_made_otherwise_is_reported_and_no_error() {
    let (_home, path) = written();
    let changes: [fn(&mut Outcome); 5] = [
        |outcome| outcome.kernel = "6.12.2".into(),
        |outcome| outcome.suite = "bookworm".into(),
        |outcome| outcome.seed = 2,
        |outcome| outcome.size = Size::Full,
        |outcome| outcome.build = String::new(),
    ];
    for change in changes {
        let mut other = outcome(1.0);
        change(&mut other);
        let (wrong, report) = compared(&path, other.clone());
        assert_eq!(wrong, 0, "{report}");
        assert!(report.contains("it was made with trixie, Linux 6.12.1"), "{report}");
        let comparison = compare(&path, &[other, outcome(12_700.0)]).unwrap();
        assert_eq!(comparison.report, [""; 0], "the result that was made alike goes first");
    }
}

/// Experiments that are run on several kernels have their results in one file, and each kernel its own figures.
#[test]
fn a_table_goes_on_showing_the_suite_that_it_shows() {
    let of = |suite: &str, kernel: &str| Outcome {
        suite: suite.into(),
        kernel: kernel.into(),
        ..outcome(12_700.0)
    };
    let results = [
        of("bookworm", "6.1.2"),
        of("trixie", "6.12.2"),
        of("trixie-backports", "7.3.2"),
    ];
    let shown = |close: &str| {
        let (_home, path) = file(&format!("{OPEN}{close}\n"));
        write(&path, &results).unwrap();
        fs::read_to_string(&path).unwrap()
    };
    for (recorded, kernel) in [
        ("", "6.12.2"),
        (": bookworm, Linux 6.1.1, seed 1", "6.1.2"),
        (": trixie-backports, Linux 7.3.1, seed 1", "7.3.2"),
    ] {
        let text = shown(&format!("<!-- end of table{recorded} -->"));
        assert!(text.contains(&format!("Linux {kernel},")), "{text}");
    }
}

#[test]
fn a_case_that_depends_on_the_build_is_reported_and_no_error() {
    let (_home, path) = file(&format!("{OPEN}{}{CLOSE}", BODY.replace("7 ms", "70 ms")));
    let (wrong, report) = compared(&path, outcome(12_700.0));
    assert_eq!(wrong, 0);
    assert!(
        report.contains("which is no error\n  - |  | chance | 0 (0.0 %) | 70 ms |"),
        "{report}"
    );
}

/// Whoever edits a table by hand has to find what is wrong with it.
#[test]
fn what_is_not_well_formed_is_told_with_its_line() {
    let whole = format!("{OPEN}{BODY}{CLOSE}");
    for (from, to, message) in [
        (
            "share:0.1",
            "shore:0.1",
            "README.md:3: the table of redirect: no case of the result has the metric \"shore\"",
        ),
        (
            "{share:0.1}",
            "{share:0}",
            "README.md:3: the table of redirect: {share:0} needs a unit",
        ),
        ("{share:0.1}", "{share", "lacks a closing brace"),
        (
            "\"tarn\", \"tarn\"",
            "\"tarn\", \"barn\"",
            "of quick size, has no case \"barn\"; it has tarn, chance, none",
        ),
        (
            "[\"first\", ",
            "[",
            "has 2 entries: 2 labels and a case, or 4 cells, are needed",
        ),
        (
            "head = [\"\", \"who\", \"cost\", ",
            "head = [",
            "`head` has fewer titles",
        ),
        (
            "rows",
            "lines",
            "README.md:3: what the table shows cannot be read: unknown field `lines`",
        ),
        ("\n-->\n", "\n", "README.md:3: the comment is not closed"),
        ("<!-- end of table", "<!-- an end", "README.md:3: the table has no end"),
        (
            "<!-- table of",
            "<!-- a table of",
            "README.md:21: the end of a table that does not begin",
        ),
    ] {
        let (_home, path) = file(&whole.replace(from, to));
        for error in [
            compare(&path, &[outcome(1.0)]).map(|_| ()).unwrap_err(),
            write(&path, &[outcome(1.0)]).map(|_| ()).unwrap_err(),
        ] {
            let text = format!("{error:#}");
            assert!(text.contains(message), "{text}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), whole.replace(from, to));
    }
}

/// A table without an end would swallow the next one.
#[test]
fn the_end_of_another_table_is_not_taken() {
    let (_home, path) = file(&format!("{OPEN}{BODY}\n{OPEN}{BODY}{CLOSE}"));
    let text = format!("{:#}", compare(&path, &[]).map(|_| ()).unwrap_err());
    assert!(text.contains("README.md:3: the table has no end"), "{text}");
}

/// The README lists a missed goal with its measured value.
#[test]
fn goals_are_rows_with_what_was_measured() {
    let open =
        "<!-- table of redirect\nhead = [\"goal\", \"measured\", \"\"]\ngoals = true\n-->\n<!-- end of table -->\n";
    let (_home, path) = file(open);
    let mut outcome = outcome(1.0);
    let error = write(&path, std::slice::from_ref(&outcome)).unwrap_err();
    assert!(format!("{error:#}").contains("the experiment has no goals"));
    let goal = |passed| Check {
        name: "half".into(),
        passed,
        detail: "57 %".into(),
    };
    outcome.measurement.goals = vec![goal(true), goal(false)];
    write(&path, &[outcome]).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("| half | 57 % | met |\n| half | 57 % | **missed** |\n"),
        "{text}"
    );
}

/// A table of hundreds of cases is not written by hand, and controls that are compared stand in one row.
#[test]
fn each_case_of_a_kind_is_a_row_with_figures_of_others() {
    let open = "<!-- table of redirect\nhead = [\"path\", \"ours / theirs\"]\ncells = [\"{cost} / {bbr-*/cost}\"]\neach = \"tarn-\"\n-->\n";
    let (_home, path) = file(&format!("{open}<!-- end of table -->\n"));
    let mut result = outcome(1.0);
    result.measurement.cases = vec![
        case("bbr-slow", &[("cost", 3.0)]),
        case("tarn-slow", &[("cost", 2.0)]),
        case("bbr-fast", &[("cost", 5.0)]),
        case("tarn-fast", &[("cost", 4.0)]),
    ];
    write(&path, &[result.clone()]).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("| slow | 2 / 3 |\n| fast | 4 / 5 |\n"), "{text}");
    result.measurement.cases.remove(2);
    let error = format!("{:#}", write(&path, &[result]).unwrap_err());
    assert!(error.contains("has no case \"bbr-fast\""), "{error}");
}
