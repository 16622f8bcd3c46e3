//! Clients that come through a tunnel, whose packets have no Ethernet header.

use super::Way;
use super::scene::{Scene, at, both, can_add, named};

/// Clients behind a tunnel over IPv6 that carries both families:
///
/// ```text
///   client                                   host (rules)          server
///   10.7.0.1, fd07::1 ════ tunnel ════ 10.7.0.2, fd07::2
///             fd64::1 ──────────────── fd64::2   10.0.1.1 ──── 10.0.1.2
/// ```
///
/// The tunnel comes up when the rules are carried out already: an agent finds it later.
pub fn lab_through_a_tunnel_are_answered(way: Way) {
    if !can_add("name tunnel type ip6tnl mode any local ::1 remote ::2") {
        println!("SKIP: this kernel has no IPv6 tunnels (module ip6_tunnel)");
        return;
    }
    let scene = Scene::new(way);
    let pairs = [
        (at("10.7.0.2", 8080), at("10.0.1.2", 8083)),
        (at("fd07::2", 8080), at("fd01::2", 8083)),
    ];
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    let rules = both(&pairs);
    scene.up_before(&rules, || {
        add_tunnel(&scene, "client", ["fd64::1", "fd64::2"], ["10.7.0.1/24", "fd07::1/64"]);
        add_tunnel(&scene, "host", ["fd64::2", "fd64::1"], ["10.7.0.2/24", "fd07::2/64"]);
    });
    for (client, (asked, target)) in ["10.7.0.1", "fd07::1"].into_iter().zip(pairs) {
        // The first packet is decided about, the second finds that.
        for _ in 0..2 {
            scene.expect(client, asked, &named("server", target));
        }
    }
}

/// Adds an end of the tunnel, with addresses of its own.
fn add_tunnel(scene: &Scene, node: &str, [local, remote]: [&str; 2], addresses: [&str; 2]) {
    let ip = |arguments: &str| scene.namespace(node).ip(arguments).unwrap();
    ip(&format!(
        "link add tunnel type ip6tnl mode any local {local} remote {remote}"
    ));
    for address in addresses {
        ip(&format!("address add {address} dev tunnel nodad"));
    }
    ip("link set tunnel up");
}
