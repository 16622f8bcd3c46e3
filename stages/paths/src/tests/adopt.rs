//! Multipath routes that somebody has made are taken over, and given back as they were.

use std::time::Duration;

use serde_json::Value;

use super::scene::{Scene, TARGETS, await_left_alone, await_state, await_used};
use crate::config::FILE;
use tarn_frame::testing::wait_until;
use tarn_lab::testing::Program;

/// `tarn.toml` that takes a default route over, of IPv4 and of IPv6.
pub const ADOPTED: &str = r#"
[paths]
stay = "2s"
hold = "1s"
back_after = "1s"

[[paths.group]]
to = "default"
adopt = true
targets = ["10.9.9.9"]

[[paths.group]]
to = "::/0"
adopt = true
targets = ["fd09::9"]
"#;

/// The group of IPv4 alone.
pub fn ipv4() -> &'static str {
    ADOPTED.split("[[paths.group]]\nto = \"::/0\"").next().unwrap()
}

/// Routes with everything that such routes may have.
pub const ROUTES: [&str; 2] = [
    "route add default proto 77 metric 20 src 10.2.0.2 mtu lock 1400 nexthop via 10.1.0.1 dev wan1 weight 3 nexthop via 10.2.0.77 dev wan2 weight 2 onlink",
    "-6 route add default proto 78 metric 30 mtu 1380 pref high nexthop via fd01::1 dev wan1 weight 2 nexthop via fd02::1 dev wan2",
];

/// Makes routes that lead by several ways.
pub fn add(scene: &Scene, routes: &[&str]) {
    // The second gateway of IPv4 is in no network of the host's.
    scene.node("far").ip("address replace 10.2.0.77/32 dev wan2").unwrap();
    for route in routes {
        scene.host().ip(route).unwrap();
    }
}

/// Leaves what a `tarn down` leaves that is killed while it tries which ways the kernel takes. Returns the table.
fn leave_tried(scene: &Scene, family: &str, properties: &str, way: &str) -> String {
    let route = scene.host().ip(&format!("{family} -j route show default")).unwrap();
    let route: Value = serde_json::from_str(&route).unwrap();
    let table = route[0]["nhid"].to_string();
    let tried = format!("{family} route add default {properties} table {table} nexthop {way}");
    scene.host().ip(&tried).unwrap();
    table
}

/// A switch that reboots takes every carrier, and with them the kernel takes nexthops, group and route away.
pub fn carriers(scene: &Scene, state: &str) {
    for device in ["wan1", "wan2"] {
        scene.node("far").ip(&format!("link set {device} {state}")).unwrap();
    }
}

#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_take_multipath_routes_over_and_give_them_back_byte_for_byte() {
    let scene = Scene::new([40, 20]);
    add(&scene, &ROUTES);
    let before = scene.dump();
    let program = Program::new(scene.host(), ADOPTED);
    let exchanges = scene.requests(TARGETS[0], 300, || {
        program.run("up");
        program.run("up");
    });
    assert_eq!(
        exchanges.answered_count(),
        300,
        "nothing is lost when the route changes hands"
    );
    let shown = scene.host().ip("route show default").unwrap();
    assert!(shown.contains("proto 116 src 10.2.0.2 metric 20"), "{shown}");
    assert!(shown.contains("mtu lock 1400"), "{shown}");
    await_used(&program, "wan2");
    for target in TARGETS {
        assert_eq!(scene.way(target), "wan2");
    }
    program.kill_agent();
    program.run("up");
    leave_tried(&scene, "", "proto 77 metric 20", "via 10.1.0.1 dev wan1");
    leave_tried(&scene, "-6", "proto 78 metric 30", "via fd01::1 dev wan1");
    let exchanges = scene.requests(TARGETS[0], 300, || program.run("down"));
    assert_eq!(exchanges.answered_count(), 300, "nor when it is given back");
    assert_eq!(scene.dump(), before);
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_paths_take_over_a_route_by_somebody_else_s_nexthop_group() {
    let scene = Scene::new([0, 0]);
    for command in [
        "nexthop add id 1 via 10.1.0.1 dev wan1",
        "nexthop add id 2 via 10.2.0.1 dev wan2",
        "nexthop add id 3 group 1,5/2,2",
        "route add default nhid 3 metric 20",
        "-6 route add default nexthop via fd01::1 dev wan1 nexthop via fd02::1 dev wan2",
        // With a greater metric, it does not matter.
        "route add default metric 50 nexthop via 10.1.0.1 dev wan1 nexthop via 10.2.0.1 dev wan2",
    ] {
        scene.host().ip(command).unwrap();
    }
    let before = scene.dump();
    let program = scene.up_with(ADOPTED);
    await_state(&program, "default", "wan2", "standby");
    assert_eq!(scene.way(TARGETS[0]), "wan1");
    program.run("down");
    assert_eq!(scene.dump(), before);
}

/// Who replaces the route while tarn runs is not overruled, neither now nor by `tarn down`; the next `tarn up` takes the new one.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_leave_a_route_alone_that_an_administrator_has_put_in_the_place_of_the_adopted_one() {
    let scene = Scene::new([0, 0]);
    add(&scene, &ROUTES);
    let program = scene.up_with(ADOPTED);
    let other = "route replace default metric 20 nexthop via 10.2.0.1 dev wan2 nexthop via 10.1.0.1 dev wan1";
    scene.host().ip(other).unwrap();
    await_left_alone(&program);
    let with_other = scene.host().ip("-j route show default").unwrap();
    program.run("down");
    assert_eq!(scene.host().ip("-j route show default").unwrap(), with_other);
    program.run("up");
    scene.host().ip(other).unwrap();
    program.run("up");
    await_state(&program, "default", "wan1", "standby");
    assert!(scene.host().ip("route show default").unwrap().contains("proto 116"));
    program.run("down");
    assert_eq!(scene.host().ip("-j route show default").unwrap(), with_other);
}

/// A switch that reboots must not cost the host its route.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_give_a_route_back_that_went_with_the_carriers() {
    let scene = Scene::new([0, 0]);
    add(&scene, &ROUTES);
    let before = scene.dump();
    let program = scene.up_with(ADOPTED);
    let carriers = |state: &str| carriers(&scene, state);
    program.kill_agent();
    carriers("down");
    wait_until("the kernel has noticed", || {
        ["route", "-6 route"]
            .iter()
            .all(|routes| !scene.host().ip(routes).unwrap().contains("default"))
    });
    carriers("up");
    program.run("up");
    await_state(&program, "default", "wan1", "used");
    program.kill_agent();
    carriers("down");
    wait_until("the kernel has noticed once more", || {
        !scene.host().ip("nexthop").unwrap().contains("proto 116")
    });
    program.run("down");
    carriers("up");
    wait_until("everything is as before", || scene.dump() == before);
}

/// Who dies between the change of the route and the end of `up` leaves the journal only.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_go_on_from_the_journal_alone() {
    let scene = Scene::new([0, 0]);
    add(&scene, &ROUTES);
    let before = scene.dump();
    let program = scene.up_with(ADOPTED);
    for verb in ["up", "down"] {
        program.kill_agent();
        std::fs::remove_file(program.state().path().join(FILE)).unwrap();
        program.run(verb);
    }
    assert_eq!(scene.dump(), before);
}

/// Who has another route of the same metric must not lose that one in place of ours.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_touch_no_other_route_of_the_same_metric() {
    let scene = Scene::new([0, 0]);
    add(&scene, &ROUTES);
    let (host, program) = (scene.host(), Program::new(scene.host(), ADOPTED));
    let others = [
        "route append default via 10.2.0.1 dev wan2 proto 79 metric 20",
        "-6 route append default via fe80::77 dev wan2 proto 79 metric 30",
    ];
    program.run("up");
    others.iter().for_each(|other| drop(host.ip(other).unwrap()));
    program.run("down");
    let shown = host.ip("route show default").unwrap();
    // The one that was first is.
    let place = |protocol: &str| shown.find(protocol).unwrap();
    assert!(
        place("proto 77") < place("proto 79") && !shown.contains("nhid"),
        "{shown}"
    );
    // As one route, which the kernel makes of them where they meet.
    let shown = host.ip("-6 route show default").unwrap();
    let ways = ["via fd01::1", "via fd02::1", "via fe80::77"];
    assert!(
        ways.iter().all(|way| shown.contains(way)) && !shown.contains("nhid"),
        "{shown}"
    );
    let before = scene.dump();
    let text = program.complaint("up");
    assert!(text.contains("several routes to default have metric 20"), "{text}");
    assert_eq!(scene.dump(), before);
}

/// A lease that has ended must not keep the host from getting the rest of its route back; when nothing can be, it can later.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_give_back_the_ways_whose_gateways_can_be_reached() {
    let scene = Scene::new([0, 0]);
    let host = scene.host();
    let (whole, both) = (
        "route add default proto 77 metric 20 nexthop via 10.1.0.1 dev wan1 nexthop via 10.2.0.1 dev wan2",
        ROUTES[1],
    );
    let lose = |number: u8| {
        host.ip(&format!("address del 10.{number}.0.2/24 dev wan{number}"))
            .unwrap();
        host.ip(&format!("address del fd0{number}::2/64 dev wan{number}"))
            .unwrap();
    };
    let get = |number: u8| {
        host.ip(&format!("address add 10.{number}.0.2/24 dev wan{number}"))
            .unwrap();
        host.ip(&format!("address add fd0{number}::2/64 dev wan{number} nodad"))
            .unwrap();
    };
    let shown = || ["route show default", "-6 route show default"].map(|routes| host.ip(routes).unwrap());
    let program = Program::new(host, ADOPTED);
    add(&scene, &[whole, both]);
    program.run("up");
    lose(1);
    let group = leave_tried(&scene, "", "proto 77 metric 20", "via 10.2.0.1 dev wan2");
    program.run("down");
    assert!(!host.ip("route show table all").unwrap().contains(&group));
    for (shown, (way, protocol)) in shown()
        .iter()
        .zip([("via 10.2.0.1", "proto 77"), ("via fd02::1", "proto 78")])
    {
        assert!(
            shown.contains(way) && shown.contains(protocol) && !shown.contains("wan1"),
            "{shown}"
        );
    }
    get(1);
    host.ip("route del default").unwrap();
    host.ip("-6 route del default").unwrap();
    add(&scene, &[whole, both]);
    let before = shown();
    program.run("up");
    program.kill_agent();
    lose(1);
    lose(2);
    let text = program.complaint("down");
    let what = "route to default that was there before";
    assert!(text.contains("cannot put back") && text.contains(what), "{text}");
    get(1);
    get(2);
    program.run("down");
    assert_eq!(shown(), before);
}

/// What an administrator has removed is not put back because the kernel has removed the rest since.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_do_not_put_back_what_an_administrator_has_removed() {
    let scene = Scene::new([0, 0]);
    add(&scene, &ROUTES[..1]);
    let program = scene.up_with(ipv4());
    scene.host().ip("route del default metric 20").unwrap();
    await_left_alone(&program);
    std::thread::sleep(Duration::from_secs(6));
    program.kill_agent();
    for device in ["wan1", "wan2"] {
        scene.host().ip(&format!("link set {device} down")).unwrap();
        scene.host().ip(&format!("link set {device} up")).unwrap();
    }
    program.run("down");
    assert_eq!(scene.host().ip("route show default").unwrap(), "");
}

/// The routes of two groups must not change places.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_take_two_routes_over_again_and_again() {
    let scene = Scene::new([0, 0]);
    let second = "route add default metric 50 nexthop via 10.1.0.1 dev wan1 nexthop via 10.2.0.1 dev wan2";
    add(&scene, &[ROUTES[0], second]);
    let before = scene.dump();
    let group = "[[paths.group]]\nto = \"default\"\nadopt = true\ntargets = [\"10.9.9.9\"]\n";
    let program = Program::new(scene.host(), &format!("{group}{group}metric = 50\n"));
    for _ in 0..3 {
        program.run("up");
        let shown = scene.host().ip("route show default").unwrap();
        assert!(shown.contains("metric 20") && shown.contains("metric 50"), "{shown}");
    }
    program.run("down");
    assert_eq!(scene.dump(), before);
}

/// A device that has gone must not keep the host from getting its route back.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_give_back_what_can_be_given_back() {
    let scene = Scene::new([0, 0]);
    add(&scene, &ROUTES);
    let program = scene.up_with(ADOPTED);
    scene.host().ip("link del wan1").unwrap();
    program.run("down");
    let shown = scene.host().ip("route show default").unwrap();
    assert!(
        shown.contains("via 10.2.0.77 dev wan2 proto 77 src 10.2.0.2 metric 20 onlink mtu lock 1400"),
        "{shown}"
    );
    let shown = scene.host().ip("-6 route show default").unwrap();
    assert!(shown.contains("via fd02::1 dev wan2 proto 78 metric 30"), "{shown}");
    assert!(!scene.host().ip("nexthop").unwrap().contains("proto 116"));
}

#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_say_why_a_route_cannot_be_taken_over_and_change_nothing() {
    let scene = Scene::new([0, 0]);
    scene.host().ip("route add default via 10.1.0.1 metric 5").unwrap();
    let before = scene.dump();
    let program = Program::new(scene.host(), ipv4());
    let text = program.complaint("up");
    assert!(text.contains("there is no multipath route to default"), "{text}");
    assert_eq!(scene.dump(), before);
    scene.host().ip(ROUTES[0]).unwrap();
    let before = scene.dump();
    program.run("up");
    // Without `adopt`, there would be two of ours in one place.
    let named = "to = \"default\"\nmetric = 20\nuplink = [{ device = \"wan1\" }, { device = \"wan2\" }]";
    program.configure(&ipv4().replace("to = \"default\"\nadopt = true", named));
    let text = program.complaint("up");
    assert!(text.contains("keep adopt = true"), "{text}");
    program.run("down");
    assert_eq!(scene.dump(), before);
}
