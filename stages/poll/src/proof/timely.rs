//! The experiment `poll-timely`: how long threads that are due wait for what is received.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_lab::busy::{Meter, monotonic_ns, sleep_until};
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{
    Case, Check, Experiment, Guest, Highlight, Measurement, Metric, Metrics, Plot, Series, Size, metrics,
};
use tarn_lab::load::{Flow, TcpBulk, TcpSink};
use tarn_lab::topology::join;

use super::contender::{Contender, thread, weigh};
use super::cost::Cost;
use super::crowd::{Crowd, lateness};
use super::rig::{HOST, Rig};
use crate::module::{Module, Rule};

/// The time between two bursts, in us; each frame in the ring comes by twice in it.
const BURST_EVERY_US: u32 = 2_000;
/// Packets in a burst.
const BURST: u16 = 120;
/// The port that they are sent to, and that of a download.
const SINK: u16 = 9000;
const DOWNLOAD: u16 = 9001;
/// Of who measures: before all that is measured, but for interrupts.
const MEASURING: i32 = 90;
/// How many packets the client's polls take while it sends by TCP.
const CLIENT_RULE: Rule = Rule::Fixed(8);
/// Until what is set up has settled.
const SETTLE: Duration = Duration::from_millis(100);

/// The experiment.
pub static TIMELY: Experiment = Experiment {
    stage: crate::STAGE,
    name: "poll-timely",
    title: "bursts beside threads that have to be on time",
    method: METHOD,
    cpus: 1,
    cards: Cards::Storm { lap_us: BURST_EVERY_US },
    software: false,
    metrics: METRICS,
    plots: PLOTS,
    references: &[],
    highlights: HIGHLIGHTS,
    parts: |_| LOADS.len(),
    headline: &[0],
    run,
    conclude: Some(conclude),
};

static HIGHLIGHTS: &[Highlight] = &[Highlight {
    what: "bursts: FIFO p99, us",
    metric: "fifo_p99_us",
    stock: Some("stock-bursts"),
    peer: None,
    published: Some("published-bursts"),
    tarn: "tarn-timely-bursts",
}];

const METHOD: &str = "\
Bursts: 120 small UDP packets come at once every two milliseconds by an emulated card (vmxnet3), without costing this guest an instruction, and go \
to a server that reads them. Bulk: a client, which is on the same CPU, sends by TCP as fast as it can; its own card receives 8 packets a poll. On the receiving host's only CPU are besides: a hog that wants all of \
it, and two threads that want to run every two milliseconds, one at SCHED_FIFO 50 and one at nice 0. How much later they run is shown. \
Instructions a packet are those of the whole guest, without hog and threads, over what it executes when no packet comes.";

static METRICS: &[Metric] = &[
    Metric::less("fifo_p99_us", "FIFO 50 p99", "us", 1),
    Metric::less("fifo_max_us", "max", "us", 1),
    Metric::less("ordinary_p99_us", "nice 0 p99", "us", 1),
    Metric::less("ordinary_max_us", "max", "us", 0),
    Metric::more("hog_share", "hog", "%", 1),
    Metric::more("goodput_per_s", "packets served", "/s", 0),
    Metric::more("goodput_mbit_s", "TCP", "Mbit/s", 0),
    Metric::less("instructions_per_packet", "a packet", "instructions", 0),
];

static PLOTS: &[Plot] = &[Plot::Cdf {
    title: "How late a real-time thread (SCHED_FIFO 50) runs",
    series: "fifo_us",
    logarithmic: true,
}];

/// What comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Bursts,
    Bulk,
}

/// One a part.
const LOADS: [Load; 2] = [Load::Bursts, Load::Bulk];

impl Load {
    fn name(self) -> &'static str {
        match self {
            Self::Bursts => "bursts",
            Self::Bulk => "bulk",
        }
    }

    /// How long threads are watched. Bursts come by as the last ones did; TCP does not, and its p99 needs many samples.
    fn length(self, size: Size) -> Duration {
        match (size, self) {
            (Size::Full, _) => Duration::from_secs(4),
            (_, Self::Bursts) => Duration::from_millis(400),
            (_, Self::Bulk) => Duration::from_secs(2),
        }
    }

    fn contenders(self, size: Size) -> &'static [Contender] {
        use Contender::{Published, Stock, Tarn, ThreadsFifo, Timely, Weight};
        match (size, self) {
            (Size::Headline, _) => &[Stock, Published, Timely],
            (Size::Full, _) => &[
                Stock,
                Published,
                ThreadsFifo,
                Weight(8),
                Weight(16),
                Weight(256),
                Tarn,
                Timely,
            ],
            (_, Self::Bursts) => &[
                Stock,
                Published,
                ThreadsFifo,
                Weight(8),
                Weight(16),
                Weight(256),
                Tarn,
                Timely,
            ],
            (_, Self::Bulk) => &[Stock, Published, Weight(16), Tarn, Timely],
        }
    }
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    let load = LOADS[guest.part];
    let length = load.length(guest.size);
    let seed = guest.seed;
    let rig = Rig::new()?;
    let meter = Meter::new()?;
    rig.flood(false)?;
    rig.begin(BURST / 2, SINK)?;
    if load == Load::Bulk {
        rig.segment_in_software()?;
        // What it does in softirqs would be bounded by nothing, and is another machine's.
        rig.client()?.enter(|| thread(Some(1)))?;
    }
    let describe = |contender: &Contender| {
        Case::new(
            format!("{}-{}", contender.name(), load.name()),
            format!("{}, {}", contender.title(), load.name()),
        )
    };
    guest.measure(load.contenders(guest.size), describe, |contender, case, all| {
        let up = contender.set_up(rig.host()?)?;
        if load == Load::Bulk {
            // Its polls, each of which may send a window, are another machine's too: as short as can be, whatever the host does.
            rig.client()?.enter(|| weigh(CLIENT_RULE))?;
        }
        rig.readdress()?;
        sleep_until(monotonic_ns() + SETTLE.as_nanos() as u64)?;
        let (figures, late) = beside(load, &rig, length, seed)?;
        case.metrics = figures;
        if load == Load::Bursts {
            let cost = Cost::measure(&rig, &meter, SINK, length)?;
            case.metrics
                .extend(metrics([("instructions_per_packet", cost.a_packet)]));
        }
        if load == Load::Bulk {
            rig.client()?.enter(|| Module::loaded()?.stop())?;
        }
        up.put_back(rig.host()?)?;
        all.series.push(Series {
            case: case.name.clone(),
            name: "fifo_us".into(),
            unit: "us".into(),
            values: late,
        });
        Ok(())
    })
}

/// How late threads run beside a load; and what became of that.
fn beside(load: Load, rig: &Rig, length: Duration, seed: u64) -> Result<(Metrics, Vec<f64>)> {
    let at = |port| SocketAddr::new(IpAddr::V4(HOST), port);
    let crowd = Crowd::start(rig.host()?, at(SINK), seed)?;
    let download = match load {
        Load::Bursts => None,
        Load::Bulk => {
            let sink = TcpSink::start(rig.host()?, at(DOWNLOAD))?;
            let bulk = TcpBulk {
                flow: Flow::to(at(DOWNLOAD)),
                duration: SETTLE + length,
                congestion: None,
            };
            Some((sink, rig.client()?.spawn("client", move || bulk.run())?))
        }
    };
    set_policy(0, Policy::Fifo(MEASURING))?;
    rig.flood(load == Load::Bursts)?;
    sleep_until(monotonic_ns() + SETTLE.as_nanos() as u64)?;
    let from = crowd.done();
    sleep_until(from.at + length.as_nanos() as u64)?;
    let to = crowd.done();
    let elapsed = (to.at - from.at) as f64;
    let served = match download {
        Some((sink, client)) => {
            let bytes = join(client.join())?;
            sink.stop()?;
            (
                "goodput_mbit_s",
                bytes as f64 * 8.0 / (SETTLE + length).as_secs_f64() / 1e6,
            )
        }
        None => {
            rig.flood(false)?;
            ("goodput_per_s", (to.served - from.served) as f64 * 1e9 / elapsed)
        }
    };
    let (real_time, ordinary) = crowd.end()?;
    set_policy(0, Policy::Ordinary)?;
    let fifo = lateness(&real_time, from.at, to.at)?;
    let ordinary = lateness(&ordinary, from.at, to.at)?;
    let late = real_time.iter().filter(|(due, _)| (from.at..to.at).contains(due));
    let late = late.map(|(_, late)| *late as f64 / 1e3).collect();
    let figures = metrics([
        ("fifo_p99_us", fifo.percentile(99.0)),
        ("fifo_max_us", fifo.percentile(100.0)),
        ("ordinary_p99_us", ordinary.percentile(99.0)),
        ("ordinary_max_us", ordinary.percentile(100.0)),
        ("hog_share", (to.hog - from.hog) as f64 * 100.0 / elapsed),
        served,
    ]);
    Ok((figures, late))
}

/// The goal.
fn conclude(all: &mut Measurement) {
    let pair = |metric: &str, load: &str| {
        let [theirs, ours] = ["stock", "tarn-timely"].map(|name| all.figure(&format!("{name}-{load}"), metric));
        theirs.zip(ours)
    };
    let mut goals = Vec::new();
    if let Some((theirs, ours)) = pair("fifo_p99_us", "bursts") {
        goals.push(Check {
            name: "a real-time thread's p99 beside bursts is at most a third of stock's".to_owned(),
            passed: ours * 3.0 <= theirs,
            detail: format!("{ours:.1} of {theirs:.1} us"),
        });
    }
    if let Some((theirs, ours)) = pair("instructions_per_packet", "bursts") {
        let more = (ours / theirs - 1.0) * 100.0;
        goals.push(Check {
            name: "a packet costs at most 1.5 % more than on a stock kernel".to_owned(),
            passed: more <= 1.5,
            detail: format!("{more:+.1} %"),
        });
    }
    all.goals.extend(goals);
}
