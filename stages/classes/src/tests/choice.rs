//! The module's choice, compiled for user space, against exact numbers.

use std::collections::VecDeque;

use proptest::prelude::*;

pub(super) const WINDOW_SLOTS: usize = 16;
/// `SHARE_BITS`: counts below it are compared exactly.
const EXACT: u64 = 1 << 24;

/// `struct share`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    requests: u64,
    in_time: u64,
    target: u32,
}

/// `struct window`
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Window {
    requests: u64,
    in_time: u64,
    pub(super) answered: u64,
    pub(super) unanswered: u64,
    judged_requests: u64,
    judged_in_time: u64,
    slot_requests: [u32; WINDOW_SLOTS],
    slot_in_time: [u32; WINDOW_SLOTS],
    slot_answered: [u32; WINDOW_SLOTS],
    slot_unanswered: [u32; WINDOW_SLOTS],
    pub(super) number: u32,
    since: u32,
}

unsafe extern "C" {
    pub(super) fn is_further_behind(a: Share, b: Share) -> i32;
    pub(super) fn has_surplus(share: Share) -> i32;
    pub(super) fn window_count_request(window: *mut Window);
    pub(super) fn window_count_answer(window: *mut Window, number: u32, is_in_time: i32);
    pub(super) fn window_count_unanswered(window: *mut Window, number: u32);
    pub(super) fn window_uncount_unanswered(window: *mut Window, number: u32);
    pub(super) fn window_share(window: *const Window, target: u32) -> Share;
    pub(super) fn window_judge_anew(window: *mut Window);
    pub(super) fn window_advance(window: *mut Window, slots: u64);
    pub(super) fn window_clear(window: *mut Window);
}

pub(super) fn further_behind(a: Share, b: Share) -> bool {
    // SAFETY: the function takes two structures of this layout (choice.h) and touches nothing else.
    unsafe { is_further_behind(a, b) != 0 }
}

/// S/(N*P) of `a` less than that of `b`, multiplied out: exact.
fn exactly(a: Share, b: Share) -> bool {
    let product = |s: u64, n: u64, p: u32| u128::from(s) * u128::from(n) * u128::from(p);
    product(a.in_time, b.requests, b.target) < product(b.in_time, a.requests, a.target)
}

fn ratio(share: Share) -> f64 {
    share.in_time as f64 / share.requests as f64 / f64::from(share.target)
}

fn share(most: u64) -> impl Strategy<Value = Share> {
    (1..most, 0.0..=1.0, 1_u32..=10_000).prop_map(|(requests, part, target)| Share {
        requests,
        in_time: ((requests as f64 * part) as u64).min(requests),
        target,
    })
}

/// Late requests would cost a class what it was promised; or, without this, never be served.
#[test]
fn a_surplus_is_half_of_what_is_missing_to_all() {
    let has = |requests, in_time, target| {
        // SAFETY: as above.
        unsafe {
            has_surplus(Share {
                requests,
                in_time,
                target,
            }) != 0
        }
    };
    assert!(has(100, 95, 9000) && !has(1000, 949, 9000));
    assert!(has(4, 3, 5000) && !has(100, 74, 5000));
    assert!(has(1, 1, 10_000) && !has(1000, 999, 10_000) && !has(0, 0, 5000));
    assert!(has(1 << 40, 1 << 40, 9000) && !has(1 << 40, 1 << 39, 9000));
}

proptest! {
    #[test]
    fn small_counts_are_compared_exactly(a in share(EXACT), b in share(EXACT)) {
        prop_assert_eq!(further_behind(a, b), exactly(a, b));
    }

    /// Counts since the start may be of any size: what is clearly further behind is found so.
    #[test]
    fn counts_of_any_size_are_compared_closely(a in share(u64::MAX), b in share(u64::MAX)) {
        let (left, right) = (ratio(a), ratio(b));
        // Shifting a ratio's two counts moves it by at most 2^-22 of a whole.
        let unsure = 2.0_f64.powi(-22) * (1.0 / f64::from(a.target) + 1.0 / f64::from(b.target));
        if (left - right).abs() > unsure {
            prop_assert_eq!(further_behind(a, b), left < right, "{} {}", left, right);
        }
    }

    /// No two are each further behind than the other, and none than itself.
    #[test]
    fn the_choice_contradicts_itself_nowhere(a in share(u64::MAX), b in share(u64::MAX)) {
        prop_assert!(!(further_behind(a, b) && further_behind(b, a)));
        prop_assert!(!further_behind(a, a));
    }

    /// The window's sums are those of its last slots. Answers come when they like, also long after the window has
    /// forgotten their requests, and never count for more than these.
    #[test]
    fn the_window_forgets_what_is_old(steps in prop::collection::vec((0_u8..4, 0_u64..40), 1..400), first in any::<u32>()) {
        let mut window = Window { number: first, ..Window::default() };
        let mut slots: VecDeque<(u64, u64)> = VecDeque::from(vec![(0, 0); WINDOW_SLOTS]);
        for (kind, count) in steps {
            match kind {
                // SAFETY: the window is of the layout in choice.h, and lives for the call.
                0 => unsafe { window_count_request(&raw mut window) },
                // SAFETY: as above.
                1 => unsafe { window_count_answer(&raw mut window, window.number.wrapping_sub(count as u32), 1) },
                // SAFETY: as above.
                2 => unsafe { window_advance(&raw mut window, count) },
                // SAFETY: as above.
                _ if count == 0 => unsafe { window_clear(&raw mut window) },
                _ => {}
            }
            match kind {
                0 => slots.back_mut().unwrap().0 += 1,
                1 => {
                    if let Some(then) = slots.iter_mut().rev().nth(count as usize) {
                        then.1 += 1;
                    }
                }
                2 => (0..count.min(WINDOW_SLOTS as u64)).for_each(|_| {
                    slots.pop_front();
                    slots.push_back((0, 0));
                }),
                _ if count == 0 => slots.iter_mut().for_each(|slot| *slot = (0, 0)),
                _ => {}
            }
            let sums = slots.iter().fold((0, 0), |sum, slot| (sum.0 + slot.0, sum.1 + slot.1));
            prop_assert_eq!((window.requests, window.in_time), sums);
        }
    }
}

/// A class whose requests are all answered, each so late that the window has gone on, is not at more than 100 %.
#[test]
fn an_answer_counts_where_its_request_does() {
    let mut window = Window::default();
    for round in 0..100_u32 {
        // SAFETY: the window is of the layout in choice.h, and lives for the calls.
        unsafe {
            window_count_request(&raw mut window);
            window_advance(&raw mut window, 1 + u64::from(round) % 20);
            window_count_answer(&raw mut window, window.number.wrapping_sub(1 + round % 20), 1);
        }
        assert!(window.in_time <= window.requests, "round {round}: {window:?}");
    }
    // Begun anew, it knows nothing of what has arrived before.
    // SAFETY: as above.
    unsafe {
        window_count_request(&raw mut window);
        let before = window.number;
        window_clear(&raw mut window);
        window_count_answer(&raw mut window, before, 1);
    }
    assert_eq!((window.requests, window.in_time), (0, 0));
}

/// What was late before the choice decided anything is not made up for, but it is in the figures, and in time it is forgotten by both.
#[test]
fn a_class_is_judged_by_what_came_since_there_is_a_choice() {
    let mut window = Window::default();
    let arrive = |window: &mut Window, requests: u32, in_time: u32| {
        // SAFETY: the window is of the layout in choice.h, and lives for the calls.
        unsafe {
            (0..requests).for_each(|_| window_count_request(window));
            (0..in_time).for_each(|_| window_count_answer(window, window.number, 1));
        }
    };
    // SAFETY: as above.
    let judged = |window: &Window| unsafe {
        let share = window_share(window, 5000);
        (share.requests, share.in_time)
    };
    arrive(&mut window, 100, 0);
    assert_eq!(judged(&window), (100, 0));
    // SAFETY: as above.
    unsafe {
        window_advance(&raw mut window, 3);
        window_judge_anew(&raw mut window);
    }
    assert_eq!(judged(&window), (0, 0));
    arrive(&mut window, 4, 3);
    // SAFETY: as above.
    unsafe {
        window_advance(&raw mut window, 5);
        window_count_answer(&raw mut window, 0, 1);
    }
    arrive(&mut window, 2, 2);
    assert_eq!((judged(&window), window.requests, window.in_time), ((6, 5), 106, 6));
    // SAFETY: as above.
    unsafe { window_advance(&raw mut window, WINDOW_SLOTS as u64 - 5) };
    assert_eq!((judged(&window), window.requests, window.in_time), ((2, 2), 2, 2));
}

/// Requests that their clients never let be answered do not make their class come first: neither those known to be such,
/// nor those of which as many are to be expected among the ones that wait.
#[test]
fn what_nobody_can_answer_does_not_put_a_class_behind() {
    let share_of = |arrived: u32, answered: u32, unanswered: u32| {
        let mut window = Window::default();
        // SAFETY: the window is of the layout in choice.h, and lives for the calls.
        unsafe {
            (0..arrived).for_each(|_| window_count_request(&raw mut window));
            (0..answered).for_each(|_| {
                window_count_answer(&raw mut window, 0, 1);
            });
            (0..unanswered).for_each(|_| window_count_unanswered(&raw mut window, 0));
            window_share(&raw const window, 5000)
        }
    };
    let read = |share: Share| (share.requests, share.in_time);
    assert_eq!(read(share_of(1000, 90, 0)), (1000, 90));
    // Three may be an accident.
    assert_eq!(read(share_of(1000, 0, 3)), (1000, 0));
    assert_eq!(read(share_of(1000, 0, 4)), (1, 1));
    assert_eq!(read(share_of(1000, 90, 10)), (900, 90));
    assert_eq!(read(share_of(100, 90, 900)), (90, 90));
    let gold = Share {
        requests: 10,
        in_time: 9,
        target: 9000,
    };
    assert!(further_behind(gold, share_of(1000, 0, 4)));
}

/// An answer that comes after all is no unanswered request any more; of what the window has forgotten nothing is taken off.
#[test]
fn an_answer_that_comes_after_all_is_one() {
    let mut window = Window::default();
    // SAFETY: the window is of the layout in choice.h, and lives for the calls.
    unsafe {
        window_count_unanswered(&raw mut window, 0);
        window_count_unanswered(&raw mut window, 0);
        window_uncount_unanswered(&raw mut window, 0);
        assert_eq!(window.unanswered, 1);
        window_advance(&raw mut window, WINDOW_SLOTS as u64 - 1);
        assert_eq!(window.unanswered, 1);
        window_advance(&raw mut window, 1);
        window_uncount_unanswered(&raw mut window, 0);
    }
    assert_eq!(window.unanswered, 0);
}

/// A class that nobody has asked for is as far behind as can be; one that nobody was answered of is no further.
#[test]
fn a_class_without_requests_comes_first() {
    let share = |requests, in_time| Share {
        requests,
        in_time,
        target: 9000,
    };
    assert!(further_behind(share(0, 0), share(10, 1)));
    assert!(!further_behind(share(10, 1), share(0, 0)));
    assert!(!further_behind(share(0, 0), share(10, 0)) && !further_behind(share(10, 0), share(0, 0)));
    assert!(!further_behind(share(0, 0), share(0, 0)));
}

/// A share above one is impossible; it would count as no more than all in time.
#[test]
fn more_answers_than_requests_are_all() {
    let over = Share {
        requests: 1,
        in_time: 5,
        target: 10_000,
    };
    let whole = Share { in_time: 1, ..over };
    assert!(!further_behind(over, whole) && !further_behind(whole, over));
}

/// Counts since the start are as great as can be: what is behind is still found so.
#[test]
fn the_greatest_counts_are_compared_rightly() {
    let most = Share {
        requests: u64::MAX,
        in_time: u64::MAX,
        target: 10_000,
    };
    let others = [
        Share { in_time: 0, ..most },
        Share {
            in_time: u64::MAX / 2,
            ..most
        },
        Share {
            requests: EXACT,
            in_time: EXACT - 2,
            ..most
        },
    ];
    for behind in others {
        assert!(
            further_behind(behind, most) && !further_behind(most, behind),
            "{behind:?}"
        );
    }
    // The least target, met: no share is further from being behind.
    let least = Share { target: 1, ..most };
    assert!(further_behind(most, least) && !further_behind(least, most));
}

/// A slot counts 32 bits. Were it to begin anew, more would be taken off than was added, or less, and the sums would be
/// wrong for ever.
#[test]
fn a_full_slot_stays_full() {
    let nearly = u32::MAX - 2;
    let mut window = Window {
        requests: nearly.into(),
        in_time: nearly.into(),
        ..Window::default()
    };
    (window.slot_requests[0], window.slot_in_time[0]) = (nearly, nearly);
    for _ in 0..5 {
        // SAFETY: the window is of the layout in choice.h, and lives for the calls.
        unsafe {
            window_count_request(&raw mut window);
            window_count_answer(&raw mut window, 0, 1);
        }
    }
    let full = u64::from(u32::MAX);
    assert_eq!((window.requests, window.in_time), (full, full));
    // SAFETY: as above.
    unsafe {
        window_advance(&raw mut window, 1);
        window_count_request(&raw mut window);
    }
    assert_eq!((window.requests, window.in_time), (full + 1, full));
    // SAFETY: as above. As after an hour without a packet, or when the clock jumps.
    unsafe { window_advance(&raw mut window, u64::MAX) };
    assert_eq!((window.requests, window.in_time), (0, 0));
}
