//! What stands around and between the headers that rules are about: VLAN tags, IPv4 options, IPv6 extension headers.

use tarn_lab::topology::{End, Node, Topology, Vlan};

use super::packet::{self, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, Ip, TCP, UDP};
use super::scene::{CLIENT_MAC, Family, HOST_LEFT_MAC, Scene, V4, V6, answer, ask, at, both, can_add, end, ip, named};
use super::way::Way;
use super::wire::set_bytes;

/// Room for one address to be recorded (RFC 791, section 3.1), and a filler.
const RECORD_ROUTE: [u8; 8] = [7, 7, 4, 0, 0, 0, 0, 1];
/// The same with the address of the host's way out, 10.0.1.1.
const RECORDED: [u8; 8] = [7, 7, 8, 10, 0, 1, 1, 1];
const NO_OPERATION: [u8; 4] = [1; 4];

/// IPv4 options reach the server, and the host treats them as a router has to.
pub fn lab_with_ipv4_options_arrive(way: Way) {
    let scene = Scene::new(way);
    let (asked, target) = (at(V4.host, 8080), at(V4.server, 8083));
    scene.serve("server", target);
    scene.up(&both(&[(asked, target)]));
    let socket = scene.udp("client", at(V4.client, 0));
    for options in [NO_OPERATION.as_slice(), &RECORD_ROUTE] {
        set_bytes(&socket, libc::IPPROTO_IP, libc::IP_OPTIONS, options).unwrap();
        for _ in 0..3 {
            assert_eq!(ask(&socket, asked, b"options").unwrap(), b"options");
        }
    }
    let (client, server) = (scene.wire("client", "eth0"), scene.wire("server", "eth0"));
    for protocol in [UDP, TCP] {
        for (sent, arriving) in [
            (NO_OPERATION.as_slice(), NO_OPERATION.as_slice()),
            (&RECORD_ROUTE, &RECORDED),
        ] {
            let mut ip = Ip::between(ip(V4.client), asked.ip());
            ip.options = sent.to_vec();
            let segment = packet::segment(protocol, at(V4.client, 6000), asked, b"with options");
            client.send(&packet::frame(
                HOST_LEFT_MAC,
                CLIENT_MAC,
                &ip.packet(protocol, &segment),
            ));
            let (_, read) = server.receive("a packet with options", |read| {
                read.protocol == protocol && read.destination == target && read.payload == b"with options"
            });
            assert_eq!(read.options, arriving);
            assert!(read.header_is_right && read.checksum_is_right, "{read:?}");
        }
    }
}

/// An options header of 8 bytes: one PadN option.
fn padding() -> Vec<u8> {
    vec![1, 4, 0, 0, 0, 0]
}

/// Six bytes of an experimental option that who does not know it skips (RFC 4727). More padding than 7 bytes in a row is
/// thrown away by Linux.
fn experiment() -> Vec<u8> {
    vec![0x1e, 6, 0, 0, 0, 0, 0, 0]
}

/// The fragment header of a packet that is whole (RFC 6946).
fn whole() -> Vec<u8> {
    vec![0, 0, 0x12, 0x34, 0x56, 0x78]
}

/// IPv6 extension headers reach the server; what is behind them is redirected all the same.
pub fn lab_with_ipv6_extension_headers_arrive(way: Way) {
    let scene = Scene::new(way);
    let (asked, target) = (at(V6.host, 8080), at(V6.server, 8083));
    scene.serve("server", target);
    scene.up(&both(&[(asked, target)]));
    let (client, server) = (scene.wire("client", "eth0"), scene.wire("server", "eth0"));
    let chains: [&[(u8, Vec<u8>)]; 5] = [
        &[(HOP_BY_HOP, padding())],
        &[(DESTINATION_OPTIONS, padding())],
        &[
            (HOP_BY_HOP, padding()),
            (DESTINATION_OPTIONS, [padding(), experiment()].concat()),
        ],
        &[(FRAGMENT, whole())],
        &[
            (HOP_BY_HOP, padding()),
            (FRAGMENT, whole()),
            (DESTINATION_OPTIONS, padding()),
        ],
    ];
    let socket = scene.udp("client", at(V6.client, 0));
    let from = socket.local_addr().unwrap();
    for chain in chains {
        for round in 0..2_u8 {
            let mut ip = Ip::between(from.ip(), asked.ip());
            ip.extensions = chain.to_vec();
            let datagram = packet::udp(from, asked, &[round; 20]);
            client.send(&packet::frame(HOST_LEFT_MAC, CLIENT_MAC, &ip.packet(UDP, &datagram)));
            assert_eq!(answer(&socket, asked).unwrap(), [round; 20], "{chain:?}");
        }
        if chain.iter().any(|(kind, _)| *kind == FRAGMENT) {
            continue; // may arrive without the header: it was whole
        }
        let mut ip = Ip::between(from.ip(), asked.ip());
        ip.extensions = chain.to_vec();
        let syn = packet::tcp_syn(at(V6.client, 6000), asked, b"extended");
        client.send(&packet::frame(HOST_LEFT_MAC, CLIENT_MAC, &ip.packet(TCP, &syn)));
        let (_, read) = server.receive("a segment with extension headers", |read| read.payload == b"extended");
        assert_eq!((read.destination, read.checksum_is_right), (target, true));
        assert!(!read.options.is_empty(), "{read:?}");
    }
}

/// How many tags, and the networks beyond them: client, host; host, server.
const TAGS: [[Family; 2]; 3] = [
    [V4, V6],
    [
        Family {
            client: "192.168.70.1",
            host: "192.168.70.2",
            host_inside: "10.0.70.1",
            server: "10.0.70.2",
            ..V4
        },
        Family {
            client: "fd70::1",
            host: "fd70::2",
            host_inside: "fd71::1",
            server: "fd71::2",
            ..V6
        },
    ],
    [
        Family {
            client: "192.168.80.1",
            host: "192.168.80.2",
            host_inside: "10.0.80.1",
            server: "10.0.80.2",
            ..V4
        },
        Family {
            client: "fd80::1",
            host: "fd80::2",
            host_inside: "fd81::1",
            server: "fd81::2",
            ..V6
        },
    ],
];

/// ```text
///   client ── eth0.10 ── left.10  host  right.10 ── eth0.10 ── server
///          ── eth0.10.20 ── left.10.20  right.10.20 ── eth0.10.20 ──
/// ```
fn tagged(way: Way) -> Topology {
    let tag = |end: End, address: fn(&Family) -> &'static str| {
        let with = |mut vlan: Vlan, families: &[Family; 2]| {
            for (family, length) in families.iter().zip([24, 64]) {
                vlan = vlan.address(&format!("{}/{length}", address(family)));
            }
            vlan
        };
        let end = end
            .address(&format!("{}/24", address(&V4)))
            .address(&format!("{}/64", address(&V6)));
        end.vlan(with(Vlan::new(10), &TAGS[1]))
            .vlan(with(Vlan::new(20).inside(10), &TAGS[2]))
    };
    let mut server = Node::new("server")
        .route("default", V4.host_inside)
        .route("default", V6.host_inside);
    for [v4, v6] in &TAGS[1..] {
        server = server
            .route(&network(v4.client, 24), v4.host_inside)
            .route(&network(v6.client, 64), v6.host_inside);
    }
    Topology::new()
        .node(Node::new("client"))
        .node(Node::new("host").forwarding())
        .node(server)
        .link(
            tag(end(way, false, "client", "eth0"), |family| family.client),
            tag(end(way, false, "host", "left"), |family| family.host),
        )
        .link(
            tag(end(way, false, "host", "right"), |family| family.host_inside),
            tag(end(way, false, "server", "eth0"), |family| family.server),
        )
}

/// The prefix around an address that ends in 1.
fn network(address: &str, length: u8) -> String {
    let start = address.trim_end_matches('1');
    format!("{start}{}/{length}", if length == 24 { "0" } else { "" })
}

/// Clients and servers behind none, one or two VLAN tags reach one another.
pub fn lab_with_vlan_tags_arrive(way: Way) {
    if !can_add("link lo name lo.1 type vlan id 1") {
        println!("SKIP: this kernel has no VLAN devices (module 8021q)");
        return;
    }
    let scene = Scene::of(way, &tagged(way));
    let mut rules = Vec::new();
    let mut cases = Vec::new();
    for (outside, from) in TAGS.iter().enumerate() {
        for (inside, to) in TAGS.iter().enumerate() {
            for family in 0..2 {
                let asked = at(from[family].host, 8000 + inside as u16);
                let target = at(to[family].server, 9000);
                rules.push((asked, target));
                cases.push((from[family].client, asked, target, outside, inside));
            }
        }
    }
    TAGS.iter()
        .flatten()
        .for_each(|family| scene.serve("server", at(family.server, 9000)));
    scene.up(&both(&rules));
    for (client, asked, target, outside, inside) in cases {
        println!("{outside} tags outside, {inside} inside");
        for _ in 0..2 {
            scene.expect(client, asked, &named("server", target));
        }
    }
}

/// A client whose packets come through a tunnel, without an Ethernet header, is served like any other, and by two kinds of
/// next hop: into the server's namespace, and by a link (a bridge here).
pub fn lab_from_a_tunnel_without_ethernet_arrive(way: Way) {
    let tunnel = |node: Node, local: &str, remote: &str, inside: &str| {
        node.ip(&format!("tunnel add tunnel mode ipip local {local} remote {remote}"))
            .ip(&format!("address add {inside}/30 dev tunnel"))
            .ip("link set tunnel up")
    };
    if std::env::var_os("TARN_LAB_SUITE").is_none() && !can_add("probe type ipip local 192.0.2.1") {
        println!("SKIP: this kernel has no IP tunnels (module ipip)");
        return;
    }
    let end = |node, interface| end(way, false, node, interface);
    let client = tunnel(Node::new("client"), V4.client, V4.host, "10.9.0.1");
    let host = Node::new("host")
        .forwarding()
        .ip("link add bridge type bridge")
        .ip("link set below master bridge")
        .ip("address add 10.0.2.1/24 dev bridge")
        .ip("link set bridge up");
    let topology = Topology::new()
        .node(client)
        .node(tunnel(host, V4.host, V4.client, "10.9.0.2"))
        .node(Node::new("server").route("default", V4.host_inside))
        .node(Node::new("bridged").route("default", "10.0.2.1"))
        .link(
            end("client", "eth0").address("192.168.64.1/24"),
            end("host", "left").address("192.168.64.2/24"),
        )
        .link(
            end("host", "right").address("10.0.1.1/24"),
            end("server", "eth0").address("10.0.1.2/24"),
        )
        .link(end("host", "below"), end("bridged", "eth0").address("10.0.2.2/24"));
    let scene = Scene::of(way, &topology);
    let pairs = [
        ("server", at("10.9.0.2", 8080), at("10.0.1.2", 8083)),
        ("bridged", at("10.9.0.2", 8081), at("10.0.2.2", 8083)),
    ];
    pairs.iter().for_each(|(node, _, target)| scene.serve(node, *target));
    scene.up(&both(&pairs.map(|(_, asked, target)| (asked, target))));
    for (node, asked, target) in pairs {
        for _ in 0..2 {
            scene.expect("10.9.0.1", asked, &named(node, target));
        }
    }
}

/// What the administrator's routing rules say about a type of service holds for redirected packets, too: here, that there
/// is no way to the server.
pub fn lab_with_a_type_of_service_take_its_route(way: Way) {
    let scene = Scene::new(way);
    let host = scene.namespace("host");
    for command in [
        "rule add tos 0x10 table 100",
        "route add blackhole 10.0.1.2 table 100",
        "-6 rule add tos 0x10 table 100",
        "-6 route add blackhole fd01::2 table 100",
    ] {
        host.ip(command).unwrap();
    }
    for family in [V4, V6] {
        let (asked, target) = (at(family.host, 8080), at(family.server, 8083));
        scene.serve("server", target);
        if family.host == V4.host {
            scene.up(&both(&[(asked, target)]));
        } else {
            scene.change(&super::scene::both_from(8, &[(asked, target)]), &[]);
        }
        let blackholed = scene.udp("client", at(family.client, 0));
        let (level, option) = if asked.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_TOS)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        };
        super::wire::set(&blackholed, level, option, 0x10).unwrap();
        let silence = std::time::Duration::from_millis(300);
        blackholed.set_read_timeout(Some(silence)).unwrap();
        assert!(ask(&blackholed, asked, b"low delay").is_err(), "{asked}");
        scene.expect(family.client, asked, &named("server", target));
    }
}
