//! What stands in the headers of fragments, and in those of the datagram that they become.

use std::net::UdpSocket;
use std::time::Duration;

use super::orders::orders;
use super::packet::{self, DESTINATION_OPTIONS, ETHERNET, HOP_BY_HOP, ICMPV6, Ip, ROUTING, UDP, payload, sum};
use super::rig::{FAMILIES, FROM, Family, IPV4, IPV6, Rig, TO, at, counter, raw, taken, taken_with_service};
use super::wire;

/// RFC 3168: not capable, and the marks of a packet that is.
const NOT_ECT: u8 = 0;
const CE: u8 = 3;

/// The mark of a datagram whose fragments have these, in order; `None`: it is discarded (RFC 3168, section 5.3).
fn joined(marks: [u8; 3]) -> Option<u8> {
    let capable = marks.iter().filter(|mark| **mark != NOT_ECT).count();
    match capable {
        0 => Some(NOT_ECT),
        3 if marks.contains(&CE) => Some(CE),
        3 => Some(marks[0]),
        _ => None,
    }
}

/// Has the socket report the type of service, or traffic class.
fn report_service(family: Family, socket: &UdpSocket) {
    let (level, option) = if family.is_second {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)
    } else {
        (libc::IPPROTO_IP, libc::IP_RECVTOS)
    };
    wire::set(socket, level, option, 1).unwrap();
}

/// A length of 0 is that of a jumbogram, which is not fragmented (RFC 2675), and what follows its bytes on the wire is not its own.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_fragment_without_a_length_is_refused_by_the_stack() {
    let rig = Rig::new();
    let ip = Ip {
        extensions: vec![(HOP_BY_HOP, padding())],
        ..rig.ip(IPV6)
    };
    for mut packet in ip.fragments(&IPV6.udp(&payload(400, 1)), 200) {
        packet[4..6].fill(0);
        packet.extend([0xee; 8]);
        rig.send(&packet);
    }
    rig.expect_nothing(IPV6, "without a length");
    assert_eq!(rig.counted(IPV6), []);
    rig.expect_empty();
}

/// A router that marks one fragment of many tells the receiver of congestion: it would not hear of it, or a sender that cannot
/// be told would be taken for one that can.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_marks_of_congestion_are_joined() {
    const SERVICE: u8 = 0x28 << 2;
    let rig = Rig::new();
    for family in FAMILIES {
        report_service(family, rig.socket(family));
        let content = payload(100, 1);
        let mut discarded = 0;
        for code in 0..64_u8 {
            let marks = [code & 3, code >> 2 & 3, code >> 4];
            let (ip, datagram) = (rig.ip(family), family.udp(&content));
            let mut fragments: Vec<Vec<u8>> = (0..3)
                .map(|index| {
                    let ip = Ip {
                        service: SERVICE | marks[index],
                        ..ip.clone()
                    };
                    ip.fragments(&datagram, 40).remove(index)
                })
                .collect();
            fragments.rotate_left(usize::from(code % 3));
            rig.send_all(&fragments);
            rig.settle();
            let received = taken_with_service(rig.socket(family));
            let expected = joined(marks).map(|mark| (content.clone(), SERVICE | mark));
            assert!(received == expected, "{} {marks:?}: {received:?}", family.name());
            discarded += u64::from(expected.is_none());
        }
        let expected = [("fragments", 192), ("completed", 64 - discarded), ("ecn", discarded)];
        assert_eq!(rig.counted(family), expected);
    }
    rig.expect_empty();
}

/// Six bytes of padding (RFC 8200, section 4.2).
fn padding() -> Vec<u8> {
    vec![1, 4, 0, 0, 0, 0]
}

/// An option that a host passes over which does not know it (RFC 8200, section 4.2).
const UNKNOWN: u8 = 0x1e;

/// A routing header of an unknown type with nothing left to visit, which is passed over (RFC 8200, section 4.4).
fn routing() -> Vec<u8> {
    vec![253, 0, 0, 0, 0, 0]
}

/// Options before the fragment header belong to each fragment, those behind it to the datagram: it would be lost or damaged.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_extension_headers_on_both_sides_of_the_fragment_header() {
    let rig = Rig::new();
    let before = [
        vec![(HOP_BY_HOP, padding())],
        vec![(DESTINATION_OPTIONS, padding())],
        vec![(ROUTING, routing())],
        vec![
            (HOP_BY_HOP, [padding(), vec![UNKNOWN, 6, 0, 0, 0, 0, 0, 0]].concat()),
            (DESTINATION_OPTIONS, padding()),
            (ROUTING, routing()),
        ],
    ];
    for extensions in before {
        for has_options_behind in [false, true] {
            let content = payload(2000, 1);
            let (mut ip, mut carried) = (rig.ip(IPV6), IPV6.udp(&content));
            ip.extensions.clone_from(&extensions);
            if has_options_behind {
                ip.protocol = DESTINATION_OPTIONS;
                carried = [vec![UDP, 0], padding(), carried].concat();
            }
            for order in 0..6 {
                ip.identification += 0x100;
                let (name, ordered) = orders(&ip.fragments(&carried, 800), 1).remove(order);
                rig.send_all(&ordered);
                rig.expect(IPV6, &content, &format!("{extensions:?}, {name}"));
            }
        }
    }
    rig.expect_empty();
}

/// The headers before the fragment header are those of the first fragment, whatever the others have (RFC 8200, section 4.5).
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_extension_headers_are_those_of_the_first_fragment() {
    let rig = Rig::new();
    let with = |ip: &Ip, has_options: bool| Ip {
        extensions: vec![(DESTINATION_OPTIONS, padding()); usize::from(has_options)],
        ..ip.clone()
    };
    for is_first in [true, false] {
        for order in 0..6 {
            let (ip, content) = (rig.ip(IPV6), payload(2000, 1));
            let mut fragments = with(&ip, !is_first).fragments(&IPV6.udp(&content), 800);
            fragments[0] = with(&ip, is_first).fragments(&IPV6.udp(&content), 800).remove(0);
            let (name, ordered) = orders(&fragments, 1).remove(order);
            rig.send_all(&ordered);
            rig.expect(IPV6, &content, &name);
        }
    }
    rig.expect_empty();
}

/// A first fragment without all headers gets past every filter that looks at ports; the sender is told (RFC 7112).
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_first_fragment_without_all_headers_is_refused_by_the_stack() {
    const PARAMETER_PROBLEM: u8 = 4;
    const INCOMPLETE_HEADERS: u8 = 3;
    let rig = Rig::new();
    let ip = Ip {
        protocol: DESTINATION_OPTIONS,
        ..rig.ip(IPV6)
    };
    rig.send(&ip.fragment(0, true, &[vec![UDP, 0], padding()].concat()));
    let is_answer = |frame: &[u8]| {
        let packet = &frame[ETHERNET..];
        packet[0] >> 4 == 6 && packet[6] == ICMPV6 && packet[40..42] == [PARAMETER_PROBLEM, INCOMPLETE_HEADERS]
    };
    assert!(rig.wire.next(Duration::from_secs(3), is_answer).is_some(), "no answer");
    assert_eq!(rig.counted(IPV6), []);
    rig.expect_empty();
}

/// IPv4's options of the first fragment are those of the datagram: a receiver would act on options that nobody sent, or the header's
/// checksum would be wrong.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_options_are_those_of_the_first_fragment() {
    let rig = Rig::new();
    let socket = raw(rig.receiver(), IPV4, UDP);
    let no_operations = vec![1, 1, 1, 1];
    let router_alert = vec![148, 4, 0, 0];
    for (of_first, of_others) in [
        (no_operations.clone(), vec![]),
        (vec![], no_operations.clone()),
        (router_alert.clone(), router_alert.clone()),
        ([no_operations, router_alert.clone()].concat(), router_alert),
    ] {
        for order in 0..6 {
            let (ip, content) = (rig.ip(IPV4), payload(2000, 1));
            let with = |options: &Vec<u8>| Ip {
                options: options.clone(),
                ..ip.clone()
            };
            let mut fragments = with(&of_others).fragments(&IPV4.udp(&content), 800);
            fragments[0] = with(&of_first).fragments(&IPV4.udp(&content), 800).remove(0);
            rig.send_all(&orders(&fragments, 1)[order].1);
            rig.expect(IPV4, &content, &format!("{of_first:?} and {of_others:?}"));
            let packet = std::iter::from_fn(|| taken(&socket)).find(|packet| packet.len() > 2000);
            let whole = with(&of_first).packet(&IPV4.udp(&content));
            assert!(packet == Some(whole), "{of_first:?} and {of_others:?}");
        }
    }
    rig.expect_empty();
}

/// The whole datagram may not be cut if the largest fragment was not to be: only then did the sender look for the path's MTU.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_datagram_is_not_to_be_cut_where_its_largest_fragment_was_not() {
    let rig = Rig::new();
    let socket = raw(rig.receiver(), IPV4, UDP);
    for (cut, whole) in [
        ([true, true, true], true),
        ([true, false, false], true),
        ([false, false, true], false),
        ([false, false, false], false),
    ] {
        for order in 0..6 {
            let (ip, content) = (rig.ip(IPV4), payload(1592, 1));
            let with = |is_whole: bool| Ip { is_whole, ..ip.clone() };
            let piece = |index: usize| {
                with(cut[index])
                    .cut(&IPV4.udp(&content), &[800, 400, 400])
                    .remove(index)
            };
            let fragments: Vec<_> = (0..3).map(piece).collect();
            rig.send_all(&orders(&fragments, 1)[order].1);
            rig.expect(IPV4, &content, &format!("{cut:?}"));
            let packet = std::iter::from_fn(|| taken(&socket))
                .find(|packet| packet.len() > 1000)
                .unwrap();
            assert_eq!(packet[6..8], [if whole { 0x40 } else { 0 }, 0], "{cut:?}");
            assert_eq!(sum(&packet[..20]), 0xffff);
        }
    }
}

/// What was damaged on the way must not be delivered; what has no checksum must be, in IPv4.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_checksums_are_those_of_the_whole_datagram() {
    let rig = Rig::new();
    for (family, errors) in FAMILIES.into_iter().zip(["UdpInCsumErrors", "Udp6InCsumErrors"]) {
        let content = payload(3000, 1);
        let damaged = {
            let mut datagram = family.udp(&content);
            datagram[2900] ^= 1;
            datagram
        };
        let (from, to) = (at(family.sender, FROM), at(family.receiver, TO));
        let unsummed = packet::unsummed_udp(from, to, &content);
        let before = counter(rig.receiver(), errors);
        for order in 0..6 {
            rig.send_all(&orders(&rig.ip(family).fragments(&damaged, 1400), 1)[order].1);
            rig.expect_nothing(family, "a damaged datagram");
            rig.send_all(&orders(&rig.ip(family).fragments(&unsummed, 1400), 1)[order].1);
            if family.is_second {
                rig.expect_nothing(family, "without a checksum");
            } else {
                rig.expect(family, &content, "without a checksum");
            }
        }
        // IPv6 takes none as a wrong one.
        let wrong = if family.is_second { 12 } else { 6 };
        assert_eq!(counter(rig.receiver(), errors) - before, wrong);
        assert_eq!(rig.counted(family), [("fragments", 36), ("completed", 12)]);
    }
    rig.expect_empty();
}
