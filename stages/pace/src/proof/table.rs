//! Experiments over networks of the table: each control in each network, a case each.

use std::time::Duration;

use anyhow::Result;

use super::control::Control;
use super::networks::{Course, Network, Rivals};
use super::scene::Plan;
use tarn_lab::experiment::{Case, Guest, Measurement, Metric, Plot, Series, Size};
use tarn_lab::stats::Sample;

/// Networks that a guest of the quick size runs.
const NETWORKS: usize = 2;
/// How long a case is measured: two drops; alone on a steady path, half. Flows that share one take longer to find their shares.
const LENGTH: Duration = Duration::from_secs(20);
const LENGTH_ALONE: Duration = Duration::from_secs(10);

/// The parts of a size: the full one takes hours, and has one for each network, so that a run that was broken off goes on where it was.
pub fn parts(size: Size, networks: fn(Size) -> Vec<Network>) -> usize {
    parts_of(size, networks(size).len())
}

fn parts_of(size: Size, networks: usize) -> usize {
    match size {
        Size::Full => networks,
        _ => networks.div_ceil(NETWORKS),
    }
}

/// The columns of its table.
pub static METRICS: &[Metric] = &[
    Metric::more("goodput_mbit_s", "goodput", "Mbit/s", 2),
    Metric::less("retransmitted", "sent again", "packets", 0),
    Metric::less("rtt_mean_ms", "RTT mean", "ms", 1),
    Metric::less("rtt_p99_ms", "p99", "ms", 1),
    Metric::less("rtt_max_ms", "max", "ms", 1),
    Metric::neutral("rtt_floor_ms", "floor", "ms", 1),
    Metric::less("drained_ms", "drained", "ms", 0),
    Metric::less("game_p99_ms", "game p99", "ms", 1),
    Metric::more("jain", "Jain", "", 3),
    Metric::neutral("share_percent", "share", "%", 1),
    Metric::less("retransmitted_startup", "at start", "packets", 0),
];

/// Runs the guest's share.
///
/// # Errors
/// Those of [`Plan::run`], with the case's name.
pub fn run(guest: &mut Guest, networks: Vec<Network>, controls: &[Control]) -> Result<Measurement> {
    let seed = guest.seed;
    let length = |network: &Network| match network.course {
        Course::Steady if network.flows == 1 && network.rivals == Rivals::None => LENGTH_ALONE,
        _ => LENGTH,
    };
    let parts = parts_of(guest.size, networks.len());
    let own = networks.into_iter().skip(guest.part).step_by(parts);
    let cases: Vec<(Network, Control)> = own
        .flat_map(|network| controls.iter().map(move |control| (network, *control)))
        .collect();
    let describe = |(network, control): &(Network, Control)| {
        Case::new(name(*control, network), format!("{}, {network}", control.title()))
    };
    guest.measure(&cases, describe, |(network, control), case, all| {
        let plan = Plan {
            network: *network,
            control: *control,
            seed,
            length: length(network),
        };
        let figures = plan.run()?;
        case.metrics = figures.metrics;
        all.series.push(Series {
            case: case.name.clone(),
            name: "rtt_ms".into(),
            unit: "ms".into(),
            values: quantiles(&Sample::new(figures.round_trips_ms)?),
        });
        Ok(())
    })
}

/// What is drawn of it.
pub static PLOTS: &[Plot] = &[Plot::Bars {
    title: "The 99th percentile of round trips of pings beside the flows",
    metric: "rtt_p99_ms",
    references: &[],
}];

/// What a case is called.
pub fn name(control: Control, network: &Network) -> String {
    format!("{}-{network}", control.name())
}

/// What a distribution is drawn by: its half percents.
fn quantiles(sample: &Sample) -> Vec<f64> {
    (0..=200).map(|half| sample.percentile(f64::from(half) / 2.0)).collect()
}

/// So many of them, evenly.
pub fn some(networks: Vec<Network>, count: usize) -> Vec<Network> {
    let all = networks.len();
    let chosen = |index: usize| networks.get(index * all / count.max(1)).copied();
    (0..count.min(all)).filter_map(chosen).collect()
}
