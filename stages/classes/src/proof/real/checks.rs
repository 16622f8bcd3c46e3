//! What must hold: what tarn says is what clients saw. And the goals.

use crate::proof::scene::TARGETS;
use tarn_lab::experiment::{Case, Check, Measurement};

/// How far what tarn says may be from what clients saw.
const DIFFER: f64 = 0.02;
/// How far below a target a share may be where all can just be met.
const MISSED: f64 = 0.02;

/// Judges the parts together.
pub fn conclude(all: &mut Measurement) {
    let checks = all.cases.iter().filter_map(is_true);
    all.checks.extend(checks.collect::<Vec<_>>());
    let goals = all.cases.iter().filter(|case| is_goal(case)).map(meets_targets);
    all.goals.extend(goals.collect::<Vec<_>>());
}

fn of(case: &Case, name: &str) -> Vec<f64> {
    let figure = |class: usize| case.metrics.get(&format!("{name}_{class}")).copied();
    (0..TARGETS.len()).filter_map(figure).collect()
}

fn listed(values: &[f64]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:.3}")).collect();
    values.join(" ")
}

/// Whether what tarn says of a case is right. Connections in TLS are counted by what an answer usually takes, which changes while the limit
/// is found: that tarn says no more than clients saw is what must hold there.
fn is_true(case: &Case) -> Option<Check> {
    let (seen, said) = (of(case, "seen_in_time"), of(case, "said_in_time"));
    let is_estimated = case.name.contains("-tls-") || case.name.contains("-visits-");
    let agree = |(seen, said): (&f64, &f64)| said - seen <= DIFFER && (is_estimated || seen - said <= DIFFER);
    let what = if is_estimated { "no more than" } else { "what" };
    (!said.is_empty()).then(|| Check {
        name: format!("{}: what tarn says is {what} clients saw, within 2 points", case.name),
        passed: seen.len() == said.len() && seen.iter().zip(&said).all(agree),
        detail: format!("seen {}, said {}", listed(&seen), listed(&said)),
    })
}

fn is_goal(case: &Case) -> bool {
    case.name.starts_with("tarn-") && case.name.ends_with("-1.4")
}

fn meets_targets(case: &Case) -> Check {
    let shares = of(case, "in_time");
    let met = |(share, target): (&f64, u32)| *share >= f64::from(target) / 100.0 - MISSED;
    Check {
        name: format!("{}: all five targets are met, or missed by at most {MISSED}", case.name),
        passed: shares.len() == TARGETS.len() && shares.iter().zip(TARGETS).all(met),
        detail: format!("in time {}", listed(&shares)),
    }
}
