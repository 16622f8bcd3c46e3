//! The experiment `poll-storm`: what a host does while more packets come in than its CPU can receive.

mod goals;
mod timeline;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_lab::busy::{monotonic_ns, sleep_until};
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{
    Case, Experiment, Guest, Highlight, Measurement, Metric, Metrics, Plot, Reference, Series, Size, metrics,
};
use tarn_lab::load::Law;
use tarn_lab::stats::Sample;
use tarn_lab::topology::join;

use self::goals::conclude;
use super::contender::Contender;
use super::crowd::{Crowd, lateness};
use super::outside::{self, Answerers, OFTEN, Pace, RARELY};
use super::places::Places;
use super::rig::{HOST, Rig};

/// How long a frame takes around the ring, in us; it comes by twice.
const LAP_US: u32 = 300;
/// Packets a second that one CPU can receive at most here (the specification's figure, 3.5 us each).
const CAPACITY: f64 = 285_000.0;
/// The port that is served, one where nobody listens, and one that the kernel redirects to the first.
const SERVED: u16 = 9000;
const CLOSED: u16 = 9;
const REDIRECTED: u16 = 9002;
/// Where the server listens.
const FLOODED: SocketAddr = SocketAddr::new(IpAddr::V4(HOST), SERVED);
/// As an administrator redirects a port without tarn.
const REDIRECTION: &str = "table ip storm {\n chain in {\n type nat hook prerouting priority dstnat;\n udp dport 9002 redirect to :9000\n }\n}\n";
/// Before the flood, and between its beginning and the measurement's.
const BEFORE: Duration = Duration::from_millis(100);
const ONSET: Duration = Duration::from_millis(400);
/// Of who measures: before all that is measured, but for interrupts.
const MEASURING: i32 = 90;

/// The experiment.
pub static STORM: Experiment = Experiment {
    stage: crate::STAGE,
    name: "poll-storm",
    title: "a flood of small packets",
    method: METHOD,
    cpus: 1,
    cards: Cards::Storm { lap_us: LAP_US },
    software: false,
    metrics: METRICS,
    plots: PLOTS,
    references: REFERENCES,
    highlights: HIGHLIGHTS,
    parts: |size| floods(size).len() + usize::from(has_timeline(size)),
    headline: &[0],
    run,
    conclude: Some(conclude),
};

static HIGHLIGHTS: &[Highlight] = &[
    Highlight {
        what: "flood: ping p50, us",
        metric: "pingpong_p50_us",
        stock: Some("stock-1.5x"),
        peer: Some(("netdev_budget", "budget16-1.5x")),
        published: Some("threads-1.5x"),
        tarn: "tarn-1.5x",
    },
    Highlight {
        what: "flood served, /s",
        metric: "goodput_per_s",
        stock: Some("stock-1.5x"),
        peer: Some(("netdev_budget", "budget16-1.5x")),
        published: Some("threads-1.5x"),
        tarn: "tarn-1.5x",
    },
];

const METHOD: &str = "\
Small UDP packets (60 bytes) come in at a fixed rate by an emulated card (vmxnet3), without costing this guest an instruction: the \
frames circle in QEMU. 1.5x is 1.5 times what one CPU can receive at most, 285,000 a second. All come from one address, from many ports, or (-forged) each that circles \
from an address of its own. They go to \
one port, which is served, or not (-closed), or (-redirected) nftables redirects it to the one that is served. On the flooded host's only CPU are besides: a server that reads what comes to that port (goodput), a hog that wants all of the CPU, two \
threads that want to run every two milliseconds, one at SCHED_FIFO 50 and one at nice 0 (how much later they run is shown), and an echo \
server, to which a client outside sends requests (ping-pong; what is not answered in 100 ms counts as 100 ms). Another types \
over a TCP connection, and each letter comes back (ssh). The client's own part of the CPU comes first, as if it \
were another machine's. It is not: whoever sends a packet runs the softirqs that wait, for milliseconds in a flood. So above the capacity they ask rarely, \
every 75 and 150 ms in the mean, and after what is measured inside: 20 and 10 requests in the quick size, of which the p99 is the slowest. \
Below it, and where they are said to ask often, it is every 2 and 10 ms, at the same time. And they send between two polls, \
when the ring has room: another machine loses as many as the ring drops. \
The measurement begins 0.4 s after the flood; the onset is the time between. \
Dropped is what of all that came the card's ring had no room for, an XDP program dropped, or a UDP socket's buffer had no room for.

Stock kernels since 6.4 run softirqs whenever somebody enables them again: programs that use the network hardly get on, and what the ring cannot \
hold is lost, whoever sent it. Threads at nice 0 (the published change) leave the CPU to others, and the ring drops more. \
tarn drops what exceeds its sender's fair share before it costs much.";

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
    Metric::less("ssh_p99_us", "ssh p99", "us", 1),
    Metric::less("dropped_ring_share", "dropped: ring", "%", 1),
    Metric::neutral("dropped_xdp_share", "XDP", "%", 1),
    Metric::less("dropped_socket_share", "socket", "%", 1),
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
    timeline::PLOT,
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
    /// Whether each frame of the ring has a source address of its own.
    is_forged: bool,
    /// Whether those outside ask as often as below the capacity all the same.
    is_asked_often: bool,
}

impl Flood {
    const fn to(port: u16, load: f64) -> Self {
        Self {
            load,
            port,
            is_forged: false,
            is_asked_often: false,
        }
    }

    const fn served(load: f64) -> Self {
        Self::to(SERVED, load)
    }

    const fn closed(load: f64) -> Self {
        Self::to(CLOSED, load)
    }

    const fn redirected(load: f64) -> Self {
        Self::to(REDIRECTED, load)
    }

    const fn forged(load: f64) -> Self {
        Self {
            is_forged: true,
            ..Self::served(load)
        }
    }

    /// Clients that send some hundred packets a second, of which none may be lost.
    const fn asked_often(self) -> Self {
        Self {
            is_asked_often: true,
            ..self
        }
    }

    fn is_overload(self) -> bool {
        self.load > 1.0
    }

    /// Whether those outside ask after what is measured inside, and rarely.
    fn is_asked_rarely(self) -> bool {
        self.is_overload() && !self.is_asked_often
    }

    fn pace(self) -> Pace {
        if self.is_asked_rarely() { RARELY } else { OFTEN }
    }

    /// What cases' names end with.
    fn name(self) -> String {
        let kind = match self.port {
            CLOSED => "-closed",
            REDIRECTED => "-redirected",
            _ if self.is_forged => "-forged",
            _ => "",
        };
        let often = if self.is_asked_often { "-often" } else { "" };
        format!("{}x{kind}{often}", self.load)
    }

    /// For people.
    fn title(self) -> String {
        if self.load == 0.0 {
            return "no flood".into();
        }
        let kind = match self.port {
            CLOSED => ", a closed port",
            REDIRECTED => ", a redirected port",
            _ if self.is_forged => &format!(" from {} addresses", self.frames()),
            _ => "",
        };
        let often = if self.is_asked_often { ", asked often" } else { "" };
        format!("{} times the capacity{kind}{often}", self.load)
    }

    /// Frames in the ring, of which each comes by twice a lap.
    fn frames(self) -> u16 {
        (self.load * CAPACITY * f64::from(LAP_US) / 2e6).round() as u16
    }
}

/// Whether the last part is a flood from before its beginning until after its end.
fn has_timeline(size: Size) -> bool {
    size != Size::Headline
}

/// One a part.
fn floods(size: Size) -> &'static [Flood] {
    const CALM: Flood = Flood::served(0.0);
    const SERVED: [Flood; 3] = [Flood::served(1.5), Flood::served(0.4), Flood::served(3.0)];
    const QUICK: [Flood; 9] = [
        SERVED[0],
        SERVED[1],
        SERVED[2],
        Flood::served(10.0),
        Flood::closed(1.5),
        Flood::redirected(1.5),
        Flood::forged(3.0),
        Flood::forged(3.0).asked_often(),
        CALM,
    ];
    const FULL: [Flood; 15] = [
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
        Flood::forged(3.0),
        Flood::forged(10.0),
        Flood::forged(3.0).asked_often(),
        CALM,
    ];
    match size {
        Size::Headline => &QUICK[..1],
        Size::Quick => &QUICK,
        Size::Full => &FULL,
    }
}

fn contenders(size: Size, flood: Flood) -> &'static [Contender] {
    use Contender::{Budget, Ksoftirqd, Published, Stock, Tarn, TarnNoShed, Threads, ThreadsFifo};
    match size {
        // On a stock kernel, the clients would do nothing else.
        _ if flood.is_asked_often => &[Tarn],
        Size::Headline => &[Stock, Tarn, Budget, Threads],
        Size::Full => &[
            Stock,
            Tarn,
            TarnNoShed,
            Budget,
            Ksoftirqd,
            Threads,
            Published,
            ThreadsFifo,
        ],
        Size::Quick if flood == Flood::served(1.5) => &[Stock, Tarn, TarnNoShed, Budget, Ksoftirqd, Threads, Published],
        Size::Quick => &[Stock, Tarn],
    }
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    let floods = floods(guest.size);
    match floods.get(guest.part) {
        Some(flood) => run_flood(guest, *flood),
        None => run_timeline(guest, floods[0]),
    }
}

fn run_flood(guest: &mut Guest, flood: Flood) -> Result<Measurement> {
    let lengths = Lengths::of(guest.size, flood);
    let seed = guest.seed;
    let rig = rig(flood)?;
    let describe = |contender: &Contender| describe(*contender, &flood.name(), &flood.title());
    guest.measure(contenders(guest.size, flood), describe, |contender, case, all| {
        let figures = measure(*contender, &rig, flood, lengths, seed)?;
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

/// How long it is measured.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    /// Who shares the CPU.
    inside: Duration,
    /// Those who ask: at the same time below the capacity, and afterwards above it.
    outside: Duration,
}

impl Lengths {
    fn of(size: Size, flood: Flood) -> Self {
        let milliseconds = |inside, outside| Self {
            inside: Duration::from_millis(inside),
            outside: Duration::from_millis(outside),
        };
        match (size, flood.is_overload()) {
            (Size::Full, true) if flood.is_asked_rarely() => milliseconds(2_000, 6_000),
            (Size::Full, _) => milliseconds(2_000, 2_000),
            (_, true) if flood.is_asked_often => milliseconds(1_500, 1_500),
            (_, true) => milliseconds(400, 1_500),
            // Differences are small: more requests are needed.
            (_, false) => milliseconds(3_200, 3_200),
        }
    }
}

fn run_timeline(guest: &mut Guest, flood: Flood) -> Result<Measurement> {
    let seed = guest.seed;
    let rig = rig(flood)?;
    let title = format!("{}, from before until after", flood.title());
    let describe = |contender: &Contender| describe(*contender, timeline::NAME, &title);
    guest.measure(&timeline::CONTENDERS, describe, |contender, case, all| {
        timeline::measure(*contender, &rig, seed, case, all)
    })
}

/// A host that the flood does not reach yet.
fn rig(flood: Flood) -> Result<Rig> {
    let rig = Rig::new()?;
    rig.flood(false)?;
    if flood.port == REDIRECTED {
        rig.host()?.run_with_input("nft", &["-f", "-"], REDIRECTION)?;
    }
    if flood.frames() == 0 {
        return Ok(rig);
    }
    if flood.is_forged {
        rig.begin_from_many(flood.frames(), flood.port)?;
    } else {
        rig.begin(flood.frames(), flood.port)?;
    }
    Ok(rig)
}

fn describe(contender: Contender, name: &str, title: &str) -> Case {
    Case::new(
        format!("{}-{name}", contender.name()),
        format!("{}, {title}", contender.title()),
    )
}

struct Figures {
    metrics: Metrics,
    round_trips: Vec<f64>,
}

fn measure(contender: Contender, rig: &Rig, flood: Flood, lengths: Lengths, seed: u64) -> Result<Figures> {
    let Lengths { inside, outside } = lengths;
    let pace = flood.pace();
    let asks_after = if flood.is_asked_rarely() {
        inside
    } else {
        Duration::ZERO
    };
    let up = contender.set_up(rig.host()?)?;
    rig.readdress()?;
    let answerers = Answerers::start(rig)?;
    let crowd = Crowd::start(rig.host()?, FLOODED, seed)?;
    let places = Places::of(rig.host()?)?;
    let typing = outside::typing(rig, BEFORE + ONSET + asks_after, outside, pace.letter, seed + 1)?;
    sleep_until(monotonic_ns() + BEFORE.as_nanos() as u64)?;
    set_policy(0, Policy::Fifo(MEASURING))?;
    let onset = monotonic_ns();
    rig.flood(true)?;
    sleep_until(onset + ONSET.as_nanos() as u64)?;
    let from = crowd.done();
    let ask = || outside::ping_pong(rig, outside, pace.ping, |mean| Law::Poisson { mean, seed });
    let at_once = (!flood.is_asked_rarely()).then(ask).transpose()?;
    sleep_until(from.at + inside.as_nanos() as u64)?;
    let to = crowd.done();
    let asking = at_once.map_or_else(ask, Ok)?;
    let (pingpong, typed) = (join(asking.join())?, join(typing.join())?);
    rig.flood(false)?;
    let dropped = Places::of(rig.host()?)?.shares_since(&places);
    let (real_time, ordinary) = crowd.end()?;
    answerers.stop()?;
    set_policy(0, Policy::Ordinary)?;
    up.put_back(rig.host()?)?;

    let fifo = lateness(&real_time, from.at, to.at)?;
    let round_trips: Vec<f64> = pingpong.list().iter().map(outside::waited_us).collect();
    let waited = Sample::new(round_trips.iter().copied())?;
    let elapsed = (to.at - from.at) as f64;
    let answered = pingpong.answered_count() as f64;
    let metrics = metrics([
        ("goodput_per_s", (to.served - from.served) as f64 * 1e9 / elapsed),
        ("hog_share", (to.hog - from.hog) as f64 * 100.0 / elapsed),
        ("fifo_p99_us", fifo.percentile(99.0)),
        ("fifo_max_us", fifo.percentile(100.0)),
        (
            "ordinary_max_us",
            lateness(&ordinary, from.at, to.at)?.percentile(100.0),
        ),
        ("onset_max_us", lateness(&ordinary, onset, from.at)?.percentile(100.0)),
        ("pingpong_p50_us", waited.percentile(50.0)),
        ("pingpong_p99_us", waited.percentile(99.0)),
        (
            "pingpong_lost_share",
            100.0 - answered * 100.0 / pingpong.list().len().max(1) as f64,
        ),
        (
            "ssh_p99_us",
            Sample::new(typed.list().iter().map(outside::waited_us))?.percentile(99.0),
        ),
        ("dropped_ring_share", dropped[0]),
        ("dropped_xdp_share", dropped[1]),
        ("dropped_socket_share", dropped[2]),
    ]);
    Ok(Figures { metrics, round_trips })
}
