//! The experiment `pace-transfers`: what short transfers, and applications that have little to send, wait for.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::control::Control;
use super::networks::{Course, Network};
use super::path::{self, Path, RECEIVER};
use super::table;
use tarn_base::runtime::monotonic_ns;
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Check, Experiment, Guest, Measurement, Metric, Plot, Series, Size, metrics};
use tarn_lab::load::{Arrivals, Flow, Law, TcpAnswerer, TcpBulk, TcpInfo, TcpRequests, TcpSink};
use tarn_lab::stats::Sample;

/// The experiment.
pub static TRANSFERS: Experiment = Experiment {
    stage: crate::STAGE,
    name: "pace-transfers",
    title: "short transfers, and senders with little to send",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: &[
        Metric::less("time_mean_ms", "mean", "ms", 0),
        Metric::less("time_p99_ms", "p99", "ms", 0),
        Metric::less("time_max_ms", "max", "ms", 0),
        Metric::neutral("transfers", "transfers", "", 0),
        Metric::less("retransmitted_beside", "sent again beside", "packets", 0),
    ],
    plots: &[Plot::Cdf {
        title: "How long a transfer takes",
        series: "time_ms",
        logarithmic: true,
    }],
    references: &[],
    highlights: &[],
    parts: |_| 1,
    headline: &[],
    run,
    conclude: Some(conclude),
};

const METHOD: &str = "\
The path is one of 20 Mbit/s and 40 ms with a queue of one product. `short`: connections, one after the other, upload 64 kB each; a time is from \
the first byte written to the answer that all has come. `beside`: as many of them as there is time for, beside another flow of the same control that sends \
all it can and began four seconds earlier. `chunks`: one connection uploads 250 kB each second, as a camera or a call with video does, while the rate falls to 8 Mbit/s every ten \
seconds for five.";

const CONTROLS: [Control; 3] = [Control::Cubic, Control::Bbr, Control::Tarn];
const PORT: u16 = 5002;
const BULK_PORT: u16 = 5001;
const ANSWER: usize = 64;
/// Before connections begin, for a flow beside them.
const AHEAD: Duration = Duration::from_secs(4);
const TIMEOUT: Duration = Duration::from_secs(20);
/// Transfers of `short`.
const SHORT: u32 = 200;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Short,
    ShortBeside,
    Chunks,
}

impl Load {
    const ALL: [Self; 3] = [Self::Short, Self::ShortBeside, Self::Chunks];

    fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::ShortBeside => "beside",
            Self::Chunks => "chunks",
        }
    }

    fn network(self) -> Network {
        let network = Network::steady(20, 40, 100);
        match self {
            Self::Chunks => Network {
                course: Course::Cut,
                ..network
            },
            _ => network,
        }
    }

    fn size(self) -> usize {
        if self == Self::Chunks { 250_000 } else { 64 << 10 }
    }
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    let seconds = if guest.size == Size::Full { 60 } else { 10 };
    let seed = guest.seed;
    let cases: Vec<(Load, Control)> = Load::ALL
        .iter()
        .flat_map(|load| CONTROLS.map(|control| (*load, control)))
        .collect();
    let describe = |(load, control): &(Load, Control)| {
        let name = format!("{}-{}", table::name(*control, &load.network()), load.name());
        Case::new(name, format!("{}, {}", control.title(), load.name()))
    };
    guest.measure(&cases, describe, |(load, control), case, all| {
        let scene = Scene::build(*load, *control)?;
        let (times, sent_again) = scene.run(seconds, seed)?;
        let sample = Sample::new(times.iter().copied())?;
        let summary = sample.summary();
        case.metrics = metrics([
            ("time_mean_ms", summary.mean),
            ("time_p99_ms", summary.p99),
            ("time_max_ms", summary.max),
            ("transfers", times.len() as f64),
        ]);
        if let Some(sent_again) = sent_again {
            case.metrics.insert("retransmitted_beside".into(), sent_again.into());
        }
        all.series.push(Series {
            case: case.name.clone(),
            name: "time_ms".into(),
            unit: "ms".into(),
            values: times,
        });
        Ok(())
    })
}

/// Of the better one's mean, what ours may be. More is a fault.
const MOST: f64 = 1.25;

fn conclude(measurement: &mut Measurement) {
    for load in Load::ALL {
        let mean = |control: Control| {
            let case = format!("{}-{}", table::name(control, &load.network()), load.name());
            measurement.figure(&case, "time_mean_ms")
        };
        let [cubic, bbr, tarn] = CONTROLS.map(|control| mean(control).unwrap_or(f64::INFINITY));
        measurement.checks.push(Check {
            name: format!(
                "{}: a transfer takes at most {MOST} times as long as with the better of CUBIC and BBR",
                load.name()
            ),
            passed: tarn <= MOST * cubic.min(bbr),
            detail: format!("{tarn:.0} ms; CUBIC {cubic:.0}, BBR {bbr:.0}"),
        });
    }
}

/// A path with whoever takes what is sent.
struct Scene {
    load: Load,
    path: Path,
    answerer: TcpAnswerer,
    sink: TcpSink,
    /// Until it is gone, the control can be chosen.
    _provided: super::control::Provided,
}

impl Scene {
    fn build(load: Load, control: Control) -> Result<Self> {
        let provided = control.provide()?;
        let path = Path::build(load.network())?;
        path.sender()?
            .sysctl("net/ipv4/tcp_congestion_control", control.in_kernel())?;
        Ok(Self {
            load,
            answerer: TcpAnswerer::start(path.receiver()?, at(PORT)?, load.size(), ANSWER)?,
            sink: TcpSink::start(path.receiver()?, at(BULK_PORT)?)?,
            path,
            _provided: provided,
        })
    }

    /// The times of the transfers that there is time for, ms, and what the flow beside them sent again, if there is one.
    fn run(self, seconds: u32, seed: u64) -> Result<(Vec<f64>, Option<u32>)> {
        let begun = monotonic_ns();
        let end = begun + u64::from(seconds) * 1_000_000_000;
        let changes = path::changes(&self.load.network(), seed, Duration::from_secs(seconds.into()));
        let (times, sent_again) = std::thread::scope(|scope| {
            let beside = (self.load == Load::ShortBeside).then(|| scope.spawn(|| self.beside(end)));
            let changing = scope.spawn(|| self.path.drive(&changes, begun));
            let times = self.path.sender()?.enter(|| match self.load {
                Load::Short => self.short(SHORT, u64::MAX),
                Load::ShortBeside => {
                    path::wait_until(begun + AHEAD.as_nanos() as u64);
                    self.short(u32::MAX, end)
                }
                Load::Chunks => self.chunks(seconds),
            })?;
            tarn_lab::topology::join(changing.join())?;
            let sent_again = beside.map(|flow| tarn_lab::topology::join(flow.join())).transpose()?;
            anyhow::Ok((times, sent_again))
        })?;
        self.answerer.stop()?;
        self.sink.stop()?;
        ensure!(!times.is_empty(), "no transfer came to an end");
        Ok((times, sent_again))
    }

    fn requests(&self, count: u32) -> Result<TcpRequests> {
        let mut requests = TcpRequests::new(Flow::to(at(PORT)?), count);
        requests.request = self.load.size();
        requests.answer = ANSWER;
        requests.timeout = TIMEOUT;
        Ok(requests)
    }

    fn chunks(&self, seconds: u32) -> Result<Vec<f64>> {
        let mut requests = self.requests(seconds)?;
        requests.arrivals = Arrivals::Open(Law::Every(Duration::from_secs(1)));
        times(&requests)
    }

    /// A connection a transfer, as many as that, or as begin before the time (CLOCK_MONOTONIC, ns).
    fn short(&self, most: u32, end: u64) -> Result<Vec<f64>> {
        let requests = self.requests(1)?;
        let mut all = Vec::new();
        for _ in 0..most {
            if monotonic_ns() >= end {
                break;
            }
            all.extend(times(&requests)?);
        }
        Ok(all)
    }

    /// A flow that sends as long as it can be beside the transfers; what it sent again.
    fn beside(&self, end: u64) -> Result<u32> {
        let bulk = TcpBulk {
            flow: Flow::to(at(BULK_PORT)?),
            duration: Duration::ZERO,
            congestion: None,
        };
        let infos = self.path.sender()?.enter(|| bulk.watch(&[end]))?;
        Ok(infos.last().map_or(0, |info: &TcpInfo| info.total_retrans))
    }
}

/// Of all that were sent, ms: one that is not answered in time is a failure, not a figure left out.
fn times(requests: &TcpRequests) -> Result<Vec<f64>> {
    let exchanges = requests.run()?;
    let unanswered = exchanges.sent_count() - exchanges.answered_count();
    ensure!(
        unanswered == 0,
        "{unanswered} of {} transfers took more than {TIMEOUT:?}",
        exchanges.sent_count()
    );
    Ok(exchanges.latencies_us().iter().map(|us| us / 1e3).collect())
}

fn at(port: u16) -> Result<SocketAddr> {
    Ok(SocketAddr::new(RECEIVER.parse()?, port))
}
