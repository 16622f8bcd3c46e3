//! The experiment `poll-cost`: instructions a packet where nothing is overloaded.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tarn_lab::busy::{Meter, monotonic_ns, sleep_until};
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Check, Experiment, Guest, Highlight, Measurement, Metric, Size, metrics};
use tarn_lab::load::{Flow, UdpEcho, UdpRequests};

use super::contender::Contender;
use super::crowd::Sink;
use super::rig::{HOST, Rig};

/// How long a frame takes around the ring, in us; it comes by twice.
const LAP_US: u32 = 300;
/// Frames in the ring: 60,000 packets a second, a fifth of what one CPU can receive.
const FRAMES: u16 = 9;
const SINK: u16 = 9000;
const ECHO: u16 = 9001;
/// Until what is set up, or begun, has settled.
const SETTLE: Duration = Duration::from_millis(100);
/// Requests of the client, one after another.
const REQUESTS: u32 = 500;

/// The experiment.
pub static COST: Experiment = Experiment {
    stage: crate::STAGE,
    name: "poll-cost",
    title: "what receiving costs where nothing is overloaded",
    method: METHOD,
    cpus: 1,
    cards: Cards::Storm { lap_us: LAP_US },
    software: false,
    metrics: METRICS,
    plots: &[],
    references: &[],
    highlights: HIGHLIGHTS,
    parts: |_| 1,
    headline: &[],
    run,
    conclude: Some(conclude),
};

static HIGHLIGHTS: &[Highlight] = &[Highlight {
    what: "instructions a packet",
    metric: "instructions_per_packet",
    stock: Some("stock-0.2x"),
    peer: None,
    published: Some("published-0.2x"),
    tarn: "tarn-0.2x",
}];

const METHOD: &str = "\
60,000 small UDP packets a second come in by an emulated card (vmxnet3), eighteen at a time and without costing this guest an instruction, and go to a \
server that reads them: instructions of the whole guest a packet, over what it executes when no packet comes. Then a client sends a server requests \
of 64 bytes, one after another: instructions a request and answer, of both ends. Idle is the share of the CPU that is used when nothing is sent, \
the agent's looks included, a hundred a second.";

static METRICS: &[Metric] = &[
    Metric::less("instructions_per_packet", "a packet", "instructions", 0),
    Metric::less("overhead_percent", "added", "%", 1),
    Metric::less("instructions_per_exchange", "an exchange", "instructions", 0),
    Metric::less("exchange_overhead_percent", "added", "%", 1),
    Metric::less("idle_share", "idle", "%", 2),
];

/// What a host executes.
pub struct Cost {
    /// Instructions a packet that is received, over those without any.
    pub a_packet: f64,
    /// Of a CPU, used when nothing is received, in %.
    pub idle_share: f64,
}

impl Cost {
    /// Measures for so long what comes from the ring to this port of the host, and as long what happens without.
    ///
    /// # Errors
    /// The kernel's.
    pub fn measure(rig: &Rig, meter: &Meter, port: u16, length: Duration) -> Result<Self> {
        let sink = Sink::start(rig.host()?, SocketAddr::new(IpAddr::V4(HOST), port))?;
        let pass = || {
            sleep_until(monotonic_ns() + SETTLE.as_nanos() as u64)?;
            let before = sink.served();
            let ((), busy) = meter.measure(|| sleep_until(monotonic_ns() + length.as_nanos() as u64))?;
            Ok::<_, anyhow::Error>((sink.served() - before, busy))
        };
        let (_, idle) = pass()?;
        rig.flood(true)?;
        let (served, busy) = pass()?;
        rig.flood(false)?;
        sink.end()?;
        Ok(Self {
            a_packet: (busy.busy_ns as f64 - idle.busy_ns as f64) / served.max(1) as f64,
            idle_share: idle.busy_ns as f64 * 100.0 / idle.elapsed_ns.max(1) as f64,
        })
    }
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    use Contender::{Published, Stock, Tarn, Threads, ThreadsFifo, Timely, Weight};
    let length = match guest.size {
        Size::Full => Duration::from_secs(4),
        _ => Duration::from_millis(400),
    };
    let rig = Rig::new()?;
    let meter = Meter::new()?;
    rig.flood(false)?;
    rig.begin(FRAMES, SINK)?;
    let describe = |contender: &Contender| {
        Case::new(
            format!("{}-0.2x", contender.name()),
            format!("{}, a fifth of the capacity", contender.title()),
        )
    };
    let contenders = [Stock, Threads, Published, ThreadsFifo, Weight(16), Tarn, Timely];
    guest.measure(&contenders, describe, |contender, case, _| {
        let up = contender.set_up(rig.host()?)?;
        rig.readdress()?;
        let cost = Cost::measure(&rig, &meter, SINK, length)?;
        let an_exchange = an_exchange(&rig, &meter)?;
        up.put_back(rig.host()?)?;
        case.metrics = metrics([
            ("instructions_per_packet", cost.a_packet),
            ("instructions_per_exchange", an_exchange),
            ("idle_share", cost.idle_share),
        ]);
        Ok(())
    })
}

/// Instructions a request and its answer.
fn an_exchange(rig: &Rig, meter: &Meter) -> Result<f64> {
    let at = SocketAddr::new(IpAddr::V4(HOST), ECHO);
    let echo = UdpEcho::start(rig.host()?, at)?;
    let requests = UdpRequests::new(Flow::to(at), REQUESTS);
    let (exchanges, busy) = rig.client()?.enter(|| {
        requests.run()?;
        meter.measure(|| requests.run())
    })?;
    echo.stop()?;
    Ok(busy.per(exchanges.answered_count()))
}

/// What each costs more than a stock kernel, and the goal.
fn conclude(all: &mut Measurement) {
    for (metric, overhead) in [
        ("instructions_per_packet", "overhead_percent"),
        ("instructions_per_exchange", "exchange_overhead_percent"),
    ] {
        let Some(stock) = all.figure("stock-0.2x", metric) else {
            continue;
        };
        for case in &mut all.cases {
            if let Some(cost) = case.metrics.get(metric).copied() {
                case.metrics.extend(metrics([(overhead, (cost / stock - 1.0) * 100.0)]));
            }
        }
    }
    let mut goals = Vec::new();
    for (metric, what) in [
        ("overhead_percent", "a packet costs"),
        ("exchange_overhead_percent", "a request and its answer cost"),
    ] {
        if let Some(more) = all.figure("tarn-0.2x", metric) {
            goals.push(Check {
                name: format!("{what} at most 5 % more than on a stock kernel"),
                passed: more <= 5.0,
                detail: format!("{more:+.1} %"),
            });
        }
    }
    all.goals.extend(goals);
}
