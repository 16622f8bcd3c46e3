//! Which datagrams are discarded: an overlap, an end that cannot be, a fragment that is none.

use proptest::prelude::*;

use super::held::{Held, Verdict};
use super::{Fate, Fragment, cut, last, more, run};
use crate::tests::random::Random;

/// Inserts the fragments, which are taken, and returns the verdict on `newest`.
fn verdict(fragments: &[Fragment], newest: Fragment) -> Verdict {
    let mut held = Held::new(fragments.len() + 1);
    for fragment in fragments {
        assert_eq!(held.insert(*fragment), Verdict::Held, "{fragment:?} of {fragments:?}");
    }
    let verdict = held.insert(newest);
    held.take();
    verdict
}

/// One packet of 20 bytes with MF set stopped the kernel once.
#[test]
fn core_a_fragment_without_data_is_discarded() {
    for offset in [0, 8, 65_528] {
        for fragment in [more(offset, 0), last(offset, 0)] {
            assert_eq!(verdict(&[], fragment), Verdict::BadLength);
            assert_eq!(verdict(&[more(0, 8)], fragment), Verdict::BadLength);
            assert_eq!(verdict(&[last(16, 8)], fragment), Verdict::BadLength);
            assert_eq!(verdict(&[more(0, 8), more(16, 16)], fragment), Verdict::BadLength);
        }
    }
}

#[test]
fn core_a_length_that_is_no_multiple_of_8_is_the_last_fragments_only() {
    for length in (1..100).filter(|length| length % 8 != 0) {
        assert_eq!(verdict(&[], more(0, length)), Verdict::BadLength);
        assert_eq!(verdict(&[more(0, 8)], more(8, length)), Verdict::BadLength);
        assert_eq!(verdict(&[more(0, 8)], last(8, length)), Verdict::Whole);
    }
}

#[test]
fn core_nothing_ends_behind_65535_bytes() {
    for fragments in [vec![], vec![more(0, 8)], vec![more(0, 8), more(8, 16)]] {
        assert_eq!(verdict(&fragments, more(65_528, 8)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, last(65_528, 8)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, more(65_520, 16)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, last(32, 65_504)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, last(65_528, 65_535)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, last(65_528, 7)), Verdict::Held);
    }
    // The common path's own bound: the last slot that a size has.
    for size in [8, 16, 24, 1400, 1480, 21_840, 32_768] {
        let index = 65_535 / size;
        assert_eq!(
            verdict(&[more(0, size)], more(index * size, size)),
            Verdict::BadEnd,
            "{size}"
        );
    }
}

#[test]
fn core_a_second_end_is_discarded() {
    for fragments in [
        vec![last(80, 8)],
        vec![more(0, 8), last(80, 8)],
        vec![more(0, 16), more(16, 8), last(80, 8)],
    ] {
        assert_eq!(verdict(&fragments, last(80, 8)), Verdict::Duplicate);
        assert_eq!(verdict(&fragments, last(80, 7)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, last(88, 8)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, last(40, 8)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, last(72, 16)), Verdict::Overlap);
        assert_eq!(verdict(&fragments, more(88, 8)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, more(80, 16)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, more(80, 8)), Verdict::Overlap);
    }
}

#[test]
fn core_an_end_before_what_is_there_is_discarded() {
    for fragments in [vec![more(80, 8)], vec![more(80, 8), more(0, 16)]] {
        assert_eq!(verdict(&fragments, last(40, 8)), Verdict::BadEnd);
        assert_eq!(verdict(&fragments, last(80, 8)), Verdict::Overlap);
        assert_eq!(verdict(&fragments, last(88, 1)), Verdict::Held);
    }
}

/// What no duplicate is: the same place and length, but one is the last and the other is not.
#[test]
fn core_the_same_bytes_with_and_without_a_successor_overlap() {
    for others in [
        vec![],
        vec![more(0, 16)],
        vec![more(0, 8)],
        vec![more(0, 8), more(8, 24)],
    ] {
        for [one, other] in [[more(160, 16), last(160, 16)], [last(160, 16), more(160, 16)]] {
            let mut fragments = others.clone();
            fragments.push(one);
            assert_eq!(verdict(&fragments, one), Verdict::Duplicate);
            assert_eq!(verdict(&fragments, other), Verdict::Overlap);
        }
    }
}

/// Every fragment that overlaps another of the datagram by 8 bytes or more, in slots and in units.
#[test]
fn core_every_overlap_is_discarded() {
    for others in [vec![], vec![more(0, 8)]] {
        let mut fragments: Vec<Fragment> = (2..6).map(|index| more(index * 32, 32)).collect();
        fragments.extend(others);
        for offset in (32..192).step_by(8) {
            for length in (8..=64).step_by(8) {
                let is_there = length == 32 && offset >= 64 && offset % 32 == 0;
                let overlaps = offset + length > 64;
                let expected = match (is_there, overlaps) {
                    (true, _) => Verdict::Duplicate,
                    (_, true) => Verdict::Overlap,
                    _ => Verdict::Held,
                };
                assert_eq!(verdict(&fragments, more(offset, length)), expected, "{offset} {length}");
            }
        }
    }
}

/// Few places and sizes, so that most meet; a last one anywhere.
fn near() -> impl Strategy<Value = Fragment> {
    (
        0..24_u32,
        1..6_u32,
        prop_oneof![4 => Just(true), 1 => Just(false)],
        0..8_u32,
    )
        .prop_map(|(index, length, is_more, odd)| Fragment {
            offset: index * 8,
            length: if is_more { length * 8 } else { length * 8 - odd },
            more: is_more,
        })
}

/// Anything that a header can say; the borders often.
fn anything() -> impl Strategy<Value = Fragment> {
    let offset = prop_oneof![0..32_u32, Just(4095), Just(4096), Just(8191), 0..8192_u32];
    let length = prop_oneof![
        Just(0),
        0..65_u32,
        (0..8192_u32).prop_map(|units| units * 8),
        0..=65_535_u32
    ];
    (offset, length, any::<bool>()).prop_map(|(offset, length, more)| Fragment {
        offset: offset * 8,
        length,
        more,
    })
}

/// One size at any index, and now and then another size or a last one.
fn regular() -> impl Strategy<Value = Vec<Fragment>> {
    let one = (0..200_u32, prop_oneof![30 => Just(0_u32), 1 => 1..3_u32]);
    (
        prop_oneof![Just(8_u32), Just(16), Just(64), Just(320)],
        proptest::collection::vec(one, 1..60),
    )
        .prop_map(|(size, steps)| {
            let fragment = |(index, kind): &(u32, u32)| match kind {
                0 => more(index * size, size),
                1 => last(index * size, size - 3),
                _ => more(index * size + 8, size + 8),
            };
            steps.iter().map(fragment).collect()
        })
}

/// A completed datagram with one that does not belong to it.
fn spoiled() -> impl Strategy<Value = Vec<Fragment>> {
    (1..30_u32, 1..20_u32, near()).prop_map(|(units, number, strange)| {
        let mut fragments = cut(units * 8 * number + 5, units * 8);
        fragments.push(strange);
        fragments
    })
}

fn any_fragments() -> impl Strategy<Value = Vec<Fragment>> {
    prop_oneof![
        proptest::collection::vec(near(), 1..24),
        proptest::collection::vec(anything(), 1..16),
        proptest::collection::vec(prop_oneof![10 => near(), 1 => anything()], 1..16),
        regular(),
        spoiled(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn core_any_fragments_fare_as_in_the_model(fragments in any_fragments()) {
        run(&fragments);
    }

    /// Senders do not choose a datagram's fate by the order, nor does the network: either both orders discard, or the
    /// one that does not was complete before the fragment that spoils it came.
    #[test]
    fn core_the_order_does_not_decide_whether_a_datagram_is_discarded(
        fragments in any_fragments(),
        seed in any::<u64>(),
    ) {
        let mut other = fragments.clone();
        Random(seed).shuffle(&mut other);
        let fates = [run(&fragments), run(&other)];
        let is_late = fates.contains(&Fate::Whole) && fates.contains(&Fate::Discarded);
        prop_assert!(fates[0] == fates[1] || is_late, "{:?} in {:?} and {:?}", fates, fragments, other);
    }
}
