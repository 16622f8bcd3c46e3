//! Load generators, probes and their servers, with the time of every packet.
//!
//! | what | generator | server |
//! |---|---|---|
//! | request and response, UDP | [`UdpRequests`] | [`UdpEcho`] |
//! | request and response, TCP | [`TcpRequests`] | [`TcpAnswerer`] |
//! | request and response, HTTP | [`HttpRequests`] | a server |
//! | bulk, TCP | [`TcpBulk`] | [`TcpSink`] |
//! | ping | [`Ping`] | the kernel |
//! | frames byte by byte, fragments of datagrams | [`FrameSender`] | [`Datagrams`] |
//!
//! Generators run on the calling thread and its network namespace (`namespace.enter(|| requests.run())`); servers start
//! threads of their own inside a given namespace and end when dropped. Times are CLOCK_MONOTONIC in nanoseconds, read
//! right before the send call and right after the receive call, so a round trip is what a program would see of it.
//! Nothing is random but what comes from a seed.

use std::net::SocketAddr;

pub use self::bulk::{SinkReport, TcpBulk, TcpSink};
pub use self::engine::{Arrivals, Law};
pub use self::exchange::{Answer, Exchange, Exchanges};
pub use self::frames::{Datagrams, Fragment, FrameSender, Wire, fragments, udp};
pub use self::http::HttpRequests;
pub use self::ping::Ping;
pub use self::server::Server;
pub use self::syn::syn;
pub use self::tcp::{TcpAnswerer, TcpRequests};
pub use self::tcp_info::TcpInfo;
pub use self::udp::{UdpEcho, UdpRequests};

mod bulk;
mod engine;
mod exchange;
mod frames;
mod http;
mod ping;
mod server;
mod socket;
mod syn;
mod tcp;
mod tcp_info;
mod udp;

/// Where a generator's packets go, and where from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The address and port spoken to.
    pub target: SocketAddr,
    /// The address and port spoken from; port 0 lets the kernel choose. Of several connections each takes the next
    /// port.
    pub source: Option<SocketAddr>,
}

impl Flow {
    /// To this address and port, from wherever the kernel chooses.
    pub fn to(target: SocketAddr) -> Self {
        Self { target, source: None }
    }

    /// From this address and port.
    pub fn from(mut self, source: SocketAddr) -> Self {
        self.source = Some(source);
        self
    }
}

#[cfg(test)]
mod tests;
