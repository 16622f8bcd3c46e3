//! The situations: what runs on the server, and what clients do.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Healthy, Situation};
use crate::proof::real::scene::{Begun, DIRECTORY, Scene};
use crate::proof::real::servers::{self, APPLICATION};
use crate::proof::service::{Service, Work};
use tarn_lab::experiment::{Metrics, metrics};
use tarn_lab::load::{Arrivals, Exchange, Exchanges, Flow, HttpRequests, Law, UdpRequests};
use tarn_lab::topology::join;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 100));
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a page takes the application, where it is to take long.
const LONG: Duration = Duration::from_millis(300);
/// Requests in one connection.
const TOGETHER: usize = 40;

/// What clients saw, and what runs still.
pub struct Seen<'a> {
    pub begun: Begun<'a>,
    pub metrics: Metrics,
}

impl Situation {
    /// Runs it. `begin` brings tarn up where it is to be, once the services are there; the load begins at once then.
    ///
    /// # Errors
    /// A program that is not there, or fails.
    pub fn run<'a>(
        self,
        scene: &'a Scene,
        begin: impl FnOnce(&mut Begun<'a>) -> Result<()>,
        seed: u64,
    ) -> Result<Seen<'a>> {
        let mut begun = scene.nothing();
        let metrics = match self {
            Self::Healthy(healthy) => healthy.run(scene, || begin(&mut begun), seed)?,
            Self::Slows => slows(scene, || begin(&mut begun), seed)?,
            Self::Stuck => stuck(scene, || begin(&mut begun))?,
            Self::Pipelined => {
                let _service = Service::http(scene.server()?, at(80), Work::Sleep(Duration::from_millis(1)))?;
                begin(&mut begun)?;
                metrics([("slowest_ms", pipelined(scene)?)])
            }
            Self::IdleTls | Self::Streams | Self::Interim => {
                let time = if self == Self::Streams {
                    Duration::from_millis(1)
                } else {
                    LONG
                };
                let _application = Service::http(scene.server()?, APPLICATION.parse()?, Work::Sleep(time))?;
                servers::nginx(&mut begun, false, "")?;
                begin(&mut begun)?;
                let slowest = match self {
                    Self::IdleTls => idle_tls(scene)?,
                    Self::Streams => streams(scene)?,
                    _ => interim(scene)?,
                };
                metrics([("slowest_ms", slowest)])
            }
        };
        Ok(Seen { begun, metrics })
    }
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER, port)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// How long requests take, in ms, from the lowest.
fn latencies<'a>(exchanges: impl Iterator<Item = &'a Exchange>) -> Vec<f64> {
    let mut all: Vec<f64> = exchanges
        .filter_map(|exchange| Some(exchange.latency_ns()? as f64 / 1e6))
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Requests over UDP from the first class's client.
fn ask(scene: &Scene, count: u32, law: Law) -> Result<Exchanges> {
    let requests = UdpRequests {
        arrivals: Arrivals::Open(law),
        timeout: PATIENCE,
        ..UdpRequests::new(Flow::to(at(80)), count)
    };
    scene.clients(0)?.enter(|| requests.run())
}

fn shared(time: Duration) -> Arc<AtomicU64> {
    Arc::new(AtomicU64::new(time.as_nanos() as u64))
}

impl Healthy {
    /// How long it is measured, from when tarn is up, and how many requests are enough.
    const LENGTH: Duration = Duration::from_secs(8);
    const ENOUGH: f64 = 2_000.0;

    fn run(self, scene: &Scene, begin: impl FnOnce() -> Result<()>, seed: u64) -> Result<Metrics> {
        let _service = Service::sleepers(scene.server()?, at(80), self.workers, &shared(self.time))?;
        begin()?;
        let mean = self.time.mul_f64(100.0 / f64::from(self.percent) / self.workers as f64);
        let count = (Self::LENGTH.max(4 * self.time).as_secs_f64() / mean.as_secs_f64()).min(Self::ENOUGH);
        let answers = ask(scene, count as u32, Law::Poisson { mean, seed })?;
        let took = latencies(answers.list().iter());
        let p99 = took.get((took.len() * 99).div_ceil(100).saturating_sub(1));
        Ok(metrics([
            (
                "answered_share",
                100.0 * took.len() as f64 / answers.sent_count().max(1) as f64,
            ),
            ("p99_ms", p99.copied().unwrap_or_default()),
        ]))
    }
}

/// A service that takes twice as long all of a sudden.
fn slows(scene: &Scene, begin: impl FnOnce() -> Result<()>, seed: u64) -> Result<Metrics> {
    const WORKERS: usize = 16;
    const BEFORE: Duration = Duration::from_secs(12);
    const AFTER: Duration = Duration::from_secs(30);
    /// How long tarn may take to notice.
    const NOTICES: Duration = Duration::from_secs(5);
    let fast = Duration::from_millis(200);
    let time = shared(fast);
    let _service = Service::sleepers(scene.server()?, at(80), WORKERS, &time)?;
    begin()?;
    let mean = 2 * fast / WORKERS as u32;
    let count = (BEFORE + AFTER).as_nanos() / mean.as_nanos();
    let answers = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(scene, count as u32, Law::Poisson { mean, seed }));
        std::thread::sleep(BEFORE);
        time.store((2 * fast).as_nanos() as u64, Ordering::Relaxed);
        join(asking.join())
    })?;
    let begin = answers.list().first().context("nothing was asked")?.due_ns;
    let [from, to] = [BEFORE + NOTICES, BEFORE + AFTER].map(|time| begin + time.as_nanos() as u64);
    let received = answers.list().iter().filter_map(|exchange| exchange.answer);
    let within = received
        .filter(|answer| (from..to).contains(&answer.received_ns))
        .count();
    Ok(metrics([(
        "throughput_per_s",
        within as f64 * 1e9 / (to - from) as f64,
    )]))
}

/// A name server that answers nothing, and a web server.
fn stuck(scene: &Scene, begin: impl FnOnce() -> Result<()>) -> Result<Metrics> {
    const QUERIES: u32 = 100;
    const PAGES: u32 = 60;
    let _names = scene.server()?.enter(|| Ok(UdpSocket::bind(at(53))?))?;
    let _pages = Service::http(scene.server()?, at(80), Work::Sleep(Duration::from_millis(20)))?;
    begin()?;
    let clients = scene.clients(0)?;
    // A question for the address of the root, of an identifier each (RFC 1035, section 4.1).
    let asking = clients.enter(|| Ok(UdpSocket::bind("0.0.0.0:0")?))?;
    for number in 0..QUERIES as u16 {
        let [high, low] = number.to_be_bytes();
        asking.send_to(&[high, low, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1], at(53))?;
    }
    let pages = HttpRequests {
        arrivals: Arrivals::Open(Law::Every(Duration::from_millis(100))),
        timeout: PATIENCE,
        ..HttpRequests::new(Flow::to(at(80)), PAGES)
    };
    let answers = clients.enter(|| pages.run())?;
    let took = latencies(answers.list().iter());
    Ok(metrics([
        ("answered_share", 100.0 * took.len() as f64 / f64::from(PAGES)),
        ("slowest_ms", took.last().copied().unwrap_or_default()),
    ]))
}

/// The slowest of five pages, in ms.
fn idle_tls(scene: &Scene) -> Result<f64> {
    let file = format!("{DIRECTORY}/ab");
    let mut command = scene.clients(0)?.command("ab");
    command.args(["-q", "-n", "5", "-c", "1", "-g", &file, &format!("https://{SERVER}/")]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().context("cannot start ab")?;
    ensure!(status.success(), "ab failed");
    let printed = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    // The fifth field: the time in total, in ms.
    let totals = printed
        .lines()
        .skip(1)
        .filter_map(|line| line.split('\t').nth(4)?.parse().ok());
    totals.reduce(f64::max).with_context(|| format!("ab wrote:\n{printed}"))
}

/// How long all streams of a connection take, in ms.
fn streams(scene: &Scene) -> Result<f64> {
    let (count, began) = (TOGETHER.to_string(), Instant::now());
    let url = format!("https://{SERVER}/");
    let said = scene
        .clients(0)?
        .run("h2load", &["-n", &count, "-c", "1", "-m", &count, &url])?;
    ensure!(said.contains(&format!("{TOGETHER} succeeded")), "h2load: {said}");
    Ok(milliseconds(began.elapsed()))
}

fn connected(scene: &Scene) -> Result<TcpStream> {
    let stream = scene.clients(0)?.enter(|| Ok(TcpStream::connect(at(80))?))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// How long all requests of one packet take, in ms.
fn pipelined(scene: &Scene) -> Result<f64> {
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: calm\r\n\r\n";
    const END: &[u8] = b"served";
    let (mut stream, began) = (connected(scene)?, Instant::now());
    stream.write_all(REQUEST.repeat(TOGETHER).as_bytes())?;
    let (mut answers, mut buffer) = (Vec::new(), [0; 4096]);
    while answers.windows(END.len()).filter(|bytes| *bytes == END).count() < TOGETHER {
        let length = stream.read(&mut buffer)?;
        ensure!(length > 0, "the service hung up");
        answers.extend_from_slice(&buffer[..length]);
    }
    Ok(milliseconds(began.elapsed()))
}

/// How long the answer to a request takes that waits for an interim answer before it sends its body, in ms.
fn interim(scene: &Scene) -> Result<f64> {
    const HEAD: &str = "POST / HTTP/1.1\r\nHost: calm\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    let (mut stream, began) = (connected(scene)?, Instant::now());
    stream.write_all(HEAD.as_bytes())?;
    let mut buffer = [0; 4096];
    let length = stream.read(&mut buffer)?;
    let interim = String::from_utf8_lossy(&buffer[..length]).into_owned();
    ensure!(interim.starts_with("HTTP/1.1 100"), "no interim answer: {interim:?}");
    stream.write_all(b"body")?;
    let length = stream.read(&mut buffer)?;
    let answer = String::from_utf8_lossy(&buffer[..length]).into_owned();
    ensure!(answer.starts_with("HTTP/1.1 200"), "no answer: {answer:?}");
    Ok(milliseconds(began.elapsed()))
}
