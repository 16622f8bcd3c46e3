//! One case: flows of a congestion control in a network, with pings and a game beside them, and what came of it.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::control::Control;
use super::drained::{RoundTrip, drained};
use super::floor::floor;
use super::networks::{Course, Network, Queue, Rivals};
use super::path::{self, Path, RECEIVER};
use tarn_base::runtime::monotonic_ns;
use tarn_lab::busy::go_first;
use tarn_lab::experiment::Metrics;
use tarn_lab::load::{Arrivals, Exchanges, Flow, Law, Ping, TcpBulk, TcpInfo, TcpSink, UdpEcho, UdpRequests};
use tarn_lab::stats::Sample;

/// From when on everything begins: threads have started by then.
const PREPARATION: Duration = Duration::from_millis(100);
/// How long an answer is waited for. Buffers hold four products, and a product of the whole rate takes five times as long at the lowest.
const TIMEOUT: Duration = Duration::from_secs(8);
const BULK_PORT: u16 = 5001;
const GAME_PORT: u16 = 7000;

/// A case, before it is run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Where.
    pub network: Network,
    /// What is judged.
    pub control: Control,
    /// Of everything random.
    pub seed: u64,
    /// How long it is measured, after the start-up.
    pub length: Duration,
}

/// When things happen, CLOCK_MONOTONIC in ns.
#[derive(Debug, Clone)]
struct Schedule {
    began: u64,
    /// When each flow begins; those that are judged before the others.
    flows: Vec<u64>,
    /// What is measured.
    measured: Range<u64>,
}

/// What came of a case.
pub struct Figures {
    /// By name.
    pub metrics: Metrics,
    /// Round trips of the pings, ms, in the order sent.
    pub round_trips_ms: Vec<f64>,
}

/// What a flow had come to when the measurement began, and when it ended.
#[derive(Debug, Clone, Copy)]
struct Progress {
    from: TcpInfo,
    to: TcpInfo,
}

impl Progress {
    fn bytes(&self) -> f64 {
        (self.to.bytes_acked - self.from.bytes_acked) as f64
    }

    fn retransmitted(&self) -> u32 {
        self.to.total_retrans - self.from.total_retrans
    }
}

impl Plan {
    /// Runs it.
    ///
    /// # Errors
    /// When the network cannot be built, the congestion control is refused, or a flow breaks.
    pub fn run(&self) -> Result<Figures> {
        let _provided = self.control.provide()?;
        let path = Path::build(self.network)?;
        let receiver = path.receiver()?;
        let sink = TcpSink::start(receiver, at(BULK_PORT)?)?;
        let echo = receiver.enter(|| go_first().and_then(|()| UdpEcho::start(receiver, at(GAME_PORT)?)))?;
        let schedule = self.schedule(monotonic_ns() + PREPARATION.as_nanos() as u64);
        let length = Duration::from_nanos(schedule.measured.end - schedule.began);
        let changes = path::changes(&self.network, self.seed, length);
        let (flows, pings, game) = thread::scope(|scope| {
            let flows: Vec<_> = (0..schedule.flows.len())
                .map(|flow| {
                    scope.spawn({
                        let (path, schedule) = (&path, &schedule);
                        move || self.send(path, schedule, flow)
                    })
                })
                .collect();
            let pings = scope.spawn(|| ping(&path, &schedule));
            let game = scope.spawn(|| play(&path, &schedule));
            path.drive(&changes, schedule.began)?;
            let flows = flows.into_iter().map(joined).collect::<Result<Vec<_>>>()?;
            anyhow::Ok((flows, joined(pings)?, joined(game)?))
        })?;
        sink.stop()?;
        echo.stop()?;
        let floor = floor(
            &changes,
            path::round_trip(&self.network),
            if self.network.queue == Queue::Policer {
                0
            } else {
                path::buffer(&self.network)
            },
            Duration::from_nanos(schedule.measured.start - schedule.began),
            length,
        );
        let since = |ns: u64| Duration::from_nanos(ns.saturating_sub(schedule.began));
        let measured = since(schedule.measured.start)..since(schedule.measured.end);
        let mut figures = self.figures(&flows, &pings, &game, floor)?;
        let round_trips: Vec<RoundTrip> = pings
            .list()
            .iter()
            .filter_map(|ping| {
                let took = Duration::from_nanos(ping.round_trip_ns()?);
                let at = since(ping.sent_ns);
                Some(RoundTrip { at, took })
            })
            .collect();
        // Where the rate changes all the time, nothing ends a drop.
        if matches!(self.network.course, Course::Halved | Course::Cut)
            && let Some(time) = drained(&changes, &round_trips, path::round_trip(&self.network), &measured)
        {
            let ms = time.as_secs_f64() * 1e3;
            figures.metrics.insert("drained_ms".into(), ms);
        }
        Ok(figures)
    }

    fn schedule(&self, began: u64) -> Schedule {
        // A steady network shows whether latecomers get their share; elsewhere it is the change of the rate that counts.
        let apart = match self.network.course {
            Course::Steady => Duration::from_secs(1),
            _ => Duration::from_millis(10),
        };
        let rivals = match self.network.rivals {
            Rivals::None => 0,
            Rivals::Cubic(flows) | Rivals::Bbr(flows) => flows,
        };
        let start = |number: u32| began + (apart * number).as_nanos() as u64;
        let flows: Vec<u64> = (0..self.network.flows + rivals).map(start).collect();
        let startup = Duration::from_secs(2).max(20 * path::round_trip(&self.network));
        let from = flows.last().copied().unwrap_or(began) + startup.as_nanos() as u64;
        Schedule {
            began,
            flows,
            measured: from..from + self.length.as_nanos() as u64,
        }
    }

    /// The congestion control of a flow, by its number.
    fn control_of(&self, flow: usize) -> &'static str {
        match self.network.rivals {
            Rivals::Cubic(_) if flow >= self.network.flows as usize => Control::Cubic.in_kernel(),
            Rivals::Bbr(_) if flow >= self.network.flows as usize => Control::Bbr.in_kernel(),
            _ => self.control.in_kernel(),
        }
    }

    fn send(&self, path: &Path, schedule: &Schedule, flow: usize) -> Result<Progress> {
        let bulk = TcpBulk {
            flow: Flow::to(at(BULK_PORT)?),
            duration: Duration::ZERO,
            congestion: Some(self.control_of(flow).to_owned()),
        };
        path::wait_until(schedule.flows[flow]);
        let Range { start, end } = schedule.measured;
        let infos = path.sender()?.enter(|| bulk.watch(&[start, end]))?;
        let [from, to] = infos[..] else {
            anyhow::bail!("a flow was read {} times", infos.len())
        };
        Ok(Progress { from, to })
    }

    fn figures(&self, flows: &[Progress], pings: &Exchanges, game: &Exchanges, floor: Duration) -> Result<Figures> {
        let judged = &flows[..self.network.flows as usize];
        let bytes: f64 = judged.iter().map(Progress::bytes).sum();
        let round_trips_ms: Vec<f64> = pings.round_trips_us().iter().map(|us| us / 1e3).collect();
        let summary = Sample::new(round_trips_ms.iter().copied())
            .context("no ping was answered")?
            .summary();
        let game_ms = game.latencies_us().iter().map(|us| us / 1e3).collect::<Vec<_>>();
        let lost = |exchanges: &Exchanges| (exchanges.sent_count() - exchanges.answered_count()) as f64;
        let mut metrics = tarn_lab::experiment::metrics([
            ("goodput_mbit_s", bytes * 8.0 / 1e6 / self.length.as_secs_f64()),
            (
                "retransmitted",
                judged.iter().map(Progress::retransmitted).sum::<u32>().into(),
            ),
            (
                "retransmitted_startup",
                judged.iter().map(|flow| flow.from.total_retrans).sum::<u32>().into(),
            ),
            ("rtt_mean_ms", summary.mean),
            ("rtt_p99_ms", summary.p99),
            ("rtt_max_ms", summary.max),
            ("rtt_floor_ms", floor.as_secs_f64() * 1e3),
            ("ping_lost", lost(pings)),
            (
                "game_p99_ms",
                Sample::new(game_ms).context("the game had no answer")?.percentile(99.0),
            ),
            ("game_lost", lost(game)),
        ]);
        if flows.len() > 1 {
            metrics.insert("jain".into(), jain(flows));
        }
        if flows.len() > judged.len() {
            let all: f64 = flows.iter().map(Progress::bytes).sum();
            metrics.insert("share_percent".into(), 100.0 * bytes / all);
        }
        Ok(Figures {
            metrics,
            round_trips_ms,
        })
    }
}

/// Pings, every 10 ms of what is measured.
fn ping(path: &Path, schedule: &Schedule) -> Result<Exchanges> {
    let gap = Duration::from_millis(10);
    let mut ping = Ping::new(RECEIVER.parse()?);
    ping.count = count(schedule, gap);
    ping.arrivals = Arrivals::Open(Law::Every(gap));
    ping.timeout = TIMEOUT;
    path::wait_until(schedule.measured.start);
    path.sender()?.enter(|| go_first().and_then(|()| ping.run()))
}

/// A game: 60 requests of 100 bytes a second.
fn play(path: &Path, schedule: &Schedule) -> Result<Exchanges> {
    let gap = Duration::from_secs(1) / 60;
    let mut game = UdpRequests::new(Flow::to(at(GAME_PORT)?), count(schedule, gap));
    game.size = 100;
    game.arrivals = Arrivals::Open(Law::Every(gap));
    game.timeout = TIMEOUT;
    path::wait_until(schedule.measured.start);
    path.sender()?.enter(|| go_first().and_then(|()| game.run()))
}

/// So many every `gap` fill what is measured.
fn count(schedule: &Schedule, gap: Duration) -> u32 {
    let Range { start, end } = schedule.measured;
    ((end - start) / gap.as_nanos() as u64) as u32
}

fn at(port: u16) -> Result<std::net::SocketAddr> {
    Ok(std::net::SocketAddr::new(RECEIVER.parse()?, port))
}

/// Jain's index of what the flows delivered: 1 when all have the same, 1/n when one has all.
fn jain(flows: &[Progress]) -> f64 {
    let sum: f64 = flows.iter().map(Progress::bytes).sum();
    let squares: f64 = flows.iter().map(|flow| flow.bytes().powi(2)).sum();
    if squares > 0.0 {
        sum * sum / squares / flows.len() as f64
    } else {
        0.0
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    tarn_lab::topology::join(thread.join())
}
