//! The round trip as TCP knows it, and the timers that follow from it: the retransmission timeout (RFC 6298, with Linux's bounds), and
//! before it the tail loss probe (RFC 8985, 7), which asks for an acknowledgement when none comes.

use super::network::{MS, SECOND};

/// The deviation counts as at least so much, ns (Linux: tcp_rto_min()).
const LEAST: u64 = 200 * MS;
const MOST: u64 = 120 * SECOND;
/// A probe waits so much longer than two round trips, ns: for a single segment, whose acknowledgement may be delayed, and for more.
const PROBE_OF_ONE: u64 = 200 * MS;
const PROBE_OF_MORE: u64 = 8 * MS;

/// Times in ns.
#[derive(Debug)]
pub(super) struct Timer {
    smoothed: Option<u64>,
    deviation: u64,
    /// Times it has expired since something was delivered.
    backoff: u32,
    pub(super) smallest: u64,
    /// When it expires; `None`: nothing is on the way.
    pub(super) due: Option<u64>,
    /// It then sends a probe; the timeout proper comes after that.
    pub(super) probes: bool,
}

impl Timer {
    pub(super) fn new() -> Self {
        Self {
            smoothed: None,
            deviation: 0,
            backoff: 0,
            smallest: u64::MAX,
            due: None,
            probes: false,
        }
    }

    /// A round trip, of the first segment that an acknowledgement is for.
    pub(super) fn measured(&mut self, round_trip: u64) {
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(round_trip);
            self.deviation = round_trip / 2;
            return;
        };
        self.deviation = (3 * self.deviation + smoothed.abs_diff(round_trip)) / 4;
        self.smoothed = Some((7 * smoothed + round_trip) / 8);
    }

    /// The smoothed round trip, us; 0: none yet.
    pub(super) fn smoothed_us(&self) -> u32 {
        self.smoothed.map_or(0, |smoothed| {
            u32::try_from((smoothed / 1000).max(1)).unwrap_or(u32::MAX)
        })
    }

    fn timeout(&self) -> u64 {
        let once = self
            .smoothed
            .map_or(SECOND, |smoothed| smoothed + LEAST.max(4 * self.deviation));
        (once << self.backoff.min(10)).min(MOST)
    }

    /// Begins anew, because something was delivered or sent.
    pub(super) fn restart(&mut self, now: u64) {
        self.probes = false;
        self.due = Some(now + self.timeout());
    }

    /// Begins anew with a probe, where that comes before the timeout, while so many segments are in flight.
    pub(super) fn restart_with_probe(&mut self, now: u64, in_flight: u32) {
        self.restart(now);
        let longer = if in_flight == 1 { PROBE_OF_ONE } else { PROBE_OF_MORE };
        if let Some(probe) = self
            .smoothed
            .map(|smoothed| 2 * smoothed + longer)
            .filter(|probe| *probe < self.timeout())
        {
            self.probes = true;
            self.due = Some(now + probe);
        }
    }

    /// Something was delivered.
    pub(super) fn delivered(&mut self) {
        self.backoff = 0;
    }

    /// It has expired: the next one takes twice as long.
    pub(super) fn expired(&mut self) {
        self.backoff += 1;
    }
}
