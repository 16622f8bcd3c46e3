//! What the figures are held against: the goal of the stage.

use super::kinds::{self, Attack, Variant};
use super::{COMPLETED, HELD};
use crate::proof::scene::Contender;
use tarn_lab::experiment::{Check, Measurement, Series, Size};

/// So many percent of the datagrams complete.
pub const PROMISED: f64 = 99.9;
/// Datagrams whose identifier an attacker holds are lost: at most so many times the share of identifiers held.
const SPOOFED_TIMES: f64 = 2.0;
/// Identifiers of IPv4 between two addresses.
const IDENTIFIERS: f64 = 65_536.0;

/// The contenders of the plot.
const SHOWN: [Contender; 3] = [Contender::Mainline, Contender::MainlineTuned, Contender::Tarn];

/// Adds the goals and the series of the plot by attack.
pub fn conclude(measurement: &mut Measurement) {
    let attacks = kinds::attacks(Size::Full);
    let goals = attacks.iter().filter_map(|attack| goal(measurement, attack));
    let goals: Vec<Check> = goals.collect();
    measurement.goals.extend(goals);
    let series = SHOWN
        .into_iter()
        .filter_map(|contender| by_attack(measurement, contender));
    let series: Vec<Series> = series.collect();
    measurement.series.extend(series);
}

fn goal(measurement: &Measurement, attack: &Attack) -> Option<Check> {
    let name = attack.case(Contender::Tarn);
    let completed = measurement.figure(&name, COMPLETED)?;
    let other = measurement
        .figure(&attack.case(Contender::Mainline), COMPLETED)
        .unwrap_or_default();
    let beside = format!("{completed:.2} %, the stock kernel {other:.2} %");
    if attack.is_promised() {
        return Some(Check {
            name: format!("{attack}: at least {PROMISED} % of the datagrams complete"),
            passed: completed >= PROMISED,
            detail: beside,
        });
    }
    if attack.variant != Variant::Spoofed || attack.is_v6 {
        return None;
    }
    let held = 100.0 * measurement.figure(&name, HELD)? / IDENTIFIERS;
    let bound = SPOOFED_TIMES * held;
    Some(Check {
        name: format!("{attack}: at most twice the share of identifiers held is lost"),
        passed: 100.0 - completed <= bound,
        detail: format!("{beside}; {held:.2} % of the identifiers were held at most"),
    })
}

/// The shares of all attacks of the quick size that are promised something, where all were run.
fn by_attack(measurement: &Measurement, contender: Contender) -> Option<Series> {
    let of = |attack: &Attack| measurement.figure(&attack.case(contender), COMPLETED);
    Some(Series {
        case: contender.name().to_owned(),
        name: "completed_by_attack".to_owned(),
        unit: "%".to_owned(),
        values: kinds::promised().map(of).collect::<Option<_>>()?,
    })
}
