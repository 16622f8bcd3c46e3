//! Whole datagrams, in any order of arrival and of any sizes.

use proptest::prelude::*;

use super::{Fate, Fragment, completes, cut, last, more, piece, run};
use crate::tests::random::Random;

/// Calls `visit` with every order (Heap's algorithm).
fn every_order(list: &mut [Fragment], number: usize, visit: &mut impl FnMut(&[Fragment])) {
    if number <= 1 {
        return visit(list);
    }
    for i in 0..number {
        every_order(list, number - 1, visit);
        list.swap(if number % 2 == 0 { i } else { 0 }, number - 1);
    }
}

/// In order, reverse, the halves interleaved, the last first, at random.
fn orders(fragments: &[Fragment], random: &mut Random) -> Vec<Vec<Fragment>> {
    let mut orders = vec![fragments.to_vec(); 5];
    orders[1].reverse();
    let half = fragments.len().div_ceil(2);
    orders[2] = (0..fragments.len()).map(|i| fragments[i / 2 + i % 2 * half]).collect();
    orders[3].rotate_right(1);
    random.shuffle(&mut orders[4]);
    orders
}

/// Up to seven fragments of one size, whose last is shorter, as long, or one byte.
#[test]
fn core_small_datagrams_complete_in_every_order() {
    for number in 2..=7 {
        for last in [1, 9, 24] {
            let mut fragments = cut((number - 1) * 24 + last, 24);
            let length = fragments.len();
            every_order(&mut fragments, length, &mut completes);
        }
    }
}

/// Sizes that differ, in every order: two routers on the way, or a sender that does as it likes.
#[test]
fn core_datagrams_of_different_sizes_complete_in_every_order() {
    let all: [&[u32]; 6] = [
        &[8, 16, 8, 1],
        &[16, 8, 8, 16, 5],
        &[1480, 1000, 480, 1480, 2000],
        &[8, 8, 65_000],
        &[512, 8, 512, 8, 512, 8],
        &[65_528, 7],
    ];
    for lengths in all {
        let total = lengths.iter().sum();
        let mut offset = 0;
        let mut fragments = Vec::new();
        for length in lengths {
            fragments.push(piece(offset, *length, total));
            offset += length;
        }
        every_order(&mut fragments, lengths.len(), &mut completes);
    }
}

/// 65,535 bytes, the most, cut to every size there is.
#[test]
fn core_the_largest_datagram_completes_with_every_size() {
    let mut random = Random(1);
    for size in (8..65_535).step_by(8) {
        for order in orders(&cut(65_535, size), &mut random) {
            completes(&order);
        }
    }
}

/// As many fragments as there are slots in the structure, in a chunk and in the table, one less, one more.
#[test]
fn core_every_number_of_fragments_near_a_boundary_completes() {
    let mut random = Random(2);
    for number in [15, 16, 17, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 8191, 8192] {
        let longest = ((65_535 / number) & !7).max(8);
        for size in [8, longest] {
            for total in [(number - 1) * size + 1, (number * size).min(65_535)] {
                for order in orders(&cut(total, size), &mut random) {
                    completes(&order);
                }
            }
        }
    }
}

/// The last fragment came first and fits no slot of the size that follows: it is one more, not lost.
#[test]
fn core_a_last_fragment_that_came_first_may_be_longer_or_apart() {
    for (offset, length) in [(16, 100), (40, 3), (40, 8), (8, 2000), (24, 1)] {
        let mut fragments = vec![last(offset, length)];
        fragments.extend((0..offset / 8).map(|i| more(i * 8, 8)));
        completes(&fragments);
        fragments[1..].reverse();
        completes(&fragments);
    }
    completes(&[last(48, 30), more(0, 32), more(32, 16)]);
    completes(&[last(64_000, 1535), more(32_000, 32_000), more(0, 32_000)]);
}

prop_compose! {
    /// A whole datagram, cut at random places, in a random order: (fragments, seed).
    fn datagrams()(
        units in prop_oneof![2..20_u32, 2..1000_u32, 2..8192_u32],
        odd in 1..=8_u32,
        cuts in proptest::collection::vec(any::<u32>(), 1..60),
        seed in any::<u64>(),
    ) -> Vec<Fragment> {
        let total = ((units - 1) * 8 + odd).min(65_535);
        let mut at: Vec<u32> = cuts.iter().map(|cut| (cut % (units - 1) + 1) * 8).chain([0, total]).collect();
        at.sort_unstable();
        at.dedup();
        let mut fragments: Vec<Fragment> = at.windows(2).map(|at| piece(at[0], at[1] - at[0], total)).collect();
        Random(seed).shuffle(&mut fragments);
        fragments
    }
}

proptest! {
    #[test]
    fn core_datagrams_cut_anywhere_complete_in_any_order(fragments in datagrams()) {
        completes(&fragments);
    }

    /// What comes twice before the datagram is whole changes nothing.
    #[test]
    fn core_duplicates_are_ignored(
        fragments in datagrams(),
        again in proptest::collection::vec(any::<prop::sample::Index>(), 1..20),
    ) {
        let (newest, others) = fragments.split_last().unwrap();
        let mut all = others.to_vec();
        for index in again {
            let one = all[index.index(all.len())];
            let at = all.iter().position(|other| *other == one).unwrap();
            all.insert(at + 1 + index.index(all.len() - at), one);
        }
        all.push(*newest);
        prop_assert_eq!(run(&all), Fate::Whole);
    }

    /// Until the last byte is there, a datagram is not whole.
    #[test]
    fn core_a_datagram_with_a_gap_is_never_whole(fragments in datagrams(), index in any::<prop::sample::Index>()) {
        let mut fragments = fragments;
        fragments.remove(index.index(fragments.len()));
        prop_assert_eq!(run(&fragments), Fate::Held);
    }
}
