//! Histograms of round trips, and what they tell.

use serde::{Deserialize, Serialize};

use crate::skeleton::tcp::types;
use tarn_kernel::plain::Plain;

/// Round trips by how long they took, as a CPU counts them. Counts wrap: only the difference of two looks means something.
pub type Histogram = types::path_round_trips;

/// As in shared.h: buckets for each power of two,
const FINE: usize = 16;
/// and in all.
const BUCKETS: usize = 320;

// SAFETY: an integer of 64 bits, and an even number of those of 32 bits: nothing between or behind them.
unsafe impl Plain for types::path_round_trips {}

const _: () = assert!(size_of::<Histogram>() == 8 + BUCKETS * 4);

/// Round trips of some time, in microseconds. But for the mean, each is the upper end of the bucket that it is in: it was at most
/// that, and at most a sixteenth less. One that took 16.8 s or longer counts as 16.8 s. All are 0 when there was none.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RoundTrips {
    /// How many there were.
    pub samples: u64,
    /// Their mean, by the exact times.
    pub mean_us: f64,
    /// The shortest.
    pub min_us: u64,
    /// Half took no longer.
    pub median_us: u64,
    /// 95 % took no longer.
    pub p95_us: u64,
    /// 99 % took no longer.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

impl Histogram {
    /// Adds what another CPU has counted.
    pub fn add(&mut self, counts: &Self) {
        self.sum_us = self.sum_us.wrapping_add(counts.sum_us);
        for (sum, count) in self.buckets.iter_mut().zip(counts.buckets) {
            *sum = sum.wrapping_add(count);
        }
    }

    /// What there is more than in an earlier look.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut more = *self;
        more.sum_us = more.sum_us.wrapping_sub(earlier.sum_us);
        for (count, before) in more.buckets.iter_mut().zip(&earlier.buckets) {
            *count = count.wrapping_sub(*before);
        }
        more
    }

    /// What it tells.
    pub fn round_trips(&self) -> RoundTrips {
        let samples: u64 = self.buckets.iter().copied().map(u64::from).sum();
        if samples == 0 {
            return RoundTrips::default();
        }
        let part = |percent: u64| self.ranked((samples * percent).div_ceil(100));
        RoundTrips {
            samples,
            mean_us: self.sum_us as f64 / samples as f64,
            min_us: self.ranked(1),
            median_us: part(50),
            p95_us: part(95),
            p99_us: part(99),
            max_us: self.ranked(samples),
        }
    }

    /// The round trip that comes at this place when the shortest comes first; places begin with 1.
    fn ranked(&self, place: u64) -> u64 {
        let mut passed = 0;
        let mut buckets = self.buckets.iter().copied().map(u64::from);
        let found = buckets.position(|count| {
            passed += count;
            passed >= place
        });
        upper_us(found.unwrap_or(BUCKETS - 1))
    }
}

/// Where a bucket ends: everything in it is below.
fn upper_us(bucket: usize) -> u64 {
    ((FINE + bucket % FINE + 1) as u64) << (bucket / FINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bucket whose end is the first above a round trip; by other means than the program's.
    fn bucket(us: u64) -> usize {
        (0..BUCKETS)
            .find(|bucket| us < upper_us(*bucket))
            .unwrap_or(BUCKETS - 1)
    }

    /// The same round trips, counted by two CPUs.
    fn counted(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for part in times.chunks(times.len().div_ceil(2).max(1)) {
            let mut counts = Histogram::default();
            for us in part {
                counts.buckets[bucket(*us)] += 1;
                counts.sum_us += us;
            }
            histogram.add(&counts);
        }
        histogram
    }

    #[test]
    fn buckets_are_a_sixteenth_wide_from_16_us_to_16_8_s() {
        assert_eq!((bucket(0), bucket(16), bucket(17)), (0, 0, 1));
        assert_eq!((upper_us(15), upper_us(16), upper_us(BUCKETS - 1)), (32, 34, 1 << 24));
        assert_eq!((bucket((1 << 24) - 1), bucket(1 << 40)), (BUCKETS - 1, BUCKETS - 1));
        assert_eq!(upper_us(bucket(30_000)), 30_720);
    }

    #[test]
    fn none_tell_nothing_and_one_tells_everything() {
        assert_eq!(counted(&[]).round_trips(), RoundTrips::default());
        let told = counted(&[30_000]).round_trips();
        assert_eq!((told.samples, told.mean_us), (1, 30_000.0));
        assert_eq!(
            [told.min_us, told.median_us, told.p95_us, told.p99_us, told.max_us],
            [30_720; 5]
        );
    }

    /// A minute is told rightly also when the kernel's counts wrap within it.
    #[test]
    fn differences_survive_wrapping() {
        let mut before = counted(&[20, 30_000]);
        before.buckets[bucket(30_000)] = u32::MAX;
        before.sum_us = u64::MAX - 10;
        let mut after = before;
        after.buckets[bucket(30_000)] = 1;
        after.sum_us = after.sum_us.wrapping_add(60_000);
        let told = after.since(&before).round_trips();
        assert_eq!((told.samples, told.mean_us, told.min_us), (2, 30_000.0, 30_720));
    }

    proptest::proptest! {
        /// What is shown is never better than it was, and at most a sixteenth worse.
        #[test]
        fn percentiles_are_the_exact_ones_within_a_sixteenth(mut times in proptest::collection::vec(16u64..1 << 24, 1..400)) {
            let told = counted(&times).round_trips();
            times.sort_unstable();
            let exact = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
            let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
            proptest::prop_assert!((told.mean_us - mean).abs() < 1e-6 * mean);
            for (shown, exact) in [
                (told.min_us, times[0]),
                (told.median_us, exact(50)),
                (told.p95_us, exact(95)),
                (told.p99_us, exact(99)),
                (told.max_us, times[times.len() - 1]),
            ] {
                proptest::prop_assert!(exact < shown && shown * 16 <= exact * 17 + 16, "{} for {}", shown, exact);
            }
        }
    }
}
