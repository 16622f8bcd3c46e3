//! A receiver, which acknowledges every second segment, and at once what is out of order.

use std::collections::VecDeque;

use super::network::MS;

/// How long an acknowledgement waits for a second segment, ns (Linux: TCP_DELACK_MIN).
const DELAY: u64 = 40 * MS;
/// The first segments are acknowledged each (Linux: TCP_MAX_QUICKACKS).
const QUICK: u64 = 16;

/// What the receiver wants to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Acknowledge so many packets.
    Now(u32),
    /// Ask again at that time, ns.
    At(u64),
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// The first segment that is missing, and which of those after it have come.
    next: u64,
    after: VecDeque<bool>,
    /// Later segments than `next` that have come.
    held: u64,
    segments: u64,
    /// Not acknowledged yet.
    waiting: u32,
    due: u64,
    timer: bool,
}

impl Receiver {
    /// A segment comes.
    pub(super) fn receive(&mut self, now: u64, sequence: u64) -> Answer {
        let in_order = sequence == self.next && self.held == 0;
        self.store(sequence);
        self.segments += 1;
        self.waiting += 1;
        if self.waiting >= 2 || !in_order || self.segments <= QUICK {
            return self.acknowledge();
        }
        self.due = now + DELAY;
        if self.timer {
            return Answer::Nothing;
        }
        self.timer = true;
        Answer::At(self.due)
    }

    /// The time has come that it asked for.
    pub(super) fn expires(&mut self, now: u64) -> Answer {
        self.timer = false;
        match self.waiting {
            0 => Answer::Nothing,
            _ if now >= self.due => self.acknowledge(),
            _ => {
                self.timer = true;
                Answer::At(self.due)
            }
        }
    }

    fn acknowledge(&mut self) -> Answer {
        Answer::Now(std::mem::take(&mut self.waiting))
    }

    fn store(&mut self, sequence: u64) {
        let Some(offset) = sequence.checked_sub(self.next) else {
            return;
        };
        let offset = offset as usize;
        if offset >= self.after.len() {
            self.after.resize(offset + 1, false);
        }
        if !std::mem::replace(&mut self.after[offset], true) {
            self.held += 1;
        }
        while self.after.front() == Some(&true) {
            self.after.pop_front();
            self.next += 1;
            self.held -= 1;
        }
    }
}
