//! The module's record of the bytes that are here, compiled for user space, against a set of them.

use std::collections::BTreeSet;

use proptest::prelude::*;

const SPANS: usize = 4;

/// `struct spans`
#[repr(C)]
#[derive(Debug, Default)]
struct Spans {
    count: u32,
    span: [[u32; 2]; SPANS],
}

unsafe extern "C" {
    fn spans_add(spans: *mut Spans, from: u32, to: u32);
    fn spans_cover(spans: *const Spans, from: u32, to: u32) -> i32;
    fn spans_end_at(spans: *const Spans, number: u32) -> i32;
}

impl Spans {
    fn add(&mut self, from: u32, to: u32) {
        // SAFETY: the structure is of the layout in spans.h, and lives for the call.
        unsafe { spans_add(&raw mut *self, from, to) }
    }

    fn cover(&self, from: u32, to: u32) -> bool {
        // SAFETY: as above.
        unsafe { spans_cover(&raw const *self, from, to) != 0 }
    }
}

proptest! {
    /// Segments in any order, anywhere in the numbers: what is said to be here is here, and where there are no more gaps than
    /// there is room for, all of it.
    #[test]
    fn what_is_here_is_known(
        begin in any::<u32>(),
        segments in prop::collection::vec((0_u32..60, 1_u32..20), 1..40),
        asked in prop::collection::vec((0_u32..60, 1_u32..20), 1..40),
    ) {
        let mut spans = Spans::default();
        let (mut here, mut fits) = (BTreeSet::new(), true);
        for (from, length) in segments {
            spans.add(begin.wrapping_add(from), begin.wrapping_add(from + length));
            here.extend(from..from + length);
            let ranges = here.iter().filter(|byte| !here.contains(&(**byte + 1))).count();
            fits &= ranges <= SPANS;
            prop_assert_eq!(spans.count as usize == ranges || !fits, true);
        }
        for (from, length) in asked {
            let is_here = (from..from + length).all(|byte| here.contains(&byte));
            let found = spans.cover(begin.wrapping_add(from), begin.wrapping_add(from + length));
            prop_assert!(!found || is_here, "{} to {}", from, from + length);
            prop_assert!(found || !is_here || !fits, "{} to {}", from, from + length);
        }
    }

    /// Numbers that somebody made up, from anywhere: they never make others look as if they were here.
    #[test]
    fn made_up_numbers_cover_themselves_alone(
        made_up in prop::collection::vec((any::<u32>(), 1_u32..65_536), 0..20),
        from in any::<u32>(),
    ) {
        let mut spans = Spans::default();
        for (from, length) in &made_up {
            spans.add(*from, from.wrapping_add(*length));
        }
        let is_theirs = made_up.iter().any(|(theirs, length)| from.wrapping_sub(*theirs) < *length);
        prop_assert!(!spans.cover(from, from.wrapping_add(1)) || is_theirs);
        // From the other end of the numbers, where before and behind change places.
        let mut spans = Spans::default();
        spans.add(from, from.wrapping_add(1));
        let opposite = from.wrapping_add((1 << 31) - 30_000);
        prop_assert!(!spans.cover(opposite, opposite.wrapping_add(60_001)));
    }
}

/// Ranges that join to more than can be compared are not joined.
#[test]
fn a_range_grows_no_further_than_numbers_can_be_compared() {
    let mut spans = Spans::default();
    for piece in 0..5_u32 {
        spans.add(piece << 28, (piece + 1) << 28);
    }
    assert!(spans.cover(0, 4 << 28));
    assert!(!spans.cover(4 << 28, 5 << 28) && !spans.cover(1 << 31, (1 << 31) + 1));
}

/// Where a client's data ends, its reset is: nowhere else.
#[test]
fn the_end_of_what_is_here_is_known() {
    let mut spans = Spans::default();
    spans.add(u32::MAX - 4, 5);
    spans.add(10, 20);
    // SAFETY: as above.
    let is_end = |number| unsafe { spans_end_at(&raw const spans, number) != 0 };
    assert!(is_end(5) && is_end(20));
    assert!(!is_end(u32::MAX - 4) && !is_end(10) && !is_end(0) && !is_end(15));
}
