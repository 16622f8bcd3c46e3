//! What is handed out to watch tarn with: alerts, and a board. They are of no use if they name metrics that are not there.

use std::collections::BTreeSet;

const RULES: &str = include_str!("../../packaging/prometheus/tarn.rules.yml");
const BOARD: &str = include_str!("../../packaging/grafana/tarn.json");
/// What `tarn metrics` prints where all stages are up.
const EXAMPLE: &str = include_str!("../../packaging/prometheus/example.prom");

/// The names of metrics in an expression or a text.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tarn_")).collect()
}

/// The metrics of an exposition, each as `NAME TYPE`.
fn types(exposition: &str) -> BTreeSet<&str> {
    let lines = exposition.lines();
    lines.filter_map(|line| line.strip_prefix("# TYPE ")).collect()
}

#[test]
fn alerts_and_board_name_metrics_that_are_there() {
    let there: BTreeSet<&str> = types(EXAMPLE)
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    for (file, text) in [("the alerts", RULES), ("the board", BOARD)] {
        let used = named(text);
        let unknown: Vec<&str> = used.difference(&there).copied().collect();
        assert!(unknown.is_empty() && used.len() > 10, "{file}: {unknown:?}");
    }
}

/// Whoever scrapes tarn finds what the example has, and so what the alerts ask for.
#[cfg(feature = "lab")]
#[test]
#[ignore = "needs the lab"]
fn lab_cards_metrics_are_those_of_the_example() {
    let rig = super::host_tests::network();
    let program = super::host_tests::up(&rig);
    let (code, metrics) = program.command_line("metrics");
    assert_eq!((code, types(&metrics)), (0, types(EXAMPLE)), "{metrics}");
    program.run("down");
}

/// A script that asks one stage gets what it would get of all.
#[cfg(feature = "lab")]
#[test]
#[ignore = "needs the lab"]
fn lab_cards_each_stage_prints_its_figures_of_tarn_status() {
    let rig = super::host_tests::network();
    let program = super::host_tests::up(&rig);
    let printed = |line: &str| -> serde_json::Value {
        let (code, text) = program.command_line(line);
        assert_eq!(code, 0, "{line}: {text}");
        serde_json::from_str(&text).unwrap()
    };
    let names =
        |figures: &serde_json::Value| -> BTreeSet<String> { figures.as_object().unwrap().keys().cloned().collect() };
    let all = printed("tarn status --json");
    let stages = all["stages"].as_array().unwrap();
    assert_eq!(stages.len(), super::STAGES.len());
    for stage in stages {
        let name = stage["name"].as_str().unwrap();
        let own = printed(&format!("tarn {name} status --json"));
        assert!(names(&own).len() > 2, "{name}: {own}");
        assert_eq!(names(&own), names(&stage["figures"]), "{name}");
    }
    program.run("down");
}
