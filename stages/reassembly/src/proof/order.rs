//! The experiment `reassembly-order`: what a fragment costs, by the order in which a datagram's fragments arrive.

use anyhow::Result;

use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Experiment, Guest, Highlight, Measurement, Metric};

mod function;
mod goals;
mod load;
mod path;
mod plots;

/// The experiment.
pub static ORDER: Experiment = Experiment {
    stage: crate::STAGE,
    name: "reassembly-order",
    title: "what a fragment costs, by the order of arrival",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: METRICS,
    plots: plots::PLOTS,
    references: &[],
    highlights: HIGHLIGHTS,
    parts: |_| PARTS.len(),
    headline: &[0, 2],
    run,
    conclude: Some(|measurement| {
        goals::conclude(measurement);
        let series = plots::series(measurement);
        measurement.series.extend(series);
    }),
};

/// What is shown at the end of a run.
static HIGHLIGHTS: &[Highlight] = &[Highlight {
    what: "instructions/fragment",
    metric: FUNCTION,
    stock: Some("mainline-reverse-45"),
    peer: None,
    published: None,
    tarn: "tarn-reverse-45",
}];

const METHOD: &str = "\
Datagrams of 2 to 1,000 fragments arrive in order, in reverse, in random order, or as two halves with a fragment of \
each in turn. Fragments have 1,480 bytes (2 and 8 of them), 1,400 (45) or 64 (200 and 1,000); over IPv6 at most \
1,448.

The function alone: a kernel module in the guest builds the fragments, calls the function with each, and counts the \
instructions of the call. Finding, beginning and finishing the datagram are part of it; freeing it is not. tarn's \
function stands beside `ip_defrag`. For IPv6 it stands beside `nf_ct_frag6_gather`, the function that connection \
tracking uses, because the stack's own is not open to modules.

The whole path, from the device to the socket: frames are sent over a veth pair to a host with a UDP socket, a \
datagram in one system call. A figure is the instructions of the whole machine a fragment, less those of a control: \
the same frames, dropped by a hook where tarn would take them. Reading the datagram, which frees its fragments, has \
a column of its own; 16 bytes of each datagram are copied, and there is no UDP checksum. Without connection tracking \
the stock kernel routes each fragment; with it, or with tarn, only the whole datagram.

The kernel's allocator is told to keep its empty slabs. Otherwise what it happened to hold before would show in the \
figures.";

/// Instructions a fragment of the function alone.
const FUNCTION: &str = "instructions_per_fragment";
/// The same of the whole path, above the control.
const PATH: &str = "path_instructions_per_fragment";

/// Reading it from the socket, above the same.
const READ: &str = "read_instructions_per_fragment";

static METRICS: &[Metric] = &[
    Metric::less(FUNCTION, "function", "instructions", 0),
    Metric::less(PATH, "whole path", "instructions", 0),
    Metric::less(READ, "reading it", "instructions", 0),
];

/// What a part measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Function { is_v6: bool },
    Path { is_v6: bool },
}

const PARTS: &[Part] = &[
    Part::Function { is_v6: false },
    Part::Function { is_v6: true },
    Part::Path { is_v6: false },
    Part::Path { is_v6: true },
];

fn run(guest: &mut Guest) -> Result<Measurement> {
    match PARTS[guest.part] {
        Part::Function { is_v6 } => function::run(guest, is_v6),
        Part::Path { is_v6 } => path::run(guest, is_v6),
    }
}
