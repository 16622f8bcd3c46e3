//! Devices that go and come back, and agents that die.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::protocols;
use super::scene::{Scene, TARGETS, await_state, await_used, uplink};
use tarn_kernel::links;

#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_devices_that_go_and_come_back() {
    let scene = Scene::new([0, 0]);
    let before = scene.dump();
    let program = scene.up();
    let host = scene.host();
    let down = |device: &str| host.ip(&format!("link set {device} down")).unwrap();
    // With its addresses: IPv6 ones go with the device.
    let up = |number: u8| {
        host.ip(&format!("link set wan{number} up")).unwrap();
        host.ip(&format!("-6 address replace fd0{number}::2/64 dev wan{number} nodad"))
            .unwrap();
    };
    down("wan1");
    for target in TARGETS {
        assert_eq!(scene.way(target), "wan2", "at once, by the kernel itself");
    }
    await_state(&program, "default", "wan1", "gone");
    up(1);
    await_state(&program, "::/0", "wan1", "standby");
    down("wan2");
    for target in TARGETS {
        assert_eq!(scene.way(target), "wan1", "wan1 stands by again");
    }
    // Without any device there is no group; it comes back with the first one.
    down("wan1");
    await_state(&program, "default", "wan1", "gone");
    up(2);
    await_used(&program, "wan2");
    for target in TARGETS {
        assert_eq!(scene.way(target), "wan2");
    }
    up(1);
    await_state(&program, "::/0", "wan1", "standby");
    program.run("down");
    assert_eq!(scene.dump().get("-j rule"), before.get("-j rule"));
    assert_eq!(scene.dump().get("-j nexthop"), before.get("-j nexthop"));
}

/// Who pulls a cable at its other end, or switches a modem off, would cut every connection of the host.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_leave_an_uplink_whose_carrier_is_lost_and_use_it_again() {
    let scene = protocols::scene();
    let before = scene.dump();
    let program = scene.up();
    let (host, far) = (scene.host(), scene.node("far"));
    for ((to, target), own) in ["default", "::/0"].into_iter().zip(TARGETS).zip(protocols::OWN) {
        await_used(&program, "wan1");
        let exchanges = protocols::udp(&scene, target.parse().unwrap(), own.parse().unwrap(), &|| {
            std::thread::sleep(Duration::from_millis(500));
            far.ip("link set wan1 down").unwrap();
        });
        let lost = exchanges.sent_count() - exchanges.answered_count();
        assert!(
            lost <= 2,
            "{target}: {lost} requests lost: the kernel itself takes the other uplink"
        );
        let shown = host.ip("link show wan1").unwrap();
        assert!(shown.contains("NO-CARRIER") && shown.contains(",UP"), "{shown}");
        await_state(&program, to, "wan1", "gone");
        assert_eq!(scene.way(target), "wan2");
        let (_, history) = program.command_line("tarn paths history");
        assert!(
            history.contains("wan1 cannot send: gone, down, without a carrier"),
            "{history}"
        );
        // Whoever sets a device down loses its addresses of IPv6.
        far.ip("link set wan1 up").unwrap();
        far.ip("-6 address replace fd01::1/64 dev wan1 nodad").unwrap();
    }
    await_used(&program, "wan1");
    for target in TARGETS {
        let exchanges = scene.requests(target, 100, || {});
        assert_eq!((scene.way(target).as_str(), exchanges.answered_count()), ("wan1", 100));
    }
    program.run("down");
    assert_eq!(scene.dump(), before);
}

#[test]
#[ignore = "needs the lab"]
fn lab_paths_go_on_without_the_agent_and_the_next_one_goes_on_from_there() {
    let scene = Scene::new([40, 20]);
    let before = scene.dump();
    let program = scene.up();
    await_used(&program, "wan2");
    program.kill_agent();
    let exchanges = scene.requests("10.9.9.9", 100, || program.run("up"));
    assert_eq!(exchanges.answered_count(), 100);
    assert_eq!(scene.way("10.9.9.9"), "wan2", "the next agent has not begun anew");
    program.kill_agent();
    scene.host().ip("link set wan2 down").unwrap();
    assert_eq!(scene.way("10.9.9.9"), "wan1", "without an agent, too");
    scene.host().ip("link set wan2 up").unwrap();
    scene.host().ip("-6 address replace fd02::2/64 dev wan2 nodad").unwrap();
    program.run("down");
    assert_eq!(scene.dump().get("-j nexthop"), before.get("-j nexthop"));
    assert_eq!(scene.dump().get("rp_filter"), before.get("rp_filter"));
}

/// A lease that ends, and another one in the same network: what has the old address for its source reaches nobody.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_go_on_from_another_address() {
    let scene = Scene::new([10, 30]);
    let program = scene.up();
    await_used(&program, "wan1");
    let change = |family: &str, old: &str, new: &str| {
        scene
            .host()
            .ip(&format!("{family} address del {old} dev wan1"))
            .unwrap();
        std::thread::sleep(Duration::from_secs(3));
        scene
            .host()
            .ip(&format!("{family} address add {new} dev wan1"))
            .unwrap();
    };
    change("-4", "10.1.0.2/24", "10.1.0.77/24");
    change("-6", "fd01::2/64", "fd01::77/64 nodad");
    await_used(&program, "wan1");
    for (to, target) in ["default", "::/0"].into_iter().zip(TARGETS) {
        let exchanges = scene.requests(target, 100, || {});
        assert_eq!(exchanges.answered_count(), 100, "{target}");
        assert_eq!(scene.way(target), "wan1");
        let row = uplink(&program, to, "wan1");
        assert!((10.0..11.0).contains(&row["rtt"].as_f64().unwrap()), "{row}");
    }
    program.run("down");
    assert!(!scene.host().ip("nexthop").unwrap().contains("proto 116"));
}

/// A modem that is unplugged and plugged in again, a tunnel that is set up anew: another device has the name.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_use_a_device_that_was_made_anew() {
    let scene = Scene::new([10, 30]);
    let before = scene.dump();
    let program = scene.up();
    await_used(&program, "wan1");
    let index = || scene.host().enter(links::carrying).unwrap()["wan1"];
    let first = index();
    let exchanges = scene.requests(TARGETS[0], 300, || {
        std::thread::sleep(Duration::from_millis(500));
        scene.host().ip("link del wan1").unwrap();
    });
    let lost = exchanges.sent_count() - exchanges.answered_count();
    assert!(
        lost <= 2,
        "{lost} requests lost: the kernel itself takes the other uplink"
    );
    await_state(&program, "default", "wan1", "gone");
    make(&scene);
    await_used(&program, "wan1");
    assert_ne!(index(), first);
    for target in TARGETS {
        let exchanges = scene.requests(target, 100, || {});
        assert_eq!((scene.way(target).as_str(), exchanges.answered_count()), ("wan1", 100));
    }
    program.run("down");
    assert_eq!(scene.dump().get("-j rule"), before.get("-j rule"));
    assert_eq!(scene.dump().get("-j nexthop"), before.get("-j nexthop"));
}

/// Makes the first uplink's devices, as they were.
fn make(scene: &Scene) {
    let (process, far) = (std::process::id(), scene.node("far").as_fd().as_raw_fd());
    let make = format!("link add wan1 type veth peer wan1 netns /proc/{process}/fd/{far}");
    scene.host().ip(&make).unwrap();
    for (node, number) in [("host", 2), ("far", 1)] {
        let commands = [
            format!("address add 10.1.0.{number}/24 dev wan1"),
            format!("address add fd01::{number}/64 dev wan1 nodad"),
            "link set wan1 up".to_owned(),
        ];
        scene.node(node).ip_batch(&commands).unwrap();
    }
    let far = scene.node("far");
    far.tc("qdisc add dev wan1 root handle 1: netem delay 10ms").unwrap();
}
