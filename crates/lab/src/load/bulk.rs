//! TCP bulk transfer: how fast.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

use super::server::{Server, accept_all};
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
}

impl TcpBulk {
    /// Sends from the calling thread's namespace. Returns the bytes that the kernel took; what the receiver got is for
    /// [`TcpSink`] to say.
    ///
    /// # Errors
    /// When the connection cannot be made, or breaks.
    pub fn run(&self) -> Result<u64> {
        let mut stream = socket::tcp_client(&self.flow, 0)?;
        let end_ns = monotonic_ns() + self.duration.as_nanos() as u64;
        let bytes = write_until(&mut stream, end_ns)
            .with_context(|| format!("TCP bulk transfer to {}: cannot send", self.flow.target))?;
        // What is still queued would arrive after the time; the sink counts up to the end of the stream.
        let _ = stream.shutdown(Shutdown::Write);
        Ok(bytes)
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
