//! A router: what it forwards, with connection tracking and without.
//!
//! ```text
//!   sender                     router (tarn_reassembly)               receiver
//!   10.0.1.1 ───────────── 10.0.1.2        10.0.2.1 ───────────── 10.0.2.2
//!   fd01::1  eth0     left fd01::2         fd02::1  right    eth0 fd02::2
//! ```

use std::cell::RefCell;
use std::time::Duration;

use super::orders::orders;
use super::packet::{self, ETHERNET, ICMP, ICMPV6, Ip, payload};
use super::rig::{FAMILIES, FROM, Family, IPV4, TO, at, begin, bound, eventually, taken};
use super::wire::Wire;
use crate::module::tests::SETTINGS;
use crate::module::{Counts, Datagrams, Module, Settings};
use tarn_lab::topology::{End, Namespace, Network, Node, Topology};

const SENDER: [&str; 2] = ["10.0.1.1", "fd01::1"];
const ROUTER: [&str; 2] = ["10.0.2.1", "fd02::1"];
const RECEIVER: [&str; 2] = ["10.0.2.2", "fd02::2"];
const SENDER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
const LEFT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Connection tracking, which reassembles.
const TRACKING: &str = "table inet tracking {
    chain forward { type filter hook forward priority 0; ct state invalid drop; }
}";

/// Long enough for a packet on its way.
const SOON: Duration = Duration::from_millis(5);

struct Scene {
    network: Network,
    near: Wire,
    far: Wire,
    module: RefCell<Module>,
}

/// What became of packets: what the receiver got, and the answers that the sender got.
#[derive(Debug, PartialEq, Clone)]
struct Outcome {
    forwarded: Vec<Vec<u8>>,
    /// Type, code, value and what is quoted of an ICMP message.
    answers: Vec<Vec<u8>>,
}

impl Scene {
    fn new(mtu: u32, rules: &str) -> Self {
        let both = |node: &str, interface: &str, addresses: [&str; 2]| {
            End::new(node, interface)
                .address(&format!("{}/24", addresses[0]))
                .address(&format!("{}/64", addresses[1]))
        };
        let network = Topology::new()
            .node(
                Node::new("sender")
                    .route("default", "10.0.1.2")
                    .route("default", "fd01::2"),
            )
            .node(Node::new("router").forwarding())
            .node(
                Node::new("receiver")
                    .route("default", "10.0.2.1")
                    .route("default", "fd02::1"),
            )
            .link(
                both("sender", "eth0", SENDER),
                both("router", "left", ["10.0.1.2", "fd01::2"]),
            )
            .link(
                both("router", "right", ROUTER).mtu(mtu),
                both("receiver", "eth0", RECEIVER),
            )
            .permanent_neighbours()
            .build()
            .unwrap();
        let router = network.namespace("router").unwrap();
        if !rules.is_empty() {
            router.run("nft", &[rules]).unwrap();
        }
        Self {
            near: Wire::open(network.namespace("sender").unwrap(), "eth0", libc::ETH_P_ALL),
            far: Wire::open(network.namespace("receiver").unwrap(), "eth0", libc::ETH_P_ALL),
            module: RefCell::new(begin(router, &SETTINGS)),
            network,
        }
    }

    fn node(&self, name: &str) -> &Namespace {
        self.network.namespace(name).unwrap()
    }

    fn set(&self, datagrams: Datagrams) {
        let settings = Settings { datagrams, ..SETTINGS };
        self.module.borrow_mut().set(&settings).unwrap();
        std::thread::sleep(super::rig::GRACE);
    }

    fn stop(&self) {
        self.module.borrow_mut().stop().unwrap();
    }

    fn counts(&self, family: Family) -> Counts {
        let state = self.module.borrow_mut().state().unwrap().expect("it runs");
        assert_eq!(state.held.memory, 0, "{:?}", state.held);
        if family.is_second { state.ipv6 } else { state.ipv4 }
    }

    /// Whose datagrams are reassembled now, IPv4 and IPv6.
    fn whose(&self) -> [u32; 2] {
        self.module.borrow_mut().state().unwrap().expect("it runs").held.whose
    }

    /// Sends packets of one family to the receiver, by the router.
    fn pass(&self, packets: &[Vec<u8>]) -> Outcome {
        self.near.drain(Duration::ZERO);
        self.far.drain(Duration::ZERO);
        for packet in packets {
            self.near.send(&packet::frame(LEFT_MAC, SENDER_MAC, packet));
        }
        let of_sender = |packet: &Vec<u8>| {
            let source = if packet[0] >> 4 == 6 {
                &packet[8..24]
            } else {
                &packet[12..16]
            };
            source == packet::octets(SENDER[usize::from(packet[0] >> 4 == 6)].parse().unwrap())
        };
        let packets = |frames: Vec<Vec<u8>>| frames.into_iter().map(|frame| frame[ETHERNET..].to_vec());
        Outcome {
            forwarded: packets(self.far.drain(SOON)).filter(of_sender).collect(),
            answers: packets(self.near.drain(SOON))
                .filter_map(|packet| answer(&packet))
                .collect(),
        }
    }
}

/// The part that says something of an ICMP error about the size of a packet.
fn answer(packet: &[u8]) -> Option<Vec<u8>> {
    let (protocol, start) = if packet[0] >> 4 == 6 {
        (packet[6], 40)
    } else {
        (packet[9], 20)
    };
    let message = &packet[start..];
    let is_error = protocol == ICMP && message[..2] == [3, 4] || protocol == ICMPV6 && message[0] == 2;
    // Without the checksum, which the quoted identifiers are part of.
    is_error.then(|| [&message[..2], &message[4..8]].concat())
}

fn ip(family: Family, identification: u32) -> Ip {
    let side = usize::from(family.is_second);
    Ip {
        identification,
        ..Ip::between(SENDER[side].parse().unwrap(), RECEIVER[side].parse().unwrap())
    }
}

fn udp(family: Family, content: &[u8]) -> Vec<u8> {
    let side = usize::from(family.is_second);
    packet::udp(at(SENDER[side], FROM), at(RECEIVER[side], TO), content)
}

/// What a hop leaves of the header.
fn one_hop_on(ip: &Ip) -> Ip {
    Ip {
        hop_limit: ip.hop_limit - 1,
        ..ip.clone()
    }
}

/// A router that cuts again chooses another identifier in IPv6.
fn without_identifier(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 6 {
        packet[44..48].fill(0);
    }
    packet
}

fn all_without_identifiers(outcome: Outcome) -> Outcome {
    Outcome {
        forwarded: outcome
            .forwarded
            .iter()
            .map(|packet| without_identifier(packet))
            .collect(),
        ..outcome
    }
}

/// What a router has no business with it forwards as it is: a firewall behind it, or the receiver, would see another order or
/// other sizes, and the router would hold memory for strangers.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_forwarded_fragments_stay_as_they_are() {
    let scene = Scene::new(1500, "");
    for datagrams in [Datagrams::Auto, Datagrams::Host] {
        scene.set(datagrams);
        assert_eq!(scene.whose(), [Datagrams::Host as u32; 2]);
        for family in FAMILIES {
            let (before, mut sent) = (scene.counts(family), 0);
            for order in 0..8 {
                let ip = ip(family, 0x100 + order);
                let (content, all) = (payload(4000, order), |ip: &Ip, content: &[u8]| {
                    let mut all = ip.fragments(&udp(family, content), 800);
                    // What a receiver would discard is none of a router's business either.
                    all.push(ip.fragment(400, true, &content[..800]));
                    all.push(ip.fragment(65_528, false, &content[..100]));
                    orders(&all, 3).remove(order as usize).1
                });
                let packets = all(&ip, &content);
                sent += packets.len() as u64;
                let outcome = scene.pass(&packets);
                assert!(
                    outcome.forwarded == all(&one_hop_on(&ip), &content),
                    "{} {order}",
                    family.name()
                );
                assert_eq!(outcome.answers.len(), 0);
            }
            let after = scene.counts(family);
            assert_eq!(after.passed - before.passed, sent, "{after:?}");
            assert_eq!((after.fragments, after.completed), (0, 0), "{after:?}");
        }
    }
}

/// A router with connection tracking looks at whole datagrams, and sends on the fragments that came: larger ones would not fit a
/// path whose MTU the sender has found.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_tracking_router_sends_on_fragments_of_the_same_sizes() {
    let scene = Scene::new(1500, TRACKING);
    let cuts: [&[usize]; 4] = [
        &[800; 6],
        &[1400, 1400, 1400, 600],
        &[1400, 72, 1400, 72, 1400, 456],
        &[64; 74],
    ];
    // `host` leaves it to connection tracking, which is what a receiver expects.
    for datagrams in [Datagrams::Auto, Datagrams::All, Datagrams::Host] {
        scene.set(datagrams);
        let whose = match datagrams {
            Datagrams::Auto => Datagrams::All,
            set => set,
        };
        assert_eq!(scene.whose(), [whose as u32; 2]);
        for family in FAMILIES {
            let mut completed = 0;
            for sizes in cuts {
                let content = payload(4700, 1);
                for order in 0..6 {
                    let ip = ip(family, 0x200 + order);
                    let packets = orders(&ip.cut(&udp(family, &content), sizes), 1)
                        .remove(order as usize)
                        .1;
                    let outcome = all_without_identifiers(scene.pass(&packets));
                    let expected = one_hop_on(&ip).cut(&udp(family, &content), sizes);
                    let expected: Vec<_> = expected.iter().map(|packet| without_identifier(packet)).collect();
                    let lengths: Vec<_> = outcome.forwarded.iter().map(Vec::len).collect();
                    let what = format!("{} {datagrams} {sizes:?} {order}: {lengths:?}", family.name());
                    assert!(outcome.forwarded == expected, "{what}");
                    completed += 1;
                }
            }
            let counts = scene.counts(family);
            let expected = if datagrams == Datagrams::Host { 0 } else { completed };
            assert_eq!(
                counts.completed,
                expected
                    * if datagrams == Datagrams::All {
                        2
                    } else {
                        u64::from(expected > 0)
                    }
            );
        }
        if datagrams == Datagrams::All {
            scene.stop();
        }
    }
}

/// `all` is for a router that has no connection tracking and wants whole datagrams nevertheless.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_all_datagrams_are_taken_where_that_is_set() {
    let scene = Scene::new(1500, "");
    scene.set(Datagrams::All);
    for family in FAMILIES {
        let content = payload(4000, 1);
        let ip = ip(family, 0x300);
        let mut packets = ip.fragments(&udp(family, &content), 800);
        packets.reverse();
        let outcome = all_without_identifiers(scene.pass(&packets));
        let expected = one_hop_on(&ip).fragments(&udp(family, &content), 800);
        let expected: Vec<_> = expected.iter().map(|packet| without_identifier(packet)).collect();
        assert!(outcome.forwarded == expected, "{}", family.name());
        assert_eq!(scene.counts(family).completed, 1);
    }
}

/// Where the next link is narrower, the sender hears of its MTU, or the router cuts anew: as the stock kernel does in each case.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_narrow_link_is_reported_as_by_the_stock_kernel() {
    let scene = Scene::new(1300, TRACKING);
    let cases: [(&[usize], [bool; 3]); 6] = [
        (&[1400, 1400, 1300], [true; 3]),
        (&[1400, 1400, 1300], [false; 3]),
        (&[1400, 1400, 1300], [false, true, false]),
        (&[800, 800, 500], [true; 3]),
        (&[800, 1400, 500], [true, false, true]),
        (&[1240, 1240, 1240], [true; 3]),
    ];
    for family in FAMILIES {
        for (sizes, whole) in cases {
            let run = |identification: u32| {
                let content = payload(sizes.iter().sum::<usize>() - 8, 1);
                let ip = ip(family, identification);
                let piece = |index: usize| {
                    let ip = Ip {
                        is_whole: whole[index] && !family.is_second,
                        ..ip.clone()
                    };
                    ip.cut(&udp(family, &content), sizes).remove(index)
                };
                // The last one first.
                let packets: Vec<_> = [2, 0, 1].map(piece).to_vec();
                all_without_identifiers(scene.pass(&packets))
            };
            scene.stop();
            let stock = run(0x400);
            scene.set(Datagrams::Auto);
            let ours = run(0x400);
            let what = format!("{} {sizes:?} {whole:?}", family.name());
            assert!(stock.forwarded.len() + stock.answers.len() > 0, "{what}");
            let lengths = |outcome: &Outcome| outcome.forwarded.iter().map(Vec::len).collect::<Vec<_>>();
            assert_eq!(
                (lengths(&ours), &ours.answers),
                (lengths(&stock), &stock.answers),
                "{what}"
            );
            assert!(ours == stock, "{what}");
            assert_eq!(scene.counts(family).completed, 1, "{what}");
        }
    }
}

/// Who is behind address translation asks and is answered in fragments: one of both would be lost.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_translated_datagrams_arrive_both_ways() {
    let scene = Scene::new(
        1500,
        "table inet translation {
            chain out { type nat hook postrouting priority 100; oifname right masquerade; }
            chain on { type nat hook prerouting priority -100; iifname left udp dport 4000 dnat ip to 10.0.2.2:2000; }
        }",
    );
    for family in FAMILIES {
        let side = usize::from(family.is_second);
        let asking = bound(scene.node("sender"), at(SENDER[side], FROM));
        let service = bound(scene.node("receiver"), at(RECEIVER[side], TO));
        let content = payload(5000, 1);
        for order in 0..6 {
            let ip = ip(family, 0x500 + order);
            let packets = orders(&ip.fragments(&udp(family, &content), 800), 1)
                .remove(order as usize)
                .1;
            scene.pass(&packets);
            let mut buffer = [0; 6000];
            let (length, from) = service.recv_from(&mut buffer).expect("the question");
            assert!(buffer[..length] == content);
            assert_eq!(from.ip(), at(ROUTER[side], 0).ip(), "translated");
            service.send_to(&content, from).unwrap();
            assert!(
                eventually(|| taken(&asking), Option::is_some).as_ref() == Some(&content),
                "the answer"
            );
        }
        assert_eq!(scene.counts(family).completed, 12, "{}", family.name());
    }
    // To the router's own address, and on to the receiver; only the first fragment has the port.
    let service = bound(scene.node("receiver"), at("10.0.2.2", TO));
    let content = payload(5000, 2);
    let datagram = packet::udp(at(SENDER[0], FROM), at("10.0.1.2", 4000), &content);
    let ip = Ip {
        destination: "10.0.1.2".parse().unwrap(),
        ..ip(IPV4, 0x600)
    };
    let mut packets = ip.fragments(&datagram, 800);
    packets.reverse();
    scene.pass(&packets);
    assert!(eventually(|| taken(&service), Option::is_some) == Some(content));
}

/// A bridge that filters by connections reassembles what it bridges, and sends on what came.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_filtering_bridge_sends_on_what_came() {
    let both = |node: &str, number: u8| {
        End::new(node, "eth0")
            .address(&format!("10.0.0.{number}/24"))
            .address(&format!("fd00::{number}/64"))
    };
    let network = Topology::new()
        .node(Node::new("sender"))
        .node(Node::new("bridge"))
        .node(Node::new("receiver"))
        .node(Node::new("outside"))
        .link(both("sender", 1), End::new("bridge", "left"))
        .link(both("receiver", 2), End::new("bridge", "right"))
        .link(
            End::new("outside", "eth0").address("10.1.0.1/24").address("fd01::1/64"),
            End::new("bridge", "outside")
                .address("10.1.0.2/24")
                .address("fd01::2/64"),
        )
        .build()
        .unwrap();
    let bridge = network.namespace("bridge").unwrap();
    let commands = [
        "link add br0 type bridge",
        "link set left master br0",
        "link set right master br0",
        "link set br0 up",
    ];
    bridge.ip_batch(&commands.map(str::to_owned)).unwrap();
    bridge.run("modprobe", &["br_netfilter"]).unwrap();
    for name in ["iptables", "ip6tables"] {
        bridge
            .sysctl(&format!("net/bridge/bridge-nf-call-{name}"), "1")
            .unwrap();
    }
    bridge.run("nft", &[TRACKING]).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let settings = Settings {
        timeout4: Duration::from_secs(1),
        timeout6: Duration::from_secs(1),
        ..SETTINGS
    };
    let mut module = begin(bridge, &settings);
    let near = Wire::open(network.namespace("sender").unwrap(), "eth0", 0);
    let far = Wire::open(network.namespace("receiver").unwrap(), "eth0", libc::ETH_P_ALL);
    for family in FAMILIES {
        let service = bound(network.namespace("receiver").unwrap(), at(family.receiver, TO));
        let content = payload(4000, 1);
        for order in 0..6 {
            far.drain(Duration::ZERO);
            let ip = Ip {
                identification: 0x700 + order,
                ..family.ip()
            };
            let fragments = ip.fragments(&family.udp(&content), 800);
            let as_frame = |packet: &Vec<u8>| packet::frame([2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 0, 0], packet);
            for packet in &orders(&fragments, 1).remove(order as usize).1 {
                near.send(&as_frame(packet));
            }
            assert!(eventually(|| taken(&service), Option::is_some).as_ref() == Some(&content));
            let came: Vec<_> = far
                .drain(SOON)
                .iter()
                .map(|frame| without_identifier(&frame[ETHERNET..]))
                .collect();
            let sent: Vec<_> = fragments.iter().map(|packet| without_identifier(packet)).collect();
            let came: Vec<_> = came.into_iter().filter(|packet| sent.contains(packet)).collect();
            assert!(came == sent, "{}: {} of {}", family.name(), came.len(), sent.len());
        }
        let state = module.state().unwrap().unwrap();
        let counts = if family.is_second { state.ipv6 } else { state.ipv4 };
        assert_eq!((counts.completed, state.held.memory), (6, 0), "{counts:?}");

        // What is routed must not come back to the bridge, or the other way round: older kernels would crash.
        let ip = Ip {
            identification: 0x7f0,
            ..family.ip()
        };
        let [begin, end]: [Vec<u8>; 2] = ip.fragments(&family.udp(&payload(1000, 1)), 800).try_into().unwrap();
        let outside = Wire::open(network.namespace("outside").unwrap(), "eth0", 0);
        outside.send(&packet::frame(
            network.hardware_address(2, 1),
            [2, 0, 0, 0, 2, 0],
            &begin,
        ));
        near.send(&packet::frame([2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 0, 0], &end));
        let held = eventually(|| module.state().unwrap().unwrap().held.datagrams, |held| *held == 2);
        assert_eq!(held, 2, "{}", family.name());
        let held = eventually(|| module.state().unwrap().unwrap().held.datagrams, |held| *held == 0);
        assert_eq!(held, 0);
    }
    module.stop().unwrap();
}
