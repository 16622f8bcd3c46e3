//! Five clients, one a class, that ask at once.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, setrlimit};

use super::scene::{SERVICE, Scene, TARGETS};
use tarn_lab::load::{Arrivals, Exchanges, Flow, HttpRequests, Law, UdpRequests};
use tarn_lab::topology::join;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Open files: an overloaded service has a connection for each request that waits.
const FILES: u64 = 1 << 16;
/// Requests of each class that the capacity is measured with.
const CAPACITY_REQUESTS: u32 = 40;

/// What the clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 over TCP.
    Http,
    /// Datagrams.
    Udp,
}

/// Lets this process have very many connections.
pub fn allow_many_connections() -> Result<()> {
    setrlimit(Resource::RLIMIT_NOFILE, FILES, FILES).context("cannot raise the limit of open files")
}

/// Runs a generator a class at a time with the others.
pub fn together<T: Send>(scene: &Scene, generate: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let clients = scene.clients()?;
    let generate = &generate;
    std::thread::scope(|scope| {
        let start = |class| scope.spawn(move || clients.enter(|| generate(class)));
        let threads: Vec<_> = (0..TARGETS.len()).map(start).collect();
        threads.into_iter().map(|thread| join(thread.join())).collect()
    })
}

fn ask(protocol: Protocol, class: usize, count: u32, arrivals: Arrivals) -> Result<Exchanges> {
    let flow = Flow::to(SERVICE.parse()?).from(Scene::client(class)?);
    match protocol {
        Protocol::Http => HttpRequests {
            arrivals,
            timeout: PATIENCE,
            ..HttpRequests::new(flow, count)
        }
        .run(),
        Protocol::Udp => UdpRequests {
            arrivals,
            timeout: PATIENCE,
            ..UdpRequests::new(flow, count)
        }
        .run(),
    }
}

/// What the service can do: the mean time between two answers when it always has something to do.
pub fn service_time(scene: &Scene, protocol: Protocol) -> Result<Duration> {
    let closed = |class| ask(protocol, class, CAPACITY_REQUESTS, Arrivals::WhenAnswered);
    let answers = together(scene, closed)?;
    let received = answers
        .iter()
        .flat_map(Exchanges::list)
        .filter_map(|exchange| Some(exchange.answer?.received_ns));
    let (first, last, count) = received.fold((u64::MAX, 0, 0), |(first, last, count), time| {
        (time.min(first), time.max(last), count + 1)
    });
    Ok(Duration::from_nanos(
        last.saturating_sub(first) / u64::max(count - 1, 1),
    ))
}

/// An open loop: equal loads of all classes, in all `percent` of what the service can do, for as long as it takes to serve
/// `warm_up` and then `served` requests a class.
pub struct Offer {
    /// What the clients speak.
    pub protocol: Protocol,
    /// The service's mean time for one request.
    pub service_time: Duration,
    /// Of its capacity.
    pub percent: u32,
    /// Requests a class that could be served before anything is measured,
    pub warm_up: u32,
    /// and meanwhile.
    pub served: u32,
    /// Of the arrivals.
    pub seed: u64,
}

impl Offer {
    /// How long requests come that are measured.
    pub fn duration(&self) -> Duration {
        self.lasts(self.served)
    }

    /// How long requests come before that.
    pub fn warm_up(&self) -> Duration {
        self.lasts(self.warm_up)
    }

    fn lasts(&self, served: u32) -> Duration {
        self.service_time * TARGETS.len() as u32 * served
    }

    /// Makes the load, and returns what came of each class's requests.
    ///
    /// # Errors
    /// Those of the generators.
    pub fn run(&self, scene: &Scene) -> Result<Vec<Exchanges>> {
        let count = (self.warm_up + self.served) * self.percent / 100;
        let end = (self.warm_up() + self.duration()).as_nanos() as f64;
        together(scene, |class| {
            let seed = self.seed.wrapping_mul(16).wrapping_add(class as u64);
            let law = |mean| Law::Poisson { mean, seed };
            // The load is what it is called: in that time come so many requests, no more and no fewer.
            let unscaled = Duration::from_millis(1);
            let last = law(unscaled).schedule(count).last().copied().unwrap_or(1);
            let law = law(unscaled.mul_f64(end / last.max(1) as f64));
            ask(self.protocol, class, count, Arrivals::Open(law))
        })
    }
}
