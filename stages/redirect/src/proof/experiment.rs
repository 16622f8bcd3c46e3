//! The experiment `redirect`: what the host in the middle costs, by everything that could carry a rule out.

use anyhow::Result;

use tarn_lab::busy::{Meter, take_turns};
use tarn_lab::experiment::{Better, Case, Check, Experiment, Guest, Measurement, Metric, Plot, Reference, Size};

mod cases;
mod measure;

use cases::CASES;

/// The experiment.
pub struct RedirectExperiment;

const METHOD: &str = "\
A client speaks to 192.168.64.2:8080, an address of the host between it and the server; the server listens in a network \
namespace of its own at 10.0.1.2:8083. Five trials of UDP requests, each answered before the next is sent, with 64, 512 \
and 1400 bytes, then TCP requests of 64 bytes on one connection. The links are veth pairs without checksum or \
segmentation offload, so that what arrives is what would come from a wire. Client and server take turns: neither \
preempts the other when it is woken (SCHED_BATCH), which schedulers would decide differently from one request to the next.

A figure is the instructions that all programs, system calls, interrupts and the kernel execute for one request and its \
answer, both directions together, over the requests delivered. What client and server cost on one wire without a host \
between (direct) is the floor; the host's cost is what a case adds to it.

tarn delivers into a namespace behind a veth by bpf_redirect_peer, on both sides here. A client behind a network card \
is reached by bpf_redirect instead.";

const HOST: &str = "host_instructions_per_packet";

/// A column of instructions, less is better.
const fn instructions(name: &'static str, title: &'static str) -> Metric {
    Metric {
        name,
        title,
        unit: "instructions",
        decimals: 0,
        better: Better::Less,
    }
}

const fn packets(name: &'static str, title: &'static str, better: Better) -> Metric {
    Metric {
        name,
        title,
        unit: "packets",
        decimals: 0,
        better,
    }
}

const fn microseconds(name: &'static str, title: &'static str) -> Metric {
    Metric {
        name,
        title,
        unit: "us",
        decimals: 1,
        better: Better::Less,
    }
}

static METRICS: &[Metric] = &[
    instructions(HOST, "host's cost, 64 B"),
    instructions("instructions_per_packet", "whole cost, 64 B"),
    instructions("host_512", "host's, 512 B"),
    instructions("host_1400", "host's, 1400 B"),
    instructions("host_tcp", "host's, TCP"),
    packets("sent", "sent", Better::Neither),
    packets("delivered", "delivered", Better::More),
    packets("answered", "answered", Better::More),
    packets("wrong_reply_address", "wrong address", Better::Less),
    microseconds("rtt_p50_us", "RTT p50"),
    microseconds("rtt_p99_us", "RTT p99"),
    microseconds("rtt_max_us", "RTT max"),
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
    Reference {
        source: SKETCH,
        metric: HOST,
        value: 2170.0,
        note: "instructions a 64-byte request and its answer",
    },
    Reference {
        source: REPORT,
        metric: "netfilter_cpu",
        value: 5.0,
        note: "% usr + sys + soft; all packets delivered",
    },
    Reference {
        source: REPORT,
        metric: "xdp_cpu",
        value: 1.65,
        note: "% usr + sys + soft; one packet a trial delivered, so the two do not compare",
    },
];

impl Experiment for RedirectExperiment {
    fn name(&self) -> &'static str {
        "redirect"
    }

    fn title(&self) -> &'static str {
        "the cost of steering an address and port to another"
    }

    fn method(&self) -> &'static str {
        METHOD
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn plots(&self) -> &'static [Plot] {
        PLOTS
    }

    fn references(&self) -> &'static [Reference] {
        REFERENCES
    }

    fn on_every_kernel(&self) -> bool {
        true
    }

    fn run(&self, guest: &mut Guest) -> Result<Measurement> {
        take_turns()?;
        let meter = Meter::new()?;
        let mut measurement = Measurement::default();
        let mut direct = None;
        for (number, case) in CASES.iter().enumerate() {
            guest.progress(case.name, number as f64 / CASES.len() as f64);
            let mut row = Case {
                name: case.name.into(),
                title: case.title.into(),
                ..Case::default()
            };
            match case.prepare()? {
                Err(reason) => row.skipped = Some(reason),
                Ok(scene) => {
                    if let Some(reason) = case.peer_fault(&scene)? {
                        row.skipped = Some(reason);
                        measurement.cases.push(row);
                        continue;
                    }
                    let figures = measure::run(&scene, &meter, guest.size == Size::Full)?;
                    scene.end()?;
                    row.metrics = figures.metrics(direct.as_ref());
                    measurement.series.push(figures.series(case.name));
                    measurement.checks.push(figures.check(case.name));
                    if case.name == cases::DIRECT {
                        direct = Some(figures);
                    }
                }
            }
            measurement.cases.push(row);
        }
        measurement.checks.extend(goals(&measurement.cases));
        Ok(measurement)
    }
}

/// The goal: a third of nftables' destination NAT and half of plain routing; the aim is a quarter.
fn goals(cases: &[Case]) -> Vec<Check> {
    let cost = |name: &str| {
        cases
            .iter()
            .find(|case| case.name == name)
            .and_then(|case| case.metrics.get(HOST))
            .copied()
    };
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
