//! Gateways that DHCP clients and router advertisements find out.

use std::time::Duration;

use super::pins::connection;
use super::scene::{BOTH, Scene, TARGETS, await_state};
use tarn_frame::testing::wait_until;
use tarn_kernel::conntrack;
use tarn_lab::testing::Program;

/// What DHCP clients set by two leases, and routers by their advertisements.
const LEASES: [&str; 4] = [
    "route add default via 10.1.0.1 dev wan1 proto dhcp metric 100",
    "route add default via 10.2.0.1 dev wan2 proto dhcp metric 200",
    "-6 route add default via fd01::1 dev wan1 proto ra metric 1024",
    "-6 route add default via fd02::1 dev wan2 proto ra metric 1025",
];

fn automatic() -> String {
    ["10.1.0.1", "10.2.0.1", "fd01::1", "fd02::1"]
        .into_iter()
        .fold(BOTH.replace("pin = false", "pin = true"), |text, gateway| {
            text.replace(gateway, "auto")
        })
}

fn scene() -> Scene {
    leased(Scene::new([0, 0]))
}

fn leased(scene: Scene) -> Scene {
    LEASES.iter().for_each(|lease| drop(scene.host().ip(lease).unwrap()));
    scene
}

/// The gateways of tarn's own nexthops.
fn gateways(scene: &Scene) -> String {
    scene.host().ip("nexthop").unwrap()
}

#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_follow_gateways_that_dhcp_changes() {
    let scene = scene();
    let program = scene.up_with(&automatic());
    await_state(&program, "default", "wan2", "standby");
    for target in TARGETS {
        assert_eq!(scene.way(target), "wan1");
    }
    let (host, far) = (scene.host(), scene.node("far"));
    far.run("sysctl", &["-w", "net.ipv4.conf.all.promote_secondaries=1"])
        .unwrap();
    let exchanges = scene.requests(TARGETS[0], 400, || {
        far.ip("address add 10.1.0.77/24 dev wan1").unwrap();
        host.ip("route replace default via 10.1.0.77 dev wan1 proto dhcp metric 100")
            .unwrap();
        wait_until("the new gateway is known", || {
            gateways(&scene).contains("via 10.1.0.77")
        });
        far.ip("address del 10.1.0.1/24 dev wan1").unwrap();
    });
    assert_eq!(
        exchanges.answered_count(),
        400,
        "nothing is lost when the gateway changes"
    );
    let table = host.run("nft", &["list", "table", "inet", "tarn_paths"]).unwrap();
    assert!(table.contains("10.1.0.77") && !table.contains("10.1.0.1 "), "{table}");
    await_state(&program, "default", "wan1", "used");
    // A client that sets its route anew is no reason to leave the uplink.
    let history = || program.command_line("tarn paths history").1;
    let before = history();
    host.ip("route del default dev wan1 metric 100").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    host.ip("route add default via 10.1.0.77 dev wan1 proto dhcp metric 100")
        .unwrap();
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(history(), before);
    // The lease ends, and another one comes.
    host.ip("route del default dev wan1 metric 100").unwrap();
    await_state(&program, "default", "wan1", "gone");
    assert_eq!(scene.way(TARGETS[0]), "wan2");
    host.ip("route add default via 10.1.0.77 dev wan1 proto dhcp metric 100")
        .unwrap();
    await_state(&program, "default", "wan1", "standby");
    program.run("down");
    assert_eq!(gateways(&scene), "");
    let left = host.ip("route show default").unwrap();
    assert!(left.contains("via 10.1.0.77 dev wan1 proto dhcp metric 100"), "{left}");
}

/// A gateway still answers when the provider behind it is dead, so traffic would stay on the dead uplink.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_refuse_targets_that_turn_out_to_be_gateways() {
    let scene = scene();
    let before = scene.dump();
    let wrong = automatic().replace("targets = [\"fd09::9\"]", "targets = [\"fd02::1\"]");
    let program = Program::new(scene.host(), &wrong);
    let complaint = program.complaint("up");
    let told = "the target fd02::1 is the gateway of wan2";
    assert!(complaint.contains(told) && !program.state().exists(), "{complaint}");
    assert_eq!(scene.dump(), before);
    // Found out later, it is said, and the uplink stays in use.
    LEASES[2..]
        .iter()
        .for_each(|lease| drop(scene.host().ip(&lease.replace(" add ", " del ")).unwrap()));
    program.run("up");
    LEASES[2..]
        .iter()
        .for_each(|lease| drop(scene.host().ip(lease).unwrap()));
    await_state(&program, "::/0", "wan2", "standby");
    let log = std::fs::read_to_string(program.state().path().join("log")).unwrap();
    assert_eq!(log.matches(told).count(), 1, "{log}");
    program.run("down");
}

/// A host that boots has no leases yet.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_wait_for_gateways_and_leave_the_leases_routes_alone() {
    let scene = Scene::new([0, 0]);
    let program = Program::new(scene.host(), &automatic());
    program.run("up");
    await_state(&program, "default", "wan1", "gone");
    assert!(!scene.host().ip("route").unwrap().contains("default"));
    LEASES.iter().for_each(|lease| drop(scene.host().ip(lease).unwrap()));
    await_state(&program, "::/0", "wan2", "standby");
    for target in TARGETS {
        assert_eq!(scene.way(target), "wan1");
    }
    program.run("down");
    let left = scene.host().ip("route show default").unwrap();
    assert!(left.contains("via 10.1.0.1 dev wan1 proto dhcp metric 100"), "{left}");
}

/// What leaves by another router than the uplink's is none of tarn's: with a mark, it would go by the uplink's from the next `tarn
/// up` on, and be lost.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_leave_connections_by_another_router_alone_at_every_up() {
    let scene = leased(Scene::router([0, 0]));
    scene.node("far").ip("address add 10.1.0.77/24 dev wan1").unwrap();
    let way = "route add 10.9.9.0/24 via 10.1.0.77 dev wan1";
    scene.host().ip(way).unwrap();
    let program = scene.up_with(&automatic());
    let marks = || {
        let mut marks = Vec::new();
        let look = || {
            conntrack::remark(u32::MAX, |mark, original, _| {
                if original.source.to_string() == "10.3.0.1" {
                    marks.push(mark);
                }
                mark
            })
        };
        scene.host().enter(look).unwrap();
        marks
    };
    let exchanges = connection(&scene, TARGETS[0], 300, || {
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(marks(), [0], "it has not left by the uplink's gateway");
        program.run("up");
        assert_eq!(marks(), [0]);
    });
    assert_eq!(exchanges.answered_count(), 300);
    program.run("down");
}

/// OpenWrt's default routes over IPv6 are for the addresses of their uplink only.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_take_gateways_from_default_routes_for_source_addresses() {
    let scene = Scene::new([0, 0]);
    let host = scene.host();
    for lease in [
        LEASES[0],
        LEASES[1],
        "-6 route add default from fd01::/64 via fd01::1 dev wan1 proto static metric 512",
        "-6 route add default from fd02::/64 via fd02::1 dev wan2 proto static metric 512",
    ] {
        host.ip(lease).unwrap();
    }
    let before = scene.dump();
    let program = scene.up_with(&automatic());
    await_state(&program, "::/0", "wan2", "standby");
    assert_eq!(scene.way(TARGETS[1]), "wan1");
    let ways = gateways(&scene);
    assert!(ways.contains("via fd01::1") && ways.contains("via fd02::1"), "{ways}");
    // What docs/paths.md says of them.
    let way = host.ip(&format!("route get {} from fd02::2", TARGETS[1])).unwrap();
    assert!(way.contains("dev wan2"), "{way}");
    // Where there is a plain one, it counts.
    host.ip("-6 route add default via fd01::77 dev wan1 proto ra metric 1024")
        .unwrap();
    wait_until("the plain route's gateway is known", || {
        gateways(&scene).contains("via fd01::77")
    });
    host.ip("-6 route del default via fd01::77 dev wan1 metric 1024")
        .unwrap();
    program.run("down");
    assert_eq!(scene.dump(), before);
}
