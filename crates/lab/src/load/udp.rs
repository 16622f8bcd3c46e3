//! UDP request and response.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, recvfrom, sendto};

use super::engine::{self, Arrivals, Probe, Received};
use super::exchange::Exchanges;
use super::server::Server;
use super::{Flow, socket};
use crate::topology::Namespace;

/// A generator of UDP requests.
#[derive(Debug, Clone)]
pub struct UdpRequests {
    /// Between which addresses.
    pub flow: Flow,
    /// Number of requests.
    pub count: u32,
    /// Bytes of payload, 1..=65,507. A request carries its number in its first 4 bytes; shorter ones carry as much of
    /// it as fits, which suffices in a closed loop.
    pub size: usize,
    /// When they are sent.
    pub arrivals: Arrivals,
    /// How long an answer is waited for.
    pub timeout: Duration,
}

impl UdpRequests {
    /// A closed loop of 64-byte requests that are given a second each.
    pub fn new(flow: Flow, count: u32) -> Self {
        Self {
            flow,
            count,
            size: 64,
            arrivals: Arrivals::WhenAnswered,
            timeout: Duration::from_secs(1),
        }
    }

    /// Sends all of them from the calling thread's namespace and takes the answers.
    ///
    /// # Errors
    /// When a socket cannot be made or used; a packet that is lost or refused is none.
    pub fn run(&self) -> Result<Exchanges> {
        let mut probe = UdpProbe {
            socket: socket::udp_client(&self.flow, self.timeout)?,
            target: self.flow.target,
            request: pattern(self.size),
            buffer: vec![0; 65_536],
        };
        engine::run(&mut probe, self.count, &self.arrivals, self.timeout)
            .with_context(|| format!("UDP requests to {}", self.flow.target))
    }
}

struct UdpProbe {
    socket: UdpSocket,
    target: SocketAddr,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl AsFd for UdpProbe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Probe for UdpProbe {
    fn send(&mut self, sequence: u32) -> io::Result<()> {
        write_sequence(&mut self.request, sequence);
        self.socket.send_to(&self.request, self.target).map(drop)
    }

    fn receive(&mut self, sequences: u32) -> io::Result<Option<Received>> {
        let (length, from) = self.socket.recv_from(&mut self.buffer)?;
        let answer = &self.buffer[..length];
        let number = number_length(&self.request);
        let intact = length == self.request.len() && answer[number..] == self.request[number..];
        Ok(read_sequence(answer, sequences).map(|sequence| Received { sequence, from, intact }))
    }
}

/// Bytes of payload that repeat only after 251, so that a piece that is moved is seen.
pub(super) fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251) as u8).collect()
}

/// How many bytes of a message its number takes.
fn number_length(message: &[u8]) -> usize {
    message.len().min(4)
}

/// Writes as much of the number (little endian) as fits.
pub(super) fn write_sequence(message: &mut [u8], sequence: u32) {
    let length = number_length(message);
    message[..length].copy_from_slice(&sequence.to_le_bytes()[..length]);
}

/// The number in a message, of which only the low bytes may have fitted: the latest of `sequences` requests that agrees
/// with them. `None` when there is no such request.
pub(super) fn read_sequence(message: &[u8], sequences: u32) -> Option<u32> {
    let length = number_length(message);
    let mut bytes = [0; 4];
    bytes[..length].copy_from_slice(&message[..length]);
    let low = u64::from(u32::from_le_bytes(bytes));
    let modulus = 1_u64 << (8 * length);
    let latest = u64::from(sequences).checked_sub(1)?;
    let distance = (latest + modulus - low % modulus) % modulus;
    latest.checked_sub(distance).map(|sequence| sequence as u32)
}

/// A server that returns every datagram to where it came from, and reports how many they were.
pub type UdpEcho = Server<UdpSocket, u64>;

impl UdpEcho {
    /// Starts it in the namespace. An unspecified address answers on all, from the address that routing chooses.
    pub fn start(namespace: &Namespace, address: SocketAddr) -> Result<Self> {
        Self::serving(namespace, "udp-echo", || socket::udp_server(address), echo)
    }
}

fn echo(socket: &UdpSocket) -> Result<u64> {
    let mut requests = 0;
    let mut buffer = vec![0; 65_536];
    loop {
        let (length, from) = match recvfrom::<SockaddrStorage>(socket.as_raw_fd(), &mut buffer) {
            Ok((length, Some(from))) => (length, from),
            // What comes from nowhere is the end of a socket that is shut down.
            Ok((_, None)) => return Ok(requests),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error).context("the UDP echo server cannot receive"),
        };
        requests += 1;
        // An answer that the network refuses is the client's to miss.
        let _ = sendto(socket.as_raw_fd(), &buffer[..length], &from, MsgFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_survives_in_as_many_bytes_as_there_are() {
        for (size, sequences) in [
            (1, 1),
            (1, 256),
            (1, 257),
            (1, 1000),
            (2, 70_000),
            (3, 20_000_000),
            (4, u32::MAX),
        ] {
            let mut message = pattern(size);
            write_sequence(&mut message, sequences - 1);
            assert_eq!(
                read_sequence(&message, sequences),
                Some(sequences - 1),
                "{size} bytes, {sequences}"
            );
        }
    }

    #[test]
    fn a_number_never_sent_is_no_answer() {
        assert_eq!(read_sequence(&5_u32.to_le_bytes(), 5), None);
        assert_eq!(read_sequence(&[7], 5), None);
        assert_eq!(read_sequence(&[0; 4], 0), None);
    }

    #[test]
    fn an_empty_datagram_answers_the_latest_request() {
        assert_eq!(read_sequence(&[], 3), Some(2));
    }
}
