//! The load of one case, and its figures.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::HOST;
use super::cases::Scene;
use tarn_lab::busy::{Busy, Meter};
use tarn_lab::exchange_cost::{TRIALS, Trials};
use tarn_lab::experiment::{Check, Metrics, Series, metrics};
use tarn_lab::load::{Exchanges, Flow, TcpAnswerer, TcpRequests, UdpEcho, UdpRequests};
use tarn_lab::stats::Sample;

/// Requests of each size in one trial, so many that a timer tick more or less does not show. The goals are about the first.
const REQUESTS: [u32; SIZES.len()] = [400, 300, 300];
/// Requests over TCP, which are one trial.
const REQUESTS_TCP: u32 = 750;
/// Both in full size: as many as the report's.
const REQUESTS_FULL: u32 = 14_000;
/// Requests before the first trial, so that neighbours, flows and caches are as they will stay.
const WARM_UP: u32 = 20;
/// Before them: whoever sets a case up, tarn's agent and the kernel too, finishes what it began. Idle time costs nothing.
const SETTLING: Duration = Duration::from_millis(500);
/// How long such a request's answer is waited for when it is not known whether one comes.
const TRIAL_TIMEOUT: Duration = Duration::from_millis(100);
/// Payload bytes.
const SIZES: [usize; 3] = [64, 512, 1400];
/// Two trials of one case differ by the timer ticks that fall into them, and by no more.
const TRIALS_DIFFER: f64 = 0.05;

/// What one case came to.
#[derive(Default)]
pub struct HostCost {
    /// Of each of [`SIZES`].
    udp: [Trials; SIZES.len()],
    /// One trial.
    tcp: Trials,
    /// Of all requests.
    sent: u64,
    delivered: u64,
    answered: u64,
    wrong: u64,
    round_trips_us: Vec<f64>,
}

/// Puts the load on a case.
pub fn run(scene: &Scene, meter: &Meter, full: bool) -> Result<HostCost> {
    let (counts, count_tcp) = match full {
        true => ([REQUESTS_FULL; SIZES.len()], REQUESTS_FULL),
        false => (REQUESTS, REQUESTS_TCP),
    };
    let mut figures = HostCost::default();
    let echo = UdpEcho::start(scene.server()?, scene.listens)?;
    std::thread::sleep(SETTLING);
    ask(scene, meter, SIZES[0], WARM_UP)?;
    // What the case before has left to free is not this one's cost.
    meter.settle(Duration::from_secs(60))?;
    for _ in 0..TRIALS {
        for (index, size) in SIZES.into_iter().enumerate() {
            let (exchanges, busy) = ask(scene, meter, size, counts[index])?;
            figures.udp[index].take(&exchanges, busy);
            figures.take(&exchanges, scene.target, size == SIZES[0]);
        }
    }
    figures.delivered = echo.stop()?.saturating_sub(u64::from(WARM_UP));
    tcp(scene, meter, count_tcp, &mut figures)?;
    Ok(figures)
}

/// A few requests: does it work at all?
pub fn try_out(scene: &Scene) -> Result<HostCost> {
    let mut figures = HostCost::default();
    let echo = UdpEcho::start(scene.server()?, scene.listens)?;
    let mut requests = UdpRequests::new(Flow::to(scene.target).from(scene.client), WARM_UP);
    requests.timeout = TRIAL_TIMEOUT;
    let exchanges = scene.namespace("client")?.enter(|| requests.run())?;
    figures.take(&exchanges, scene.target, false);
    figures.delivered = echo.stop()?;
    Ok(figures)
}

/// UDP requests of one size, one after the other.
fn ask(scene: &Scene, meter: &Meter, size: usize, count: u32) -> Result<(Exchanges, Busy)> {
    let mut requests = UdpRequests::new(Flow::to(scene.target).from(scene.client), count);
    requests.size = size;
    scene.namespace("client")?.enter(|| meter.measure(|| requests.run()))
}

/// TCP requests on one connection; they count among those sent, delivered and answered.
fn tcp(scene: &Scene, meter: &Meter, count: u32, figures: &mut HostCost) -> Result<()> {
    let mut requests = TcpRequests::new(Flow::to(scene.target).from(scene.client), count);
    let server = TcpAnswerer::start(scene.server()?, scene.listens, requests.request, requests.answer)?;
    requests.connections = 1;
    let (exchanges, busy) = scene.namespace("client")?.enter(|| meter.measure(|| requests.run()))?;
    figures.tcp.take(&exchanges, busy);
    figures.take(&exchanges, scene.target, false);
    figures.delivered += server.stop()?;
    Ok(())
}

impl HostCost {
    fn take(&mut self, exchanges: &Exchanges, target: SocketAddr, with_times: bool) {
        self.sent += exchanges.sent_count();
        self.answered += exchanges.answered_count();
        self.wrong += exchanges.not_from(target);
        if with_times {
            self.round_trips_us.extend(exchanges.round_trips_us());
        }
    }

    /// The row of the table; the host's cost is what this case adds to `direct`.
    pub fn metrics(&self, direct: Option<&HostCost>) -> Metrics {
        let mut row = metrics([
            ("instructions_per_packet", self.udp[0].cost()),
            ("sent", self.sent as f64),
            ("delivered", self.delivered as f64),
            ("answered", self.answered as f64),
            ("wrong_reply_address", self.wrong as f64),
        ]);
        if let Ok(sample) = Sample::new(self.round_trips_us.iter().copied()) {
            let percentile = |percent| sample.percentile(percent);
            row.extend(metrics([
                ("rtt_p50_us", percentile(50.0)),
                ("rtt_p99_us", percentile(99.0)),
                ("rtt_max_us", percentile(100.0)),
            ]));
        }
        if let Some(direct) = direct {
            let added = |size: usize| self.udp[size].cost() - direct.udp[size].cost();
            row.extend(metrics([
                (HOST, added(0)),
                ("host_512", added(1)),
                ("host_1400", added(2)),
                ("host_tcp", self.tcp.cost() - direct.tcp.cost()),
            ]));
        }
        row
    }

    /// The round trips of the smallest size.
    pub fn series(&self, case: &str) -> Series {
        Series {
            case: case.into(),
            name: "rtt_us".into(),
            unit: "us".into(),
            values: self.round_trips_us.clone(),
        }
    }

    /// Whether nothing was lost, and nothing came from a wrong address.
    pub fn is_complete(&self) -> bool {
        self.sent == self.delivered && self.sent == self.answered && self.wrong == 0
    }

    /// What became of the packets.
    pub fn summary(&self) -> String {
        let Self {
            sent,
            delivered,
            answered,
            wrong,
            ..
        } = self;
        format!("{sent} sent, {delivered} delivered, {answered} answered, {wrong} from a wrong address")
    }

    /// Every packet is accounted for, and the trials agree.
    pub fn check(&self, case: &str) -> Check {
        let costs = self.udp[0].sorted();
        let (least, most) = (costs[0], costs[TRIALS - 1]);
        Check {
            name: format!("{case}: every packet delivered and answered from the right address, trials alike"),
            passed: self.is_complete() && most <= least * (1.0 + TRIALS_DIFFER),
            detail: format!("{}; trials {least:.0} to {most:.0} instructions", self.summary()),
        }
    }
}
