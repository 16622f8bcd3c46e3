//! How a control shares a path with others, and what it makes of radio links, on paths that no network of the table has: the simulator
//! tries a rule there a hundred times before one network of the table is asked.

use anyhow::Result;

use super::control::Control;
use super::networks::{Network, Rivals};
use super::simulated;
use super::tuning::{LENGTH_MS, changed, in_parallel};
use crate::simulator::network as simulation;
use crate::simulator::outcome::Outcome;
use crate::simulator::simulate;
use crate::skeleton::types::pace_parameters;

/// Rates, Mbit/s, and round trips, ms.
const PATHS: [(u32, u32); 8] = [
    (10, 30),
    (10, 80),
    (20, 20),
    (30, 60),
    (40, 30),
    (60, 120),
    (80, 20),
    (100, 50),
];
/// In hundredths of a product.
const BUFFERS: [u32; 4] = [50, 100, 200, 400];
/// Whose flows share a path: a name, how many are of the control that is judged, and who else is there.
const SHARED: [(&str, u32, Rivals); 7] = [
    ("2 flows", 2, Rivals::None),
    ("4 flows", 4, Rivals::None),
    ("16 flows", 16, Rivals::None),
    ("1 vs 1 cubic", 1, Rivals::Cubic(1)),
    ("1 vs 4 cubic", 1, Rivals::Cubic(4)),
    ("1 vs 1 bbr", 1, Rivals::Bbr(1)),
    ("1 vs 4 bbr", 1, Rivals::Bbr(4)),
];

/// A link that loses packets which no queue has dropped.
struct Radio {
    name: &'static str,
    loss_percent: f64,
    /// Acknowledgements come in lumps, so many ms apart; 0: they do not.
    lumps_ms: u64,
    /// They wait up to so many ms, up and down ten times a second.
    waves_ms: u64,
}

const RADIOS: [Radio; 4] = [
    Radio {
        name: "1 % lost",
        loss_percent: 1.0,
        lumps_ms: 0,
        waves_ms: 0,
    },
    Radio {
        name: "and lumps",
        loss_percent: 1.0,
        lumps_ms: 20,
        waves_ms: 0,
    },
    Radio {
        name: "and waves",
        loss_percent: 1.0,
        lumps_ms: 0,
        waves_ms: 20,
    },
    Radio {
        name: "3 %, waves",
        loss_percent: 3.0,
        lumps_ms: 0,
        waves_ms: 20,
    },
];

fn on_all_paths(outcome: impl Fn(Network) -> Option<Outcome> + Sync, buffer: u32) -> Vec<Outcome> {
    in_parallel(&PATHS, |&(rate, round_trip)| {
        outcome(Network::steady(rate, round_trip, buffer))
    })
    .into_iter()
    .flatten()
    .collect()
}

fn mean(outcomes: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(of).sum::<f64>() / outcomes.len().max(1) as f64
}

fn share(control: Control, parameters: &pace_parameters) {
    println!("means over {} paths; flows share them:", PATHS.len());
    for (name, flows, rivals) in SHARED {
        for buffer in BUFFERS {
            let outcomes = on_all_paths(
                |network| {
                    let network = Network {
                        flows,
                        rivals,
                        ..network
                    };
                    simulated::network(&network, control, parameters, LENGTH_MS, 1).map(|network| simulate(&network))
                },
                buffer,
            );
            println!(
                "{name:12} {} BDP: Jain {:.3}, least {:.3}; share of the first {:.3}; goodput {:.1} %, sent again {:.0}",
                f64::from(buffer) / 100.0,
                mean(&outcomes, |outcome| outcome.fairness),
                outcomes.iter().map(|outcome| outcome.fairness).fold(1.0, f64::min),
                mean(&outcomes, |outcome| outcome.shares.first().copied().unwrap_or(0.0)),
                mean(&outcomes, |outcome| 100.0 * outcome.goodput / outcome.capacity),
                mean(&outcomes, |outcome| outcome.retransmitted as f64),
            );
        }
    }
}

fn radio(control: Control, parameters: &pace_parameters) {
    println!("goodput of one flow, percent of each path:");
    for radio in RADIOS {
        let back = simulation::Back {
            from_ms: 0,
            least_ms: 0,
            most_ms: radio.waves_ms,
            period_ms: 100,
        };
        let outcomes = on_all_paths(
            |network| {
                let network = simulated::network(&network, control, parameters, LENGTH_MS, 1)?;
                Some(simulate(&simulation::Network {
                    loss: radio.loss_percent / 100.0,
                    acknowledged_every_ms: radio.lumps_ms,
                    back: (radio.waves_ms > 0).then_some(back),
                    ..network
                }))
            },
            200,
        );
        let each: Vec<String> = outcomes
            .iter()
            .map(|outcome| format!("{:.0}", 100.0 * outcome.goodput / outcome.capacity))
            .collect();
        println!("{:12} {}", radio.name, each.join(" "));
    }
}

/// Prints it, for a control by its name (`tarn`, `cubic`, `bbr`) or for the defaults with some numbers changed.
///
/// # Errors
/// As [`super::tuning::judge_candidate`].
pub fn show(arguments: &[String]) -> Result<()> {
    let (control, changes) = match arguments.first().map(String::as_str) {
        Some("cubic") => (Control::Cubic, &arguments[1..]),
        Some("bbr") => (Control::Bbr, &arguments[1..]),
        _ => (Control::Tarn, arguments),
    };
    let parameters = changed(changes)?;
    share(control, &parameters);
    radio(control, &parameters);
    Ok(())
}
