//! Firewalls whose rules come before tarn and give marks, or come after it and translate.

use super::pins::pinned;
use super::scene::{BOTH, Scene, await_calmly};
use tarn_lab::testing::Program;

/// A firewall that keeps something in the mark of each connection.
const MARKING: &str = r#"
table inet firewall {
    chain arrivals {
        type filter hook prerouting priority mangle;
        ct mark set ct mark or 0x05000000
    }
}
"#;

const TRANSLATING: &str = r#"
table ip late {
    chain leaving {
        type nat hook postrouting priority srcnat;
        oifname { "wan1", "wan2" } masquerade
    }
}
"#;

/// As a host starts, its firewall is there before any connection.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_refuse_bits_that_a_firewall_gives_before_there_is_any_connection() {
    let scene = Scene::router([0, 0]);
    let host = scene.host();
    host.run_with_input("nft", &["-f", "-"], MARKING).unwrap();
    let program = Program::new(host, &pinned());
    let complaint = program.complaint("up");
    assert!(complaint.contains("nftables rules of another program"), "{complaint}");
    assert!(complaint.contains("set mark_mask = 0xff0000,"), "{complaint}");
    assert!(!program.state().exists());
    program.configure(&pinned().replace("[paths]", "[paths]\nmark_mask = 0xff0000"));
    program.run("up");
    // One that comes later does not keep the next agent from what runs.
    let later = MARKING.replace("firewall", "later").replace("0x05000000", "0x50000");
    host.run_with_input("nft", &["-f", "-"], &later).unwrap();
    program.run("up");
    program.run("down");
}

/// Who loads a firewall after tarn would wonder why connections break.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_say_that_addresses_are_translated_by_now() {
    let scene = Scene::router([0, 0]);
    let host = scene.host();
    host.run("nft", &["flush", "ruleset"]).unwrap();
    let program = Program::new(host, &BOTH.replace("pin = false\n", ""));
    program.run("up");
    let said = || {
        let log = std::fs::read_to_string(program.state().path().join("log")).unwrap_or_default();
        let lines = log.lines().filter(|line| line.contains("a rule that came after"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let load = || host.run_with_input("nft", &["-f", "-"], TRANSLATING).unwrap();
    load();
    await_calmly("the line", || !said().is_empty());
    host.run("nft", &["flush", "ruleset"]).unwrap();
    load();
    std::thread::sleep(std::time::Duration::from_secs(15));
    let lines = said();
    assert!(lines.len() == 1 && lines[0].contains("default: "), "{lines:?}");
    let told = program.remarks("up");
    assert!(told.contains("default: connections stay"), "{told}");
    program.run("down");
}
