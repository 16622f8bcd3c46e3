//! The experiment `classes-cost`: what a host pays for classes as long as nothing has to wait.

use anyhow::Result;

use self::scene::{PREFIXES, Scene};
use tarn_lab::busy::{Meter, take_turns};
use tarn_lab::cards::Cards;
use tarn_lab::exchange_cost::{self, TCP, TCP_OVERHEAD, UDP, UDP_OVERHEAD};
use tarn_lab::experiment::{Case, Check, Experiment, Guest, Measurement, Plot};

mod scene;

/// The experiment.
pub static COST: Experiment = Experiment {
    stage: crate::STAGE,
    name: "classes-cost",
    title: "the cost of classes of clients while nothing waits",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: &exchange_cost::METRICS,
    plots: PLOTS,
    references: &[],
    highlights: &[],
    parts: |_| 1,
    headline: &[0],
    run,
    conclude: None,
};

const METHOD: &str = "\
A client and a server on one wire, a veth pair without checksum offload, so that what arrives is what would come from a \
wire. The client asks, the server answers, and only then the next request is sent: nothing ever waits. Five trials, each \
of UDP requests of 64 bytes and of TCP requests of 64 bytes on one connection. Client and server take turns: neither \
preempts the other when it is woken (SCHED_BATCH).

A figure is the instructions that all programs, system calls, interrupts and the kernel execute for one request and its \
answer, on both hosts, in the trial in the middle. The server's host alone has about half of them; \
what a case adds is all there.

Classes are brought up by `tarn up`: five of them, on one UDP and one TCP port, with the client in a network of the second \
one. Single addresses are asked for first, where there are any: what that costs a client who is not among them, `one-address` \
tells. The prefixes of the last case are 16 addresses each; the client's is in their middle.";

/// The goals: classes where nothing waits cost at most so many percent, over UDP and over TCP.
const GOALS: [(&str, &str, f64); 2] = [("UDP", UDP_OVERHEAD, 5.0), ("TCP", TCP_OVERHEAD, 4.0)];
/// What they must not exceed.
const MOST_PERCENT: f64 = 8.0;
/// What is set up on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Nothing,
    Loaded,
    Classes {
        prefixes: u32,
    },
    /// Somebody else has logged in.
    Address,
}

/// The first one is what the others are compared with.
const CASES: [(&str, State); 5] = [
    ("no-module", State::Nothing),
    ("module", State::Loaded),
    ("idle-classes", State::Classes { prefixes: 0 }),
    ("one-address", State::Address),
    ("million-prefixes", State::Classes { prefixes: PREFIXES }),
];

static PLOTS: &[Plot] = &[
    Plot::Bars {
        title: "What a 64-byte UDP request and its answer cost while nothing waits",
        metric: UDP,
        references: &[],
    },
    Plot::Bars {
        title: "What a TCP request and its answer cost while nothing waits",
        metric: TCP,
        references: &[],
    },
];

fn run(guest: &mut Guest) -> Result<Measurement> {
    take_turns()?;
    let meter = Meter::new()?;
    let (size, mut floor) = (guest.size, None);
    let mut measurement = guest.measure(
        &CASES,
        |(name, _)| Case::new(*name, ""),
        |(name, state), case, all| {
            let scene = Scene::new(*state)?;
            case.title = scene.title();
            let figures = exchange_cost::run(&scene.ends()?, &meter, size)?;
            case.metrics = figures.metrics(floor.as_ref());
            all.checks.push(figures.check(name));
            all.checks.extend(scene.check(&figures)?);
            scene.end()?;
            floor.get_or_insert(figures);
            Ok(())
        },
    )?;
    let most = |(protocol, metric, _)| (protocol, metric, MOST_PERCENT);
    measurement.checks.extend(at_most(&measurement.cases, &GOALS.map(most)));
    measurement.goals = at_most(&measurement.cases, &GOALS);
    Ok(measurement)
}

/// At most so many more instructions in each case, for each protocol.
fn at_most(cases: &[Case], limits: &[(&str, &str, f64)]) -> Vec<Check> {
    let check = |case: &Case, (protocol, metric, most): &(&str, &str, f64)| {
        let percent: f64 = *case.metrics.get(*metric)?;
        Some(Check {
            name: format!("{}: at most {most} % more instructions over {protocol}", case.name),
            passed: percent <= *most,
            detail: format!("{percent:.2} %"),
        })
    };
    let of_case = |case| limits.iter().filter_map(move |limit| check(case, limit));
    cases.iter().flat_map(of_case).collect()
}
