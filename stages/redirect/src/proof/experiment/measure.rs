//! The load of one case, and its figures.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::cases::Scene;
use tarn_lab::busy::{Busy, Meter};
use tarn_lab::experiment::{Check, Series};
use tarn_lab::load::{Exchanges, Flow, TcpAnswerer, TcpRequests, UdpEcho, UdpRequests};
use tarn_lab::stats::Sample;

const TRIALS: usize = 5;
/// Requests of one size in one trial.
const REQUESTS: u32 = 150;
/// The same in full size: as many as the report's.
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
pub struct Figures {
    /// Instructions a request, by size.
    cost: [f64; SIZES.len()],
    cost_tcp: Option<f64>,
    /// The cheapest and dearest trial of the smallest size.
    trials: (f64, f64),
    sent: u64,
    delivered: u64,
    answered: u64,
    wrong: u64,
    round_trips_us: Vec<f64>,
}

/// Sums over trials.
#[derive(Default)]
struct Tally {
    busy: u64,
    answered: u64,
}

impl Tally {
    fn add(&mut self, busy: Busy, answered: u64) {
        self.busy += busy.busy_ns;
        self.answered += answered;
    }

    fn cost(&self) -> f64 {
        self.busy as f64 / self.answered.max(1) as f64
    }
}

/// Puts the load on a case.
pub fn run(scene: &Scene, meter: &Meter, full: bool) -> Result<Figures> {
    let count = if full { REQUESTS_FULL } else { REQUESTS };
    let mut figures = Figures::new();
    let echo = UdpEcho::start(scene.server()?, scene.listens)?;
    std::thread::sleep(SETTLING);
    ask(scene, meter, SIZES[0], WARM_UP)?;
    // What the case before has left to free is not this one's cost.
    meter.settle(Duration::from_secs(60))?;
    let mut tallies: [Tally; SIZES.len()] = Default::default();
    for _ in 0..TRIALS {
        for (size, tally) in SIZES.into_iter().zip(&mut tallies) {
            let (exchanges, busy) = ask(scene, meter, size, count)?;
            tally.add(busy, exchanges.answered_count());
            figures.take(&exchanges, scene.target, size == SIZES[0]);
            if size == SIZES[0] {
                let cost = busy.per(exchanges.answered_count());
                figures.trials = (figures.trials.0.min(cost), figures.trials.1.max(cost));
            }
        }
    }
    figures.delivered = echo.stop()?.saturating_sub(u64::from(WARM_UP));
    figures.cost = tallies.map(|tally| tally.cost());
    figures.cost_tcp = Some(tcp(scene, meter, count, &mut figures)?);
    Ok(figures)
}

/// A few requests: does it work at all?
pub fn try_out(scene: &Scene) -> Result<Figures> {
    let mut figures = Figures::new();
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
fn tcp(scene: &Scene, meter: &Meter, count: u32, figures: &mut Figures) -> Result<f64> {
    let mut requests = TcpRequests::new(Flow::to(scene.target).from(scene.client), count);
    let server = TcpAnswerer::start(scene.server()?, scene.listens, requests.request, requests.answer)?;
    requests.connections = 1;
    let (exchanges, busy) = scene.namespace("client")?.enter(|| meter.measure(|| requests.run()))?;
    figures.take(&exchanges, scene.target, false);
    figures.delivered += server.stop()?;
    Ok(busy.per(exchanges.answered_count()))
}

impl Figures {
    fn new() -> Self {
        Self {
            cost: [0.0; SIZES.len()],
            cost_tcp: None,
            trials: (f64::INFINITY, 0.0),
            sent: 0,
            delivered: 0,
            answered: 0,
            wrong: 0,
            round_trips_us: Vec::new(),
        }
    }

    fn take(&mut self, exchanges: &Exchanges, target: SocketAddr, with_times: bool) {
        self.sent += exchanges.sent_count();
        self.answered += exchanges.answered_count();
        self.wrong += exchanges.not_from(target);
        if with_times {
            self.round_trips_us.extend(exchanges.round_trips_us());
        }
    }

    /// The row of the table; the host's cost is what this case adds to `direct`.
    pub fn metrics(&self, direct: Option<&Figures>) -> BTreeMap<String, f64> {
        let mut metrics: BTreeMap<String, f64> = [
            ("instructions_per_packet", self.cost[0]),
            ("sent", self.sent as f64),
            ("delivered", self.delivered as f64),
            ("answered", self.answered as f64),
            ("wrong_reply_address", self.wrong as f64),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        if let Ok(sample) = Sample::new(self.round_trips_us.iter().copied()) {
            metrics.insert("rtt_p50_us".into(), sample.percentile(50.0));
            metrics.insert("rtt_p99_us".into(), sample.percentile(99.0));
            metrics.insert("rtt_max_us".into(), sample.percentile(100.0));
        }
        if let Some(direct) = direct {
            metrics.insert("host_instructions_per_packet".into(), self.cost[0] - direct.cost[0]);
            metrics.insert("host_512".into(), self.cost[1] - direct.cost[1]);
            metrics.insert("host_1400".into(), self.cost[2] - direct.cost[2]);
            if let (Some(cost), Some(floor)) = (self.cost_tcp, direct.cost_tcp) {
                metrics.insert("host_tcp".into(), cost - floor);
            }
        }
        metrics
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
        let (least, most) = self.trials;
        Check {
            name: format!("{case}: every packet delivered and answered from the right address, trials alike"),
            passed: self.is_complete() && most <= least * (1.0 + TRIALS_DIFFER),
            detail: format!("{}; trials {least:.0} to {most:.0} instructions", self.summary()),
        }
    }
}
