//! Devices that go and come back, and agents that die.

use super::scene::{Scene, TARGETS, await_state, await_used};

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
