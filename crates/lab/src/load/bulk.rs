//! TCP bulk transfer: how fast.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};

use super::server::{Server, accept_all};
use super::tcp_info::TcpInfo;
use super::{Flow, socket};
use crate::busy::monotonic_ns;
use crate::topology::Namespace;

/// Bytes a write or read moves at most.
const CHUNK: usize = 256 << 10;

/// A sender of as much as a connection takes.
#[derive(Debug, Clone)]
pub struct TcpBulk {
    /// Between which addresses.
    pub flow: Flow,
    /// How long it sends.
    pub duration: Duration,
    /// The congestion control by name; the namespace's default when `None`.
    pub congestion: Option<String>,
}

impl TcpBulk {
    /// Sends from the calling thread's namespace. Returns the bytes that the kernel took; what the receiver got is for
    /// [`TcpSink`] to say.
    ///
    /// # Errors
    /// When the connection cannot be made, or breaks.
    pub fn run(&self) -> Result<u64> {
        let mut stream = self.connect()?;
        let end_ns = monotonic_ns() + self.duration.as_nanos() as u64;
        let bytes = self.send(&mut stream, end_ns)?;
        // What is still queued would arrive after the time; the sink counts up to the end of the stream.
        let _ = stream.shutdown(Shutdown::Write);
        Ok(bytes)
    }

    /// Sends like [`TcpBulk::run`], but up to the last of these times (CLOCK_MONOTONIC, ns, ascending), and returns what the kernel
    /// knew of the connection at each. What is queued at the last is thrown away.
    ///
    /// # Errors
    /// Those of [`TcpBulk::run`].
    pub fn watch(&self, times_ns: &[u64]) -> Result<Vec<TcpInfo>> {
        let mut stream = self.connect()?;
        let info = |time_ns: &u64| {
            self.send(&mut stream, *time_ns)?;
            thread::sleep(Duration::from_nanos(time_ns.saturating_sub(monotonic_ns())));
            TcpInfo::of(&stream)
        };
        let infos = times_ns.iter().map(info).collect::<Result<_>>()?;
        // Otherwise the kernel would keep it, and try to send it, long after its network has gone: the memory of some such connections
        // is what TCP may have in all, and those that come then are held short.
        let at_once = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        setsockopt(&stream, sockopt::Linger, &at_once).context("cannot have a connection reset")?;
        Ok(infos)
    }

    fn connect(&self) -> Result<TcpStream> {
        socket::prepared_tcp_client(&self.flow, 0, |socket| {
            let Some(name) = &self.congestion else { return Ok(()) };
            setsockopt(socket, sockopt::TcpCongestion, &name.into())
                .with_context(|| format!("cannot choose the congestion control {name:?}"))
        })
    }

    fn send(&self, stream: &mut TcpStream, end_ns: u64) -> Result<u64> {
        write_until(stream, end_ns).with_context(|| format!("TCP bulk transfer to {}: cannot send", self.flow.target))
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

/// A server that takes all it is sent and reports it for each connection, in the order they were made.
pub type TcpSink = Server<TcpListener, Vec<SinkReport>>;

/// What a connection's receiver got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkReport {
    /// Bytes that came.
    pub bytes: u64,
    /// From accepting the connection to the last of them.
    pub duration: Duration,
}

impl TcpSink {
    /// Starts it in the namespace.
    pub fn start(namespace: &Namespace, address: SocketAddr) -> Result<Self> {
        let open = || socket::tcp_server(address);
        Self::serving(namespace, "tcp-sink", open, |listener| {
            accept_all(listener, "tcp-sink", |stream| Ok(take(stream)))
        })
    }
}

fn take(mut stream: TcpStream) -> SinkReport {
    let start_ns = monotonic_ns();
    let mut report = SinkReport {
        bytes: 0,
        duration: Duration::ZERO,
    };
    let mut buffer = vec![0; CHUNK];
    // An error or an end is the sender's, or ours.
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        report.bytes += length as u64;
        report.duration = Duration::from_nanos(monotonic_ns() - start_ns);
    }
    report
}
