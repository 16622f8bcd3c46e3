//! Traffic goes where it is calm.

use std::time::Duration;

use serde_json::Value;

use super::scene::{Scene, TARGETS, await_state, await_used, uplink};

const SOON: Duration = Duration::from_secs(10);

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_paths_go_by_the_calmer_uplink_and_the_host_is_put_back() {
    let scene = Scene::new([40, 20]);
    let before = scene.dump();
    let program = scene.up();
    for target in TARGETS {
        assert_eq!(scene.way(target), "wan1", "the first is used until more is known");
    }
    await_used(&program, "wan2");
    for target in TARGETS {
        assert_eq!(scene.way(target), "wan2");
    }
    let row = uplink(&program, "default", "wan2");
    assert_eq!((&row["state"], &row["share"]), (&"used".into(), &100.0.into()), "{row}");
    assert!((20.0..21.0).contains(&row["rtt"].as_f64().unwrap()), "{row}");
    let (_, history) = program.command_line("tarn paths history --json");
    let history: Vec<Value> = serde_json::from_str(&history).unwrap();
    assert_eq!(history[0]["reason"], "the first choice");
    let moved = history
        .iter()
        .filter(|entry| entry["uplink"] == "wan2")
        .collect::<Vec<_>>();
    assert_eq!(moved.len(), 2, "{history:?}");
    assert!(
        moved[0]["reason"]
            .as_str()
            .unwrap()
            .starts_with("wan2 is calmer: score 2"),
        "{history:?}"
    );
    let rules = scene.host().ip("rule").unwrap();
    assert!(
        rules.contains("1000:") && rules.contains("fwmark 0x1000000/0xff000000"),
        "{rules}"
    );
    program.run("down");
    assert_eq!(scene.dump(), before);
    assert!(!program.state().exists());
}

/// Probes are the only packets that notice: the device stays up.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_paths_leave_a_dead_uplink_within_200_ms() {
    let scene = Scene::new([10, 30]);
    let program = scene.up();
    std::thread::sleep(SOON);
    for target in TARGETS {
        assert_eq!(scene.way(target), "wan1");
        let exchanges = scene.requests(target, 200, || {
            std::thread::sleep(Duration::from_millis(500));
            scene.kill("wan1");
        });
        let lost = exchanges.sent_count() - exchanges.answered_count();
        assert!(
            (1..=20).contains(&lost),
            "{target}: {lost} requests lost, one every 10 ms"
        );
        await_state(&program, "default", "wan1", "silent");
        scene.heal("wan1");
        await_used(&program, "wan1");
    }
    let (_, history) = program.command_line("tarn paths history");
    assert!(history.contains("wan1 answers late or not at all"), "{history}");
    program.run("down");
}

/// A flow that never pauses leaves too, and it need not wait for an answer that comes late.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_paths_leave_an_uplink_that_is_slow_all_of_a_sudden() {
    let scene = Scene::new([10, 30]);
    let program = scene.up();
    std::thread::sleep(SOON);
    let exchanges = scene.requests("10.9.9.9", 200, || {
        std::thread::sleep(Duration::from_millis(500));
        scene.delay("wan1", 300);
    });
    let slow = exchanges
        .round_trips_us()
        .into_iter()
        .filter(|us| *us > 100_000.0)
        .count();
    assert_eq!(exchanges.answered_count(), 200);
    assert!((1..=20).contains(&slow), "{slow} requests were slow, one every 10 ms");
    assert_eq!(uplink(&program, "default", "wan1")["share"], 0.0);
    program.run("down");
}
