//! Packets whose source is forged: what the host's stack would not take is not handed on to the server behind its back.

use std::net::SocketAddr;
use std::time::Duration;

use super::packet::{self, UDP};
use super::scene::{CLIENT_MAC, FAMILIES, HOST_LEFT_MAC, Scene, V4, at, bonded, both, bridged, in_a_vrf, named, near};
use super::way::Way;
use super::wire::{Frame, Wire};
use tarn_lab::topology::Topology;

/// The ends of the link between host and server.
const HOST_RIGHT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// For how long a packet may come that must not.
const A_WHILE: Duration = Duration::from_millis(300);

/// What no client sends from: of nobody, this host's own, and broadcast addresses.
const IMPOSSIBLE: [&str; 7] = [
    "0.0.0.0",
    "127.0.0.1",
    "127.9.9.9",
    "224.0.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "ff02::1",
];
const IMPOSSIBLE6: [&str; 2] = ["::", "::1"];
const OWN: [&str; 2] = ["192.168.64.2", "10.0.1.1"];
const OWN6: [&str; 2] = ["fd64::2", "fd01::1"];
const BROADCAST: [&str; 2] = ["192.168.64.255", "10.0.1.255"];

/// Rules to a server whose hardware address is known, and where packets go straight on.
fn scene(way: Way, strict: &str) -> Scene {
    scene_of(way, &near(way, false), "left", strict)
}

/// The same in another network, with `rp_filter` of one device set.
fn scene_of(way: Way, topology: &Topology, filtering: &str, filter: &str) -> Scene {
    let scene = Scene::of(way, topology);
    for device in ["all", "left", "right"] {
        set_filter(&scene, device, "0");
    }
    set_filter(&scene, filtering, filter);
    let rules: Vec<_> = FAMILIES
        .iter()
        .map(|family| (at(family.host, 8080), at(family.server, 8083)))
        .collect();
    scene.up(&both(&rules));
    for family in &FAMILIES {
        scene.serve("server", at(family.server, 8083));
        scene.expect(
            family.client,
            at(family.host, 8080),
            &named("server", at(family.server, 8083)),
        );
    }
    scene
}

fn set_filter(scene: &Scene, device: &str, value: &str) {
    let parameter = format!("net/ipv4/conf/{device}/rp_filter");
    scene.namespace("host").sysctl(&parameter, value).unwrap();
}

/// Sends datagrams to the redirected address from each of these, and says from which of them the server got one.
fn arrived(wire: &Wire, server: &Wire, to: [u8; 6], from: [u8; 6], sources: &[SocketAddr]) -> Vec<SocketAddr> {
    server.drain(Duration::ZERO);
    for source in sources {
        let asked = FAMILIES.iter().map(|family| at(family.host, 8080));
        let asked = asked.filter(|asked| asked.is_ipv4() == source.is_ipv4());
        for asked in asked {
            let packet = packet::packet(UDP, *source, asked, b"forged");
            wire.send(&packet::frame(to, from, &packet));
        }
    }
    let came = server.drain(A_WHILE);
    let read = came.iter().filter_map(Frame::read);
    let forged = read.filter(|read| read.payload == b"forged");
    forged.map(|read| read.source).collect()
}

fn from_client(scene: &Scene, sources: &[&str]) -> Vec<String> {
    let (client, server) = (scene.wire("client", "eth0"), scene.wire("server", "eth0"));
    let sources: Vec<SocketAddr> = sources.iter().map(|source| at(source, 6000)).collect();
    let came = arrived(&client, &server, HOST_LEFT_MAC, CLIENT_MAC, &sources);
    came.iter().map(|source| source.ip().to_string()).collect()
}

/// Somebody outside forges what a firewall on the server trusts: the host's own addresses, loopback, and such as belong to
/// nobody. None reaches the server, over no carrier; and `tarn status` counts them.
pub fn lab_of_nobody_reach_nobody(way: Way) {
    let scene = scene(way, "0");
    let mut sources = [IMPOSSIBLE.as_slice(), &IMPOSSIBLE6, &OWN].concat();
    let mut refused = IMPOSSIBLE.len() + IMPOSSIBLE6.len();
    if way != Way::Nftables {
        // The stack does not look for these.
        sources.extend(OWN6.iter().chain(&BROADCAST));
        refused += OWN6.len() + BROADCAST.len();
    }
    assert_eq!(from_client(&scene, &sources), Vec::<String>::new());
    assert_eq!(
        from_client(&scene, &[V4.other_client]),
        [V4.other_client],
        "who is no liar"
    );
    if way != Way::Nftables {
        assert_eq!(
            scene.event("request dropped, its source is no client's"),
            refused as u64
        );
        let doubted = scene.event("left to the stack, no way leads back");
        assert_eq!(doubted, OWN.len() as u64);
    }
}

/// An administrator has set `rp_filter`, so that nobody outside can pass for an inside network: redirected addresses are no
/// hole in it.
pub fn lab_from_where_no_answer_goes_are_filtered(way: Way) {
    let (inside, nowhere) = ("10.0.1.77", "203.0.113.9");
    let asked = [V4.other_client, inside, nowhere];
    assert_eq!(from_client(&scene(way, "0"), &asked), asked, "not filtered");
    assert_eq!(from_client(&scene(way, "2"), &asked), asked[..2], "loose");
    assert_eq!(from_client(&scene(way, "1"), &asked), asked[..1], "strict");
}

/// The same on a host whose clients come in by a bridge: the stack uses the bridge's `rp_filter`, not that of its port.
pub fn lab_by_a_bridge_are_filtered_as_it_says(way: Way) {
    let topology = bridged(way);
    let asked = [V4.other_client, "10.0.1.77"];
    let scene = |device| scene_of(way, &topology, device, "1");
    assert_eq!(
        from_client(&scene("left"), &asked),
        asked,
        "the port's filter is not used"
    );
    assert_eq!(from_client(&scene("bridge"), &asked), asked[..1], "the bridge's is");
}

/// The same of a bond: the stack uses the bond's, or that of the bridge on it.
pub fn lab_by_a_bond_are_filtered_as_it_says(way: Way) {
    for (above, filtering, ports) in [
        ("nothing", "bond", &["left"][..]),
        ("bridge", "bridge", &["left", "bond"]),
    ] {
        let topology = bonded(way, "active-backup", above);
        let asked = [V4.other_client, "10.0.1.77"];
        let scene = |device| scene_of(way, &topology, device, "1");
        for port in ports {
            assert_eq!(from_client(&scene(port), &asked), asked, "that of {port} is not used");
        }
        assert_eq!(
            from_client(&scene(filtering), &asked),
            asked[..1],
            "that of {filtering} is"
        );
    }
}

/// The same in a VRF: the stack uses the `rp_filter` of its port.
pub fn lab_in_a_vrf_are_filtered_as_their_link_says(way: Way) {
    let topology = in_a_vrf(way, "left");
    let asked = [V4.other_client, "10.0.1.77", "203.0.113.9"];
    let scene = |device| scene_of(way, &topology, device, "1");
    assert_eq!(
        from_client(&scene("red"), &asked),
        asked,
        "the VRF's filter is not used"
    );
    assert_eq!(from_client(&scene("left"), &asked), asked[..1], "the port's is");
}

/// Where routing rules go by the source, a client's packet is judged by the rules for the server's answer to it, as the
/// stack does: an administrator who has answers leave by another uplink has the filter refuse what came in by this one.
pub fn lab_that_routing_rules_answer_elsewhere_are_filtered(way: Way) {
    let scene = scene(way, "1");
    let host = scene.namespace("host");
    host.ip("rule add from 10.0.1.2 table 100").unwrap();
    host.ip("route add 192.168.64.0/24 dev right table 100").unwrap();
    let asked = [V4.other_client, "10.0.1.77"];
    assert_eq!(from_client(&scene, &asked), Vec::<String>::new());
    host.ip("route replace 192.168.64.0/24 dev left table 100").unwrap();
    host.ip("route add 10.0.1.77 dev left table 100").unwrap();
    assert_eq!(from_client(&scene, &asked), asked);
}

/// The filter is not passed either by who forges the packets of a client that is being answered, from behind another
/// device; and the client does not notice.
pub fn lab_of_somebody_elses_flow_are_filtered(way: Way) {
    let scene = scene(way, "0");
    let right = "net/ipv4/conf/right/rp_filter";
    scene.namespace("host").sysctl(right, "1").unwrap();
    let rules = [(at(V4.host, 8080), at(V4.server, 8083))];
    scene.up(&both(&rules));
    let client = at(V4.client, 6001);
    let (left, behind) = (scene.wire("client", "eth0"), scene.wire("server", "eth0"));
    let send = |wire: &Wire, to, from| arrived(wire, &behind, to, from, &[client]);
    for _ in 0..3 {
        assert_eq!(send(&left, HOST_LEFT_MAC, CLIENT_MAC), [client]);
        assert_eq!(send(&behind, HOST_RIGHT_MAC, SERVER_MAC), []);
    }
}
