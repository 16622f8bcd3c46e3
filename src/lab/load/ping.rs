//! ICMP echo: ping.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage};
use nix::sys::socket::{MsgFlags, bind, recvfrom, sendto, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;

use super::engine::{self, Arrivals, Law, Probe, Received, Schedule};
use super::exchange::Exchanges;
use super::socket::{bind_to_device, enlarge_buffers, socket_address};
use super::udp::pattern;

/// Bytes of an ICMP echo header: type, code, checksum, identifier, sequence number.
const HEADER: usize = 8;

/// A series of pings.
#[derive(Debug, Clone)]
pub struct Ping {
    /// Who is asked.
    pub target: IpAddr,
    /// The address asked from; the kernel chooses when `None`.
    pub source: Option<IpAddr>,
    /// The interface that requests leave by.
    pub device: Option<String>,
    /// Number of requests, at most 65,536: the sequence number has 16 bits.
    pub count: u32,
    /// Bytes behind the header, as ping's -s: 56 makes 64 with the header.
    pub size: usize,
    /// When they are sent.
    pub arrivals: Arrivals,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// The identifier in the packets; two pings at a time need different ones.
    pub identifier: u16,
}

impl Ping {
    /// Ten pings of 56 bytes, 10 ms apart, that are given a second each.
    pub fn new(target: IpAddr) -> Self {
        Self {
            target,
            source: None,
            device: None,
            count: 10,
            size: 56,
            arrivals: Arrivals::Open(Law::Every(Duration::from_millis(10))),
            timeout: Duration::from_secs(1),
            identifier: 1,
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
            identifier: self.identifier,
            request: [vec![0; HEADER], pattern(self.size)].concat(),
            buffer: vec![0; 65_536],
        };
        let schedule = Schedule {
            count: self.count.min(65_536),
            arrivals: &self.arrivals,
            timeout: self.timeout,
        };
        engine::run(&mut probe, &schedule).with_context(|| format!("pings to {}", self.target))
    }

    fn socket(&self) -> Result<OwnedFd> {
        let (family, protocol) = match self.target {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)
            .context("cannot make a raw socket: it needs root (CAP_NET_RAW)")?;
        only_echo_replies(&socket, self.target)?;
        enlarge_buffers(&socket)?;
        if let Some(device) = &self.device {
            bind_to_device(&socket, device)?;
        }
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
    identifier: u16,
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
        write_request(&mut self.request, self.target, self.identifier, sequence as u16);
        let target = SockaddrStorage::from(SocketAddr::new(self.target, 0));
        sendto(self.socket.as_raw_fd(), &self.request, &target, MsgFlags::empty())?;
        Ok(())
    }

    fn receive(&mut self, sequences: u32) -> io::Result<Option<Received>> {
        let (length, from) = recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), &mut self.buffer)?;
        let Some(from) = from.as_ref().and_then(socket_address) else {
            return Ok(None);
        };
        let Some(message) = icmp_message(&self.buffer[..length], self.target) else {
            return Ok(None);
        };
        let Some((identifier, sequence)) = read_reply(message, self.target) else {
            return Ok(None);
        };
        if identifier != self.identifier || u32::from(sequence) >= sequences {
            return Ok(None);
        }
        let intact = message[HEADER..] == self.request[HEADER..];
        Ok(Some(Received {
            sequence: sequence.into(),
            from: SocketAddr::new(from.ip(), 0),
            intact,
        }))
    }
}

/// Fills the header of a request. The kernel computes ICMPv6's checksum, which covers the addresses (RFC 4443, 2.3).
fn write_request(request: &mut [u8], target: IpAddr, identifier: u16, sequence: u16) {
    request[0] = if target.is_ipv4() { 8 } else { 128 };
    request[1..4].fill(0);
    request[4..6].copy_from_slice(&identifier.to_be_bytes());
    request[6..8].copy_from_slice(&sequence.to_be_bytes());
    if target.is_ipv4() {
        let checksum = internet_checksum(request);
        request[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Identifier and sequence number of an echo reply.
fn read_reply(message: &[u8], target: IpAddr) -> Option<(u16, u16)> {
    let kind = if target.is_ipv4() { 0 } else { 129 };
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    (message.len() >= HEADER && message[0] == kind).then(|| (word(4), word(6)))
}

/// A raw IPv4 socket delivers the IP header too, an IPv6 one does not.
fn icmp_message(packet: &[u8], target: IpAddr) -> Option<&[u8]> {
    match target {
        IpAddr::V4(_) => packet.get(usize::from(packet.first()? & 0xf) * 4..),
        IpAddr::V6(_) => Some(packet),
    }
}

/// RFC 1071: the one's complement of the one's complement sum of 16-bit words.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from));
    // At most 32,768 words of 16 bits: the sum fits.
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Has the kernel deliver echo replies only, so that other messages cost nothing (raw(7), ICMP_FILTER; RFC 3542, 3.2).
fn only_echo_replies(socket: &OwnedFd, target: IpAddr) -> Result<()> {
    const ICMP_FILTER: i32 = 1;
    let (level, name, mask) = match target {
        // A set bit blocks the type; the reply is type 0.
        IpAddr::V4(_) => (libc::SOL_RAW, ICMP_FILTER, vec![!1_u32]),
        // 256 bits, type 129 is bit 1 of word 4.
        IpAddr::V6(_) => (
            libc::SOL_ICMPV6,
            ICMP_FILTER,
            (0..8).map(|word| if word == 4 { !2 } else { !0 }).collect(),
        ),
    };
    // SAFETY: the mask lives through the call and has the length given.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            mask.as_ptr().cast(),
            size_of_val(&mask[..]) as libc::socklen_t,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error()).context("cannot filter ICMP messages");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        // The example of RFC 1071, section 3: the sum is ddf2.
        assert_eq!(
            internet_checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            !0xddf2
        );
        assert_eq!(internet_checksum(&[0xff]), !0xff00);
    }

    #[test]
    fn a_reply_is_told_from_other_messages() {
        let v4 = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(read_reply(&[0, 0, 0, 0, 0, 7, 1, 2], v4), Some((7, 258)));
        assert_eq!(read_reply(&[8, 0, 0, 0, 0, 7, 1, 2], v4), None);
        assert_eq!(read_reply(&[0, 0, 0], v4), None);
        assert_eq!(icmp_message(&[0x46; 30], v4).map(<[u8]>::len), Some(6));
        assert_eq!(icmp_message(&[], v4), None);
    }
}
