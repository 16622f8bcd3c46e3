//! What a sender may do: datagrams in any order, of any size, several at a time. They arrive.

use super::packet::{self, EXPERIMENT, payload};
use super::rig::{FAMILIES, FROM, Family, IPV4, IPV6, Rig, TO, at, bound, raw, taken};
use crate::module::Settings;
use crate::module::tests::SETTINGS;
use tarn_lab::random::Random;
use tarn_lab::testing::is_thorough;

/// Every order to send fragments in, with its name.
pub fn orders(fragments: &[Vec<u8>], seeds: u64) -> Vec<(String, Vec<Vec<u8>>)> {
    let reversed = fragments.iter().rev().cloned().collect();
    let (last, others) = fragments.split_last().unwrap();
    let last_first = [std::slice::from_ref(last), others].concat();
    let first_last = [&fragments[1..], &fragments[..1]].concat();
    let (low, high) = fragments.split_at(fragments.len().div_ceil(2));
    let halves = low
        .iter()
        .enumerate()
        .flat_map(|(index, fragment)| [Some(fragment), high.get(index)])
        .flatten()
        .cloned()
        .collect();
    let mut orders = vec![
        ("in order".to_owned(), fragments.to_vec()),
        ("reversed".to_owned(), reversed),
        ("the last one first".to_owned(), last_first),
        ("the first one last".to_owned(), first_last),
        ("halves in turns".to_owned(), halves),
    ];
    for seed in 0..seeds {
        let mut shuffled = fragments.to_vec();
        Random::new(seed, "order").shuffle(&mut shuffled);
        orders.push((format!("at random, {seed}"), shuffled));
    }
    orders
}

/// A datagram arrives in every order, taken by the module.
pub fn expect_any_order(rig: &Rig, family: Family, what: &str) {
    let content = payload(4000, 9);
    rig.counted(family);
    for order in 0..6 {
        let fragments = rig.ip(family).fragments(&family.udp(&content), 800);
        let (name, ordered) = orders(&fragments, 1).remove(order);
        rig.send_all(&ordered);
        rig.expect(family, &content, &format!("{what}, {name}"));
    }
    assert_eq!(rig.counted(family), [("fragments", 36), ("completed", 6)], "{what}");
}

/// Links with several ways, and routers with several queues, deliver in any order: a datagram would be lost, or garbled.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_datagram_arrives_in_any_order() {
    let rig = Rig::new();
    for family in FAMILIES {
        // Two, three, eight and many fragments; beyond the sixteen slots, and beyond a chunk of 64.
        // And one whose last fragment has a single byte.
        for (length, size) in [(20, 16), (40, 16), (10_000, 1400), (3000, 64), (2100, 24), (1593, 800)] {
            let content = payload(length, size as u32);
            let count = orders(&rig.ip(family).fragments(&family.udp(&content), size), 3).len();
            for order in 0..count {
                let fragments = rig.ip(family).fragments(&family.udp(&content), size);
                let (name, ordered) = orders(&fragments, 3).remove(order);
                rig.send_all(&ordered);
                rig.expect(family, &content, &format!("{length} bytes in {size}, {name}"));
                let expected = [("fragments", fragments.len() as u64), ("completed", 1)];
                assert_eq!(rig.counted(family), expected, "{name}");
            }
        }
    }
    rig.expect_empty();
}

/// A router behind a router cuts fragments again, so that their sizes differ: a datagram would be lost.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_fragments_of_different_sizes_arrive_in_any_order() {
    let rig = Rig::new();
    let cuts: [&[usize]; 5] = [
        &[1400, 72, 1400, 72, 1400, 72, 1400],
        &[8, 1440, 8, 16, 800],
        &[1440, 1440, 16],
        // The last one is larger than the others, so that its place is not known when it comes first.
        &[800, 800, 1440],
        &[
            8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152,
        ],
    ];
    for family in FAMILIES {
        for (index, sizes) in cuts.into_iter().enumerate() {
            // A byte less than the sizes: what is last need not be a multiple of eight.
            let content = payload(sizes.iter().sum::<usize>() - 9, index as u32);
            for order in 0..9 {
                let fragments = rig.ip(family).cut(&family.udp(&content), sizes);
                let (name, ordered) = orders(&fragments, 4).remove(order);
                rig.send_all(&ordered);
                rig.expect(family, &content, &format!("{sizes:?}, {name}"));
            }
        }
    }
    rig.expect_empty();
}

/// The largest datagram in the smallest fragments, at random and in reverse: it would be lost, or take more than its memory.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_the_largest_datagram_of_the_smallest_fragments_arrives() {
    let rig = Rig::with(&Settings {
        memory: 64 << 20,
        share: 2,
        ..SETTINGS
    });
    // IPv4's length covers its header, IPv6's does not.
    for (family, most, chosen) in [(IPV4, 65_535 - 20, 5), (IPV6, 65_535, 1)] {
        let content = payload(most - 8, 65);
        let fragments = rig.ip(family).fragments(&family.udp(&content), 8);
        rig.send_all(&orders(&fragments, 1)[chosen].1);
        rig.expect(family, &content, "65,535 bytes");
        let number = most.div_ceil(8) as u64;
        assert_eq!(rig.counted(family), [("fragments", number), ("completed", 1)]);
        // What a packet takes is several hundred bytes, however little it carries.
        let held = rig.held();
        assert!((500 * number..2000 * number).contains(&held.memory_max), "{held:?}");
    }
    rig.expect_empty();
}

/// Networks duplicate packets: a datagram would be lost, or delivered with bytes of the copy.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_exact_duplicates_are_ignored() {
    let rig = Rig::new();
    let cuts: [&[usize]; 2] = [&[800; 6], &[800, 1400, 8, 800, 640]];
    for family in FAMILIES {
        for sizes in cuts {
            let content = payload(sizes.iter().sum::<usize>() - 16, 2);
            for order in 0..9 {
                let fragments = rig.ip(family).cut(&family.udp(&content), sizes);
                let (name, ordered) = orders(&fragments, 4).remove(order);
                // Each one again behind the next; but nothing behind the one that completes the datagram.
                let (completing, before) = ordered.split_last().unwrap();
                for (index, fragment) in before.iter().enumerate() {
                    rig.send(fragment);
                    rig.send(&before[index.saturating_sub(1)]);
                }
                rig.send(completing);
                rig.expect(family, &content, &format!("{sizes:?}, {name}"));
                let repeated = before.len() as u64;
                let expected = [
                    ("fragments", 2 * repeated + 1),
                    ("duplicates", repeated),
                    ("completed", 1),
                ];
                assert_eq!(rig.counted(family), expected, "{name}");
            }
        }
    }
    rig.expect_empty();
}

/// Two senders, two receivers and two identifiers, all mixed: one would get what is another's.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_datagrams_of_different_ends_are_not_mixed() {
    let rig = Rig::new();
    for family in FAMILIES {
        let other = bound(rig.receiver(), at(family.other_receiver, TO));
        let address = |text: &str| text.parse().unwrap();
        let first = rig.ip(family);
        let mut datagrams = Vec::new();
        for source in [family.sender, family.other_sender] {
            for destination in [family.receiver, family.other_receiver] {
                for identification in [first.identification, first.identification ^ 0x100] {
                    let ip = packet::Ip {
                        source: address(source),
                        destination: address(destination),
                        identification,
                        ..first.clone()
                    };
                    let content = payload(4000, datagrams.len() as u32);
                    let udp = packet::udp(at(source, FROM), at(destination, TO), &content);
                    datagrams.push((destination, content, orders(&ip.fragments(&udp, 800), 4)));
                }
            }
        }
        // Fragment by fragment of all of them, each in an order of its own.
        for index in 0..datagrams[0].2[0].1.len() {
            for (order, (_, _, orders)) in datagrams.iter().enumerate() {
                rig.send(&orders[order].1[index]);
            }
        }
        rig.settle();
        for (socket, of) in [(rig.socket(family), family.receiver), (&other, family.other_receiver)] {
            let mut received: Vec<_> = std::iter::from_fn(|| taken(socket)).collect();
            let expected = datagrams.iter().filter(|(destination, ..)| *destination == of);
            let mut expected: Vec<_> = expected.map(|(_, content, _)| content.clone()).collect();
            received.sort();
            expected.sort();
            assert!(received == expected, "{of}: {} of {}", received.len(), expected.len());
        }
    }
    rig.expect_empty();
}

/// IPv4's identifiers are those of a protocol, IPv6's are not (RFC 791, RFC 8200): datagrams would be mixed, or never complete.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_protocol_has_identifiers_of_its_own_in_ipv4_only() {
    let rig = Rig::new();
    let (content, other) = (payload(3000, 1), payload(3000, 2));
    let of_experiment = |ip: &packet::Ip| packet::Ip {
        protocol: EXPERIMENT,
        ..ip.clone()
    };
    let socket = raw(rig.receiver(), IPV4, EXPERIMENT);
    let ip = rig.ip(IPV4);
    let datagram = ip.fragments(&IPV4.udp(&content), 1400);
    let experiment = of_experiment(&ip).fragments(&other, 1400);
    for (one, another) in datagram.iter().zip(&experiment) {
        rig.send(one);
        rig.send(another);
    }
    rig.expect(IPV4, &content, "of UDP");
    let received = taken(&socket).expect("the other protocol's");
    assert!(received[20..] == other);

    // The first fragment says which protocol it is.
    let ip = rig.ip(IPV6);
    let mut fragments = of_experiment(&ip).fragments(&IPV6.udp(&content), 1400);
    fragments[0] = ip.fragments(&IPV6.udp(&content), 1400).remove(0);
    fragments.reverse();
    rig.send_all(&fragments);
    rig.expect(IPV6, &content, "of UDP, by its first fragment");
    rig.expect_empty();
}

/// An identifier comes again when its sender has used all others. What is left of the datagram before must not get into this
/// one; but a sender that is only busy must not lose what is late.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_an_identifier_of_thousands_of_datagrams_ago_is_another_datagram() {
    const REUSED: usize = 4096;
    let rig = Rig::with(&Settings {
        memory: 64 << 20,
        share: 2,
        ..SETTINGS
    });
    let families = if is_thorough() { &FAMILIES[..] } else { &FAMILIES[..1] };
    for &family in families {
        let (old, new) = (payload(1000, 1), payload(1000, 2));
        let cut = |ip: &packet::Ip, content: &[u8]| ip.fragments(&family.udp(content), 800);
        let (used, late) = (rig.ip(family), rig.ip(family));
        rig.send(&cut(&used, &old)[0]);
        rig.send(&cut(&late, &old)[0]);
        for _ in 1..REUSED {
            rig.send(&rig.ip(family).fragment(0, true, &[0; 8]));
        }
        rig.send(&cut(&late, &old)[1]);
        rig.expect(family, &old, "4,095 datagrams later");
        assert!(rig.counted(family).contains(&("reused", 1)), "{}", family.name());
        rig.send(&cut(&used, &new)[1]);
        rig.expect_nothing(family, "4,096 datagrams later");
        assert_eq!(rig.counted(family), [("fragments", 1)]);
        rig.send(&cut(&used, &new)[0]);
        rig.expect(family, &new, "the second one with the identifier");
    }
}

/// Whatever the sender's address family is called, a family's figures are its own.
#[test]
#[ignore = "needs the lab"]
fn lab_reassembly_families_are_counted_apart() {
    let rig = Rig::new();
    for (family, other) in [(IPV4, IPV6), (IPV6, IPV4)] as [(Family, Family); 2] {
        rig.send_all(&rig.ip(family).fragments(&family.udp(&[7; 100]), 64));
        assert_eq!(rig.counted(other), []);
        assert_eq!(rig.counted(family), [("fragments", 2), ("completed", 1)]);
    }
}
