//! How a control shares a path with others, and what it makes of links that lose packets, on paths that no network of the table has:
//! the simulator tries a rule there a hundred times before one network of the table is asked.

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
/// When the second of two flows begins: so many moments, so far apart.
const MOMENTS: u64 = 24;
const MOMENT_MS: u64 = 7;
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
    /// What they wait on the way back, ms: from, to, up and down in so long.
    waits_ms: [u64; 3],
    /// In hundredths of a product.
    buffer: u32,
    /// The rate falls to 40 % for every other two and a half seconds.
    falls: bool,
}

const RADIO: Radio = Radio {
    name: "1 % lost",
    loss_percent: 1.0,
    lumps_ms: 0,
    waits_ms: [0, 0, 1],
    buffer: 200,
    falls: false,
};

const RADIOS: [Radio; 6] = [
    RADIO,
    Radio {
        name: "in lumps",
        lumps_ms: 20,
        ..RADIO
    },
    Radio {
        name: "in waves",
        waits_ms: [0, 20, 100],
        ..RADIO
    },
    Radio {
        name: "short queue back",
        waits_ms: [5, 10, 1000],
        ..RADIO
    },
    Radio {
        name: "long queue back",
        waits_ms: [10, 40, 1000],
        ..RADIO
    },
    Radio {
        name: "0.2 %, falls",
        loss_percent: 0.2,
        buffer: 400,
        falls: true,
        ..RADIO
    },
];

fn on_all_paths<T: Send>(outcome: impl Fn(Network) -> Option<T> + Sync, buffer: u32) -> Vec<T> {
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

/// Jain's index of each path and moment, measured for so long.
fn pairs(control: Control, parameters: &pace_parameters, length_ms: u64) -> Vec<f64> {
    let of_path = |network| {
        let network = simulated::network(&Network { flows: 2, ..network }, control, parameters, length_ms, 1)?;
        let at = |moment: u64| {
            let mut network = network.clone();
            network.flows[1].start_ms += moment * MOMENT_MS;
            simulate(&network).fairness
        };
        Some((0..MOMENTS).map(at).collect::<Vec<f64>>())
    };
    on_all_paths(of_path, 50).concat()
}

fn radio(control: Control, parameters: &pace_parameters) {
    println!("goodput of one flow, percent of each path, and the mean round trip, percent of the smallest:");
    for radio in RADIOS {
        let [least_ms, most_ms, period_ms] = radio.waits_ms;
        let back = simulation::Back {
            from_ms: 0,
            least_ms,
            most_ms,
            period_ms,
        };
        let outcomes = on_all_paths(
            |network| {
                let network = simulated::network(&network, control, parameters, LENGTH_MS, 1)?;
                let falling = simulation::Course::Step {
                    low: network.rate * 2 / 5,
                    period_ms: 2_500,
                };
                let smallest_ms = network.round_trip_us as f64 / 1e3;
                let outcome = simulate(&simulation::Network {
                    loss: radio.loss_percent / 100.0,
                    acknowledged_every_ms: radio.lumps_ms,
                    back: (most_ms > 0).then_some(back),
                    course: if radio.falls {
                        falling
                    } else {
                        simulation::Course::Steady
                    },
                    ..network
                });
                Some((outcome, smallest_ms))
            },
            radio.buffer,
        );
        let each: Vec<String> = outcomes
            .iter()
            .map(|(outcome, smallest)| {
                let goodput = 100.0 * outcome.goodput / outcome.capacity;
                format!("{goodput:.0}/{:.0}", 100.0 * outcome.mean_rtt / smallest)
            })
            .collect();
        println!("{:16} {}", radio.name, each.join(" "));
    }
}

/// The control that arguments name (`tarn`, the default, `cubic`, `bbr`), with the numbers that the others change.
fn judged(arguments: &[String]) -> Result<(Control, pace_parameters)> {
    let (control, changes) = match arguments.first().map(String::as_str) {
        Some("cubic") => (Control::Cubic, &arguments[1..]),
        Some("bbr") => (Control::Bbr, &arguments[1..]),
        Some("tarn") => (Control::Tarn, &arguments[1..]),
        _ => (Control::Tarn, arguments),
    };
    Ok((control, changed(changes)?))
}

/// Prints how a control shares and what it makes of radio links: `[cubic | bbr | tarn] [window_gain=112 ...]`.
///
/// # Errors
/// As [`super::tuning::judge_candidate`].
pub fn show(arguments: &[String]) -> Result<()> {
    let (control, parameters) = judged(arguments)?;
    share(control, &parameters);
    radio(control, &parameters);
    Ok(())
}

/// Prints how much it depends on the moment at which the second begins how two flows share half a product; arguments as of [`show`].
///
/// # Errors
/// As [`super::tuning::judge_candidate`].
pub fn show_pairs(arguments: &[String]) -> Result<()> {
    let (control, parameters) = judged(arguments)?;
    println!(
        "two flows, 0.5 BDP, {MOMENTS} moments on each of {} paths:",
        PATHS.len()
    );
    for seconds in [5, 20, 60] {
        let mut jain = pairs(control, &parameters, seconds * 1000);
        jain.sort_by(f64::total_cmp);
        println!(
            "{seconds:2} s: Jain least {:.3}, tenth {:.3}, median {:.3}; below 0.9 in {} of {}",
            jain[0],
            jain[jain.len() / 10],
            jain[jain.len() / 2],
            jain.iter().filter(|jain| **jain < 0.9).count(),
            jain.len(),
        );
    }
    Ok(())
}
