//! The experiment `paths-cost`: what packets pay for the choice among uplinks, and for measuring what each of them sends.

use std::time::Duration;

use anyhow::Result;

use self::scene::{Scene, State};
use tarn_kernel::features::{Host, Release};
use tarn_lab::busy::{Meter, take_turns};
use tarn_lab::cards::Cards;
use tarn_lab::exchange_cost::{self, ExchangeCost, TCP, TCP_ADDED, UDP, UDP_ADDED};
use tarn_lab::experiment::{Case, Check, Experiment, Guest, Measurement, Metric, Plot};

mod scene;

/// The experiment.
pub static COST: Experiment = Experiment {
    stage: crate::STAGE,
    name: "paths-cost",
    title: "the cost of choosing among uplinks and of measuring them",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: METRICS,
    plots: PLOTS,
    references: &[],
    highlights: &[],
    parts: |_| 1,
    headline: &[0],
    run,
    conclude: None,
};

const METHOD: &str = "\
A host speaks by one or sixteen uplinks to a server behind all of them. It asks, the server answers, and only then the next request \
is sent: nothing ever waits. Five trials, each of UDP requests of 64 bytes and of TCP requests of 64 bytes on one connection.

A figure is the instructions that all programs, system calls, interrupts and the kernel execute for one request and its answer, \
on both hosts, in the trial in the middle. A request leaves by an uplink, an answer by a device that is none, as what a router \
forwards does to and fro: so half of what a case adds is what it adds to a packet on average.

`ruled` cases are the stock kernel's routes, with rules (ip-rule(8)) as tarn sets them for its probes; `metered` ones the same routes \
without rules, with BPF measuring what the uplinks send; `round-trips` the same with BPF taking the round trips of TCP, of which each \
request is one; in `translated` and `pinned`, the host masquerades besides. The others are tarn's, whose agent is \
stopped (SIGSTOP) while packets are counted, and goes on as it was. What the agent executes by itself, for probes most of all, is \
then measured for ten seconds in which nothing is sent.";

/// Instructions of ten seconds in which nobody asks for anything, a second.
const IDLE: &str = "idle_instructions_per_s";
const IDLE_TIME: Duration = Duration::from_secs(10);
/// The goal, in instructions per packet on average. docs/paths.md explains why it is missed.
const GOAL: f64 = 20.0;
/// What must not be exceeded meanwhile where a BPF program is called for every packet,
const METERED_MOST: f64 = 200.0;
/// and since 7.0: the same program costs more on 7.3; kernels between that and 6.12 were not measured,
const METERED_MOST_SINCE_7: f64 = 250.0;
/// and where it counts a round trip with each answer: some 150 a packet, and up to 220 in some builds of the programs that measure,
const ROUND_TRIPS_MOST: f64 = 300.0;
/// and where the kernel asks rules for routes.
const RULED_MOST: f64 = 1600.0;
/// What must not be exceeded where nftables marks every packet besides, and the host's own are routed a second time for it.
const PINNED_MOST: f64 = 4000.0;

/// Cases, each with the one that it is held against.
const CASES: [(State, Option<State>); 11] = [
    (State::Stock(1), None),
    (State::Ruled(1), Some(State::Stock(1))),
    (State::Metered(1), Some(State::Stock(1))),
    (State::Stock(16), None),
    (State::Ruled(16), Some(State::Stock(16))),
    (State::Metered(16), Some(State::Stock(16))),
    (State::Calmest(16), Some(State::Stock(16))),
    (State::Load(16), Some(State::Stock(16))),
    (State::Translated(2), None),
    (State::Pinned(2), Some(State::Translated(2))),
    (State::RoundTrips(1), Some(State::Stock(1))),
];

static METRICS: &[Metric] = &{
    let [udp, udp_added, udp_overhead, tcp, tcp_added, tcp_overhead] = exchange_cost::METRICS;
    let idle = Metric::less(IDLE, "in idle time, a second", "instructions", 0);
    [udp, udp_added, udp_overhead, tcp, tcp_added, tcp_overhead, idle]
};

static PLOTS: &[Plot] = &[
    Plot::Bars {
        title: "What a 64-byte UDP request and its answer cost over several uplinks",
        metric: UDP,
        references: &[],
    },
    Plot::Bars {
        title: "What a TCP request and its answer cost over several uplinks",
        metric: TCP,
        references: &[],
    },
];

fn run(guest: &mut Guest) -> Result<Measurement> {
    take_turns()?;
    let meter = Meter::new()?;
    let size = guest.size;
    let mut all_figures: Vec<(State, ExchangeCost)> = Vec::new();
    guest.measure(
        &CASES,
        |(state, _)| Case::new(state.name(), state.title()),
        |(state, floor), case, all| {
            let mut scene = Scene::new(*state)?;
            let figures = scene.without_agent(|| exchange_cost::run(&scene.ends()?, &meter, size))?;
            let ((), idle) = meter.measure(|| {
                std::thread::sleep(IDLE_TIME);
                Ok(())
            })?;
            let floor = all_figures.iter().find(|(other, _)| Some(*other) == *floor);
            case.metrics = figures.metrics(floor.map(|(_, floor)| floor));
            case.metrics.insert(IDLE.into(), idle.per(IDLE_TIME.as_secs()));
            all.checks.push(figures.check(&case.name));
            all.checks.extend(scene.check()?);
            all.checks.extend(goal(*state, case));
            scene.end()?;
            all_figures.push((*state, figures));
            Ok(())
        },
    )
}

fn metered_most() -> f64 {
    let seven = Release {
        major: 7,
        minor: 0,
        patch: 0,
    };
    match Host::this().kernel_since(seven).is_present() {
        true => METERED_MOST_SINCE_7,
        false => METERED_MOST,
    }
}

/// At most so many more instructions a packet, over UDP and TCP.
fn goal(state: State, case: &Case) -> Option<Check> {
    let added = [UDP_ADDED, TCP_ADDED].map(|metric| case.metrics.get(metric).map(|added| added / 2.0));
    let [Some(udp), Some(tcp)] = added else { return None };
    let (most, wanted) = match state {
        State::Pinned(_) => (PINNED_MOST, String::new()),
        State::RoundTrips(_) => (ROUND_TRIPS_MOST, format!(" (the goal is {GOAL:.0})")),
        _ if state.is_ruled() => (RULED_MOST, format!(" (the goal is {GOAL:.0})")),
        _ => (metered_most(), format!(" (the goal is {GOAL:.0})")),
    };
    Some(Check {
        name: format!("{}: at most {most:.0} more instructions a packet{wanted}", case.name),
        passed: udp <= most && tcp <= most,
        detail: format!("UDP {udp:.0}, TCP {tcp:.0}"),
    })
}
