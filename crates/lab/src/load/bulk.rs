//! TCP bulk transfer: how fast, how steadily, at what cost in retransmissions and queueing.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};

use super::tcp::{accept_all, stop_listening};
use super::tcp_info::TcpInfo;
use super::{Flow, socket};
use crate::busy::monotonic_ns;
use crate::topology::{Namespace, join};

/// Bytes a write or read moves at most.
const CHUNK: usize = 256 << 10;

/// A sender of as much as the connections take.
#[derive(Debug, Clone)]
pub struct TcpBulk {
    /// Between which addresses. With several connections each takes the next source port.
    pub flow: Flow,
    /// Number of connections.
    pub connections: u16,
    /// How long each sends.
    pub duration: Duration,
    /// Each connection starts so much after the one before.
    pub stagger: Duration,
    /// The congestion control by name; the namespace's default when `None`.
    pub congestion: Option<String>,
    /// How often TCP_INFO is read of every connection; never when zero.
    pub interval: Duration,
}

/// TCP_INFO of a connection at a time.
#[derive(Debug, Clone, Copy)]
pub struct BulkSample {
    /// When it was read (CLOCK_MONOTONIC, ns).
    pub time_ns: u64,
    /// What the kernel said.
    pub info: TcpInfo,
}

/// What a connection's sender saw.
#[derive(Debug, Clone)]
pub struct BulkReport {
    /// When sending began (CLOCK_MONOTONIC, ns), after the handshake.
    pub start_ns: u64,
    /// When the last write returned.
    pub end_ns: u64,
    /// Bytes that the kernel took; what the receiver got is for [`SinkReport`] to say.
    pub bytes: u64,
    /// TCP_INFO at the end of sending.
    pub last: TcpInfo,
    /// TCP_INFO at every interval.
    pub samples: Vec<BulkSample>,
}

impl TcpBulk {
    /// One connection that sends for ten seconds, looked at every 100 ms.
    pub fn new(flow: Flow) -> Self {
        Self {
            flow,
            connections: 1,
            duration: Duration::from_secs(10),
            stagger: Duration::ZERO,
            congestion: None,
            interval: Duration::from_millis(100),
        }
    }

    /// Sends from the calling thread's namespace; one report a connection, in the order of their source ports.
    ///
    /// # Errors
    /// When a connection cannot be made, breaks, or the congestion control is not there.
    pub fn run(&self) -> Result<Vec<BulkReport>> {
        thread::scope(|scope| {
            let senders: Vec<_> = (0..self.connections)
                .map(|index| {
                    let builder = thread::Builder::new().name(format!("tcp-bulk-{index}"));
                    builder
                        .spawn_scoped(scope, move || self.send(index))
                        .context("cannot start a thread")
                })
                .collect::<Result<_>>()?;
            senders.into_iter().map(|sender| join(sender.join())).collect()
        })
    }

    fn send(&self, index: u16) -> Result<BulkReport> {
        thread::sleep(self.stagger * index.into());
        let mut stream = socket::tcp_client(&self.flow, index, |socket| self.choose_congestion(socket))?;
        let start_ns = monotonic_ns();
        let end_ns = start_ns + self.duration.as_nanos() as u64;
        thread::scope(|scope| -> Result<BulkReport> {
            let sampled = stream.try_clone().context("cannot use a connection twice")?;
            let sampler = scope.spawn(move || self.sample(&sampled, end_ns));
            let bytes = write_until(&mut stream, end_ns).context("cannot send")?;
            let (end_ns, last) = (monotonic_ns(), TcpInfo::of(&stream)?);
            // What is still queued would arrive after the time; the sink counts up to the end of the stream.
            let _ = stream.shutdown(Shutdown::Write);
            let samples = join(sampler.join())?;
            Ok(BulkReport {
                start_ns,
                end_ns,
                bytes,
                last,
                samples,
            })
        })
        .with_context(|| format!("TCP bulk transfer to {}", self.flow.target))
    }

    fn choose_congestion(&self, socket: &impl AsFd) -> Result<()> {
        let Some(name) = &self.congestion else { return Ok(()) };
        setsockopt(socket, sockopt::TcpCongestion, &name.into())
            .with_context(|| format!("the kernel has no congestion control {name:?}: is its module in the image?"))
    }

    fn sample(&self, stream: &TcpStream, end_ns: u64) -> Result<Vec<BulkSample>> {
        socket::exact_timers()?;
        let mut samples = Vec::new();
        let start_ns = monotonic_ns();
        let gap = self.interval.as_nanos() as u64;
        for number in 1.. {
            let due = start_ns + gap * number;
            if gap == 0 || due > end_ns {
                break;
            }
            thread::sleep(Duration::from_nanos(due.saturating_sub(monotonic_ns())));
            samples.push(BulkSample {
                time_ns: monotonic_ns(),
                info: TcpInfo::of(stream)?,
            });
        }
        Ok(samples)
    }
}

/// Writes until the time is over; a path that takes nothing any more does not hold it up.
fn write_until(stream: &mut TcpStream, end_ns: u64) -> io::Result<u64> {
    let data = vec![0x5a; CHUNK];
    let mut bytes = 0;
    loop {
        let now = monotonic_ns();
        if now >= end_ns {
            return Ok(bytes);
        }
        // At least a microsecond: 0 would mean no limit.
        stream.set_write_timeout(Some(Duration::from_nanos((end_ns - now).max(1_000))))?;
        match stream.write(&data) {
            Ok(length) => bytes += length as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(bytes),
            Err(error) => return Err(error),
        }
    }
}

/// A server that takes all it is sent and counts it.
pub struct TcpSink {
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<Result<Vec<SinkReport>>>>,
}

/// What a connection's receiver got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkReport {
    /// Who sent it.
    pub from: SocketAddr,
    /// When the connection was accepted (CLOCK_MONOTONIC, ns).
    pub start_ns: u64,
    /// When the last byte came; the start when none did.
    pub end_ns: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Bytes that came in each interval since the start.
    pub per_interval: Vec<u64>,
    /// The length of an interval.
    pub interval: Duration,
}

impl SinkReport {
    /// Bits a second between two times after the start, from whole intervals.
    pub fn goodput_between(&self, from: Duration, to: Duration) -> f64 {
        let index = |time: Duration| (time.as_nanos() / self.interval.as_nanos().max(1)) as usize;
        let (from, to) = (index(from), index(to));
        let bytes: u64 = self.per_interval.iter().take(to).skip(from).sum();
        let seconds = self.interval.as_secs_f64() * to.saturating_sub(from) as f64;
        if seconds > 0.0 {
            bytes as f64 * 8.0 / seconds
        } else {
            0.0
        }
    }
}

impl TcpSink {
    /// Starts it in the namespace; bytes are counted per interval (at least a microsecond).
    pub fn start(namespace: &Namespace, address: SocketAddr, interval: Duration) -> Result<Self> {
        let listener = Arc::new(namespace.enter(|| socket::tcp_server(address))?);
        let interval = interval.max(Duration::from_micros(1));
        let thread = {
            let listener = listener.clone();
            namespace.spawn("tcp-sink", move || {
                accept_all(&listener, "tcp-sink", |stream| take(stream, interval))?
                    .into_iter()
                    .collect()
            })?
        };
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }

    /// Ends it with all its connections; one report each, in the order they were made.
    pub fn stop(mut self) -> Result<Vec<SinkReport>> {
        self.end().unwrap_or(Ok(Vec::new()))
    }

    fn end(&mut self) -> Option<Result<Vec<SinkReport>>> {
        stop_listening(&self.listener);
        self.thread.take().map(|thread| join(thread.join()))
    }
}

impl Drop for TcpSink {
    fn drop(&mut self) {
        self.end();
    }
}

fn take(mut stream: TcpStream, interval: Duration) -> Result<SinkReport> {
    let from = stream.peer_addr().context("a connection has no peer")?;
    let start_ns = monotonic_ns();
    let mut report = SinkReport {
        from,
        start_ns,
        end_ns: start_ns,
        bytes: 0,
        per_interval: Vec::new(),
        interval,
    };
    let mut buffer = vec![0; CHUNK];
    // An error or an end is the sender's, or ours.
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        report.end_ns = monotonic_ns();
        report.bytes += length as u64;
        let index = ((report.end_ns - start_ns) / interval.as_nanos() as u64) as usize;
        if report.per_interval.len() <= index {
            report.per_interval.resize(index + 1, 0);
        }
        report.per_interval[index] += length as u64;
    }
    Ok(report)
}
