//! The bottleneck: a queue that drops what does not fit, or a policer that drops what comes too fast.

use std::collections::VecDeque;

use tarn_lab::random::Random;

use super::network::{MS, Network, SECOND};

/// A packet on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) load: Load,
    /// On the link.
    pub(super) bytes: u64,
    /// When it came, ns.
    pub(super) came: u64,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy)]
pub(super) enum Load {
    /// A segment of a flow, in this transmission of it.
    Segment {
        flow: usize,
        sequence: u64,
        transmission: u64,
    },
    /// It measures the round trip.
    Ping,
}

/// What becomes of a packet that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It waits, or is being sent.
    Queued,
    /// It is through already.
    Passed,
    /// No room.
    Dropped,
    /// Lost by chance, or because the path is down.
    Lost,
}

#[derive(Debug)]
pub(super) struct Bottleneck {
    queue: VecDeque<Packet>,
    queued_bytes: u64,
    most_bytes: u64,
    polices: bool,
    /// Of the policer: bits of the bucket times 10^9, and when it was filled, ns.
    tokens: u128,
    filled: u64,
    loss: f64,
    outage: Option<(u64, u64)>,
    random: Random,
}

impl Bottleneck {
    pub(super) fn new(network: &Network) -> Self {
        let most_bytes = network.buffer_bytes();
        Self {
            queue: VecDeque::new(),
            queued_bytes: 0,
            most_bytes,
            polices: network.polices,
            tokens: bits(most_bytes),
            filled: 0,
            loss: network.loss,
            outage: network.outage_ms,
            random: Random::new(network.seed, "loss"),
        }
    }

    /// Takes a packet that comes now, at a rate in bit/s.
    pub(super) fn take(&mut self, now: u64, rate: u64, packet: Packet) -> Fate {
        let down = |(from, to): (u64, u64)| (from * MS..to * MS).contains(&now);
        if self.outage.is_some_and(down) {
            return Fate::Lost;
        }
        if self.loss > 0.0 && matches!(packet.load, Load::Segment { .. }) && self.random.uniform() < self.loss {
            return Fate::Lost;
        }
        if self.polices {
            return self.police(now, rate, packet.bytes);
        }
        if self.queued_bytes + packet.bytes > self.most_bytes {
            return Fate::Dropped;
        }
        self.queued_bytes += packet.bytes;
        self.queue.push_back(packet);
        Fate::Queued
    }

    fn police(&mut self, now: u64, rate: u64, bytes: u64) -> Fate {
        let more = u128::from(now - self.filled) * u128::from(rate);
        self.tokens = (self.tokens + more).min(bits(self.most_bytes));
        self.filled = now;
        if self.tokens < bits(bytes) {
            return Fate::Dropped;
        }
        self.tokens -= bits(bytes);
        Fate::Passed
    }

    /// Whether nothing but what has just come is there.
    pub(super) fn was_idle(&self) -> bool {
        self.queue.len() == 1
    }

    /// How long the first packet takes at a rate in bit/s, ns; `None`: there is none.
    pub(super) fn sends_first_in(&self, rate: u64) -> Option<u64> {
        let first = self.queue.front()?;
        Some((bits(first.bytes) / u128::from(rate.max(1))) as u64)
    }

    /// The first packet has been sent.
    pub(super) fn depart(&mut self) -> Option<Packet> {
        let packet = self.queue.pop_front()?;
        self.queued_bytes -= packet.bytes;
        Some(packet)
    }
}

/// Bits times 10^9: what a rate in bit/s sends in so many ns.
fn bits(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * u128::from(SECOND)
}
