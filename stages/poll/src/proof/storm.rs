//! The experiment `poll-storm`: what a host does while more packets come in than its CPU can receive.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_lab::busy::{monotonic_ns, sleep_until};
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{
    Case, Check, Experiment, Guest, Highlight, Measurement, Metric, Metrics, Plot, Reference, Series, Size, metrics,
};
use tarn_lab::load::{Arrivals, Exchange, Exchanges, Flow, Law, UdpEcho, UdpRequests};
use tarn_lab::stats::Sample;
use tarn_lab::topology::join;

use super::contender::Contender;
use super::crowd::{Crowd, Done, Wakes, lateness};
use super::rig::{HOST, Rig};

/// How long a frame takes around the ring, in us; it comes by twice.
const LAP_US: u32 = 300;
/// Packets a second that one CPU can receive at most here (the specification's figure, 3.5 us each).
const CAPACITY: f64 = 285_000.0;
/// The port that is served, the one of an echo server, one where nobody listens, and one that the kernel redirects to the first.
const SERVED: u16 = 9000;
const ECHO: u16 = 9001;
const CLOSED: u16 = 9;
const REDIRECTED: u16 = 9002;
/// As an administrator redirects a port without tarn.
const REDIRECTION: &str = "table ip storm {\n chain in {\n type nat hook prerouting priority dstnat;\n udp dport 9002 redirect to :9000\n }\n}\n";
/// Between the beginning of the storm and of the measurement.
const ONSET: Duration = Duration::from_millis(400);
/// The time between two requests from outside, in the mean; how long an answer is waited for.
const REQUEST_EVERY: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_millis(100);
/// Of who measures: before all that is measured, but for interrupts.
const MEASURING: i32 = 90;
const CLIENT: i32 = 80;

/// The experiment.
pub static STORM: Experiment = Experiment {
    stage: crate::STAGE,
    name: "poll-storm",
    title: "a flood of small packets",
    method: METHOD,
    cpus: 1,
    cards: Cards::Storm { lap_us: LAP_US },
    metrics: METRICS,
    plots: PLOTS,
    references: REFERENCES,
    highlights: HIGHLIGHTS,
    parts: |size| floods(size).len(),
    headline: &[0],
    run,
    conclude: Some(conclude),
};

static HIGHLIGHTS: &[Highlight] = &[
    Highlight {
        what: "flood: ping p99, us",
        metric: "pingpong_p99_us",
        stock: Some("stock-1.5x"),
        peer: None,
        published: Some("threads-1.5x"),
        tarn: "tarn-1.5x",
    },
    Highlight {
        what: "flood served, /s",
        metric: "goodput_per_s",
        stock: Some("stock-1.5x"),
        peer: None,
        published: Some("threads-1.5x"),
        tarn: "tarn-1.5x",
    },
];

const METHOD: &str = "\
Small UDP packets (60 bytes) come in at a fixed rate by an emulated card (vmxnet3), without costing this guest an instruction: the \
frames circle in QEMU. 1.5x is 1.5 times what one CPU can receive at most, 285,000 a second. All come from one address, from many ports, and go to \
one port, which is served, or not (-closed), or (-redirected) nftables redirects it to the one that is served. On the flooded host's only CPU are besides: a server that reads what comes to that port (goodput), a hog that wants all of the CPU, two \
threads that want to run every two milliseconds, one at SCHED_FIFO 50 and one at nice 0 (how much later they run is shown), and an echo \
server, to which a client outside sends a request every two milliseconds (ping-pong; what is not answered in 100 ms counts as 100 ms). The client's own part of the CPU comes first, as if it \
were another machine's. The measurement begins 0.4 s after the flood; the onset is the time between.

Stock kernels since 6.4 poll on and on: nobody else runs. Threads at nice 0 (the published change) leave the CPU to others, but what \
the ring cannot hold is lost, whoever sent it. tarn drops what exceeds its sender's fair share before it costs much.";

static METRICS: &[Metric] = &[
    Metric::more("goodput_per_s", "flood served", "/s", 0),
    Metric::more("hog_share", "hog", "%", 1),
    Metric::less("fifo_p99_us", "FIFO 50 p99", "us", 1),
    Metric::less("fifo_max_us", "max", "us", 1),
    Metric::less("ordinary_max_us", "nice 0 max", "us", 0),
    Metric::less("onset_max_us", "at the onset", "us", 0),
    Metric::less("pingpong_p50_us", "ping-pong p50", "us", 1),
    Metric::less("pingpong_p99_us", "p99", "us", 1),
    Metric::less("pingpong_lost_share", "lost", "%", 2),
];

static PLOTS: &[Plot] = &[
    Plot::Cdf {
        title: "Round trips of the client that does not flood",
        series: "pingpong_us",
        logarithmic: true,
    },
    Plot::Bars {
        title: "Packets of the flood that the server reads",
        metric: "goodput_per_s",
        references: &[],
    },
];

const SPECIFICATION: &str = "a prototype on 6.12.117 at 1.6 times the capacity, same lab";

static REFERENCES: &[Reference] = &[
    Reference::new(SPECIFICATION, "goodput_per_s", 249.0, "stock"),
    Reference::new(SPECIFICATION, "goodput_per_s", 68_884.0, "threads at nice 0"),
    Reference::new(SPECIFICATION, "pingpong_lost_share", 50.0, "%, threads at nice 0"),
];

/// What comes in.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Flood {
    /// Times the capacity.
    load: f64,
    /// The port that it is sent to.
    port: u16,
}

impl Flood {
    const fn served(load: f64) -> Self {
        Self { load, port: SERVED }
    }

    const fn closed(load: f64) -> Self {
        Self { load, port: CLOSED }
    }

    const fn redirected(load: f64) -> Self {
        Self { load, port: REDIRECTED }
    }

    /// What cases' names end with.
    fn name(self) -> String {
        let port = match self.port {
            CLOSED => "-closed",
            REDIRECTED => "-redirected",
            _ => "",
        };
        format!("{}x{port}", self.load)
    }

    /// For people.
    fn title(self) -> String {
        let port = match self.port {
            CLOSED => ", a closed port",
            REDIRECTED => ", a redirected port",
            _ => "",
        };
        format!("{} times the capacity{port}", self.load)
    }

    /// Frames in the ring, of which each comes by twice a lap.
    fn frames(self) -> u16 {
        (self.load * CAPACITY * f64::from(LAP_US) / 2e6).round() as u16
    }
}

/// One a part.
fn floods(size: Size) -> &'static [Flood] {
    const SERVED: [Flood; 3] = [Flood::served(1.5), Flood::served(0.4), Flood::served(3.0)];
    const QUICK: [Flood; 5] = [
        SERVED[0],
        SERVED[1],
        SERVED[2],
        Flood::closed(1.5),
        Flood::redirected(1.5),
    ];
    const FULL: [Flood; 11] = [
        SERVED[0],
        SERVED[1],
        Flood::served(0.75),
        SERVED[2],
        Flood::served(10.0),
        Flood::closed(0.4),
        Flood::closed(1.5),
        Flood::closed(3.0),
        Flood::redirected(0.4),
        Flood::redirected(1.5),
        Flood::redirected(3.0),
    ];
    match size {
        Size::Headline => &QUICK[..1],
        Size::Quick => &QUICK,
        Size::Full => &FULL,
    }
}

fn contenders(size: Size, flood: Flood) -> &'static [Contender] {
    use Contender::{Budget, Published, Stock, Tarn, TarnNoShed, Threads, ThreadsFifo};
    match size {
        Size::Headline => &[Stock, Tarn, Threads],
        Size::Full => &[Stock, Tarn, TarnNoShed, Budget, Threads, Published, ThreadsFifo],
        Size::Quick if flood == Flood::served(1.5) => &[Stock, Tarn, TarnNoShed, Threads, Published],
        Size::Quick => &[Stock, Tarn],
    }
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    let flood = floods(guest.size)[guest.part];
    // Below the capacity, where differences are small, more requests are needed.
    let length = match guest.size {
        Size::Full => Duration::from_secs(2),
        _ if flood.load < 1.0 => Duration::from_millis(1_600),
        _ => Duration::from_millis(400),
    };
    let seed = guest.seed;
    let rig = Rig::new()?;
    rig.flood(false)?;
    if flood.port == REDIRECTED {
        rig.host()?.run_with_input("nft", &["-f", "-"], REDIRECTION)?;
    }
    rig.begin(flood.frames(), flood.port)?;
    let describe = |contender: &Contender| {
        Case::new(
            format!("{}-{}", contender.name(), flood.name()),
            format!("{}, {}", contender.title(), flood.title()),
        )
    };
    guest.measure(contenders(guest.size, flood), describe, |contender, case, all| {
        let figures = measure(*contender, &rig, length, seed)?;
        case.metrics = figures.metrics;
        all.series.push(Series {
            case: case.name.clone(),
            name: "pingpong_us".into(),
            unit: "us".into(),
            values: figures.round_trips,
        });
        Ok(())
    })
}

struct Figures {
    metrics: Metrics,
    round_trips: Vec<f64>,
}

fn measure(contender: Contender, rig: &Rig, length: Duration, seed: u64) -> Result<Figures> {
    let up = contender.set_up(rig.host()?)?;
    let at = |port| SocketAddr::new(IpAddr::V4(HOST), port);
    let echo = UdpEcho::start(rig.host()?, at(ECHO))?;
    let crowd = Crowd::start(rig.host()?, at(SERVED), seed)?;
    sleep_until(monotonic_ns() + 100_000_000)?;
    set_policy(0, Policy::Fifo(MEASURING))?;
    let onset = monotonic_ns();
    rig.flood(true)?;
    sleep_until(onset + ONSET.as_nanos() as u64)?;
    let requests = UdpRequests {
        arrivals: Arrivals::Open(Law::Poisson {
            mean: REQUEST_EVERY,
            seed,
        }),
        timeout: PATIENCE,
        ..UdpRequests::new(
            Flow::to(at(ECHO)),
            (length.as_micros() / REQUEST_EVERY.as_micros()) as u32,
        )
    };
    let asking = rig.client()?.spawn("client", move || {
        set_policy(0, Policy::Fifo(CLIENT))?;
        requests.run()
    })?;
    let from = crowd.done();
    sleep_until(from.at + length.as_nanos() as u64)?;
    let to = crowd.done();
    let exchanges = join(asking.join())?;
    rig.flood(false)?;
    let (real_time, ordinary) = crowd.end()?;
    echo.stop()?;
    set_policy(0, Policy::Ordinary)?;
    up.put_back(rig.host()?)?;
    figures(onset, from, to, &real_time, &ordinary, &exchanges)
}

fn figures(
    onset: u64,
    from: Done,
    to: Done,
    real_time: &Wakes,
    ordinary: &Wakes,
    exchanges: &Exchanges,
) -> Result<Figures> {
    let elapsed = (to.at - from.at) as f64;
    let fifo = lateness(real_time, from.at, to.at)?;
    // Who waits in vain waits as long as there is patience.
    let round_trip = |exchange: &Exchange| {
        exchange
            .round_trip_ns()
            .map_or(PATIENCE.as_secs_f64() * 1e6, |ns| ns as f64 / 1e3)
    };
    let round_trips: Vec<f64> = exchanges.list().iter().map(round_trip).collect();
    let pingpong = Sample::new(round_trips.iter().copied())?;
    let answered = exchanges.answered_count() as f64;
    let figures = metrics([
        ("goodput_per_s", (to.served - from.served) as f64 * 1e9 / elapsed),
        ("hog_share", (to.hog - from.hog) as f64 * 100.0 / elapsed),
        ("fifo_p99_us", fifo.percentile(99.0)),
        ("fifo_max_us", fifo.percentile(100.0)),
        ("ordinary_max_us", lateness(ordinary, from.at, to.at)?.percentile(100.0)),
        ("onset_max_us", lateness(ordinary, onset, from.at)?.percentile(100.0)),
        ("pingpong_p50_us", pingpong.percentile(50.0)),
        ("pingpong_p99_us", pingpong.percentile(99.0)),
        (
            "pingpong_lost_share",
            100.0 - answered * 100.0 / exchanges.list().len().max(1) as f64,
        ),
    ]);
    Ok(Figures {
        metrics: figures,
        round_trips,
    })
}

/// What must hold, and the goal.
fn conclude(all: &mut Measurement) {
    let figure = |case: &str, metric: &str| all.figure(case, metric);
    let mut checks = Vec::new();
    let mut goals = Vec::new();
    for load in [
        "1.5x",
        "3x",
        "10x",
        "1.5x-closed",
        "3x-closed",
        "1.5x-redirected",
        "3x-redirected",
    ] {
        let [stock, tarn] = ["stock", "tarn"].map(|name| format!("{name}-{load}"));
        let (Some(theirs), Some(ours)) = (figure(&stock, "goodput_per_s"), figure(&tarn, "goodput_per_s")) else {
            continue;
        };
        let lost = figure(&tarn, "pingpong_lost_share").unwrap_or(100.0);
        let is_served = !load.ends_with("closed");
        checks.push(Check {
            name: format!("at {load}, the client that does not flood is answered"),
            passed: lost <= 10.0,
            detail: format!("{lost:.2} % lost"),
        });
        goals.push(goal(
            format!("at {load}, at most 1 % of what does not flood is lost"),
            lost <= 1.0,
            format!("{lost:.2} %"),
        ));
        if is_served {
            goals.push(goal(
                format!("at {load}, the flooded server serves at least 100 times as much as stock"),
                ours >= 100.0 * theirs,
                format!("{ours:.0} of {theirs:.0} a second"),
            ));
        }
        let hogs = [&stock, &tarn].map(|case| figure(case, "hog_share").unwrap_or_default());
        goals.push(goal(
            format!("at {load}, others keep at least twice the CPU that stock leaves them"),
            hogs[1] >= 2.0 * hogs[0],
            format!("{:.1} of {:.1} %", hogs[1], hogs[0]),
        ));
        let fifo = figure(&tarn, "fifo_p99_us").unwrap_or(f64::MAX);
        goals.push(goal(
            format!("at {load}, a real-time thread's p99 is at most 250 us"),
            fifo <= 250.0,
            format!("{fifo:.1} us"),
        ));
        let onset = figure(&tarn, "onset_max_us").unwrap_or(f64::MAX);
        goals.push(goal(
            format!("at {load}, no ordinary thread is later than 25 ms at the onset"),
            onset <= 25_000.0,
            format!("{onset:.0} us"),
        ));
    }
    for load in ["0.4x", "0.75x", "0.4x-closed", "0.4x-redirected"] {
        let pair = |metric: &str| {
            let [theirs, ours] = ["stock", "tarn"].map(|name| figure(&format!("{name}-{load}"), metric));
            theirs.zip(ours)
        };
        for (metric, what) in [
            ("pingpong_p50_us", "the median of the ping-pong"),
            ("pingpong_p99_us", "the p99 of the ping-pong"),
            ("fifo_p99_us", "a real-time thread's p99"),
        ] {
            if let Some((theirs, ours)) = pair(metric) {
                goals.push(goal(
                    format!("at {load}, {what} is at most 5 % longer than stock's"),
                    ours <= 1.05 * theirs,
                    format!("{ours:.1} of {theirs:.1} us"),
                ));
            }
        }
        if let Some((theirs, ours)) = pair("goodput_per_s").filter(|_| !load.ends_with("closed")) {
            goals.push(goal(
                format!("at {load}, the server serves at least 95 % of what stock serves"),
                ours >= 0.95 * theirs,
                format!("{ours:.0} of {theirs:.0} a second"),
            ));
        }
    }
    all.checks.extend(checks);
    all.goals.extend(goals);
}

fn goal(name: String, passed: bool, detail: String) -> Check {
    Check { name, passed, detail }
}
