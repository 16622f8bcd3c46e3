//! What must hold of a scenario's cases: the goal.

use super::figures::Figures;
use super::scenario::{Event, Scenario};
use super::scene::Contender;
use crate::lab::experiment::Check;

/// Of the oracle's: how much more the game's deviation and 99.9th percentile may be.
const OF_THE_ORACLE: f64 = 1.05;
/// Of the deviation by ECMP with bad luck, and by the published rule: how much may be left.
const OF_OTHERS: f64 = 0.05;
/// How long nothing may come through after an uplink has died.
const LEAVE_MS: f64 = 200.0;
/// The share of answers that others may overtake.
const REORDERED: f64 = 0.001;

/// The checks of a scenario, over its cases.
pub fn of(scenario: &Scenario, results: &[(Contender, Figures)]) -> Vec<Check> {
    let figures = |wanted: Contender| {
        results
            .iter()
            .find(|(contender, _)| *contender == wanted)
            .map(|(_, figures)| figures)
    };
    let (Some(calmest), Some(oracle)) = (figures(Contender::Calmest), figures(Contender::Oracle)) else {
        return Vec::new();
    };
    let check = |name: &str, passed: bool, detail: String| Check {
        name: format!("{}: {name}", scenario.suffix),
        passed,
        detail,
    };
    let dies = scenario.uplinks.iter().any(|uplink| uplink.event == Event::Dies);
    let is_equal = scenario.uplinks.iter().all(|uplink| *uplink == scenario.uplinks[0]);
    let mut checks = vec![check(
        "at most 0.1 % of the game's answers are overtaken by others",
        calmest.reordered_share() <= REORDERED,
        format!("{:.3} %", calmest.reordered_share() * 100.0),
    )];
    if dies {
        let leave = calmest.leave.map(|leave| leave.as_secs_f64() * 1e3);
        checks.push(check(
            "the dead uplink is left within 200 ms",
            leave.is_some_and(|leave| leave <= LEAVE_MS),
            leave.map_or_else(
                || "it was not".to_owned(),
                |leave| format!("{leave:.0} ms, {} requests lost", calmest.lost()),
            ),
        ));
        return checks;
    }
    // The standard error of the ratio of two standard deviations of so many requests each: 1/sqrt(n).
    let chance = 3.0 / (calmest.game_ms.len() as f64).sqrt();
    checks.push(check(
        "the game is as steady as by the oracle's uplink: 99.9th percentile within 5 %, deviation within 5 % and three standard errors",
        calmest.deviation() <= oracle.deviation() * (OF_THE_ORACLE + chance)
            && calmest.p999() <= oracle.p999() * OF_THE_ORACLE,
        format!(
            "deviation {:.3} ms, the oracle's {:.3} (standard error {:.1} %); 99.9th percentile {:.2} ms, the oracle's {:.2}",
            calmest.deviation(),
            oracle.deviation(),
            chance / 3.0 * 100.0,
            calmest.p999(),
            oracle.p999()
        ),
    ));
    if is_equal {
        checks.push(check(
            "equal uplinks are no reason to move in ten minutes",
            calmest.path_changes == 0,
            format!("{} moves", calmest.path_changes),
        ));
    }
    if let Some(published) = figures(Contender::Published) {
        checks.push(check(
            "as published, the first uplink gets every packet: nobody else ever weighs anything",
            published.path_changes == 0,
            format!("{} moves", published.path_changes),
        ));
    }
    let spikes = scenario.uplinks[scenario.bad].event == Event::Spikes;
    for (other, whose) in [
        (Contender::EcmpAddresses, "ecmp-addresses with bad luck"),
        (Contender::EcmpPorts, "ecmp-ports with bad luck"),
        (Contender::Published, "the published rule"),
        (Contender::PublishedLowest, "the published rule with its aim"),
    ] {
        let Some(bad) = figures(other).filter(|_| spikes) else {
            continue;
        };
        checks.push(check(
            &format!("the game's deviation is at least 95 % below that of {whose}"),
            calmest.deviation() <= bad.deviation() * OF_OTHERS,
            format!("{:.3} ms, {:.3} ms", calmest.deviation(), bad.deviation()),
        ));
    }
    checks
}
