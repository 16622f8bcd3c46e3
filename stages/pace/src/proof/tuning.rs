//! The choice of parameters, by the half of the networks that is for it.
//!
//! A candidate is judged in every network of that half that the simulator knows, by the goal: each figure that misses it costs the
//! logarithm of the factor by which it does, and one that meets it nothing. The search takes one parameter after the other, tries it
//! a step up and down, and keeps what costs less, until nothing does.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};

use super::control::Control;
use super::networks::{self, Course, Network, Rivals};
use super::simulated;
use crate::parameters::{PARAMETERS, Parameter, defaults};
use crate::simulator::outcome::Outcome;
use crate::simulator::simulate;
use crate::skeleton::types::pace_parameters;

/// How long a network is simulated after its start-up, ms.
pub(super) const LENGTH_MS: u64 = 30_000;
/// The parameters that are searched, each with its step, in its own unit.
const SEARCHED: [(&str, i64); 10] = [
    ("drop_below", 4),
    ("queue_margin", 3),
    ("queue_rise", 3),
    ("drain_gain", 6),
    ("window_gain", 8),
    ("probe_window_gain", 12),
    ("competing_window_gain", 12),
    ("competing_above", 15),
    ("loss_share", 5),
    ("probe_packets", 2),
];

/// What CUBIC and BBR come to in a network, which no parameter of ours changes.
struct Contest {
    network: Network,
    cubic: Outcome,
    bbr: Outcome,
}

/// What a candidate misses in a network, in words, and what that costs.
struct Miss {
    network: String,
    what: &'static str,
    cost: f64,
}

fn run(network: &Network, control: Control, parameters: &pace_parameters) -> Option<Outcome> {
    simulated::network(network, control, parameters, LENGTH_MS, 1).map(|network| simulate(&network))
}

fn contests(held_out: bool) -> Vec<Contest> {
    let half: Vec<Network> = networks::all()
        .into_iter()
        .filter(|network| network.is_held_out() == held_out)
        .collect();
    in_parallel(&half, |network| {
        let parameters = defaults();
        let cubic = run(network, Control::Cubic, &parameters)?;
        let bbr = run(network, Control::Bbr, &parameters)?;
        Some(Contest {
            network: *network,
            cubic,
            bbr,
        })
    })
    .into_iter()
    .flatten()
    .collect()
}

/// What it costs that a figure is above a bound.
fn above(figure: f64, bound: f64) -> f64 {
    ((figure + 1e-9) / (bound + 1e-9)).ln().clamp(0.0, 2.0)
}

impl Contest {
    fn judge(&self, parameters: &pace_parameters) -> Vec<Miss> {
        let Some(ours) = run(&self.network, Control::Tarn, parameters) else {
            return Vec::new();
        };
        let mut misses = Vec::new();
        let mut miss = |what, cost: f64| {
            if cost > 0.0 {
                misses.push(Miss {
                    network: self.network.to_string(),
                    what,
                    cost,
                });
            }
        };
        if self.network.course != Course::Steady {
            let (bbr, buffer) = (&self.bbr, self.network.buffer);
            // A packet more than none is no factor: a dozen packets are.
            miss(
                "retransmitted",
                above(ours.retransmitted as f64 + 12.0, 0.59 * bbr.retransmitted as f64 + 12.0),
            );
            if buffer >= 100 {
                miss(
                    "p99",
                    above(ours.p99_rtt, if buffer >= 200 { 0.6 } else { 0.8 } * bbr.p99_rtt),
                );
                miss("mean", above(ours.mean_rtt, 0.65 * bbr.mean_rtt));
            }
            if buffer >= 200 {
                miss("max", above(ours.max_rtt, 0.65 * bbr.max_rtt));
                miss("floor", above(ours.max_rtt, 1.3 * ours.max_rtt_floor));
            }
            miss("goodput", 10.0 * above(bbr.goodput, ours.goodput));
        }
        if self.network.flows + u32::from(self.network.rivals != Rivals::None) > 1
            && self.network.course == Course::Steady
        {
            let pair = !matches!(self.network.rivals, Rivals::Bbr(_) | Rivals::Cubic(4));
            if pair && self.network.buffer >= 50 {
                miss("jain", 5.0 * above(0.9, ours.fairness));
            }
        }
        if self.network.rivals == Rivals::None {
            let goodput = above(0.95 * self.bbr.goodput.max(self.cubic.goodput), ours.goodput);
            let retransmitted = self.bbr.retransmitted.min(self.cubic.retransmitted) as f64;
            let retransmitted = above(ours.retransmitted as f64 + 12.0, 1.05 * retransmitted + 12.0);
            let p99 = above(ours.p99_rtt, 1.05 * self.bbr.p99_rtt.min(self.cubic.p99_rtt));
            miss("less goodput than the better", 10.0 * goodput);
            miss("more sent again than the better", retransmitted / 10.0);
            miss("longer p99 than the better", p99);
            miss("worse in all three at once", 10.0 * goodput.min(retransmitted).min(p99));
        }
        misses
    }
}

fn judge(contests: &[Contest], parameters: &pace_parameters) -> Vec<Miss> {
    in_parallel(contests, |contest| contest.judge(parameters))
        .into_iter()
        .flatten()
        .collect()
}

fn cost(misses: &[Miss]) -> f64 {
    misses.iter().map(|miss| miss.cost).sum()
}

pub(super) fn in_parallel<T: Sync, U: Send>(items: &[T], work: impl Fn(&T) -> U + Sync) -> Vec<U> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((index, item)) = items.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = work(item);
                    done.lock()
                        .unwrap_or_else(|broken| broken.into_inner())
                        .push((index, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|broken| broken.into_inner());
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

fn summary(title: &str, misses: &[Miss], networks: usize) {
    println!(
        "{title}: cost {:.2}, {} misses in {networks} networks",
        cost(misses),
        misses.len()
    );
    let mut kinds: Vec<&str> = misses.iter().map(|miss| miss.what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let of: Vec<&Miss> = misses.iter().filter(|miss| miss.what == kind).collect();
        let mut worst: Vec<&&Miss> = of.iter().collect();
        worst.sort_by(|one, other| other.cost.total_cmp(&one.cost));
        let worst: Vec<String> = worst
            .iter()
            .take(5)
            .map(|miss| format!("{} {:.2}", miss.network, miss.cost))
            .collect();
        println!(
            "  {kind}: {} networks, {:.2}; {}",
            of.len(),
            of.iter().map(|miss| miss.cost).sum::<f64>(),
            worst.join(", ")
        );
    }
}

/// Prints what the defaults, with some numbers changed (`window_gain=112`), miss in the networks that are for tuning.
///
/// # Errors
/// There is no such number, or it is out of its range.
pub fn judge_candidate(changes: &[String]) -> Result<()> {
    let parameters = changed(changes)?;
    let contests = contests(false);
    summary("for tuning", &judge(&contests, &parameters), contests.len());
    Ok(())
}

/// The defaults, with some numbers changed.
pub(super) fn changed(changes: &[String]) -> Result<pace_parameters> {
    let mut parameters = defaults();
    for change in changes {
        apply(change, &mut parameters)?;
    }
    Ok(parameters)
}

fn apply(change: &str, parameters: &mut pace_parameters) -> Result<()> {
    let (name, value) = change
        .split_once('=')
        .with_context(|| format!("{change:?} is not NAME=NUMBER"))?;
    let value: u32 = value.parse().with_context(|| format!("{value:?} is no number"))?;
    let known = PARAMETERS.iter().find(|parameter| parameter.name == name);
    let parameter = known.with_context(|| format!("there is no number {name:?}"))?;
    ensure!(
        parameter.range.contains(&value),
        "{name} is from {} to {}",
        parameter.range.start(),
        parameter.range.end()
    );
    parameter.set(parameters, value);
    Ok(())
}

/// Prints what the defaults miss in the half that no choice is made by.
pub fn judge_held_out() {
    let contests = contests(true);
    summary("held out", &judge(&contests, &defaults()), contests.len());
}

/// What all controls come to in the networks whose names contain this, of those that are for tuning.
pub fn show(part: &str) {
    for network in networks::all()
        .iter()
        .filter(|network| !network.is_held_out() && network.to_string().contains(part))
    {
        for control in [Control::Cubic, Control::Bbr, Control::Plain, Control::Tarn] {
            if let Some(outcome) = run(network, control, &defaults()) {
                println!("{:34} {:6} {outcome}", network.to_string(), control.name());
            }
        }
    }
}

/// The best parameters so far, and what they cost.
struct Best {
    parameters: pace_parameters,
    cost: f64,
}

impl Best {
    /// Tries a parameter so much higher or lower; takes it and returns true when that costs less.
    fn takes(&mut self, contests: &[Contest], parameter: &Parameter, change: i64) -> bool {
        let value = u32::try_from(i64::from(parameter.get(&self.parameters)) + change).ok();
        let Some(value) = value.filter(|value| parameter.range.contains(value)) else {
            return false;
        };
        let mut parameters = self.parameters;
        parameter.set(&mut parameters, value);
        let cost = cost(&judge(contests, &parameters));
        println!("  {} {value}: {cost:.3}", parameter.name);
        let is_better = cost < self.cost - 0.01;
        if is_better {
            *self = Self { parameters, cost };
        }
        is_better
    }
}

/// Searches, and prints what it finds.
pub fn search() {
    let contests = contests(false);
    let parameters = defaults();
    let cost = cost(&judge(&contests, &parameters));
    let mut best = Best { parameters, cost };
    println!("defaults: {cost:.3}");
    loop {
        let before = best.cost;
        for (name, step) in SEARCHED {
            let parameter = PARAMETERS.iter().find(|parameter| parameter.name == name);
            for (parameter, change) in parameter.into_iter().flat_map(|found| [(found, step), (found, -step)]) {
                while best.takes(&contests, parameter, change) {}
            }
        }
        println!("round: {:.3}", best.cost);
        if best.cost > 0.995 * before {
            break;
        }
    }
    for parameter in &PARAMETERS {
        println!("{} = {}", parameter.name, parameter.get(&best.parameters));
    }
    summary("for tuning", &judge(&contests, &best.parameters), contests.len());
}
