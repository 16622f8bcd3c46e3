//! What no sender can keep the round trip below.

use std::time::Duration;

/// A rate of the bottleneck, from a time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Since the beginning.
    pub at: Duration,
    /// Bit/s.
    pub rate: u64,
}

/// The step of the calculation.
const STEP: Duration = Duration::from_millis(1);

/// The largest round trip between two times that a sender meets who sends, at any time, what the bottleneck delivered a round trip
/// ago: it cannot know more. What it has sent too much waits in a queue of at most `buffer` bytes. `changes` are in the order of
/// time; the first is at the beginning.
pub fn floor(changes: &[Change], round_trip: Duration, buffer: u64, from: Duration, to: Duration) -> Duration {
    let (mut now, mut queue, mut floor) = (Duration::ZERO, 0.0_f64, round_trip);
    let (mut here, mut ago) = (Cursor::new(changes), Cursor::new(changes));
    while now < to {
        let rate = here.at(now);
        let sent = ago.at(now.saturating_sub(round_trip));
        queue = (queue + (sent - rate) / 8.0 * STEP.as_secs_f64()).clamp(0.0, buffer as f64);
        now += STEP;
        if now >= from {
            floor = floor.max(round_trip + Duration::from_secs_f64(queue * 8.0 / rate));
        }
    }
    floor
}

/// Walks through the changes with the time.
struct Cursor<'a> {
    coming: &'a [Change],
    rate: f64,
}

impl<'a> Cursor<'a> {
    fn new(changes: &'a [Change]) -> Self {
        Self {
            coming: changes,
            rate: 1.0,
        }
    }

    /// The rate at a time that is not before the last one asked for, bit/s.
    fn at(&mut self, time: Duration) -> f64 {
        while let [next, coming @ ..] = self.coming
            && next.at <= time
        {
            self.rate = next.rate.max(1) as f64;
            self.coming = coming;
        }
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn halved(buffer: u64) -> f64 {
        let changes = [(0, 20_000_000), (5000, 10_000_000), (10_000, 20_000_000)];
        let changes = changes.map(|(at, rate)| Change { at: MS(at), rate });
        floor(&changes, MS(40), buffer, MS(2000), MS(12_000)).as_secs_f64() * 1e3
    }

    /// One product of the old rate is under way when the rate is halved: it takes two round trips to deliver.
    #[test]
    fn a_rate_that_is_halved_doubles_the_round_trip() {
        assert!((halved(400_000) - 80.0).abs() < 1.0, "{}", halved(400_000));
    }

    /// Half of a product, 50 kB, takes 40 ms at 10 Mbit/s; a quarter 20 ms.
    #[test]
    fn a_small_buffer_bounds_it() {
        assert!((halved(25_000) - 60.0).abs() < 1.0, "{}", halved(25_000));
    }

    #[test]
    fn a_steady_path_has_no_queue() {
        let steady = [Change {
            at: MS(0),
            rate: 5_000_000,
        }];
        assert_eq!(floor(&steady, MS(40), 1 << 20, MS(2000), MS(9000)), MS(40));
    }
}
