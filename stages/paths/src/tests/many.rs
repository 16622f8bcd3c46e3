//! As many uplinks as a group may have.
//!
//! ```text
//!   host                                       far
//!   10.1.1.2  trunk.1  ──┐               ┌── trunk.1  10.1.1.1
//!      ...               ├── one cable ──┤      ...            10.9.9.9 (lo)
//!   10.1.64.2 trunk.64 ──┘               └── trunk.64 10.1.64.1
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::scene::Scene;
use crate::config::UPLINKS_MOST;
use tarn_lab::testing::Program;
use tarn_lab::topology::{End, Node, Topology, Vlan};

const TARGET: &str = "10.9.9.9";
/// The uplinks with the least round trips: the second one in reserve.
const CALMEST: [usize; 2] = [40, 23];

fn device(number: usize) -> String {
    format!("trunk.{number}")
}

/// How long an uplink takes, there and back.
fn round_trip_ms(number: usize) -> usize {
    match CALMEST.iter().position(|calmest| *calmest == number) {
        Some(place) => 10 + 10 * place,
        None => 30,
    }
}

fn topology() -> Topology {
    let end = |node, here: u8| {
        let vlan = |number: usize| Vlan::new(number as u16).address(&format!("10.1.{number}.{here}/24"));
        (1..=UPLINKS_MOST).fold(End::new(node, "trunk"), |end, number| end.vlan(vlan(number)))
    };
    let far = Node::new("far").ip("address add 10.9.9.9/32 dev lo");
    Topology::new()
        .node(Node::new("host"))
        .node(far)
        .link(end("host", 2), end("far", 1))
}

/// The uplinks have their delays, and can be shaped from now on.
fn delay(scene: &Scene) {
    let all = 1..=UPLINKS_MOST;
    let add = |number, delay| format!("qdisc add dev {} root handle 1: netem delay {delay}ms", device(number));
    let far: Vec<String> = all.clone().map(|number| add(number, round_trip_ms(number))).collect();
    scene.node("far").tc_batch(&far).unwrap();
    let host: Vec<String> = all.map(|number| add(number, 0)).collect();
    scene.host().tc_batch(&host).unwrap();
}

fn configuration() -> String {
    let mut text = "[paths]\nhold = \"1s\"\nstay = \"1s\"\n[[paths.group]]\npin = false\nto = \"default\"\n".to_owned();
    let _ = writeln!(text, "targets = [\"{TARGET}\"]");
    for number in 1..=UPLINKS_MOST {
        let _ = writeln!(
            text,
            "[[paths.group.uplink]]\ndevice = \"{}\"\ngateway = \"10.1.{number}.1\"",
            device(number)
        );
    }
    text
}

/// How many uplinks are in a state.
fn count(program: &Program<'_>, state: &str) -> usize {
    let (code, text) = program.command_line("tarn paths status --json");
    assert_eq!(code, 0, "{text}");
    let status: Value = serde_json::from_str(&text).unwrap();
    let rows = status["uplinks"].as_array().unwrap();
    rows.iter().filter(|row| row["state"] == state).count()
}

/// Who has many uplinks would have none that is calm, and the agent's own work would take the time to leave a dead one.
#[test]
#[ignore = "needs the lab"]
fn lab_long_paths_choose_among_as_many_uplinks_as_there_may_be() {
    let scene = Scene::of(&topology());
    delay(&scene);
    let before = scene.dump();
    let program = scene.up_with(&configuration());
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(
        (count(&program, "used"), count(&program, "standby")),
        (1, UPLINKS_MOST - 1)
    );
    assert_eq!(scene.way(TARGET), device(CALMEST[0]));
    let exchanges = scene.requests(TARGET, 150, || {
        std::thread::sleep(Duration::from_millis(500));
        scene.kill(&device(CALMEST[0]));
    });
    let lost = exchanges.sent_count() - exchanges.answered_count();
    assert!((1..=20).contains(&lost), "{lost} requests lost, one every 10 ms");
    assert_eq!(scene.way(TARGET), device(CALMEST[1]));
    program.run("down");
    assert_eq!(scene.dump(), before);
}
