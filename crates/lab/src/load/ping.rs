//! ICMP echo: ping.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{MsgFlags, SockaddrStorage, bind, recvfrom, sendto, setsockopt, sockopt};
use nix::sys::time::TimeVal;

use super::engine::{self, Arrivals, Law, Probe, Received};
use super::exchange::Exchanges;
use super::socket::{enlarge_buffers, socket_address};
use super::udp::pattern;
use tarn_kernel::icmp;

/// Bytes behind the header, as ping's -s: 64 with the header.
const SIZE: usize = 56;
/// The identifier in the packets. In one namespace, each of two series at a time would take the other's answers for its own.
const IDENTIFIER: u16 = 1;

/// A series of pings.
#[derive(Debug, Clone)]
pub struct Ping {
    /// Who is asked.
    pub target: IpAddr,
    /// The address asked from; the kernel chooses when `None`.
    pub source: Option<IpAddr>,
    /// Number of requests, at most 65,536: the sequence number has 16 bits.
    pub count: u32,
    /// When they are sent.
    pub arrivals: Arrivals,
    /// How long an answer is waited for.
    pub timeout: Duration,
}

impl Ping {
    /// Ten pings of 56 bytes, 10 ms apart, that are given a second each.
    pub fn new(target: IpAddr) -> Self {
        Self {
            target,
            source: None,
            count: 10,
            arrivals: Arrivals::Open(Law::Every(Duration::from_millis(10))),
            timeout: Duration::from_secs(1),
        }
    }

    /// Sends them from the calling thread's namespace. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// When the socket cannot be made or used; a packet that is lost or refused is none.
    pub fn run(&self) -> Result<Exchanges> {
        let mut probe = PingProbe {
            socket: self.socket()?,
            target: self.target,
            request: [vec![0; icmp::HEADER], pattern(SIZE)].concat(),
            buffer: vec![0; 65_536],
        };
        engine::run(&mut probe, self.count.min(65_536), &self.arrivals, self.timeout)
            .with_context(|| format!("pings to {}", self.target))
    }

    fn socket(&self) -> Result<OwnedFd> {
        let socket = icmp::echo_socket(self.target)?;
        enlarge_buffers(&socket)?;
        if let Some(source) = self.source {
            bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(source, 0)))
                .with_context(|| format!("cannot bind to {source}"))?;
        }
        let timeout = TimeVal::new(self.timeout.as_secs() as i64, self.timeout.subsec_micros().into());
        setsockopt(&socket, sockopt::ReceiveTimeout, &timeout).context("cannot set the receive timeout")?;
        Ok(socket)
    }
}

struct PingProbe {
    socket: OwnedFd,
    target: IpAddr,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl AsFd for PingProbe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Probe for PingProbe {
    fn send(&mut self, sequence: u32) -> io::Result<()> {
        icmp::write_request(&mut self.request, self.target, IDENTIFIER, sequence as u16);
        let target = SockaddrStorage::from(SocketAddr::new(self.target, 0));
        sendto(self.socket.as_raw_fd(), &self.request, &target, MsgFlags::empty())?;
        Ok(())
    }

    fn receive(&mut self, sequences: u32) -> io::Result<Option<Received>> {
        let (length, from) = recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), &mut self.buffer)?;
        let Some(from) = from.as_ref().and_then(socket_address) else {
            return Ok(None);
        };
        let Some(message) = icmp::message(&self.buffer[..length], self.target) else {
            return Ok(None);
        };
        let Some((identifier, sequence)) = icmp::read_reply(message, self.target) else {
            return Ok(None);
        };
        if identifier != IDENTIFIER || u32::from(sequence) >= sequences {
            return Ok(None);
        }
        let intact = message[icmp::HEADER..] == self.request[icmp::HEADER..];
        Ok(Some(Received {
            sequence: sequence.into(),
            from: SocketAddr::new(from.ip(), 0),
            intact,
        }))
    }
}
