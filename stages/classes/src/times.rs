//! Response times from the module's histogram: its buckets are described in `uapi.h`.

/// The buckets: `TARN_CLASSES_TIMES`.
pub const BUCKETS: usize = 400;

/// The times that a bucket counts, in microseconds: from the first up to, without, the second. The last bucket takes all
/// above.
fn bounds(bucket: usize) -> (u64, u64) {
    if bucket < 16 {
        return (bucket as u64, bucket as u64 + 1);
    }
    // 16 buckets an octave: bucket = 16 * (e - 3) + (v >> (e - 4)) - 16, and v >> (e - 4) is 16 to 31.
    let exponent = 3 + bucket / 16;
    let width = 1 << (exponent - 4);
    let first = (16 + bucket as u64 % 16) * width;
    (first, first + width)
}

/// The middle of a bucket, in microseconds.
pub fn middle(bucket: usize) -> f64 {
    let (first, after) = bounds(bucket.min(BUCKETS - 1));
    (first + after) as f64 / 2.0
}

/// The time that this share of answers (0 to 1) took at most, in microseconds; `None` without an answer.
pub fn quantile(counts: &[u32], share: f64) -> Option<f64> {
    let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let rank = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
    let mut below = 0;
    let reaches = |count: &u32| {
        below += u64::from(*count);
        below >= rank
    };
    counts.iter().position(reaches).map(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `uapi.h` says it.
    fn bucket(microseconds: u64) -> usize {
        if microseconds < 16 {
            return microseconds as usize;
        }
        let exponent = microseconds.ilog2() as usize;
        let bucket = 16 * (exponent - 3) + (microseconds >> (exponent - 4)) as usize - 16;
        bucket.min(BUCKETS - 1)
    }

    /// A figure that comes from the wrong bucket would be off by some percent, or by octaves.
    #[test]
    fn every_time_lies_in_its_bucket() {
        let times = (0..100_000).chain((17..30).flat_map(|shift| (1u64 << shift) - 2..(1u64 << shift) + 2));
        for time in times.filter(|time| bucket(*time) < BUCKETS - 1) {
            let (first, after) = bounds(bucket(time));
            assert!((first..after).contains(&time), "{time} us: {first} to {after}");
        }
        for bucket in 0..BUCKETS - 1 {
            let ((_, after), (first, _)) = (bounds(bucket), bounds(bucket + 1));
            assert_eq!(after, first, "between {bucket} and the next");
            let (first, after) = bounds(bucket);
            assert!(bucket < 16 || (after - first) * 16 <= first, "1/16 of its value wide");
        }
    }

    #[test]
    fn a_bucket_stands_for_its_middle() {
        assert_eq!(middle(0), 0.5);
        assert_eq!(middle(16), 16.5);
        assert_eq!(middle(32), 33.0);
        assert_eq!(middle(bucket(4000)), 4032.0);
    }

    #[test]
    fn quantiles_are_those_of_the_answers() {
        let mut counts = vec![0; BUCKETS];
        assert_eq!(quantile(&counts, 0.5), None);
        counts[3] = 94;
        counts[bucket(4000)] = 5;
        counts[BUCKETS - 1] = 1;
        assert_eq!(quantile(&counts, 0.5), Some(3.5));
        assert_eq!(quantile(&counts, 0.95), Some(4032.0));
        assert_eq!(quantile(&counts, 1.0), Some(middle(BUCKETS - 1)));
    }
}
