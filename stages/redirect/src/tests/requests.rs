//! Requests and answers: who is reached, and whom the client sees answering.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::scene::{
    BRIDGE, FAMILIES, PATIENCE, Scene, V4, V6, at, bond, bonded, both, bridged, end, in_a_vrf, named, near,
};
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
    expect_answers_after(scene, || ());
}

/// The same of a host whose devices come and go while the rules are in force.
fn expect_answers_after(scene: &Scene, devices: impl FnOnce()) {
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up_before(&both(&pairs), devices);
    for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
        // The first packet decides, those after it use what was decided.
        for _ in 0..3 {
            scene.expect(family.client, asked, &named("server", target));
        }
    }
}

/// Does these to the devices of a node.
fn change<C: AsRef<str>>(scene: &Scene, node: &str, commands: &[C]) {
    for command in commands {
        scene.namespace(node).ip(command.as_ref()).unwrap();
    }
}

/// The clients of a home router or of containers are behind a bridge, of which each port is a device of its own: what is redirected
/// is seen once all the same. Also when the bridge is made while the rules are in force.
pub fn lab_from_behind_a_bridge_are_answered(way: Way) {
    expect_answers(&Scene::of(way, &bridged(way)));
    let scene = Scene::of(way, &near(way, false));
    expect_answers_after(&scene, || {
        change(&scene, "host", &["address flush dev left"]);
        change(&scene, "host", &BRIDGE);
    });
}

/// A server's cables are one bond, with a bridge or VLANs on it: what is redirected is seen once, by the bond or what is on it, and
/// not by its ports. Also when the bond is made while the rules are in force.
pub fn lab_by_a_bond_are_answered(way: Way) {
    for (mode, above) in [
        ("active-backup", "nothing"),
        ("balance-xor", "nothing"),
        ("balance-rr", "bridge"),
        ("active-backup", "vlan"),
    ] {
        println!("{mode}, {above} above");
        let tag_client = |scene: &Scene| {
            if above == "vlan" {
                change(scene, "client", &TAGGED);
            }
        };
        let scene = Scene::of(way, &bonded(way, mode, above));
        tag_client(&scene);
        expect_answers(&scene);
        let scene = Scene::of(way, &near(way, false));
        tag_client(&scene);
        expect_answers_after(&scene, || {
            change(&scene, "host", &["address flush dev left"]);
            change(&scene, "host", &bond(mode, above));
        });
    }
}

/// What puts a client into a VLAN.
const TAGGED: [&str; 9] = [
    "address flush dev eth0",
    "link add link eth0 name vlan type vlan id 7",
    "link set vlan up",
    "address add 192.168.64.1/24 dev vlan",
    "address add 192.168.64.130/24 dev vlan",
    "address add fd64::1/64 dev vlan nodad",
    "route add default via 192.168.64.2",
    "-6 route del default dev eth0",
    "route add default via fd64::2",
];

/// One of a bond's cables is pulled: who asks is answered by the other one, and connections go on.
pub fn lab_go_on_by_the_other_port_of_a_bond(way: Way) {
    let end = |node, interface| end(way, false, node, interface);
    let bond = |node: Node, ports: [&str; 2], addresses: [&str; 2]| {
        let node = node.ip("link add bond type bond mode active-backup miimon 20");
        let node = ports.iter().fold(node, |node, port| {
            node.ip(&format!("link set {port} down"))
                .ip(&format!("link set {port} master bond"))
        });
        // Both ends prefer the same cable: each drops what comes by the one that it does not use.
        let node = node.ip(&format!("link set bond type bond primary {}", ports[0]));
        let node = node.ip("link set bond up");
        addresses.iter().fold(node, |node, address| {
            node.ip(&format!("address add {address} dev bond nodad"))
        })
    };
    let client = bond(Node::new("client"), ["eth0", "eth1"], ["192.168.64.1/24", "fd64::1/64"]);
    let host = Node::new("host").forwarding();
    let host = bond(host, ["left", "other"], ["192.168.64.2/24", "fd64::2/64"]);
    let inside = ["10.0.1.1/24", "fd01::1/64"];
    let server = Node::new("server").route("default", V4.host_inside);
    let topology = Topology::new()
        .node(client)
        .node(host)
        .node(server.route("default", V6.host_inside))
        .link(end("client", "eth0"), end("host", "left"))
        .link(end("client", "eth1"), end("host", "other"))
        .link(
            end("host", "right").address(inside[0]).address(inside[1]),
            end("server", "eth0").address("10.0.1.2/24").address("fd01::2/64"),
        );
    let scene = Scene::of(way, &topology);
    expect_answers(&scene);
    let asking = FAMILIES.map(|family| {
        let connected = scene.within("client", || TcpStream::connect(at(family.host, 8080)).unwrap());
        connected.set_read_timeout(Some(PATIENCE)).unwrap();
        connected
    });
    let echo = |mut stream: &TcpStream| {
        let mut answer = [0; 5];
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello");
    };
    asking.iter().for_each(echo);
    for (pulled, plugged) in [("left", "other"), ("other", "left")] {
        change(
            &scene,
            "host",
            &[format!("link set {plugged} up"), format!("link set {pulled} down")],
        );
        asking.iter().for_each(echo);
        for family in FAMILIES {
            let target = at(family.server, 8083);
            scene.expect(family.client, at(family.host, 8080), &named("server", target));
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
