//! The core's own memory: what it says it holds, and what becomes of a datagram when there is none.

use proptest::prelude::*;

use super::held::{Held, Verdict};
use super::{Fate, Fragment, Model, cut, is_given_up, last, more};

/// Inserts the fragments where only the first `allocations` succeed. Returns whether one was missing.
fn runs_short(fragments: &[Fragment], allocations: i64) -> bool {
    let (mut held, mut model) = (Held::new(fragments.len()), Model::new());
    held.allocations = allocations;
    for (number, fragment) in (0..).zip(fragments) {
        let verdict = held.insert(*fragment);
        if verdict == Verdict::NoMemory {
            is_given_up(&mut held, &model);
            return true;
        }
        assert_eq!(Fate::from(verdict), model.insert(number, *fragment));
        match verdict {
            Verdict::Whole => {
                held.link();
                assert!(held.is_empty());
                return false;
            }
            verdict if verdict.discards() => break,
            _ => {}
        }
    }
    is_given_up(&mut held, &model);
    false
}

/// Every allocation of a datagram fails once: the datagram is lost, and every packet and byte of it comes back.
#[test]
fn core_without_memory_nothing_leaks() {
    let far: Vec<Fragment> = (0..16).map(|i| more(i * 4096, 8)).collect();
    let mut units = cut(65_535, 1480);
    units.insert(20, more(1480 * 20, 8));
    units.insert(21, more(1480 * 20 + 8, 1472));
    units.remove(22);
    let mut last_first = cut(2000, 8);
    last_first.rotate_right(1);
    for (fragments, least) in [
        (cut(65_535, 8), 60),
        (cut(8000, 64), 3),
        (far, 8),
        (units, 10),
        (last_first, 3),
        (vec![last(2048, 8), more(0, 16), more(16, 8)], 2),
    ] {
        let failures = (0..)
            .take_while(|allocations| runs_short(&fragments, *allocations))
            .count();
        assert!(failures >= least, "{failures} of at least {least}");
    }
}

/// A small fragment with a high offset must not make us hold much more than itself.
#[test]
fn core_no_fragment_takes_more_than_two_kilobytes() {
    for first in [more(0, 8), more(0, 1480), last(65_000, 8)] {
        for second in [
            more(65_520, 8),
            more(32_760, 8),
            more(32_768, 16),
            more(16, 2048),
            last(65_528, 1),
        ] {
            let mut held = Held::new(2);
            held.insert(first);
            held.insert(second);
            assert!(held.memory() <= 2048, "{first:?} {second:?}: {}", held.memory());
            held.take();
            assert!(held.is_empty());
        }
    }
}

/// Nothing is allocated for what is common: up to 16 fragments of one size.
#[test]
fn core_common_datagrams_take_no_memory_of_their_own() {
    let fragments = cut(16 * 1480, 1480);
    let mut held = Held::new(16);
    held.allocations = 0;
    for fragment in &fragments[..15] {
        assert_eq!(held.insert(*fragment), Verdict::Held);
    }
    assert_eq!(held.insert(fragments[15]), Verdict::Whole);
    assert_eq!(held.memory(), 0);
}

prop_compose! {
    fn fragments()(
        sizes in prop_oneof![Just([8, 8]), Just([8, 16]), Just([64, 64]), Just([1480, 1000])],
        steps in proptest::collection::vec((0..8192_u32, any::<bool>()), 1..40),
    ) -> Vec<Fragment> {
        let fragment = |(at, second): &(u32, bool)| {
            let size = sizes[usize::from(*second)];
            more(at * 8 / size * size, size)
        };
        steps.iter().map(fragment).collect()
    }
}

proptest! {
    #[test]
    fn core_without_memory_any_fragments_come_back(fragments in fragments(), allocations in 0..20_i64) {
        runs_short(&fragments, allocations);
    }
}
