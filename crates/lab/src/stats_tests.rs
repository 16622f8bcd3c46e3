//! A wrong statistic would make every published figure wrong, and nobody would see it.

use proptest::prelude::*;

use super::*;

fn sample(values: &[f64]) -> Sample {
    Sample::new(values.iter().copied()).unwrap()
}

#[test]
fn a_summary_agrees_with_one_computed_by_hand() {
    // Sum 40, mean 5; squared deviations 9+1+1+1+0+0+4+16 = 32, variance 32/7.
    let summary = sample(&[9.0, 2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0]).summary();
    assert_eq!(summary.count, 8);
    assert_eq!((summary.min, summary.max), (2.0, 9.0));
    assert_eq!(summary.mean, 5.0);
    assert_eq!(summary.median, 4.5);
    assert!((summary.standard_deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
    assert_eq!((summary.p95, summary.p99, summary.p999), (9.0, 9.0, 9.0));
}

#[test]
fn percentiles_are_nearest_ranks() {
    let thousand = Sample::new((1..=1000).map(f64::from)).unwrap();
    assert_eq!(thousand.percentile(0.0), 1.0);
    assert_eq!(thousand.percentile(0.1), 1.0);
    assert_eq!(thousand.percentile(50.0), 500.0);
    assert_eq!(thousand.percentile(95.0), 950.0);
    assert_eq!(thousand.percentile(99.0), 990.0);
    assert_eq!(thousand.percentile(99.9), 999.0);
    assert_eq!(thousand.percentile(100.0), 1000.0);
    // The example of Wikipedia's article on the percentile: ranks 1, 2, 2, 3, 5 of 15 20 35 40 50.
    let five = sample(&[15.0, 20.0, 35.0, 40.0, 50.0]);
    let ranks: Vec<f64> = [5.0, 30.0, 40.0, 50.0, 100.0]
        .iter()
        .map(|&p| five.percentile(p))
        .collect();
    assert_eq!(ranks, [15.0, 20.0, 20.0, 35.0, 50.0]);
}

#[test]
fn one_value_has_no_spread() {
    let summary = sample(&[3.5]).summary();
    assert_eq!(
        (summary.median, summary.p999, summary.standard_deviation),
        (3.5, 3.5, 0.0)
    );
}

#[test]
fn nothing_measured_is_an_error_and_so_is_not_a_number() {
    assert!(Sample::new([]).is_err());
    assert!(Sample::new([1.0, f64::NAN]).is_err());
    assert!(Sample::new([f64::INFINITY]).is_err());
}

#[test]
fn a_small_spread_beside_a_large_mean_is_not_lost() {
    // NIST's NumAcc4: exact mean 10000000.2, exact sample standard deviation 0.1.
    let values = (0..1001).map(|i| 10_000_000.0 + [0.2, 0.1, 0.3][if i == 0 { 0 } else { 1 + i % 2 }]);
    let summary = Sample::new(values).unwrap().summary();
    assert!((summary.mean - 10_000_000.2).abs() < 1e-8);
    assert!(
        (summary.standard_deviation - 0.1).abs() < 1e-8,
        "{}",
        summary.standard_deviation
    );
}

#[test]
fn a_threshold_counts_what_is_equal_to_it() {
    let values = sample(&[0.4, 0.5, 0.5, 0.6]);
    assert_eq!(
        (values.at_least(0.5), values.at_least(0.61), values.at_least(0.0)),
        (3, 0, 4)
    );
}

#[test]
fn thinning_keeps_a_single_peak() {
    let mut values = vec![1.0; 10_000];
    values[7_777] = 99.0;
    let thinned = thin(&values, 100);
    assert!(thinned.len() <= 100 && thinned.contains(&7_777));
    assert_eq!(thin(&[1.0, 2.0, 3.0], 100), [0, 1, 2]);
}

proptest! {
    #[test]
    fn a_summary_is_in_order(values in prop::collection::vec(-1e9..1e9_f64, 1..300)) {
        let summary = sample(&values).summary();
        let ascending = [summary.min, summary.median, summary.p95.max(summary.median), summary.p99.max(summary.median),
            summary.p999.max(summary.median), summary.max];
        prop_assert!(ascending.is_sorted(), "{summary:?}");
        prop_assert!(summary.mean >= summary.min - 1e-3 && summary.mean <= summary.max + 1e-3);
        prop_assert!(summary.standard_deviation <= summary.max - summary.min + 1e-6);
    }

    #[test]
    fn a_summary_does_not_depend_on_the_order(mut values in prop::collection::vec(-1e6..1e6_f64, 1..100)) {
        let before = sample(&values).summary();
        values.reverse();
        prop_assert_eq!(before, sample(&values).summary());
    }

    #[test]
    fn the_deviation_agrees_with_the_two_pass_formula(values in prop::collection::vec(-1e3..1e3_f64, 2..100)) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
        prop_assert!((sample(&values).summary().standard_deviation - variance.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn a_percentile_has_its_share_of_values_at_or_below_it(
        values in prop::collection::vec(0..1000_u32, 1..200), percent in 0.1..100.0_f64
    ) {
        let sample = Sample::new(values.iter().map(|&v| f64::from(v))).unwrap();
        let value = sample.percentile(percent);
        let at_or_below = values.iter().filter(|&&v| f64::from(v) <= value).count();
        let below = values.iter().filter(|&&v| f64::from(v) < value).count();
        prop_assert!(at_or_below as f64 >= percent / 100.0 * values.len() as f64 - 1e-6);
        prop_assert!((below as f64) < percent / 100.0 * values.len() as f64 + 1e-6);
    }

    #[test]
    fn thinning_keeps_the_extremes(values in prop::collection::vec(-1e3..1e3_f64, 1..2000), points in 2..100_usize) {
        let places = thin(&values, points);
        prop_assert!(places.is_sorted());
        let thinned: Vec<f64> = places.into_iter().map(|place| values[place]).collect();
        let extremes = |v: &[f64]| (v.iter().copied().fold(f64::MAX, f64::min), v.iter().copied().fold(f64::MIN, f64::max));
        prop_assert!(thinned.len() <= points.max(2));
        prop_assert_eq!(extremes(&thinned), extremes(&values));
    }
}
