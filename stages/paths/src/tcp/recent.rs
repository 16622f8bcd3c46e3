//! What was seen lately.

use std::collections::VecDeque;
use std::time::Duration;

use super::histogram::{Histogram, RoundTrips};

/// How often the kernel's counts are looked at. With thousands of uplinks that is the dearer part, so that no look comes sooner for
/// whoever wants to know.
const EVERY: Duration = Duration::from_secs(10);
/// What counts is at most as old, and as much older as looks are apart.
const WINDOW: Duration = Duration::from_secs(60);

/// The looks at a device's counts: from the newest that is as old as the window, and so at most eight while looks come in time, of
/// 1.3 kB each. For 2048 devices, that is 21 MB.
pub struct Recent {
    looks: VecDeque<(Duration, Histogram)>,
    round_trips: RoundTrips,
}

impl Recent {
    /// Begins with a look. What it saw is not counted.
    pub fn new(now: Duration, seen: Histogram) -> Self {
        Self {
            looks: VecDeque::from([(now, seen)]),
            round_trips: RoundTrips::default(),
        }
    }

    /// Whether it is time for another look.
    pub fn is_due(&self, now: Duration) -> bool {
        self.looks.back().is_none_or(|(at, _)| now >= *at + EVERY)
    }

    /// Takes a look.
    pub fn look(&mut self, now: Duration, seen: Histogram) {
        while self.looks.get(1).is_some_and(|(at, _)| *at + WINDOW <= now) {
            self.looks.pop_front();
        }
        if let Some((_, oldest)) = self.looks.front() {
            self.round_trips = seen.since(oldest).round_trips();
        }
        self.looks.push_back((now, seen));
    }

    /// What was seen within the window, up to the last look.
    pub fn round_trips(&self) -> RoundTrips {
        self.round_trips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many round trips, all in one bucket.
    fn seen(count: u32) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.buckets[100] = count;
        histogram
    }

    /// Whoever asks what connections see now is not told of yesterday.
    #[test]
    fn the_last_minute_counts_and_nothing_before() {
        let seconds = Duration::from_secs;
        let mut recent = Recent::new(seconds(0), seen(1000));
        assert_eq!(recent.round_trips().samples, 0);
        assert!(!recent.is_due(seconds(9)) && recent.is_due(seconds(10)));
        for look in 1..=20u32 {
            recent.look(seconds(u64::from(look) * 10), seen(1000 + look));
            assert_eq!(
                recent.round_trips().samples,
                u64::from(look.min(6)),
                "one in ten seconds"
            );
        }
        assert!(recent.looks.len() <= 8, "{}", recent.looks.len());
        // An agent that was stopped for an hour.
        recent.look(seconds(3800), seen(1025));
        assert_eq!((recent.round_trips().samples, recent.looks.len()), (5, 2));
    }
}
