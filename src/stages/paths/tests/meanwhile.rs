//! Routes that were taken over, and what happens to them while no agent lives, or between one file and the next.

use super::adopt::{ROUTES, add, carriers, ipv4};
use super::scene::{Scene, await_state};
use crate::testing::wait_until;

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
