//! Statistics of measured samples, with the definitions said.
//!
//! - A percentile is the **nearest rank**: the p-th of n values in ascending order is the value at rank
//!   ceil(p/100 * n), so it is always a value that was measured. The median is the one exception: of an even
//!   number it is the mean of the middle two, as everyone expects.
//! - The standard deviation is the **sample's** (divided by n - 1, Bessel's correction); of a single value it is 0.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// What is usually told of a sample. Units are those of the values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values, at least 1.
    pub count: usize,
    /// The least value.
    pub min: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The middle value; the mean of the middle two when their number is even.
    pub median: f64,
    /// 95th percentile, nearest rank.
    pub p95: f64,
    /// 99th percentile, nearest rank.
    pub p99: f64,
    /// 99.9th percentile, nearest rank.
    pub p999: f64,
    /// The greatest value.
    pub max: f64,
    /// The sample's standard deviation (n - 1).
    pub standard_deviation: f64,
}

/// A sample in ascending order: what percentiles, counts and distributions are read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Takes values in any order.
    ///
    /// # Errors
    /// When there is no value, or one is not a finite number.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Result<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() {
            bail!("no value was measured, so there is nothing to summarise");
        }
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            bail!("a measured value is not a finite number: {value}");
        }
        values.sort_unstable_by(f64::total_cmp);
        Ok(Self(values))
    }

    /// The values in ascending order.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The value at rank ceil(percent/100 * n), for `percent` in 0..=100; the least value for 0.
    pub fn percentile(&self, percent: f64) -> f64 {
        let count = self.0.len();
        // 99.9/100 is a little more than 999/1000 in binary; without the margin rank 1000 of 1000 would be taken.
        let rank = (percent / 100.0 * count as f64 - 1e-9).ceil();
        self.0[(rank.max(1.0) as usize).min(count) - 1]
    }

    /// How many values are equal to or above the threshold.
    pub fn at_least(&self, threshold: f64) -> usize {
        self.0.len() - self.0.partition_point(|&value| value < threshold)
    }

    /// The usual figures.
    pub fn summary(&self) -> Summary {
        let (mean, standard_deviation) = moments(&self.0);
        let count = self.0.len();
        Summary {
            count,
            min: self.0[0],
            mean,
            median: (self.0[(count - 1) / 2] + self.0[count / 2]) / 2.0,
            p95: self.percentile(95.0),
            p99: self.percentile(99.0),
            p999: self.percentile(99.9),
            max: self.0[count - 1],
            standard_deviation,
        }
    }
}

/// Mean and sample standard deviation by Welford's update, which does not cancel when the spread is small against
/// the mean (Knuth, TAOCP volume 2, 4.2.2).
fn moments(values: &[f64]) -> (f64, f64) {
    let (mut mean, mut squares) = (0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let delta = value - mean;
        mean += delta / (index + 1) as f64;
        squares += delta * (value - mean);
    }
    let degrees = values.len().saturating_sub(1).max(1) as f64;
    (mean, (squares / degrees).sqrt())
}

/// At most `points` (at least 2) values of a course over time; of each stretch of equal length the least and the
/// greatest are kept, in their order, so that no peak disappears. Given as their places in `values`, so that what else is
/// known of each of them can be kept beside it.
pub fn thin(values: &[f64], points: usize) -> Vec<usize> {
    let stretches = (points / 2).max(1);
    if values.len() <= stretches * 2 {
        return (0..values.len()).collect();
    }
    let bound = |index: usize| values.len() * index / stretches;
    (0..stretches)
        .flat_map(|index| extremes(&values[bound(index)..bound(index + 1)]).map(|place| bound(index) + place))
        .collect()
}

/// The places of the least and the greatest value, in their order.
fn extremes(stretch: &[f64]) -> [usize; 2] {
    let (mut least, mut greatest) = (0, 0);
    for (index, value) in stretch.iter().enumerate() {
        if *value < stretch[least] {
            least = index;
        }
        if *value > stretch[greatest] {
            greatest = index;
        }
    }
    [least.min(greatest), least.max(greatest)]
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
