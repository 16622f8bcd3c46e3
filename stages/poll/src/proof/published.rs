//! The experiment `poll-published`: the test that the published change was judged by.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_lab::busy::spin;
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{
    Case, Check, Experiment, Guest, Measurement, Metric, Metrics, Plot, Reference, Series, Size, metrics,
};
use tarn_lab::load::{Arrivals, Flow, Law, Ping, TcpBulk, TcpSink};
use tarn_lab::stats::Sample;
use tarn_lab::topology::{Namespace, join};

use super::contender::Contender;
use super::crowd::HOGGING;
use super::rig::{HOST, Rig, VETH};

/// The port that a bulk transfer goes to.
const BULK: u16 = 9002;
/// Programs that want all of the CPU.
const HOGS: usize = 2;
/// The priority of who pings: another machine's, or as good.
const PINGING: i32 = 80;
/// Until a bulk transfer has begun.
const SETTLE: Duration = Duration::from_millis(50);

/// The experiment.
pub static PUBLISHED: Experiment = Experiment {
    stage: crate::STAGE,
    name: "poll-published",
    title: "pings, as the published change was judged by",
    method: METHOD,
    cpus: 1,
    cards: Cards::Storm { lap_us: 300 },
    software: false,
    metrics: METRICS,
    plots: PLOTS,
    references: REFERENCES,
    highlights: &[],
    parts: |_| 1,
    headline: &[],
    run,
    conclude: Some(conclude),
};

const METHOD: &str = "\
A thousand pings (two hundred in the quick size) to this host, by loopback, by a veth pair and by an emulated card (vmxnet3): idle, beside two hogs, \
beside a bulk transfer by TCP over the same device. Who pings goes first, as if it were another machine. As published: threads at nice 0, and the \
rule for the weight.

The claims: \"the mean round trip by loopback falls by 48.9 %\": loopback has no NAPI of its own that could become a thread, and its packets take \
the CPU's backlog, whose weight is set anew at each poll, so no part of the change touches them. \"Spikes fall by 96 to 98 %, the maximum is 0.103 ms\": a stock \
kernel has no such spikes here; threads at nice 0 make them, because they wait for their turn beside whoever is busy. \"Receiving takes less \
CPU\": poll-cost has what it takes.";

static METRICS: &[Metric] = &[
    Metric::less("ping_mean_us", "mean", "us", 1),
    Metric::less("ping_p50_us", "p50", "us", 1),
    Metric::less("ping_p99_us", "p99", "us", 1),
    Metric::less("ping_max_us", "max", "us", 1),
    Metric::less("ping_lost_share", "lost", "%", 1),
];

static PLOTS: &[Plot] = &[Plot::Bars {
    title: "The longest ping",
    metric: "ping_max_us",
    references: &["ping_max_us"],
}];

static REFERENCES: &[Reference] = &[Reference::new(
    "Mountain Kernel, loopback, the author's machine",
    "ping_max_us",
    103.0,
    "published",
)];

/// By what is pinged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Device {
    Loopback,
    Veth,
    Card,
}

/// What else happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Idle,
    Hogs,
    Bulk,
}

/// What is measured in one go.
#[derive(Debug, Clone, Copy)]
struct Scene {
    contender: Contender,
    device: Device,
    load: Load,
}

impl Device {
    const ALL: [Self; 3] = [Self::Loopback, Self::Veth, Self::Card];

    fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Veth => "veth",
            Self::Card => "card",
        }
    }

    fn address(self) -> Ipv4Addr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Veth => VETH,
            Self::Card => HOST,
        }
    }

    /// Where pings come from.
    fn source(self, rig: &Rig) -> Result<&Namespace> {
        match self {
            Self::Loopback => rig.host(),
            Self::Veth | Self::Card => rig.client(),
        }
    }
}

impl Load {
    const ALL: [Self; 3] = [Self::Idle, Self::Hogs, Self::Bulk];

    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Hogs => "hogs",
            Self::Bulk => "bulk",
        }
    }
}

impl Scene {
    fn name(&self) -> String {
        format!("{}-{}-{}", self.contender.name(), self.device.name(), self.load.name())
    }

    fn title(&self) -> String {
        format!(
            "{}: {}, {}",
            self.contender.title(),
            self.device.name(),
            self.load.name()
        )
    }
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    let (count, mean) = match guest.size {
        Size::Full => (1_000, Duration::from_millis(10)),
        _ => (200, Duration::from_millis(2)),
    };
    // At random moments: the kernel's tick would meet all of them, or none.
    let law = Law::Poisson { mean, seed: guest.seed };
    let rig = Rig::with_veth()?;
    rig.segment_in_software()?;
    rig.flood(false)?;
    let scene = |contender| {
        let of = move |device| {
            Load::ALL.map(move |load| Scene {
                contender,
                device,
                load,
            })
        };
        Device::ALL.into_iter().flat_map(of)
    };
    let contenders = [Contender::Stock, Contender::Published, Contender::Tarn];
    let mut whole = Measurement::default();
    for contender in contenders {
        let up = contender.set_up(rig.host()?)?;
        rig.readdress()?;
        std::thread::sleep(SETTLE);
        let scenes: Vec<Scene> = scene(contender).collect();
        let describe = |scene: &Scene| Case::new(scene.name(), scene.title());
        let measured = guest.measure(&scenes, describe, |scene, case, all| {
            let (figures, values) = measure(&rig, scene, count, &law)?;
            case.metrics = figures;
            all.series.push(Series {
                case: case.name.clone(),
                name: "ping_us".into(),
                unit: "us".into(),
                values,
            });
            Ok(())
        })?;
        up.put_back(rig.host()?)?;
        whole.cases.extend(measured.cases);
        whole.series.extend(measured.series);
    }
    Ok(whole)
}

fn measure(rig: &Rig, scene: &Scene, count: u32, law: &Law) -> Result<(Metrics, Vec<f64>)> {
    let length = Duration::from_nanos(law.schedule(count).last().copied().unwrap_or_default());
    let address = scene.device.address();
    let source = scene.device.source(rig)?;
    let done = Arc::new(AtomicBool::new(false));
    let hogs = if scene.load == Load::Hogs { HOGS } else { 0 };
    let hogs = (0..hogs).map(|_| {
        let done = done.clone();
        rig.host()?.spawn("hog", move || {
            while !done.load(Ordering::Relaxed) {
                spin(HOGGING);
            }
            Ok(())
        })
    });
    let hogs = hogs.collect::<Result<Vec<_>>>()?;
    let bulk = match scene.load {
        Load::Bulk => {
            let at = SocketAddr::new(IpAddr::V4(address), BULK);
            let sink = TcpSink::start(rig.host()?, at)?;
            let bulk = TcpBulk {
                flow: Flow::to(at),
                duration: SETTLE + length,
                congestion: None,
            };
            Some((sink, source.spawn("bulk", move || bulk.run())?))
        }
        Load::Idle | Load::Hogs => None,
    };
    std::thread::sleep(SETTLE);
    let ping = Ping {
        count,
        arrivals: Arrivals::Open(law.clone()),
        ..Ping::new(IpAddr::V4(address))
    };
    let pinging = source.spawn("ping", move || {
        set_policy(0, Policy::Fifo(PINGING))?;
        ping.run()
    })?;
    let exchanges = join(pinging.join())?;
    done.store(true, Ordering::Relaxed);
    hogs.into_iter().try_for_each(|hog| join(hog.join()))?;
    if let Some((sink, client)) = bulk {
        join(client.join())?;
        sink.stop()?;
    }
    let times = exchanges.round_trips_us();
    let sample = Sample::new(times.iter().copied().chain(times.is_empty().then_some(0.0)))?;
    let lost = 100.0 - exchanges.answered_count() as f64 * 100.0 / f64::from(count);
    let figures = metrics([
        ("ping_mean_us", sample.summary().mean),
        ("ping_p50_us", sample.percentile(50.0)),
        ("ping_p99_us", sample.percentile(99.0)),
        ("ping_max_us", sample.percentile(100.0)),
        ("ping_lost_share", lost),
    ]);
    Ok((figures, times))
}

/// What must hold, and the goal.
fn conclude(all: &mut Measurement) {
    let is_judged = |case: &Case| !case.name.starts_with("published");
    let lost = |case: &Case| case.metrics.get("ping_lost_share").is_some_and(|lost| *lost > 0.0) && is_judged(case);
    let losing: Vec<&str> = all
        .cases
        .iter()
        .filter(|case| lost(case))
        .map(|case| case.name.as_str())
        .collect();
    let check = Check {
        name: "every ping is answered, but for the published change's".to_owned(),
        passed: losing.is_empty(),
        detail: losing.join(", "),
    };
    let mut goals = Vec::new();
    for device in Device::ALL {
        let [stock, tarn] =
            ["stock", "tarn"].map(|name| all.figure(&format!("{name}-{}-idle", device.name()), "ping_mean_us"));
        if let Some((stock, tarn)) = stock.zip(tarn) {
            goals.push(Check {
                name: format!(
                    "the mean idle ping by {} is at most 10 % longer than stock's",
                    device.name()
                ),
                passed: tarn <= 1.1 * stock,
                detail: format!("{tarn:.1} of {stock:.1} us"),
            });
        }
    }
    all.checks.push(check);
    all.goals.extend(goals);
}
