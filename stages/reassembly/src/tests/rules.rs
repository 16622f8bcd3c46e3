//! What no honest sender does: the whole datagram is discarded, counted by reason, and nothing of it is delivered.

use super::packet::{self, DESTINATION_OPTIONS, Ip, payload};
use super::rig::{Counted, FAMILIES, Family, IPV4, IPV6, Rig, counter};

/// Where a fragment lies in its datagram: first byte, length, and whether more follow.
type Piece = (usize, usize, bool);

/// A datagram of 1,000 bytes in three.
const WHOLE: [Piece; 3] = [(0, 400, true), (400, 400, true), (800, 200, false)];

/// The fragment of a datagram; what lies behind its end is made up.
fn cut(ip: &Ip, datagram: &[u8], (offset, length, more): Piece) -> Vec<u8> {
    let bytes = datagram.iter().copied().chain(std::iter::repeat(0xee));
    let piece: Vec<u8> = bytes.skip(offset).take(length).collect();
    ip.fragment(offset, more, &piece)
}

/// Sends fragments of one datagram, the last of which has to spoil it. Nothing is held or delivered afterwards.
fn expect_spoiled(rig: &Rig, family: Family, pieces: &[Piece], reason: &'static str) {
    let (ip, datagram) = (rig.ip(family), family.udp(&payload(992, 1)));
    for piece in pieces {
        rig.send(&cut(&ip, &datagram, *piece));
    }
    let what = format!("{} {pieces:?}", family.name());
    rig.expect_nothing(family, &what);
    let expected = [("fragments", pieces.len() as u64), (reason, 1)];
    assert_eq!(rig.counted(family), expected, "{what}");
    assert_eq!(rig.held().datagrams, 0, "{what}");
}

/// All orders of some things.
fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let with = |index: usize| {
        let mut others = items.to_vec();
        let chosen = others.remove(index);
        permutations(&others)
            .into_iter()
            .map(move |rest| [vec![chosen.clone()], rest].concat())
    };
    (0..items.len()).flat_map(with).collect()
}

/// Overlapping fragments get past firewalls and intrusion detection (RFC 1858, RFC 5722): what is delivered would depend on
/// the order in which they come.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_an_overlap_discards_the_datagram_in_any_order() {
    let rig = Rig::new();
    let overlaps = [
        (200, 400, true),  // across a border
        (40, 40, true),    // inside of one
        (392, 416, true),  // one and more on both sides
        (0, 40, true),     // the beginning of one, and shorter
        (0, 408, true),    // ... and longer
        (392, 8, true),    // the end of one
        (792, 208, false), // the same end
        (800, 200, true),  // the last one, with more to come
        (408, 392, false), // the last of another datagram
    ];
    for family in FAMILIES {
        let kernel_s = || counter(rig.receiver(), "IpExtReasmOverlaps");
        let before = kernel_s();
        let mut overlapped = 0;
        for overlap in overlaps {
            let mut number = 0;
            for order in permutations(&[WHOLE[0], WHOLE[1], WHOLE[2], overlap]) {
                // Behind a datagram that is complete, it is one of another.
                if order[3] == overlap {
                    continue;
                }
                let (ip, datagram) = (rig.ip(family), family.udp(&payload(992, 1)));
                order.iter().for_each(|piece| rig.send(&cut(&ip, &datagram, *piece)));
                number += 1;
            }
            let what = format!("{} {overlap:?}", family.name());
            rig.expect_nothing(family, &what);
            let counted = rig.counted(family);
            assert_eq!(spoiled(&counted), number, "{what}: {counted:?}");
            overlapped += of(&counted, "overlap");
            assert!(
                !counted.iter().any(|(name, _)| *name == "completed"),
                "{what}: {counted:?}"
            );
        }
        if !family.is_second {
            assert_eq!(kernel_s() - before, overlapped, "what monitoring watches");
        }
    }
}

fn of(counted: &Counted, reason: &str) -> u64 {
    let found = counted.iter().find(|(name, _)| *name == reason);
    found.map_or(0, |(_, count)| *count)
}

/// Datagrams that overlap or end twice.
fn spoiled(counted: &Counted) -> u64 {
    of(counted, "overlap") + of(counted, "bad_end")
}

/// A fragment that differs from one that is there in its bytes only: the first one is kept, as of every duplicate.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_of_two_fragments_of_the_same_place_the_first_stays() {
    let rig = Rig::new();
    for family in FAMILIES {
        let (ip, content) = (rig.ip(family), payload(992, 1));
        let (datagram, other) = (family.udp(&content), family.udp(&payload(992, 2)));
        rig.send(&cut(&ip, &datagram, WHOLE[1]));
        rig.send(&cut(&ip, &other, WHOLE[1]));
        rig.send(&cut(&ip, &datagram, WHOLE[2]));
        rig.send(&cut(&ip, &other, WHOLE[2]));
        rig.send(&cut(&ip, &datagram, WHOLE[0]));
        rig.expect(family, &content, "the first bytes that came");
    }
    rig.expect_empty();
}

/// The "ping of death": a fragment whose end is beyond what a length can say.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_fragment_beyond_65535_bytes_discards_the_datagram() {
    let rig = Rig::new();
    for family in FAMILIES {
        for beyond in [
            (65_528, 8, false),
            (65_528, 8, true),
            (65_528, 1000, false),
            (65_520, 24, true),
        ] {
            expect_spoiled(&rig, family, &[WHOLE[0], beyond], "bad_end");
            expect_spoiled(&rig, family, &[beyond], "bad_end");
        }
    }
    rig.expect_empty();
}

/// Without its headers the datagram has 65,535 bytes, with them it has more.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_datagram_that_its_headers_make_too_long_is_discarded() {
    let rig = Rig::new();
    for family in FAMILIES {
        let mut ip = rig.ip(family);
        if family.is_second {
            ip.extensions.push((DESTINATION_OPTIONS, vec![1, 4, 0, 0, 0, 0]));
        }
        let datagram = packet::unsummed_udp(at_any(), at_any(), &payload(65_527, 1));
        let fragments = ip.fragments(&datagram, 1400);
        let number = fragments.len() as u64;
        rig.send_all(&fragments);
        rig.expect_nothing(family, "65,535 bytes and headers");
        assert_eq!(
            rig.counted(family),
            [("fragments", number), ("bad_end", 1)],
            "{}",
            family.name()
        );
    }
    rig.expect_empty();
}

fn at_any() -> std::net::SocketAddr {
    super::rig::at(IPV4.receiver, super::rig::TO)
}

/// Two last fragments, or bytes behind the last: one of them is forged, and nobody knows which.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_second_end_discards_the_datagram() {
    let rig = Rig::new();
    let (last, longer, behind) = ((1600, 400, false), (1600, 800, false), (2400, 80, true));
    for family in FAMILIES {
        for pieces in [
            [WHOLE[0], last, longer],
            [WHOLE[0], longer, last],
            [last, WHOLE[0], (2400, 8, false)],
            [WHOLE[0], last, behind],
            [WHOLE[0], behind, last],
            // Of different sizes.
            [(0, 80, true), (160, 800, true), (80, 80, false)],
        ] {
            expect_spoiled(&rig, family, &pieces, "bad_end");
        }
    }
    rig.expect_empty();
}

/// Such fragments begin no datagram and belong to none: they would fill the memory for nothing ("rose attack").
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_fragment_without_bytes_discards_the_datagram() {
    let rig = Rig::new();
    for family in FAMILIES {
        for empty in [(800, 0, true), (800, 0, false)] {
            expect_spoiled(&rig, family, &[WHOLE[0], empty], "bad_length");
            expect_spoiled(&rig, family, &[empty], "bad_length");
        }
    }
    expect_spoiled(&rig, IPV4, &[(0, 0, true)], "bad_length");
    rig.expect_empty();
}

/// What follows such a fragment would have no place (offsets are in units of 8 bytes).
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_length_that_is_no_multiple_of_8_discards_the_datagram() {
    let rig = Rig::new();
    for family in FAMILIES {
        for odd in [(800, 801, true), (800, 7, true), (800, 4, true)] {
            expect_spoiled(&rig, family, &[WHOLE[0], odd], "bad_length");
            expect_spoiled(&rig, family, &[WHOLE[2], odd], "bad_length");
        }
        // The last one may have any length.
        let content = payload(1601, 1);
        rig.send_all(&rig.ip(family).fragments(&family.udp(&content), 800));
        rig.expect(family, &content, "a last fragment of 9 bytes");
        rig.counted(family);
    }
    rig.expect_empty();
}

/// A datagram of one fragment belongs to no other (RFC 6946): somebody who sends one could spoil those that are under way.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_an_atomic_fragment_is_delivered_and_touches_no_other() {
    let rig = Rig::new();
    let (ip, content, other) = (rig.ip(IPV6), payload(992, 1), payload(100, 2));
    let datagram = IPV6.udp(&content);
    rig.send(&cut(&ip, &datagram, WHOLE[2]));
    rig.send(&cut(&ip, &datagram, WHOLE[0]));
    rig.send(&ip.fragment(0, false, &IPV6.udp(&other)));
    rig.expect(IPV6, &other, "the atomic one");
    rig.send(&cut(&ip, &datagram, WHOLE[1]));
    rig.expect(IPV6, &content, "the one under way");
    rig.expect_empty();
}
