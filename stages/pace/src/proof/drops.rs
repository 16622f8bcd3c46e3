//! The experiment `pace-drops`: what flows do to a path, and to a game beside them, when its bandwidth drops.

use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Experiment, Guest, Highlight, Measurement, Size};

use super::control::Control;
use super::goal;
use super::networks::{self, Network};
use super::published;
use super::table;

/// The experiment.
pub static DROPS: Experiment = Experiment {
    stage: crate::STAGE,
    name: "pace-drops",
    title: "TCP where the bandwidth drops",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: table::METRICS,
    plots: table::PLOTS,
    references: published::REFERENCES,
    highlights: HIGHLIGHTS,
    parts: |size| table::parts(size, networks_of),
    headline: &[0],
    run: |guest: &mut Guest| table::run(guest, networks_of(guest.size), controls_of(guest.size)),
    conclude: Some(conclude),
};

/// What is shown at the end of a run.
static HIGHLIGHTS: &[Highlight] = &[
    Highlight {
        what: "p99 RTT at a drop, ms",
        metric: "rtt_p99_ms",
        stock: Some("cubic-20to8-40ms-1bdp-4flows"),
        peer: Some(("BBR", "bbr-20to8-40ms-1bdp-4flows")),
        published: Some("published-20to8-40ms-1bdp-4flows"),
        tarn: "tarn-20to8-40ms-1bdp-4flows",
    },
    Highlight {
        what: "sent again there",
        metric: "retransmitted",
        stock: Some("cubic-20to8-40ms-1bdp-4flows"),
        peer: Some(("BBR", "bbr-20to8-40ms-1bdp-4flows")),
        published: Some("published-20to8-40ms-1bdp-4flows"),
        tarn: "tarn-20to8-40ms-1bdp-4flows",
    },
];

const METHOD: &str = "\
Flows send as much as they can through a router whose link is the bottleneck, a token bucket with a queue that drops what does not fit. \
The whole round trip without a queue is on the way back. A case is called by the control, the rates, the round trip, the queue (what \
it holds of what the whole rate sends in a round trip: bdp) and the number of flows. `50to20` falls from 50 to 20 Mbit/s every ten seconds and \
rises again five seconds later; `walk` changes ten times a second at random, as Wi-Fi does; `fading` fifty times a second, as LTE.

Beside the flows go a ping every 10 ms, which is what the round trips are taken by, and a game of 60 requests a second. What is measured \
begins two seconds or twenty round trips after the last flow, whichever is longer; what is sent again before has a column of its own. \
The floor is the largest round trip of a sender who sends at any time what the bottleneck delivered a round trip ago: it cannot know more. Drained: the time from a drop until, after the longest, a round trip is within a half of \
that without a queue.

All networks were divided in halves by a hash of their names before any parameter was chosen. The quick size runs networks \
of the half that no choice was made by, all with at most 20 Mbit/s and a queue of at least one product.

The full size also runs `published`, the published change of BBR as its text has it, in our model; `published-repaired`, doing what its author describes; \
and `plain`, tarn with the response to a drop switched off.";

/// All; in the smaller sizes slow ones whose buffers hold a product or more, none of which has been tuned for.
fn networks_of(size: Size) -> Vec<Network> {
    let all = networks::drops();
    if size == Size::Full {
        return all;
    }
    let slow = |network: &Network| network.rate <= 20 && network.buffer >= 100 && network.is_held_out();
    table::some(all.into_iter().filter(slow).collect(), 8)
}

fn controls_of(size: Size) -> &'static [Control] {
    match size {
        Size::Full => &Control::ALL,
        Size::Headline => &[Control::Cubic, Control::Bbr, Control::Published, Control::Tarn],
        Size::Quick => &[Control::Cubic, Control::Bbr, Control::Tarn],
    }
}

/// The goal, over the networks of both halves together where both are there.
fn conclude(measurement: &mut Measurement) {
    for (half, networks) in goal::halves(measurement, &networks::drops()) {
        measurement.checks.push(goal::goes_on(measurement, &networks));
        let goals = goal::against_bbr(measurement, half, &networks);
        measurement.goals.extend(goals);
    }
}
