//! Packets that are cut off or lie about themselves. That no program reads beyond them is proved by the kernel's
//! verifier; that they do not reach the server rewritten, as if they were good, is proved here.

use std::net::SocketAddr;
use std::time::Duration;

use super::packet::{self, ETHERNET, Ip, TCP, UDP};
use super::scene::{CLIENT_MAC, FAMILIES, Family, HOST_LEFT_MAC, Scene, at, both, named};
use super::way::Way;

/// As long as any of the headers built here: IPv6, UDP and then some.
const LONGEST: usize = 80;

struct Case {
    what: String,
    packet: Vec<u8>,
}

/// Every packet of a family that must not arrive.
fn cases(family: &Family, asked: SocketAddr) -> Vec<Case> {
    let from = at(family.client, 6000);
    let ip = Ip::between(from.ip(), asked.ip());
    let mut cases = Vec::new();
    for protocol in [UDP, TCP] {
        let segment = packet::segment(protocol, from, asked, &[b'x'; LONGEST]);
        let whole = ip.packet(protocol, &segment);
        let first = ip.fragment(protocol, 0, true, &segment[..64]);
        let last = ip.fragment(protocol, 64, false, &segment[64..]);
        for length in 0..=LONGEST {
            for (what, packet) in [("packet", &whole), ("first fragment", &first), ("last fragment", &last)] {
                if length < packet.len() {
                    let what = format!("{length} bytes of a {what} of protocol {protocol}");
                    cases.push(Case {
                        what,
                        packet: packet[..length].to_vec(),
                    });
                }
            }
        }
        if from.is_ipv4() {
            cases.extend(lies4(protocol, &whole));
        } else {
            cases.extend(lies6(protocol, &whole));
        }
    }
    cases
}

/// IPv4 headers whose fields are wrong, with a right checksum.
fn lies4(protocol: u8, whole: &[u8]) -> Vec<Case> {
    let header = if protocol == UDP { 8 } else { 20 };
    let with = |what: String, change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = whole.to_vec();
        change(&mut packet);
        let covered = (usize::from(packet[0] & 15) * 4).clamp(12, packet.len());
        packet[10..12].fill(0);
        let checksum = !packet::sum(&packet[..covered]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        Case {
            what: format!("{what}, protocol {protocol}"),
            packet,
        }
    };
    let mut cases = Vec::new();
    for words in 0..5 {
        cases.push(with(format!("a header of {words} words"), &|packet| {
            packet[0] = 0x40 | words
        }));
    }
    for version in [0, 5, 6, 15] {
        cases.push(with(format!("version {version}"), &|packet| {
            packet[0] = version << 4 | 5
        }));
    }
    for length in (0..20 + header).chain([whole.len() as u16 + 1, 0xffff]) {
        cases.push(with(format!("a length field of {length}"), &|packet| {
            packet[2..4].copy_from_slice(&length.to_be_bytes());
        }));
    }
    cases
}

fn lies6(protocol: u8, whole: &[u8]) -> Vec<Case> {
    let header = if protocol == UDP { 8 } else { 20 };
    let mut cases = Vec::new();
    for version in [0, 4, 5, 15] {
        let mut packet = whole.to_vec();
        packet[0] = version << 4;
        cases.push(Case {
            what: format!("version {version}, protocol {protocol}"),
            packet,
        });
    }
    for length in (0..header).chain([whole.len() as u16 - 39, 0xffff]) {
        let mut packet = whole.to_vec();
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        cases.push(Case {
            what: format!("a payload length of {length}, protocol {protocol}"),
            packet,
        });
    }
    cases
}

/// Nothing that is cut off or lies about its length reaches the server, and what is whole still does.
pub fn lab_or_lying_do_not_arrive(way: Way) {
    let scene = Scene::new(way);
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up(&both(&pairs));
    let (client, server) = (scene.wire("client", "eth0"), scene.wire("server", "eth0"));
    let mut arrived = Vec::new();
    for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
        for known in [false, true] {
            if known {
                // From now on a whole packet of this very flow is known.
                for protocol in [UDP, TCP] {
                    let whole = packet::packet(protocol, at(family.client, 6000), asked, b"whole");
                    client.send(&packet::frame(HOST_LEFT_MAC, CLIENT_MAC, &whole));
                }
                server.receive("the whole packet", |read| {
                    read.protocol == UDP && read.payload == b"whole"
                });
            }
            scene.expect(family.client, asked, &named("server", target));
            server.drain(Duration::from_millis(20));
            for case in cases(family, asked) {
                // Ethernet pads nothing here: the frame is as short as it is.
                client.send(&with_ethernet(asked, &case.packet));
                if let Some(frame) = from_client(&server.drain(Duration::ZERO), asked) {
                    arrived.push(format!("{}: {frame:02x?}", case.what));
                }
            }
            if let Some(frame) = from_client(&server.drain(Duration::from_millis(50)), asked) {
                arrived.push(format!("a late one: {frame:02x?}"));
            }
            scene.expect(family.client, asked, &named("server", target));
        }
    }
    assert!(arrived.is_empty(), "{} arrived:\n{}", arrived.len(), arrived.join("\n"));
}

/// The frame around a packet of which not even the version may be there.
fn with_ethernet(asked: SocketAddr, packet: &[u8]) -> Vec<u8> {
    let mut frame = packet::frame(HOST_LEFT_MAC, CLIENT_MAC, packet);
    let kind: u16 = if asked.is_ipv4() { 0x0800 } else { 0x86dd };
    frame[12..14].copy_from_slice(&kind.to_be_bytes());
    frame
}

/// The first of these frames that is a packet from the client's port of these tests: its answers are whole, so that
/// what comes from there is one of the cases. Neighbour discovery and the like is not.
fn from_client(frames: &[super::wire::Frame], asked: SocketAddr) -> Option<Vec<u8>> {
    let (at, source) = if asked.is_ipv4() {
        (12, FAMILIES[0].client)
    } else {
        (8, FAMILIES[1].client)
    };
    let source = packet::octets(source.parse().unwrap());
    let found = frames.iter().find(|frame| {
        let packet = &frame.bytes[ETHERNET..];
        packet.get(at..at + source.len()) == Some(&source) && !is_icmp(packet)
    });
    found.map(|frame| frame.bytes[ETHERNET..].to_vec())
}

fn is_icmp(packet: &[u8]) -> bool {
    match packet[0] >> 4 {
        6 => packet.get(6) == Some(&packet::ICMPV6),
        _ => packet.get(9) == Some(&packet::ICMP),
    }
}
