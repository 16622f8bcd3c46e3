//! The experiment `redirect`: what the host in the middle costs, by everything that could carry a rule out.

use anyhow::Result;

use tarn_lab::busy::{Meter, take_turns};
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Check, Experiment, Guest, Highlight, Measurement, Metric, Plot, Reference, Size};

mod cases;
mod measure;

use cases::{CASES, CaseOf};

/// The experiment.
pub static REDIRECT: Experiment = Experiment {
    stage: crate::STAGE,
    name: "redirect",
    title: "the cost of steering an address and port to another",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: METRICS,
    plots: PLOTS,
    references: REFERENCES,
    highlights: HIGHLIGHTS,
    parts: |_| 1,
    headline: &[0],
    run,
    conclude: None,
};

/// What is shown at the end of a run.
static HIGHLIGHTS: &[Highlight] = &[Highlight {
    what: "instructions a packet",
    metric: HOST,
    stock: Some("nft-dnat"),
    peer: Some(("nft", "nft-stateless")),
    published: None,
    tarn: "tarn",
}];

const METHOD: &str = "\
A client speaks to 192.168.64.2:8080, an address of the host between it and the server; the server listens in a network \
namespace of its own at 10.0.1.2:8083. Five trials of UDP requests, each answered before the next is sent, with 64, 512 \
and 1400 bytes, then TCP requests of 64 bytes on one connection. The links are veth pairs without checksum or \
segmentation offload, so that what arrives is what would come from a wire. Client and server take turns: neither \
preempts the other when it is woken (SCHED_BATCH), which schedulers would decide differently from one request to the next.

A figure is the instructions that all programs, system calls, interrupts and the kernel execute for one request and its \
answer, both directions together: over UDP the trial in the middle. What client and server cost on one wire without a host \
between (direct) is the floor; the host's cost is what a case adds to it.

tarn delivers into a namespace behind a veth by bpf_redirect_peer, on both sides here. A client behind a network card \
is reached by bpf_redirect instead.";

const HOST: &str = "host_instructions_per_packet";

static METRICS: &[Metric] = &[
    Metric::less(HOST, "host's cost, 64 B", "instructions", 0),
    Metric::less("instructions_per_packet", "whole cost, 64 B", "instructions", 0),
    Metric::less("host_512", "host's, 512 B", "instructions", 0),
    Metric::less("host_1400", "host's, 1400 B", "instructions", 0),
    Metric::less("host_tcp", "host's, TCP", "instructions", 0),
    Metric::neutral("sent", "sent", "packets", 0),
    Metric::more("delivered", "delivered", "packets", 0),
    Metric::more("answered", "answered", "packets", 0),
    Metric::less("wrong_reply_address", "wrong address", "packets", 0),
    Metric::less("rtt_p50_us", "RTT p50", "us", 1),
    Metric::less("rtt_p99_us", "RTT p99", "us", 1),
    Metric::less("rtt_max_us", "RTT max", "us", 1),
];

static PLOTS: &[Plot] = &[
    Plot::Bars {
        title: "What the host costs for a 64-byte request and its answer",
        metric: HOST,
        references: &[HOST],
    },
    Plot::Cdf {
        title: "Round trips of 64-byte requests",
        series: "rtt_us",
        logarithmic: false,
    },
];

const SKETCH: &str = "a hand-made tc program with one fixed rule, Linux 6.12, same lab";
const REPORT: &str = "student report, Linux 5.15: mean of all CPUs over five trials (mpstat)";

static REFERENCES: &[Reference] = &[
    Reference::new(SKETCH, HOST, 2170.0, "instructions a 64-byte request and its answer"),
    Reference::new(
        REPORT,
        "netfilter_cpu",
        5.0,
        "% usr + sys + soft; all packets delivered",
    ),
    Reference::new(
        REPORT,
        "xdp_cpu",
        1.65,
        "% usr + sys + soft; one packet a trial delivered, so the two do not compare",
    ),
];

fn run(guest: &mut Guest) -> Result<Measurement> {
    take_turns()?;
    let meter = Meter::new()?;
    let (full, mut direct) = (guest.size == Size::Full, None);
    let describe = |case: &CaseOf| Case::new(case.name, case.title);
    let mut measurement = guest.measure(CASES, describe, |case, row, all| {
        let scene = match case.prepare()? {
            Ok(scene) => scene,
            Err(reason) => {
                row.skipped = Some(reason);
                return Ok(());
            }
        };
        let figures = measure::run(&scene, &meter, full)?;
        scene.end()?;
        row.metrics = figures.metrics(direct.as_ref());
        all.series.push(figures.series(case.name));
        all.checks.push(figures.check(case.name));
        // The first case is the floor.
        direct.get_or_insert(figures);
        Ok(())
    })?;
    let goals = goals(&measurement);
    measurement.checks.extend(goals);
    Ok(measurement)
}

/// The goal: a third of nftables' destination NAT and half of plain routing; the aim is a quarter.
fn goals(all: &Measurement) -> Vec<Check> {
    let cost = |case| all.figure(case, HOST);
    let (Some(tarn), Some(dnat), Some(plain)) = (cost("tarn"), cost("nft-dnat"), cost("plain")) else {
        return Vec::new();
    };
    let compare = |name: &str, other: f64, share: f64| Check {
        name: format!("tarn's host cost is at most {:.0} % of {name}'s", share * 100.0),
        passed: tarn <= share * other,
        detail: format!(
            "{tarn:.0} against {other:.0} instructions: {:.1} %",
            tarn / other * 100.0
        ),
    };
    vec![compare("nft-dnat", dnat, 0.25), compare("plain", plain, 0.5)]
}
