//! The experiment `pace-published`: the published experiment again, with its four figures.

use std::time::Duration;

use anyhow::{Context, Result};

use super::control::Control;
use super::networks::{Course, Network};
use super::scene::Plan;
use super::table;
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Check, Experiment, Guest, Measurement, Metric, Metrics, Plot, Reference, Size};

/// The experiment.
pub static PUBLISHED: Experiment = Experiment {
    stage: crate::STAGE,
    name: "pace-published",
    title: "the published experiment",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: &[
        Metric::more("goodput_mbit_s", "goodput", "Mbit/s", 2),
        Metric::less("retransmitted_all", "sent again", "packets", 0),
        Metric::less("rtt_mean_ms", "RTT mean", "ms", 1),
        Metric::less("rtt_max_ms", "max", "ms", 1),
        Metric::more("goodput_percent", "goodput", "% of change", 1),
        Metric::less("retransmitted_percent", "sent again", "% of change", 1),
        Metric::less("rtt_mean_percent", "mean", "% of change", 1),
        Metric::less("rtt_max_percent", "max", "% of change", 1),
        Metric::neutral("retransmitted_least", "least of the runs", "packets", 0),
        Metric::neutral("retransmitted_most", "most of the runs", "packets", 0),
    ],
    plots: &[Plot::Bars {
        title: "Packets sent again, against BBR's",
        metric: "retransmitted_percent",
        references: &["retransmitted_percent"],
    }],
    references: REFERENCES,
    highlights: &[],
    parts: |_| 1,
    headline: &[],
    run,
    conclude: None,
};

const METHOD: &str = "\
Four flows for 30 seconds and a ping beside them, three times with different seeds: what was published of the Mountain Kernel was measured \
so, by iperf3 over the Internet, the modified kernel against its own BBR. The path here is one of 85 Mbit/s and 20 ms whose rate walks as \
Wi-Fi's does, with a queue of two products; in the quick size 17 Mbit/s, one run of 15 s. What is sent again is all of it, the start included, as iperf3 \
counts. Figures are means of the runs; percentages are against BBR's.";

const POST: &str = "Mountain Kernel, iperf3 over the Internet, four flows, 30 s";

/// The figures that were published, for any experiment that is held against them.
pub static REFERENCES: &[Reference] = &[
    Reference::new(
        POST,
        "goodput_percent",
        4.63,
        "%, modified against stock BBR: 81.23 to 84.99 Mbit/s",
    ),
    Reference::new(
        POST,
        "retransmitted_percent",
        -41.03,
        "%: 580 to 342; 671 in a second run",
    ),
    Reference::new(POST, "rtt_max_percent", -40.19, "%: 73.05 to 43.69 ms"),
    Reference::new(POST, "rtt_mean_percent", -9.58, "%"),
];

/// Figures that are means of the runs, and their change against BBR's.
const MEANS: [(&str, &str); 4] = [
    ("goodput_mbit_s", "goodput_percent"),
    ("retransmitted_all", "retransmitted_percent"),
    ("rtt_mean_ms", "rtt_mean_percent"),
    ("rtt_max_ms", "rtt_max_percent"),
];

/// BBR first: the others are held against it.
const CONTROLS: [Control; 4] = [
    Control::Bbr,
    Control::Published,
    Control::PublishedRepaired,
    Control::Tarn,
];

fn run(guest: &mut Guest) -> Result<Measurement> {
    let (rate, runs, length) = match guest.size {
        Size::Full => (85, 3, Duration::from_secs(30)),
        _ => (17, 1, Duration::from_secs(15)),
    };
    let network = Network {
        course: Course::Walk,
        flows: 4,
        ..Network::steady(rate, 20, 200)
    };
    let first_seed = guest.seed;
    let again =
        |measurement: &Measurement, control| measurement.figure(&table::name(control, &network), "retransmitted_all");
    let describe = |control: &Control| Case::new(table::name(*control, &network), control.title());
    let mut measurement = guest.measure(&CONTROLS, describe, |control, case, all| {
        let runs: Vec<Metrics> = (first_seed..first_seed + runs)
            .map(|seed| {
                let plan = Plan {
                    network,
                    control: *control,
                    seed,
                    length,
                };
                plan.run().map(|figures| with_start(figures.metrics))
            })
            .collect::<Result<_>>()?;
        case.metrics = summary(&runs, all.cases.first().map(|bbr| &bbr.metrics))?;
        Ok(())
    })?;
    let [ours, theirs] = [Control::Tarn, Control::Bbr].map(|control| again(&measurement, control).unwrap_or(f64::NAN));
    measurement.checks.push(Check {
        name: "tarn sends fewer packets again than BBR".into(),
        passed: ours < theirs,
        detail: format!("{ours:.0}, BBR {theirs:.0}"),
    });
    Ok(measurement)
}

fn figure(metrics: &Metrics, name: &str) -> Result<f64> {
    metrics
        .get(name)
        .copied()
        .with_context(|| format!("a run has no {name}"))
}

/// A run's figures, with what was sent again from its first packet on.
fn with_start(mut metrics: Metrics) -> Metrics {
    let sent_again = ["retransmitted", "retransmitted_startup"];
    let all = sent_again.iter().filter_map(|name| metrics.get(*name)).sum();
    metrics.insert("retransmitted_all".into(), all);
    metrics
}

/// Means of the runs, and what they are against BBR's; its own have nothing to be held against.
fn summary(runs: &[Metrics], bbr: Option<&Metrics>) -> Result<Metrics> {
    let mut metrics = Metrics::default();
    for (name, change) in MEANS {
        let values = runs.iter().map(|run| figure(run, name)).collect::<Result<Vec<_>>>()?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        metrics.insert(name.into(), mean);
        if let Some(bbr) = bbr {
            let of = figure(bbr, name)?;
            metrics.insert(change.into(), 100.0 * (mean - of) / of.max(1.0));
        }
        if name == "retransmitted_all" {
            metrics.insert(
                "retransmitted_least".into(),
                values.iter().copied().fold(f64::MAX, f64::min),
            );
            metrics.insert("retransmitted_most".into(), values.iter().copied().fold(0.0, f64::max));
        }
    }
    Ok(metrics)
}
