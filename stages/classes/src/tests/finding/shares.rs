//! The module's shares, compiled for user space.

use crate::tests::choice::{
    Window, further_behind, has_surplus, window_advance, window_count_answer, window_count_request,
    window_count_unanswered, window_judge_anew, window_share, window_uncount_unanswered,
};

/// How a class does.
#[derive(Default)]
pub(super) struct Shares(Window);

impl Shares {
    /// The slot in which requests arrive now.
    pub(super) fn slot(&self) -> u32 {
        self.0.number
    }

    pub(super) fn advance(&mut self, slots: u64) {
        // SAFETY: the window is of the layout in choice.h, and lives for the call.
        unsafe { window_advance(&raw mut self.0, slots) }
    }

    pub(super) fn judge_anew(&mut self) {
        // SAFETY: as above.
        unsafe { window_judge_anew(&raw mut self.0) }
    }

    pub(super) fn request(&mut self) {
        // SAFETY: as above.
        unsafe { window_count_request(&raw mut self.0) }
    }

    pub(super) fn answer(&mut self, slot: u32, is_in_time: bool) {
        // SAFETY: as above.
        unsafe { window_count_answer(&raw mut self.0, slot, i32::from(is_in_time)) }
    }

    pub(super) fn unanswered(&mut self, slot: u32) {
        // SAFETY: as above.
        unsafe { window_count_unanswered(&raw mut self.0, slot) }
    }

    pub(super) fn uncount_unanswered(&mut self, slot: u32) {
        // SAFETY: as above.
        unsafe { window_uncount_unanswered(&raw mut self.0, slot) }
    }

    pub(super) fn are_mostly_answered(&self) -> bool {
        self.0.answered > self.0.unanswered
    }

    /// Whether these, against their target in 1/10000, are further behind than others.
    pub(super) fn is_further_behind(&self, target: u32, other: &Self, other_target: u32) -> bool {
        // SAFETY: as above.
        let (own, others) = unsafe {
            (
                window_share(&raw const self.0, target),
                window_share(&raw const other.0, other_target),
            )
        };
        further_behind(own, others)
    }

    /// Whether these are more than was promised.
    pub(super) fn have_surplus(&self, target: u32) -> bool {
        // SAFETY: as above.
        unsafe { has_surplus(window_share(&raw const self.0, target)) != 0 }
    }
}
