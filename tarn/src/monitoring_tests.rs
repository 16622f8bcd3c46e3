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

#[cfg(feature = "lab")]
mod lab {
    use std::time::Duration;

    use super::*;
    use tarn_lab::testing::Program;
    use tarn_poll::proof::rig::Rig;

    /// The stages that need no module, on a host with a card and a link. The others compare theirs with the example in unit tests.
    const STAGES: &str = r#"
[poll]

[[redirect.rule]]
protocol = "udp"
from = "10.8.0.1:9100"
to = "10.8.2.2:9000"

[pace]
for = "all"

[[paths.group]]
to = "198.51.100.0/24"
targets = ["192.0.2.1"]
uplink = [{ device = "eth0", gateway = "10.8.0.2" }, { device = "right", gateway = "10.8.2.2" }]
"#;

    fn is_without_module(line: &&&str) -> bool {
        !["tarn_reassembly_", "tarn_classes_"]
            .iter()
            .any(|prefix| line.starts_with(prefix))
    }

    /// Whoever scrapes tarn finds what the example has, and so what the alerts ask for.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_cards_metrics_are_those_of_the_example() {
        let rig = Rig::with_server().unwrap();
        for node in [rig.client().unwrap(), rig.server().unwrap()] {
            node.ip("address add 192.0.2.1/32 dev lo").unwrap();
        }
        let program = Program::new(rig.host().unwrap(), STAGES);
        program.run("up");
        rig.readdress().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        let (code, metrics) = program.command_line("metrics");
        let example = types(EXAMPLE);
        let example: BTreeSet<&str> = example.iter().filter(is_without_module).copied().collect();
        assert_eq!((code, types(&metrics)), (0, example), "{metrics}");
        program.run("down");
    }
}
