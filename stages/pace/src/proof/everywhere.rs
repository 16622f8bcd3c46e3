//! The experiment `pace-everywhere`: networks in which nothing shall be worse.

use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Check, Experiment, Guest, Measurement, Size};

use super::control::Control;
use super::goal;
use super::networks::{self, Network};
use super::table;

/// The experiment.
pub static EVERYWHERE: Experiment = Experiment {
    stage: crate::STAGE,
    name: "pace-everywhere",
    title: "TCP in networks of all kinds",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: table::METRICS,
    plots: table::PLOTS,
    references: &[],
    highlights: &[],
    parts: |size| table::parts(size, networks_of),
    headline: &[],
    run: |guest: &mut Guest| {
        table::run(
            guest,
            networks_of(guest.size),
            &[Control::Cubic, Control::Bbr, Control::Tarn],
        )
    },
    conclude: Some(conclude),
};

const METHOD: &str = "\
The networks and figures are as in pace-drops. `fqcodel` and `cake`: these queueing disciplines manage the bottleneck; \
`ecn`: one queue for all that marks by CoDel, and flows that know ECN; `policer`: what exceeds \
the rate and the burst in the name is discarded; `loss1`: one packet in a hundred is lost behind the bottleneck at random; `lumps20`: \
acknowledgements come back every 20 ms, all that have gathered; `reordering`: one packet in a hundred overtakes those of the last 3 ms.";

/// What counts as worse.
const WORSE: f64 = 1.05;

fn networks_of(size: Size) -> Vec<Network> {
    let all = networks::everywhere();
    if size == Size::Full {
        return all;
    }
    let slow = |network: &Network| network.rate <= 20 && network.is_held_out();
    table::some(all.into_iter().filter(slow).collect(), 3)
}

/// Whether ours is worse than the better of CUBIC and BBR: in goodput, retransmissions and 99th percentile.
fn is_worse(measurement: &Measurement, network: &Network) -> Option<[bool; 3]> {
    let figure = |control, metric| measurement.figure(&table::name(control, network), metric);
    let less = |metric| {
        let best = figure(Control::Cubic, metric)?.min(figure(Control::Bbr, metric)?);
        Some(figure(Control::Tarn, metric)? > WORSE * best)
    };
    let best = figure(Control::Cubic, "goodput_mbit_s")?.max(figure(Control::Bbr, "goodput_mbit_s")?);
    let goodput = figure(Control::Tarn, "goodput_mbit_s")? * WORSE < best;
    Some([goodput, less("retransmitted")?, less("rtt_p99_ms")?])
}

fn conclude(measurement: &mut Measurement) {
    for (half, networks) in goal::halves(measurement, &networks::everywhere()) {
        measurement.checks.push(goal::goes_on(measurement, &networks));
        let worse: Vec<[bool; 3]> = networks
            .iter()
            .filter_map(|network| is_worse(measurement, network))
            .collect();
        let in_all = worse.iter().filter(|worse| worse.iter().all(|worse| *worse)).count();
        let by = |index: usize| worse.iter().filter(|worse| worse[index]).count();
        measurement.goals.push(Check {
            name: format!(
                "{half}: nowhere more than 5 % worse than the better of CUBIC and BBR in goodput, retransmissions and 99th percentile at once"
            ),
            passed: in_all == 0,
            detail: format!(
                "in all three in {in_all} of {} networks; in goodput {}, retransmissions {}, 99th percentile {}",
                worse.len(),
                by(0),
                by(1),
                by(2)
            ),
        });
    }
}
