//! The next hop's hardware address.

use std::time::{Duration, Instant};

use super::scene::{FAMILIES, Scene, V4, V6, WHO, ask, at, both, end, named};
use super::way::Way;
use tarn_lab::topology::{Node, Topology};

/// How soon the kernel begins to doubt an address that nobody confirms, and asks for it again.
const DOUBT: [(&str, &str); 2] = [("base_reachable_time_ms", "1000"), ("delay_first_probe_time", "1")];
/// By then it has given up the old address and found the new one: a second each for doubt, delay, and three questions.
const FOUND: Duration = Duration::from_secs(15);

/// Client, host and server, which the host reaches by a link that others could be on, too (a bridge).
fn bridged(way: Way) -> Topology {
    let end = |node, interface| end(way, false, node, interface);
    let host = ["10.0.1.1/24", "fd01::1/64 nodad"].iter().fold(
        Node::new("host")
            .forwarding()
            .ip("link add bridge type bridge")
            .ip("link set below master bridge")
            .ip("link set bridge up"),
        |node, address| node.ip(&format!("address add dev bridge {address}")),
    );
    Topology::new()
        .node(Node::new("client").route("default", V4.host).route("default", V6.host))
        .node(host)
        .node(
            Node::new("server")
                .route("default", V4.host_inside)
                .route("default", V6.host_inside),
        )
        .link(
            end("client", "eth0").address("192.168.64.1/24").address("fd64::1/64"),
            end("host", "left").address("192.168.64.2/24").address("fd64::2/64"),
        )
        .link(
            end("host", "below"),
            end("server", "eth0").address("10.0.1.2/24").address("fd01::2/64"),
        )
}

/// Another machine takes the server's address over, or its network card is replaced: nobody tells, so the host has to
/// find out, also about flows that its own network stack never sees.
pub fn lab_find_a_server_whose_hardware_address_changed(way: Way) {
    let scene = Scene::of(way, &bridged(way));
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.within("host", || {
        for (setting, value) in DOUBT {
            for family in ["ipv4", "ipv6"] {
                std::fs::write(format!("/proc/sys/net/{family}/neigh/bridge/{setting}"), value).unwrap();
            }
        }
    });
    scene.up(&both(&pairs));
    let sockets = FAMILIES.map(|family| scene.udp("client", at(family.client, 0)));
    for (socket, (asked, target)) in sockets.iter().zip(pairs) {
        let answer = ask(socket, asked, WHO).unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), named("server", target));
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    }
    let server = scene.namespace("server");
    server.ip("link set eth0 address 02:00:00:00:77:77").unwrap();
    for (socket, (asked, _)) in sockets.iter().zip(pairs) {
        let since = Instant::now();
        while ask(socket, asked, WHO).is_err() {
            assert!(
                since.elapsed() < FOUND,
                "no answer from {asked} for {:?}",
                since.elapsed()
            );
        }
    }
}
