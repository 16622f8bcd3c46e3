//! What happens when: the earliest first, and of what happens at the same time, what was asked for first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The packet that the bottleneck is sending has left it.
    Departure,
    /// An acknowledgement of so many packets, sent at that time, reaches its sender.
    Acknowledgement { flow: usize, packets: u32, sent: u64 },
    /// A receiver has waited long enough for a second segment.
    DelayedAcknowledgement { flow: usize },
    /// A sender may send again.
    Pace { flow: usize },
    /// A sender's retransmission timer may have expired.
    Timeout { flow: usize },
    /// A flow begins, or has new data.
    Data { flow: usize },
    /// The rate of the bottleneck changes.
    Rate,
    /// The next packet that measures the round trip is sent.
    Ping,
    /// The start-up is over: figures count from now on.
    Measure,
    /// Every flow's start-up is over: shares count from now on.
    MeasureShares,
}

/// The events to come.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    asked: u64,
}

impl Events {
    /// Lets an event happen at a time, ns.
    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.heap.push(Reverse((time, self.asked, event)));
        self.asked += 1;
    }

    /// The next event, and when it happens, ns.
    pub(super) fn next(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse((time, _, event))| (time, event))
    }
}
