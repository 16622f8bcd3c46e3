//! Requests and answers: who is reached, and whom the client sees answering.

use super::scene::{BRIDGE, FAMILIES, Scene, at, both, bridged, end, in_a_vrf, named, near};
use super::way::Way;
use tarn_lab::topology::{Node, Topology};

/// A client would throw away an answer from an address that it did not speak to.
pub fn lab_are_answered_from_the_address_asked(way: Way) {
    for offload in [true, false] {
        let scene = Scene::of(way, &near(way, offload));
        expect_answers(&scene);
    }
}

/// Brings rules up, and has clients of both families ask.
fn expect_answers(scene: &Scene) {
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up(&both(&pairs));
    for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
        // The first packet decides, those after it use what was decided.
        for _ in 0..3 {
            scene.expect(family.client, asked, &named("server", target));
        }
    }
}

/// The clients of a home router or of containers are behind a bridge, of which each port is a device of its own: what is redirected
/// is seen once all the same. Also when the bridge is made while the rules are in force.
pub fn lab_from_behind_a_bridge_are_answered(way: Way) {
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    for is_there in [true, false] {
        let topology = if is_there { bridged(way) } else { near(way, false) };
        let scene = Scene::of(way, &topology);
        pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
        scene.up_before(&both(&pairs), || {
            if !is_there {
                let host = scene.namespace("host");
                host.ip("address flush dev left").unwrap();
                BRIDGE.iter().for_each(|command| drop(host.ip(command).unwrap()));
            }
        });
        for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
            for _ in 0..3 {
                scene.expect(family.client, asked, &named("server", target));
            }
        }
    }
}

/// An operator's customers have a VRF each: routes are the VRF's, also where the clients' device is a bridge, which is a master and has one.
pub fn lab_in_a_vrf_are_answered(way: Way) {
    for device in ["left", "bridge"] {
        expect_answers(&Scene::of(way, &in_a_vrf(way, device)));
    }
}

/// Containers of one bridge speak to each other by the host's address: the server's answer goes from port to port, and meets nothing of
/// the host but the port that it leaves by. Connection tracking does not see it, so that nftables cannot do this.
pub fn lab_between_ports_of_a_bridge_are_answered(way: Way) {
    if way == Way::Nftables {
        return;
    }
    let end = |node, interface| end(way, false, node, interface);
    let commands = [
        "link add bridge type bridge",
        "link set left master bridge",
        "link set right master bridge",
        "address add 192.168.64.2/24 dev bridge",
        "address add fd64::2/64 dev bridge nodad",
        "link set bridge up",
    ];
    let host = commands
        .iter()
        .fold(Node::new("host").forwarding(), |host, command| host.ip(command));
    let topology = Topology::new()
        .node(Node::new("client"))
        .node(host)
        .node(Node::new("server"))
        .link(
            end("client", "eth0").address("192.168.64.1/24").address("fd64::1/64"),
            end("host", "left"),
        )
        .link(
            end("host", "right"),
            end("server", "eth0").address("192.168.64.3/24").address("fd64::3/64"),
        );
    let scene = Scene::of(way, &topology);
    let pairs = [("192.168.64.2", "192.168.64.3"), ("fd64::2", "fd64::3")];
    let pairs = pairs.map(|(host, server)| (at(host, 8080), at(server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up(&both(&pairs));
    for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
        for _ in 0..3 {
            scene.expect(family.client, asked, &named("server", target));
        }
    }
}
