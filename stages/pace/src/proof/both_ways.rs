//! The experiment `pace-both-ways`: both directions of an access are full at once.
//!
//! ```text
//!   home             gateway                 provider               server
//!   10.9.1.2 ─────── 10.9.1.1
//!            eth  in 10.9.2.1 ────────────── 10.9.2.2
//!                       wan                  wan  10.9.3.1 ─────── 10.9.3.2
//!                                                      in     eth
//!            (wan: the two bottlenecks; eth of the server: the delay)
//! ```

use std::net::SocketAddr;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::control::Control;
use super::path::{bottleneck, wait_until};
use tarn_base::runtime::monotonic_ns;
use tarn_lab::busy::go_first;
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Check, Experiment, Guest, Measurement, Metric, Plot, Size, metrics};
use tarn_lab::load::{Arrivals, Flow, Law, Ping, TcpBulk, TcpInfo, TcpSink};
use tarn_lab::stats::Sample;
use tarn_lab::topology::{self, End, Namespace, Node, Shape, Topology};

/// The experiment.
pub static BOTH_WAYS: Experiment = Experiment {
    stage: crate::STAGE,
    name: "pace-both-ways",
    title: "uploads and downloads at once",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: &[
        Metric::more("up_mbit_s", "up", "Mbit/s", 2),
        Metric::more("down_mbit_s", "down", "Mbit/s", 2),
        Metric::less("rtt_mean_ms", "RTT mean", "ms", 0),
        Metric::less("rtt_p99_ms", "p99", "ms", 0),
        Metric::less("rtt_max_ms", "max", "ms", 0),
        Metric::less("retransmitted", "sent again", "packets", 0),
    ],
    plots: &[Plot::Bars {
        title: "The 99th percentile of round trips of pings beside the flows",
        metric: "rtt_p99_ms",
        references: &[],
    }],
    references: &[],
    highlights: &[],
    parts: |_| 1,
    headline: &[],
    run,
    conclude: Some(conclude),
};

const METHOD: &str = "\
A home uploads and downloads at once, as flent's test rrul has it: four flows each way, through two bottlenecks with a queue of four \
bandwidth-delay products of their rate each, which drop what does not fit, and a ping every 10 ms. Acknowledgements of the one \
direction wait in the queue of the other. A case is called by the control of the uploads, the one of the downloads, and the two rates. \
What is measured begins four seconds after the flows.";

const HOME: &str = "10.9.1.2";
/// The address of the server.
pub const SERVER: &str = "10.9.3.2";
const PORT: u16 = 5001;
const FLOWS: usize = 4;
/// Bandwidth-delay products that a queue holds.
const PRODUCTS: u64 = 4;
const ROUND_TRIP: Duration = Duration::from_millis(30);
/// From when on everything begins: threads have started by then.
const PREPARATION: Duration = Duration::from_millis(100);
const STARTUP: Duration = Duration::from_secs(4);
const TIMEOUT: Duration = Duration::from_secs(4);

/// The controls of the uploads and of the downloads.
const ENDS: [(Control, Control); 4] = [
    (Control::Cubic, Control::Cubic),
    (Control::Bbr, Control::Cubic),
    (Control::Tarn, Control::Cubic),
    (Control::Tarn, Control::Tarn),
];

/// The rates of an access, Mbit/s.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    pub up: u32,
    pub down: u32,
}

impl Access {
    /// The home, the server, and what lies between.
    ///
    /// # Errors
    /// With the command that failed and what it said.
    pub fn build(self) -> Result<topology::Network> {
        let network = topology().build().context("build the access")?;
        for (node, rate) in [("gateway", self.up), ("provider", self.down)] {
            let bits = u64::from(rate) * 1_000_000;
            let buffer = PRODUCTS * bits / 8 * ROUND_TRIP.as_millis() as u64 / 1000;
            network
                .namespace(node)?
                .tc_batch(&[bottleneck("wan", "add", bits, buffer)])?;
        }
        Ok(network)
    }

    fn case(self, (up, down): (Control, Control)) -> String {
        format!("{}-{}-{}up{}down", up.name(), down.name(), self.up, self.down)
    }
}

fn access(size: Size) -> (Access, Duration) {
    match size {
        Size::Full => (Access { up: 20, down: 50 }, Duration::from_secs(30)),
        _ => (Access { up: 5, down: 10 }, Duration::from_secs(10)),
    }
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    let (access, length) = access(guest.size);
    let describe = |ends: &(Control, Control)| {
        let title = format!("{} up, {} down", ends.0.title(), ends.1.title());
        Case::new(access.case(*ends), title)
    };
    guest.measure(&ENDS, describe, |ends, case, _| {
        let scene = Scene::build(access, *ends)?;
        let figures = scene.run(length)?;
        let round_trips = figures.round_trips.summary();
        let mbit_s = |bytes: u64| bytes as f64 * 8.0 / 1e6 / length.as_secs_f64();
        case.metrics = metrics([
            ("up_mbit_s", mbit_s(figures.up.bytes)),
            ("down_mbit_s", mbit_s(figures.down.bytes)),
            ("rtt_mean_ms", round_trips.mean),
            ("rtt_p99_ms", round_trips.p99),
            ("rtt_max_ms", round_trips.max),
            (
                "retransmitted",
                (figures.up.retransmitted + figures.down.retransmitted).into(),
            ),
        ]);
        Ok(())
    })
}

/// Of what CUBIC carries in a direction, the least that ours has to. Less is a fault.
const LEAST: f64 = 0.85;

fn conclude(measurement: &mut Measurement) {
    let cases: Vec<_> = measurement.cases.iter().map(|case| case.name.clone()).collect();
    let [stock, _, home, both] = &cases[..] else { return };
    let figure = |case: &str, metric: &str| measurement.figure(case, metric).unwrap_or(0.0);
    let carries = |case: &String, what: &str, metric: &str| {
        let (ours, theirs) = (figure(case, metric), figure(stock, metric));
        Check {
            name: format!("{what} at least {:.0} % of what CUBIC does", 100.0 * LEAST),
            passed: ours >= LEAST * theirs,
            detail: format!("{ours:.2}; CUBIC {theirs:.2} Mbit/s"),
        }
    };
    let checks = [
        carries(home, "with tarn at home, an upload carries", "up_mbit_s"),
        carries(both, "with tarn at both ends, an upload carries", "up_mbit_s"),
        carries(both, "with tarn at both ends, a download carries", "down_mbit_s"),
    ];
    measurement.checks.extend(checks);
}

/// What flows of a direction came to while they were measured.
#[derive(Debug, Clone, Copy, Default)]
struct Carried {
    bytes: u64,
    retransmitted: u32,
}

struct Figures {
    up: Carried,
    down: Carried,
    /// Of pings, ms.
    round_trips: Sample,
}

/// An access that exists, with whoever takes what is sent.
struct Scene {
    ends: (Control, Control),
    network: topology::Network,
    /// Until they are gone, the controls can be chosen.
    _provided: super::control::Provided,
}

impl Scene {
    fn build(access: Access, ends: (Control, Control)) -> Result<Self> {
        // Both ends lie in one kernel.
        let provided = ends.0.provide()?;
        Ok(Self {
            ends,
            network: access.build()?,
            _provided: provided,
        })
    }

    fn run(&self, length: Duration) -> Result<Figures> {
        let [home, server] = ["home", "server"].map(|node| self.network.namespace(node));
        let (home, server) = (home?, server?);
        let sinks = [TcpSink::start(home, at(HOME)?)?, TcpSink::start(server, at(SERVER)?)?];
        let began = monotonic_ns() + PREPARATION.as_nanos() as u64;
        let from = began + STARTUP.as_nanos() as u64;
        let measured = from..from + length.as_nanos() as u64;
        let (up, down, round_trips) = thread::scope(|scope| {
            let up = scope.spawn(|| carry(home, SERVER, self.ends.0, began, &measured));
            let down = scope.spawn(|| carry(server, HOME, self.ends.1, began, &measured));
            let pings = scope.spawn(|| ping(home, &measured));
            anyhow::Ok((
                topology::join(up.join())?,
                topology::join(down.join())?,
                topology::join(pings.join())?,
            ))
        })?;
        sinks.into_iter().try_for_each(|sink| sink.stop().map(drop))?;
        Ok(Figures { up, down, round_trips })
    }
}

/// Sends by four flows; what they carried while they were measured.
fn carry(from: &Namespace, to: &str, control: Control, began: u64, measured: &Range<u64>) -> Result<Carried> {
    let bulk = TcpBulk {
        flow: Flow::to(at(to)?),
        duration: Duration::ZERO,
        congestion: Some(control.in_kernel().to_owned()),
    };
    wait_until(began);
    let flows = thread::scope(|scope| {
        let watch = || from.enter(|| bulk.watch(&[measured.start, measured.end]));
        let flows: Vec<_> = (0..FLOWS).map(|_| scope.spawn(watch)).collect();
        flows
            .into_iter()
            .map(|flow| topology::join(flow.join()))
            .collect::<Result<Vec<Vec<TcpInfo>>>>()
    })?;
    let mut carried = Carried::default();
    for infos in &flows {
        let [from, to] = infos[..] else {
            anyhow::bail!("a flow was read {} times", infos.len())
        };
        carried.bytes += to.bytes_acked - from.bytes_acked;
        carried.retransmitted += to.total_retrans - from.total_retrans;
    }
    Ok(carried)
}

/// Pings, every 10 ms of what is measured.
fn ping(home: &Namespace, measured: &Range<u64>) -> Result<Sample> {
    let gap = Duration::from_millis(10);
    let mut ping = Ping::new(SERVER.parse()?);
    ping.count = ((measured.end - measured.start) / gap.as_nanos() as u64) as u32;
    ping.arrivals = Arrivals::Open(Law::Every(gap));
    ping.timeout = TIMEOUT;
    wait_until(measured.start);
    let pings = home.enter(|| go_first().and_then(|()| ping.run()))?;
    Sample::new(pings.round_trips_us().iter().map(|us| us / 1e3)).context("no ping was answered")
}

fn at(address: &str) -> Result<SocketAddr> {
    Ok(SocketAddr::new(address.parse()?, PORT))
}

fn topology() -> Topology {
    Topology::new()
        .node(Node::new("home").route("default", "10.9.1.1"))
        .node(Node::new("gateway").forwarding().route("10.9.3.0/24", "10.9.2.2"))
        .node(Node::new("provider").forwarding().route("10.9.1.0/24", "10.9.2.1"))
        .node(Node::new("server").route("default", "10.9.3.1"))
        .link(
            End::new("home", "eth").address("10.9.1.2/24"),
            End::new("gateway", "in").address("10.9.1.1/24"),
        )
        .link(
            End::new("gateway", "wan").address("10.9.2.1/24"),
            End::new("provider", "wan").address("10.9.2.2/24"),
        )
        .link(
            End::new("provider", "in").address("10.9.3.1/24"),
            End::new("server", "eth")
                .address("10.9.3.2/24")
                .shape(Shape::new().delay(ROUND_TRIP).limit(100_000)),
        )
        .permanent_neighbours()
}
