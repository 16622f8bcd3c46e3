//! What came of a network: figures.

use std::fmt;

use super::network::{MS, Network, SECOND, SEGMENT_BYTES};

/// The figures of a run. The start-up ([`Network::startup`]) is left out of all but `retransmitted_startup`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Payload delivered by all flows, Mbit/s.
    pub(crate) goodput: f64,
    /// The payload that the bottleneck could have carried, Mbit/s.
    pub(crate) capacity: f64,
    /// Segments sent again, and those of the start-up.
    pub(crate) retransmitted: u64,
    pub(crate) retransmitted_startup: u64,
    /// Round trips of a small packet every 10 ms through the same queue, ms.
    pub(crate) mean_rtt: f64,
    pub(crate) p99_rtt: f64,
    pub(crate) max_rtt: f64,
    /// What no sender can keep the largest below, ms: the round trip times old by new rate of the sharpest drop, or what a full
    /// buffer makes of it where that is less.
    pub(crate) max_rtt_floor: f64,
    /// Jain's index of what the flows delivered, from when all have started up.
    pub(crate) fairness: f64,
    /// Packets that the bottleneck dropped.
    pub(crate) dropped: u64,
    /// How often a flow has answered a drop of the bandwidth.
    pub(crate) responses: u64,
    /// The longest that a flow waited for a delivery, ms.
    pub(crate) longest_pause: f64,
    /// The share of what all delivered that each flow did.
    pub(crate) shares: Vec<f64>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "goodput {:7.2} Mbit/s ({:5.1} %)  retransmitted {:5} + {:4}  rtt {:6.1} mean {:6.1} p99 {:6.1} max {:6.1} floor  \
             fairness {:.3}  dropped {:5}  responses {:3}  pause {:6.1} ms",
            self.goodput,
            100.0 * self.goodput / self.capacity.max(f64::MIN_POSITIVE),
            self.retransmitted,
            self.retransmitted_startup,
            self.mean_rtt,
            self.p99_rtt,
            self.max_rtt,
            self.max_rtt_floor,
            self.fairness,
            self.dropped,
            self.responses,
            self.longest_pause
        )
    }
}

/// What is counted while a network runs. Times in ns.
#[derive(Debug)]
pub(super) struct Meter {
    from: u64,
    pub(super) pings: Vec<u64>,
    pub(super) dropped: u64,
    pub(super) responses: u64,
    longest_pause: u64,
    last_delivery: Vec<Option<u64>>,
    /// Bits times 10^9 that the bottleneck could have carried, up to a time.
    carried: u128,
    carried_until: u64,
    /// Old by new rate, and the smallest rate, bit/s.
    largest_drop: f64,
    smallest_rate: u64,
    /// Segments of all flows delivered and sent again before `from`, and of each delivered before shares count.
    pub(super) acked_before: u64,
    pub(super) retransmitted_before: u64,
    pub(super) shares_before: Vec<u64>,
}

impl Meter {
    pub(super) fn new(network: &Network) -> Self {
        let from = network.startup();
        Self {
            from,
            pings: Vec::new(),
            dropped: 0,
            responses: 0,
            longest_pause: 0,
            last_delivery: vec![None; network.flows.len()],
            carried: 0,
            carried_until: from,
            largest_drop: 1.0,
            smallest_rate: network.rate,
            acked_before: 0,
            retransmitted_before: 0,
            shares_before: vec![0; network.flows.len()],
        }
    }

    /// Whether the start-up is over.
    pub(super) fn counts(&self, now: u64) -> bool {
        now >= self.from
    }

    /// The rate was so much, bit/s, until now.
    pub(super) fn rate_was(&mut self, now: u64, rate: u64) {
        if now > self.carried_until {
            self.carried += u128::from(now - self.carried_until) * u128::from(rate);
            self.carried_until = now;
        }
    }

    /// The rate changes, bit/s.
    pub(super) fn rate_changes(&mut self, now: u64, from: u64, to: u64) {
        self.rate_was(now, from);
        if self.counts(now) {
            self.largest_drop = self.largest_drop.max(from as f64 / to.max(1) as f64);
            self.smallest_rate = self.smallest_rate.min(to.max(1));
        }
    }

    /// Something is delivered to a flow.
    pub(super) fn delivers(&mut self, now: u64, flow: usize) {
        let last = self.last_delivery[flow].replace(now);
        if self.counts(now) {
            let pause = now - last.unwrap_or(now).max(self.from);
            self.longest_pause = self.longest_pause.max(pause);
        }
    }

    fn floor(&self, network: &Network) -> f64 {
        let round_trip = network.round_trip_us as f64 / 1e3;
        let full_buffer = network.buffer_bytes() as f64 * 8e3 / self.smallest_rate as f64;
        let queue = if network.polices { 0.0 } else { full_buffer };
        (round_trip * self.largest_drop).min(round_trip + queue)
    }

    /// The figures at the end, given each flow's segments delivered, and all segments sent again.
    pub(super) fn outcome(mut self, network: &Network, acked: &[u64], retransmitted: u64) -> Outcome {
        let end = network.duration_ms * MS;
        let measured = end.saturating_sub(self.from).max(1);
        let pause = |last: &Option<u64>| last.map_or(0, |last| end.saturating_sub(last.max(self.from)));
        let longest_pause = self
            .last_delivery
            .iter()
            .map(pause)
            .max()
            .unwrap_or(0)
            .max(self.longest_pause);
        let delivered = acked.iter().sum::<u64>() - self.acked_before;
        let shares: Vec<u64> = acked
            .iter()
            .zip(&self.shares_before)
            .map(|(all, before)| all - before)
            .collect();
        self.pings.sort_unstable();
        let ping = |index: usize| self.pings.get(index).map_or(0.0, |ping| *ping as f64 / MS as f64);
        let count = self.pings.len();
        Outcome {
            goodput: (delivered * SEGMENT_BYTES * 8) as f64 * 1e3 / measured as f64,
            capacity: self.carried as f64 / 1e6 / measured as f64 * SEGMENT_BYTES as f64
                / super::network::PACKET_BYTES as f64,
            retransmitted: retransmitted - self.retransmitted_before,
            retransmitted_startup: self.retransmitted_before,
            mean_rtt: self.pings.iter().sum::<u64>() as f64 / count.max(1) as f64 / MS as f64,
            p99_rtt: ping((count * 99 / 100).min(count.saturating_sub(1))),
            max_rtt: ping(count.saturating_sub(1)),
            max_rtt_floor: self.floor(network),
            fairness: jain(&shares),
            dropped: self.dropped,
            responses: self.responses,
            longest_pause: longest_pause as f64 / MS as f64,
            shares: shares
                .iter()
                .map(|share| *share as f64 / shares.iter().sum::<u64>().max(1) as f64)
                .collect(),
        }
    }
}

/// Jain's index of fairness: 1 when all have the same, 1/n when one has all.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / squares / shares.len() as f64
    }
}

/// The time between two packets that measure the round trip, ns.
pub(super) const PING_EVERY: u64 = SECOND / 100;
/// Their size on the link, bytes.
pub(super) const PING_BYTES: u64 = 106;
