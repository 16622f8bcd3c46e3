//! Probes cost volume, which some pay for; and an uplink that is asked seldom has to be left as soon as one that is asked often.

use std::time::Duration;

use serde_json::Value;

use super::scene::{BOTH, Scene, TARGETS, await_state, uplink};
use tarn_lab::testing::Program;

const MONTH_S: f64 = 30.0 * 86_400.0;
/// After which an uplink is known so well that it is asked seldom.
const KNOWN: Duration = Duration::from_secs(15);

/// The scene's configuration, two targets each.
fn with_two_targets() -> String {
    TARGETS.iter().fold(BOTH.to_owned(), |text, target| {
        let other = target.replace("9.9.9", "9.9.8").replace("fd09::9", "fd09::8");
        text.replace(&format!("[\"{target}\"]"), &format!("[\"{target}\", \"{other}\"]"))
    })
}

fn scene() -> Scene {
    let scene = Scene::new([0, 0]);
    for address in ["10.9.9.8/32 dev lo", "fd09::8/128 dev lo nodad"] {
        scene.node("far").ip(&format!("address add {address}")).unwrap();
    }
    scene
}

/// What the uplinks' devices have sent and received, in bytes, with the header of the link.
fn volume(scene: &Scene) -> u64 {
    let of = |device: &str| {
        let text = scene.host().ip(&format!("-j -s link show {device}")).unwrap();
        let link: Value = serde_json::from_str(&text).unwrap();
        let stats = &link[0]["stats64"];
        ["rx", "tx"]
            .iter()
            .map(|way| stats[way]["bytes"].as_u64().unwrap())
            .sum::<u64>()
    };
    of("wan1") + of("wan2")
}

/// Bytes of a month, from a minute in which nobody but tarn sends.
fn month(scene: &Scene) -> f64 {
    let before = volume(scene);
    std::thread::sleep(Duration::from_secs(60));
    (volume(scene) - before) as f64 / 60.0 * MONTH_S
}

/// With the README's first configuration, and IPv6 besides.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_cost_a_pair_of_uplinks_less_than_a_gigabyte_a_month() {
    let scene = scene();
    let program = scene.up_with(&with_two_targets());
    std::thread::sleep(KNOWN);
    let by_default = month(&scene);
    println!("{:.2} GB a month over IPv4 and IPv6", by_default / 1e9);
    assert!(by_default < 1e9, "{by_default} bytes a month");
    let metered = with_two_targets().replace("gateway = ", "metered = true, gateway = ");
    program.configure(&metered);
    program.run("up");
    std::thread::sleep(KNOWN);
    let metered = month(&scene);
    println!("{:.2} GB where metered", metered / 1e9);
    assert!(metered < by_default / 3.0, "{metered} bytes a month, metered");
    program.run("down");
}

/// What is in use is noticed by its traffic.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_leave_an_uplink_within_200_ms_whose_traffic_is_answered_no_more() {
    let scene = scene();
    let program = scene.up_with(&with_two_targets());
    std::thread::sleep(KNOWN);
    for target in TARGETS {
        assert_eq!(scene.way(target), "wan1");
        let exchanges = scene.requests(target, 400, || {
            std::thread::sleep(Duration::from_secs(2));
            scene.kill("wan1");
        });
        let lost = exchanges.sent_count() - exchanges.answered_count();
        println!("{target}: {lost} lost, one every 10 ms");
        assert!(
            (1..=20).contains(&lost),
            "{target}: {lost} requests lost, one every 10 ms"
        );
        assert_eq!(scene.way(target), "wan2");
        scene.heal("wan1");
        program.run("down");
        program.run("up");
        std::thread::sleep(KNOWN);
    }
    program.run("down");
}

/// Whoever begins something must not be sent where nothing comes through.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_find_an_idle_uplink_dead_within_3_s() {
    let scene = scene();
    let program = Program::new(scene.host(), &with_two_targets());
    for device in ["wan2", "wan1"] {
        program.run("up");
        std::thread::sleep(KNOWN);
        scene.kill(device);
        std::thread::sleep(Duration::from_secs(3));
        let others = if device == "wan1" { "wan2" } else { "wan1" };
        assert_eq!(TARGETS.map(|target| scene.way(target)), [others; 2]);
        // The figures are written down once a second.
        std::thread::sleep(Duration::from_secs(1));
        for to in ["default", "::/0"] {
            let row = uplink(&program, to, device);
            assert_eq!(row["state"], "silent", "{row}");
        }
        scene.heal(device);
        await_state(&program, "default", device, "standby");
        program.run("down");
    }
}
