//! What must hold: the goal, over both protocols.

use super::{Case, Check, TARGETS};

/// How far apart the ratios may be where no target can be met.
const RATIOS_DIFFER: f64 = 0.02;
/// Of the share that could be in time at 200 %, which is a half.
const MEAN_SHARE: f64 = 0.95 * 0.5;
/// Of the stock kernel's throughput.
const THROUGHPUT: f64 = 0.98;

/// The checks; a case that is not there fails its own.
pub fn of(cases: &[Case]) -> Vec<Check> {
    let protocols = ["", "-udp"];
    let each = protocols.iter().flat_map(|protocol| {
        let case = |who: &str, percent: u32| {
            let name = format!("{who}{protocol}-{percent}");
            cases.iter().find(|case| case.name == name)
        };
        let tarn = [140, 200].map(|percent| case("tarn", percent));
        let stock = [140, 200].map(|percent| case("stock", percent));
        let mut checks = vec![targets_met(tarn[0], protocol), fall_short_alike(tarn[1], protocol)];
        for (percent, (tarn, stock)) in [140, 200].into_iter().zip(tarn.into_iter().zip(stock)) {
            checks.push(throughput(tarn, stock, &format!("tarn{protocol}-{percent}")));
        }
        checks
    });
    each.collect()
}

fn shares(case: Option<&Case>) -> Vec<f64> {
    let share = |class: usize| case?.metrics.get(&format!("in_time_{class}")).copied();
    (0..TARGETS.len()).filter_map(share).collect()
}

fn listed(values: &[f64]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:.3}")).collect();
    values.join(" ")
}

fn targets_met(case: Option<&Case>, protocol: &str) -> Check {
    let shares = shares(case);
    let met = |(share, target): (&f64, u32)| *share >= f64::from(target) / 100.0;
    Check {
        name: format!("tarn{protocol}-140: all five targets are met"),
        passed: shares.len() == TARGETS.len() && shares.iter().zip(TARGETS).all(met),
        detail: format!("in time {}", listed(&shares)),
    }
}

fn fall_short_alike(case: Option<&Case>, protocol: &str) -> Check {
    let shares = shares(case);
    let ratio = |(share, target): (&f64, u32)| share * 100.0 / f64::from(target);
    let ratios: Vec<f64> = shares.iter().zip(TARGETS).map(ratio).collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
    let mean_share = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let alike = |ratio: &f64| (ratio / mean - 1.0).abs() <= RATIOS_DIFFER;
    Check {
        name: format!("tarn{protocol}-200: shares fall short of their targets alike, and half are in time"),
        passed: ratios.len() == TARGETS.len() && ratios.iter().all(alike) && mean_share >= MEAN_SHARE,
        detail: format!("share over target {}; mean share {mean_share:.3}", listed(&ratios)),
    }
}

fn throughput(tarn: Option<&Case>, stock: Option<&Case>, name: &str) -> Check {
    let of = |case: Option<&Case>| case.and_then(|case| case.metrics.get("throughput_per_s").copied());
    let (tarn, stock) = (of(tarn).unwrap_or(0.0), of(stock).unwrap_or(f64::INFINITY));
    Check {
        name: format!("{name}: throughput within 2 % of the stock kernel's"),
        passed: tarn >= THROUGHPUT * stock,
        detail: format!("{tarn:.1} against {stock:.1} answers/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, shares: [f64; 5], throughput: f64) -> Case {
        let mut metrics: std::collections::BTreeMap<String, f64> = (0..5)
            .map(|class| (format!("in_time_{class}"), shares[class]))
            .collect();
        metrics.insert("throughput_per_s".into(), throughput);
        Case {
            name: name.into(),
            metrics,
            ..Case::default()
        }
    }

    fn passed(cases: &[Case]) -> Vec<bool> {
        of(cases).iter().take(4).map(|check| check.passed).collect()
    }

    #[test]
    fn a_goal_that_is_missed_fails_its_check_alone() {
        let good = [
            case("tarn-140", [0.91, 0.81, 0.71, 0.61, 0.51], 100.0),
            case("stock-140", [0.0; 5], 101.0),
            case("tarn-200", [0.63, 0.56, 0.49, 0.42, 0.35], 100.0),
            case("stock-200", [0.0; 5], 100.0),
        ];
        assert_eq!(passed(&good), [true; 4]);
        let change = |index: usize, change: Case| {
            let mut cases = good.to_vec();
            cases[index] = change;
            passed(&cases)
        };
        let low = case("tarn-140", [0.91, 0.81, 0.71, 0.61, 0.49], 100.0);
        assert_eq!(change(0, low), [false, true, true, true]);
        let unequal = case("tarn-200", [0.63, 0.56, 0.49, 0.42, 0.45], 97.0);
        assert_eq!(change(2, unequal), [true, false, true, false]);
        assert_eq!(passed(&[]), [false; 4]);
    }
}
