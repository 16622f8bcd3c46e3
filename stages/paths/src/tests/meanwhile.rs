//! Routes that were taken over, and what happens to them while no agent lives, or between one file and the next.

use super::adopt::{ROUTES, add, carriers, ipv4};
use super::scene::{BOTH, Scene, await_state};
use tarn_frame::testing::wait_until;

/// What the kernel took is taken over again, where there is no other route in its place; that one is somebody's wish.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_take_what_the_kernel_took_only_where_nothing_stands() {
    let scene = Scene::new([0, 0]);
    let host = scene.host();
    add(&scene, &ROUTES[..1]);
    let original = host.ip("route show default").unwrap();
    let program = scene.up_with(ipv4());
    program.kill_agent();
    carriers(&scene, "down");
    wait_until("the kernel has noticed", || {
        !host.ip("nexthop").unwrap().contains("proto 116")
    });
    carriers(&scene, "up");
    host.ip("route add default via 10.1.0.1 dev wan1 metric 20").unwrap();
    let with_single = host.ip("route show default").unwrap();
    let text = program.complaint("up");
    assert!(text.contains("there is no multipath route to default"), "{text}");
    assert_eq!(host.ip("route show default").unwrap(), with_single);
    host.ip("route del default metric 20").unwrap();
    let other = "default via 10.1.0.1 dev wan1 metric 50";
    host.ip(&format!("route add {other}")).unwrap();
    program.run("up");
    await_state(&program, "default", "wan1", "used");
    program.run("down");
    let shown = host.ip("route show default").unwrap();
    assert!(shown.starts_with(&original) && shown.contains(other), "{shown}");
}

/// Who has removed the route while no agent lived finds it neither with the next `tarn up` nor with `tarn down`.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_do_not_take_what_somebody_has_removed() {
    let scene = Scene::new([0, 0]);
    add(&scene, &ROUTES[..1]);
    let program = scene.up_with(ipv4());
    program.kill_agent();
    scene.host().ip("route del default metric 20").unwrap();
    let text = program.complaint("up");
    assert!(text.contains("there is no multipath route to default"), "{text}");
    program.run("down");
    assert_eq!(scene.host().ip("route show default").unwrap(), "");
}

/// A route that cannot be given back now must not keep the groups that the file still names from coming up, and comes back later.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_come_up_beside_what_cannot_be_given_back_yet() {
    let scene = Scene::new([0, 0]);
    let host = scene.host();
    let whole = "route add default proto 77 metric 20 nexthop via 10.1.0.1 dev wan1 nexthop via 10.2.0.1 dev wan2";
    add(&scene, &[whole]);
    let shown = || host.ip("route show default").unwrap();
    let before = shown();
    let ipv6 = BOTH
        .split_once("[[paths.group]]\npin = false\nto = \"::/0\"")
        .unwrap()
        .1;
    let ipv6 = format!("[[paths.group]]\nto = \"::/0\"{ipv6}");
    for last in ["up", "down"] {
        let program = scene.up_with(&format!("{}{ipv6}", ipv4()));
        let leases = |verb: &str| {
            for number in [1, 2] {
                host.ip(&format!("address {verb} 10.{number}.0.2/24 dev wan{number}"))
                    .unwrap();
            }
        };
        leases("del");
        program.configure(&ipv6);
        program.run("up");
        await_state(&program, "::/0", "wan1", "used");
        assert!(
            shown().contains("proto 116"),
            "what was sent by it still is: {}",
            shown()
        );
        leases("add");
        program.run(last);
        assert_eq!(shown(), before);
        program.run("down");
        assert!(!host.ip("nexthop").unwrap().contains("proto 116"));
    }
}
