//! What came of requests: the record of every one, and what is read off it.

use std::net::SocketAddr;
use std::time::Duration;

/// A request and what came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// When the law of arrivals wanted it sent (CLOCK_MONOTONIC, ns); the sending time itself in a closed loop.
    pub due_ns: u64,
    /// When it was sent (CLOCK_MONOTONIC, ns).
    pub sent_ns: u64,
    /// The error number with which the kernel refused to send it, such as ENETUNREACH; 0 when it was sent.
    pub refused: i32,
    /// The first answer that came, if one did in time.
    pub answer: Option<Answer>,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// When it was received (CLOCK_MONOTONIC, ns).
    pub received_ns: u64,
    /// The address and port it came from; port 0 for ICMP.
    pub from: SocketAddr,
    /// Whether its length and content were those of the request.
    pub intact: bool,
}

impl Exchange {
    /// From sending to answer, in ns.
    pub fn round_trip_ns(&self) -> Option<u64> {
        self.answer.map(|answer| answer.received_ns - self.sent_ns)
    }

    /// From when it should have been sent to the answer, in ns: what a client that does not wait for others sees. In an
    /// open loop a generator that is held up sends late; round trips alone would hide that ("coordinated omission").
    pub fn latency_ns(&self) -> Option<u64> {
        self.answer.map(|answer| answer.received_ns - self.due_ns)
    }
}

/// The requests of a run, in the order sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchanges {
    list: Vec<Exchange>,
    /// How long after its request an answer is one, in ns.
    timeout_ns: u64,
    duplicates: u64,
}

impl Exchanges {
    /// None yet, of `count` to come; an answer later than `timeout` is none.
    pub(super) fn new(count: usize, timeout: Duration) -> Self {
        Self {
            list: Vec::with_capacity(count),
            timeout_ns: u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX),
            ..Self::default()
        }
    }

    /// Notes a request; sequence numbers are given in this order.
    pub(super) fn sent(&mut self, due_ns: u64, sent_ns: u64, refused: i32) {
        self.list.push(Exchange {
            due_ns,
            sent_ns,
            refused,
            answer: None,
        });
    }

    /// Notes an answer: the first that comes in time is the request's.
    pub(super) fn answered(&mut self, sequence: u32, answer: Answer) {
        match self.list.get_mut(sequence as usize) {
            Some(exchange) if exchange.answer.is_some() => self.duplicates += 1,
            Some(exchange) if answer.received_ns.saturating_sub(exchange.sent_ns) <= self.timeout_ns => {
                exchange.answer = Some(answer);
            }
            // It came too late. The probes ask for no more than was sent.
            _ => {}
        }
    }

    /// Every request.
    pub fn list(&self) -> &[Exchange] {
        &self.list
    }

    /// Requests that the kernel took.
    pub fn sent_count(&self) -> u64 {
        self.count(|exchange| exchange.refused == 0)
    }

    /// Requests that were answered in time.
    pub fn answered_count(&self) -> u64 {
        self.count(|exchange| exchange.answer.is_some())
    }

    /// Answers that came for a request already answered.
    pub fn duplicate_count(&self) -> u64 {
        self.duplicates
    }

    /// Answers from another address or port than this.
    pub fn not_from(&self, expected: SocketAddr) -> u64 {
        self.count(|exchange| exchange.answer.is_some_and(|answer| answer.from != expected))
    }

    /// Answers whose content or length was not the request's.
    pub fn damaged_count(&self) -> u64 {
        self.count(|exchange| exchange.answer.is_some_and(|answer| !answer.intact))
    }

    /// Round trips of the answered requests in microseconds, in the order sent.
    pub fn round_trips_us(&self) -> Vec<f64> {
        self.microseconds(Exchange::round_trip_ns)
    }

    /// Latencies ([`Exchange::latency_ns`]) of the answered requests in microseconds, in the order sent.
    pub fn latencies_us(&self) -> Vec<f64> {
        self.microseconds(Exchange::latency_ns)
    }

    fn microseconds(&self, time_ns: impl Fn(&Exchange) -> Option<u64>) -> Vec<f64> {
        self.list.iter().filter_map(time_ns).map(|ns| ns as f64 / 1e3).collect()
    }

    fn count(&self, predicate: impl Fn(&Exchange) -> bool) -> u64 {
        self.list.iter().filter(|exchange| predicate(exchange)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(received_ns: u64) -> Answer {
        Answer {
            received_ns,
            from: SocketAddr::from(([10, 0, 0, 1], 1)),
            intact: true,
        }
    }

    /// An answer that the client had given up would else count as one, and its round trip exceed the timeout.
    #[test]
    fn late_answers_and_duplicates_are_told_apart() {
        let mut exchanges = Exchanges::new(3, Duration::from_nanos(100));
        for sent in [0, 10, 20] {
            exchanges.sent(sent, sent, 0);
        }
        for (sequence, received) in [(1, 110), (0, 101), (1, 130), (0, 140), (2, 121), (9, 50)] {
            exchanges.answered(sequence, answer(received));
        }
        assert_eq!(exchanges.answered_count(), 1);
        assert_eq!(exchanges.round_trips_us(), [0.1]);
        assert_eq!(exchanges.duplicate_count(), 1);
    }
}
