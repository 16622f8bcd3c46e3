//! A distribution and its curve, thinned to what can be seen.

/// Finite values in ascending order.
#[derive(Debug, Clone, Default)]
pub struct Distribution {
    sorted: Vec<f64>,
    /// How many values were not finite and are left out.
    pub left_out: usize,
}

impl Distribution {
    /// Sorts `values`.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut sorted, rest): (Vec<f64>, Vec<f64>) = values.into_iter().partition(|value| value.is_finite());
        sorted.sort_by(f64::total_cmp);
        Self {
            sorted,
            left_out: rest.len(),
        }
    }

    /// The values, ascending.
    pub fn values(&self) -> &[f64] {
        &self.sorted
    }

    /// The mean; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        let count = self.sorted.len() as f64;
        (count > 0.0).then(|| self.sorted.iter().map(|value| value / count).sum())
    }

    /// The quantile at `share` in 0..=1 by nearest rank, as in `lab/stats.rs`: always a value that was measured, and
    /// where the cumulative curve passes `share`. `None` without values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        // 0.999 is a little more than 999/1000 in binary; without the margin rank 1000 of 1000 would be taken.
        let rank = (share.clamp(0.0, 1.0) * self.sorted.len() as f64 - 1e-9).ceil();
        self.sorted.get((rank as usize).saturating_sub(1)).copied()
    }

    /// The middle value; the mean of the middle two when their number is even. `None` without values.
    pub fn median(&self) -> Option<f64> {
        let last = self.sorted.len().checked_sub(1)?;
        let (below, above) = (self.sorted[last / 2], self.sorted[last.div_ceil(2)]);
        Some(below + (above - below) / 2.0)
    }

    /// The cumulative distribution: at each distinct value, the share of values that are not above it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let count = self.sorted.len();
        (0..count)
            .filter(move |&index| index + 1 == count || self.sorted[index + 1] > self.sorted[index])
            .map(move |index| (self.sorted[index], (index + 1) as f64 / count as f64))
    }
}

/// Thins a rising (or falling) curve of points, given in pixels, to those that can be told apart.
///
/// Both ends of every gap wider than `tolerance` stay, so that no step of the curve moves by more than `tolerance`.
pub fn thin(points: impl IntoIterator<Item = (f64, f64)>, tolerance: f64) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut pending: Option<(f64, f64)> = None;
    for point in points {
        let far = kept.last().is_none_or(|last| apart(*last, point) > tolerance);
        if far {
            // The point before a jump is where the step stands; without it the step would be drawn too early.
            kept.extend(pending.take());
            kept.push(point);
        } else {
            pending = Some(point);
        }
    }
    kept.extend(pending);
    kept
}

fn apart(a: (f64, f64), b: (f64, f64)) -> f64 {
    (a.0 - b.0).abs().max((a.1 - b.1).abs())
}

/// Thins a course over time, given in pixels with ascending x: of each column `column` wide only the first, the
/// lowest, the highest and the last point stay, so that it covers the same pixels as all of them.
pub fn thin_course(points: &[(f64, f64)], column: f64) -> Vec<(f64, f64)> {
    let of_column = |point: &(f64, f64)| (point.0 / column).floor();
    points
        .chunk_by(|a, b| of_column(a) == of_column(b))
        .flat_map(extremes)
        .collect()
}

/// The first, lowest, highest and last point, in their order, each once.
fn extremes(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let by_height = |a: &usize, b: &usize| points[*a].1.total_cmp(&points[*b].1);
    let (Some(low), Some(high)) = ((0..points.len()).min_by(by_height), (0..points.len()).max_by(by_height)) else {
        return Vec::new();
    };
    let mut places = vec![0, low, high, points.len() - 1];
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|place| points[place]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The height of a step curve at `x`: that of the last point not to the right of it.
    fn height(curve: &[(f64, f64)], x: f64) -> f64 {
        curve
            .iter()
            .take_while(|point| point.0 <= x)
            .last()
            .map_or(0.0, |point| point.1)
    }

    #[test]
    fn cumulative_counts_values_that_are_equal_once() {
        let curve: Vec<_> = Distribution::new([3.0, 1.0, 1.0, 2.0]).cumulative().collect();
        assert_eq!(curve, [(1.0, 0.5), (2.0, 0.75), (3.0, 1.0)]);
    }

    #[test]
    fn quantiles_of_known_values() {
        let distribution = Distribution::new((1..=101).map(f64::from));
        assert_eq!(
            [0.0, 0.5, 0.99, 1.0].map(|share| distribution.quantile(share).unwrap()),
            [1.0, 51.0, 100.0, 101.0]
        );
        assert_eq!(distribution.mean().map(f64::round), Some(51.0));
        assert_eq!(Distribution::new([7.0]).quantile(0.999), Some(7.0));
        let thousand = Distribution::new((1..=1000).map(f64::from));
        assert_eq!(
            (thousand.quantile(0.999), thousand.median()),
            (Some(999.0), Some(500.5))
        );
    }

    #[test]
    fn what_is_no_number_is_counted_and_left_out() {
        let distribution = Distribution::new([f64::NAN, 1.0, f64::INFINITY]);
        assert_eq!((distribution.values(), distribution.left_out), (&[1.0][..], 2));
        let empty = Distribution::default();
        assert_eq!(
            (empty.quantile(0.5), empty.median(), empty.cumulative().count()),
            (None, None, 0)
        );
    }

    #[test]
    fn a_single_spike_stays_in_the_course() {
        let points: Vec<_> = (0..100_000)
            .map(|i| (f64::from(i) / 200.0, if i == 54_321 { 90.0 } else { 1.0 }))
            .collect();
        let thinned = thin_course(&points, 1.0);
        assert!(thinned.len() <= 4 * 501, "{}", thinned.len());
        assert!(
            thinned.contains(&points[54_321]) && thinned.first() == points.first() && thinned.last() == points.last()
        );
    }

    proptest! {
        #[test]
        fn thinning_moves_no_step_further_than_the_tolerance(
            steps in prop::collection::vec((0.0..3.0f64, 0.0..2.0f64), 1..400),
            tolerance in 0.1..2.0f64,
        ) {
            let rise = |sum: &mut (f64, f64), step: &(f64, f64)| {
                *sum = (sum.0 + step.0, sum.1 + step.1);
                Some(*sum)
            };
            let whole: Vec<_> = steps.iter().scan((0.0, 0.0), rise).collect();
            let thinned = thin(whole.iter().copied(), tolerance);
            prop_assert_eq!((thinned.first(), thinned.last()), (whole.first(), whole.last()));
            for (x, _) in &whole {
                // Within the tolerance to either side the exact curve passes the thinned one's height.
                let (low, high) = (height(&whole, x - tolerance - 1e-9), height(&whole, x + tolerance + 1e-9));
                let drawn = height(&thinned, *x);
                prop_assert!(drawn >= low - tolerance - 1e-9 && drawn <= high + tolerance + 1e-9);
            }
        }
    }
}
