//! What a request and its answer cost, over UDP and over TCP: the load of a case, and its figures.
//!
//! A closed loop: the next request is sent when the last one is answered, so that nothing waits and no CPU sleeps.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::busy::{Busy, Meter};
use super::experiment::{Check, Metric, Metrics, Size, metrics};
use super::load::{Exchanges, Flow, TcpAnswerer, TcpRequests, UdpEcho, UdpRequests};
use super::topology::Namespace;

/// Instructions a UDP request and its answer.
pub const UDP: &str = "instructions_per_packet";
/// Instructions a TCP request and its answer.
pub const TCP: &str = "tcp_instructions_per_packet";
/// What UDP's are more than in the case that all are held against.
pub const UDP_ADDED: &str = "added_instructions";
/// The same of TCP's.
pub const TCP_ADDED: &str = "tcp_added_instructions";
/// The same in percent.
pub const UDP_OVERHEAD: &str = "overhead_percent";
/// The same of TCP's.
pub const TCP_OVERHEAD: &str = "tcp_overhead_percent";

/// The table's columns.
pub const METRICS: [Metric; 6] = [
    Metric::less(UDP, "UDP, 64 B", "instructions", 0),
    Metric::less(UDP_ADDED, "added", "instructions", 0),
    Metric::less(UDP_OVERHEAD, "added", "%", 2),
    Metric::less(TCP, "TCP, 64 B", "instructions", 0),
    Metric::less(TCP_ADDED, "added", "instructions", 0),
    Metric::less(TCP_OVERHEAD, "added", "%", 2),
];

/// How often each load is put on a case.
pub const TRIALS: usize = 5;
/// Requests of one protocol in one trial.
const REQUESTS: u32 = 300;
/// The same in full size.
const REQUESTS_FULL: u32 = 10_000;
/// Requests before the first trial, so that routes, slabs and caches are as they will stay.
const WARM_UP: u32 = 200;
/// The trials in the middle differ by the timer ticks that fall into them, and by what the kernel still does about what was set up
/// before (a million elements, say).
const TRIALS_DIFFER: f64 = 0.08;
/// How long the kernel may go on with what was begun before the first trial.
const SETTLING: Duration = Duration::from_secs(60);

/// The trials of one load.
#[derive(Default)]
pub struct Trials {
    /// Requests sent in all.
    pub sent: u64,
    /// Requests answered in all.
    pub answered: u64,
    /// Instructions a request of each trial.
    costs: Vec<f64>,
}

/// What a case came to.
#[derive(Default)]
pub struct ExchangeCost {
    udp: Trials,
    tcp: Trials,
    /// Those before the first trial.
    before: u64,
}

/// Who speaks to whom.
pub struct Ends<'a> {
    /// Where requests come from.
    pub client: &'a Namespace,
    /// The address and port that UDP requests come from.
    pub from: SocketAddr,
    /// Where they are answered.
    pub server: &'a Namespace,
    /// The address and port spoken to.
    pub to: SocketAddr,
}

/// Puts the load on a case.
///
/// # Errors
/// When a socket cannot be made or used.
pub fn run(ends: &Ends<'_>, meter: &Meter, size: Size) -> Result<ExchangeCost> {
    let count = if size == Size::Full { REQUESTS_FULL } else { REQUESTS };
    let requests = tcp_requests(ends, count);
    let _echo = UdpEcho::start(ends.server, ends.to)?;
    let _answerer = TcpAnswerer::start(ends.server, ends.to, requests.request, requests.answer)?;
    let mut figures = ExchangeCost::default();
    ends.client.enter(|| {
        for exchanges in [udp_requests(ends, WARM_UP).run()?, tcp_requests(ends, WARM_UP).run()?] {
            figures.before += exchanges.sent_count();
        }
        // What setting up has left to free, of the case before too, is not this one's cost.
        meter.settle(SETTLING)?;
        for _ in 0..TRIALS {
            let (exchanges, busy) = meter.measure(|| udp_requests(ends, count).run())?;
            figures.udp.take(&exchanges, busy);
            let (exchanges, busy) = meter.measure(|| tcp_requests(ends, count).run())?;
            figures.tcp.take(&exchanges, busy);
        }
        Ok(())
    })?;
    Ok(figures)
}

fn udp_requests(ends: &Ends<'_>, count: u32) -> UdpRequests {
    UdpRequests::new(Flow::to(ends.to).from(ends.from), count)
}

/// One connection; the source port is the kernel's choice, because the last one is still waiting for stray packets.
fn tcp_requests(ends: &Ends<'_>, count: u32) -> TcpRequests {
    TcpRequests::new(Flow::to(ends.to), count)
}

impl Trials {
    /// Takes in one trial.
    pub fn take(&mut self, exchanges: &Exchanges, busy: Busy) {
        self.sent += exchanges.sent_count();
        self.answered += exchanges.answered_count();
        self.costs.push(busy.per(exchanges.answered_count()));
    }

    /// The trials from the cheapest to the dearest, in instructions a request.
    pub fn sorted(&self) -> Vec<f64> {
        let mut costs = self.costs.clone();
        costs.sort_by(f64::total_cmp);
        costs
    }

    /// The trial in the middle, in instructions a request: in others the kernel may have done something by itself.
    pub fn cost(&self) -> f64 {
        let costs = self.sorted();
        costs.get(costs.len() / 2).copied().unwrap_or_default()
    }

    /// The second cheapest trial and the second dearest.
    fn range(&self) -> (f64, f64) {
        let costs = self.sorted();
        let at = |index: usize| costs.get(index).copied().unwrap_or_default();
        (at(1), at(TRIALS - 2))
    }

    fn is_good(&self) -> bool {
        let (least, most) = self.range();
        self.sent == self.answered && most <= least * (1.0 + TRIALS_DIFFER)
    }
}

impl ExchangeCost {
    /// Requests sent in all.
    pub fn requests(&self) -> u64 {
        self.before + self.udp.sent + self.tcp.sent
    }

    /// The row of the table, compared with `floor`.
    pub fn metrics(&self, floor: Option<&ExchangeCost>) -> Metrics {
        let (udp, tcp) = (self.udp.cost(), self.tcp.cost());
        let mut row = metrics([(UDP, udp), (TCP, tcp)]);
        if let Some(floor) = floor {
            let (floor_udp, floor_tcp) = (floor.udp.cost(), floor.tcp.cost());
            row.extend(metrics([
                (UDP_ADDED, udp - floor_udp),
                (TCP_ADDED, tcp - floor_tcp),
                (UDP_OVERHEAD, (udp / floor_udp - 1.0) * 100.0),
                (TCP_OVERHEAD, (tcp / floor_tcp - 1.0) * 100.0),
            ]));
        }
        row
    }

    /// Every request was answered, and the trials in the middle agree.
    pub fn check(&self, case: &str) -> Check {
        let told = |name: &str, trials: &Trials| {
            let (least, most) = trials.range();
            format!(
                "{name}: {} sent, {} answered, the middle trials {least:.0} to {most:.0} instructions",
                trials.sent, trials.answered
            )
        };
        Check {
            name: format!("{case}: every request answered, the three trials in the middle alike"),
            passed: self.udp.is_good() && self.tcp.is_good(),
            detail: format!("{}; {}", told("UDP", &self.udp), told("TCP", &self.tcp)),
        }
    }
}
