//! How the last round trips are distributed.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The round trips that are kept: half a minute at the default rate of an uplink in use, two minutes of another one.
const KEPT: usize = 512;

/// The last round trips to one target, in microseconds, the newest last.
#[derive(Debug, Clone, Default)]
pub struct RoundTrips(VecDeque<u32>);

/// How they are distributed, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// Half of them took at most so long,
    pub median_us: u32,
    /// 95 of 100 so long,
    pub p95_us: u32,
    /// 99 so long,
    pub p99_us: u32,
    /// and all so long.
    pub max_us: u32,
}

impl RoundTrips {
    /// Notes one; of more than can be kept, the oldest is forgotten.
    pub fn add(&mut self, round_trip: Duration) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0
            .push_back(u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX));
    }

    /// Their distribution; `None` when there was none.
    pub fn distribution(&self) -> Option<Distribution> {
        let mut times: Vec<u32> = self.0.iter().copied().collect();
        let mut behind = 0;
        // The nearest rank. What is behind one is all that the next is looked for in: to sort would take several times as long.
        let mut percentile = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).checked_sub(1)?;
            let (_, found, _) = times.get_mut(behind..)?.select_nth_unstable(rank.checked_sub(behind)?);
            behind = rank;
            Some(*found)
        };
        Some(Distribution {
            median_us: percentile(50)?,
            p95_us: percentile(95)?,
            p99_us: percentile(99)?,
            max_us: percentile(100)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_round_trips_that_there_were() {
        let mut round_trips = RoundTrips::default();
        assert_eq!(round_trips.distribution(), None);
        let shown = |round_trips: &RoundTrips| {
            let found = round_trips.distribution().unwrap();
            [found.median_us, found.p95_us, found.p99_us, found.max_us]
        };
        round_trips.add(Duration::from_micros(7));
        assert_eq!(shown(&round_trips), [7; 4]);
        for number in (1..=1000).rev() {
            round_trips.add(Duration::from_millis(number));
        }
        // Of 512 to 1: ranks 256, 487, 507 and 512.
        assert_eq!(shown(&round_trips), [256_000, 487_000, 507_000, 512_000]);
    }

    proptest::proptest! {
        /// Whatever the round trips were, the percentiles are those of the sorted ones.
        #[test]
        fn percentiles_are_those_of_the_sorted_round_trips(mut times in proptest::collection::vec(0_u32..1000, 1..KEPT)) {
            let mut round_trips = RoundTrips::default();
            times.iter().for_each(|time| round_trips.add(Duration::from_micros(u64::from(*time))));
            times.sort_unstable();
            let ranked = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
            let expected = Distribution {
                median_us: ranked(50),
                p95_us: ranked(95),
                p99_us: ranked(99),
                max_us: ranked(100),
            };
            proptest::prop_assert_eq!(round_trips.distribution(), Some(expected));
        }
    }
}
