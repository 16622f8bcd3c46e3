//! Tunnels whose packets are fragmented, and carry fragments.

use std::time::Duration;

use super::orders::orders;
use super::packet::{self, Ip, payload, sum};
use super::rig::{FAMILIES, FROM, Family, IPV4, IPV6, Rig, TO, at, bound, counter, eventually, taken};
use tarn_lab::topology::Namespace;

/// Addresses within a tunnel.
const INNER: [(&str, &str); 2] = [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")];
const IPIP: u8 = 4;
const IPV6_IN: u8 = 41;
const ESP: u8 = 50;

/// A fragment of a datagram within a tunnel.
fn inner(family: Family, identification: u32) -> Ip {
    let (from, to) = INNER[usize::from(family.is_second)];
    Ip {
        identification,
        ..Ip::between(from.parse().unwrap(), to.parse().unwrap())
    }
}

fn inner_udp(family: Family, content: &[u8]) -> Vec<u8> {
    let (from, to) = INNER[usize::from(family.is_second)];
    packet::udp(at(from, FROM), at(to, TO), content)
}

/// The end of a tunnel puts datagrams together whose fragments came in fragments: they would be lost or damaged.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_fragments_in_fragments() {
    let rig = Rig::new();
    let tunnels = [
        (IPV4, IPV4, "tunnel add in0 mode ipip local 10.0.0.2 remote 10.0.0.1"),
        (IPV4, IPV6, "tunnel add in1 mode sit local 10.0.0.2 remote 10.0.0.1"),
        (
            IPV6,
            IPV6,
            "-6 tunnel add in2 mode any local fd00::2 remote fd00::1 dev eth0 encaplimit none",
        ),
    ];
    let mut commands: Vec<String> = tunnels.iter().map(|(_, _, command)| (*command).to_owned()).collect();
    commands.extend((0..3).map(|number| format!("link set in{number} up")));
    commands.push("address add 10.9.0.2/32 dev lo".to_owned());
    commands.push("address add fd09::2/128 dev lo nodad".to_owned());
    // ip -batch does not take the family of a command.
    for command in &commands {
        rig.receiver().ip(command).unwrap();
    }
    for (outer, carried) in [(IPV4, IPV4), (IPV4, IPV6), (IPV6, IPV6), (IPV6, IPV4)] {
        let socket = bound(rig.receiver(), at(INNER[usize::from(carried.is_second)].1, TO));
        for order in 0..6 {
            let content = payload(8000, order);
            // Three fragments of about 3,000 bytes, each in three; and a last one that is not cut again.
            let fragments = inner(carried, 0x700 + order).fragments(&inner_udp(carried, &content), 2600);
            let (name, ordered) = orders(&fragments, 1).remove(order as usize);
            for fragment in &ordered {
                let ip = Ip {
                    protocol: if carried.is_second { IPV6_IN } else { IPIP },
                    ..rig.ip(outer)
                };
                let (_, pieces) = orders(&ip.fragments(fragment, 1000), 1).remove(order as usize);
                rig.send_all(&pieces);
            }
            rig.settle();
            // What comes out of a tunnel waits once more for its turn, which may be on another CPU.
            let received = eventually(|| taken(&socket), Option::is_some);
            let length = received.as_ref().map(Vec::len);
            assert!(
                received.as_ref() == Some(&content),
                "{} in {}, {name}: {length:?}; {:?} {:?}",
                carried.name(),
                outer.name(),
                rig.counted(IPV4),
                rig.counted(IPV6)
            );
        }
    }
    rig.expect_empty();
}

/// Behind a tunnel with checksums, what is known of a fragment is the sum of all of its bytes: a good datagram would be dropped,
/// or a damaged one delivered.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_sums_of_whole_packets_add_up() {
    let mut rig = Rig::new();
    rig.sender().run("ethtool", &["-K", "eth0", "tx", "off"]).unwrap();
    for (namespace, here, there, mac) in [
        (rig.sender(), "10.0.0.1", "10.0.0.2", "02:00:00:00:00:00"),
        (rig.receiver(), "10.0.0.2", "10.0.0.1", "02:00:00:00:00:01"),
    ] {
        let number = &here[7..];
        let commands = [
            format!(
                "link add vx0 address {mac} type vxlan id 7 local {here} remote {there} dev eth0 dstport 4789 udpcsum"
            ),
            format!("address add 10.9.0.{number}/24 dev vx0"),
            format!("address add fd09::{number}/64 dev vx0 nodad"),
            "link set vx0 up".to_owned(),
        ];
        namespace.ip_batch(&commands).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let wire = super::wire::Wire::open(rig.sender(), "vx0", 0);
    rig.wire = wire;
    for (family, errors) in FAMILIES.into_iter().zip(["UdpInCsumErrors", "Udp6InCsumErrors"]) {
        let socket = bound(rig.receiver(), at(INNER[usize::from(family.is_second)].1, TO));
        let before = counter(rig.receiver(), errors);
        for order in 0..6 {
            let content = payload(4000, order);
            for is_damaged in [false, true] {
                let mut udp = inner_udp(family, &content);
                udp[3000] ^= u8::from(is_damaged);
                let ip = inner(family, 0x800 + 2 * order + u32::from(is_damaged));
                let (name, ordered) = orders(&ip.fragments(&udp, 800), 1).remove(order as usize);
                rig.send_all(&ordered);
                rig.settle();
                let expected = (!is_damaged).then(|| content.clone());
                assert!(taken(&socket) == expected, "{}, {name}, {is_damaged}", family.name());
            }
        }
        assert_eq!(counter(rig.receiver(), errors) - before, 6, "{}", family.name());
        assert_eq!(rig.counted(family), [("fragments", 72), ("completed", 12)]);
    }
    rig.expect_empty();
}

/// ESP in tunnel mode without encryption (RFC 2410): field by field.
fn esp(outer: &Ip, spi: u32, sequence: u32, carried: &[u8]) -> Vec<u8> {
    let outer = Ip {
        protocol: ESP,
        ..outer.clone()
    };
    outer.packet(&esp_content(spi, sequence, carried))
}

fn esp_content(spi: u32, sequence: u32, carried: &[u8]) -> Vec<u8> {
    let mut content = [spi.to_be_bytes(), sequence.to_be_bytes()].concat();
    content.extend(carried);
    let padding = (4 - (carried.len() + 2) % 4) % 4;
    content.extend((1..=padding as u8).collect::<Vec<_>>());
    content.extend([padding as u8, if carried[0] >> 4 == 6 { IPV6_IN } else { IPIP }]);
    content
}

/// The receiver takes ESP of this number from the sender, as [`esp`] makes it.
fn accept_esp(receiver: &Namespace, spi: u32) {
    let state = format!(
        "xfrm state add src 10.0.0.1 dst 10.0.0.2 proto esp spi {spi} mode tunnel flag af-unspec enc cipher_null auth digest_null"
    );
    // The keys are empty words.
    let mut words: Vec<&str> = state.split_whitespace().collect();
    let at = |words: &[&str], word: &str| words.iter().position(|found| *found == word).unwrap();
    words.insert(at(&words, "cipher_null") + 1, "");
    words.insert(at(&words, "digest_null") + 1, "");
    receiver.run("ip", &words).unwrap();
}

/// A VPN's router: what comes out of a tunnel and may not be fragmented is not sent on in fragments because the tunnel's packets were.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_ipsec_packets_keep_their_dont_fragment() {
    const BEHIND: &str = "10.77.0.5";
    let rig = Rig::new();
    let receiver = rig.receiver();
    accept_esp(receiver, 1);
    receiver
        .ip_batch(&[
            format!(
                "xfrm policy add src 10.9.0.1 dst {BEHIND} dir fwd tmpl src 10.0.0.1 dst 10.0.0.2 proto esp mode tunnel"
            ),
            "link add behind type dummy".to_owned(),
            "link set behind mtu 600 up".to_owned(),
            "address add 10.77.0.1/24 dev behind".to_owned(),
            "route add 10.9.0.1/32 via 10.0.0.1".to_owned(),
        ])
        .unwrap();
    receiver.sysctl("net/ipv4/ip_forward", "1").unwrap();
    let count = |name| counter(receiver, name);
    for (sequence, is_whole) in [(1, true), (2, false)] {
        let before = (count("IpFragFails"), count("IpFragOKs"));
        let inner = Ip {
            is_whole,
            ..Ip::between("10.9.0.1".parse().unwrap(), BEHIND.parse().unwrap())
        };
        let carried = inner.packet(&packet::udp(at("10.9.0.1", FROM), at(BEHIND, TO), &payload(1000, 1)));
        let outer = Ip {
            protocol: ESP,
            identification: 0xb00 + sequence,
            ..IPV4.ip()
        };
        rig.send_all(&outer.fragments(&esp_content(1, sequence, &carried), 800));
        rig.settle();
        std::thread::sleep(Duration::from_millis(5));
        let grown = (count("IpFragFails") - before.0, count("IpFragOKs") - before.1);
        assert_eq!(grown, if is_whole { (1, 0) } else { (0, 1) }, "DF: {is_whole}");
    }
}

/// Fragments that came by IPsec must not be joined with some that did not, or by another of its paths: whoever can guess an
/// identifier would put bytes of its own into a datagram that is taken for authentic.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_ipsec_fragments_of_different_paths_are_not_joined() {
    let rig = Rig::new();
    let receiver = rig.receiver();
    for spi in [1, 2] {
        accept_esp(receiver, spi);
    }
    for (from, to) in INNER {
        receiver
            .ip(&format!(
                "xfrm policy add src {from} dst {to} dir in tmpl src 10.0.0.1 dst 10.0.0.2 proto esp mode tunnel level use"
            ))
            .unwrap();
    }
    receiver.ip("address add 10.9.0.2/32 dev lo").unwrap();
    receiver.ip("address add fd09::2/128 dev lo nodad").unwrap();
    let mut sequence = 0;
    for family in FAMILIES {
        let socket = bound(receiver, at(INNER[usize::from(family.is_second)].1, TO));
        // By which state each fragment comes; 0: in the clear.
        for (number, (paths, is_good)) in [
            ([1, 1, 1], true),
            ([2, 2, 2], true),
            ([0, 0, 0], true),
            ([1, 1, 0], false),
            ([0, 1, 1], false),
            ([1, 2, 1], false),
            ([1, 0, 1], false),
        ]
        .into_iter()
        .enumerate()
        {
            rig.counted(family);
            let content = payload(2000, 1);
            let fragments = inner(family, 0x900 + number as u32).fragments(&inner_udp(family, &content), 800);
            for (fragment, spi) in fragments.iter().zip(paths) {
                sequence += 1;
                match spi {
                    0 => rig.send(fragment),
                    spi => rig.send(&esp(&IPV4.ip(), spi, sequence, fragment)),
                }
            }
            rig.settle();
            std::thread::sleep(Duration::from_millis(5));
            let received = taken(&socket);
            let counted = rig.counted(family);
            assert!(
                received == is_good.then_some(content),
                "{} {paths:?}: {counted:?}",
                family.name()
            );
            let expected = if is_good { ("completed", 1) } else { ("security", 1) };
            assert!(counted.contains(&expected), "{} {paths:?}: {counted:?}", family.name());
        }
    }
}

/// The sums above are those of RFC 1071, section 3.
#[test]
fn a_sum_is_that_of_the_example() {
    assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
}
