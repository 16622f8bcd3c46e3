//! Ethernet frames, sent as they are, and fragments of UDP datagrams in them: in any order, with gaps and overlaps, from any
//! address. The kernel itself would not send them so.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags};

use super::engine::wait;
use super::socket::{enlarge_buffers, udp_server};
use super::udp::{pattern, write_sequence};
use crate::busy::monotonic_ns;
use tarn_kernel::icmp::internet_checksum;

/// Bytes of a header each.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const IPV6_FRAGMENT: usize = 8;
const UDP: usize = 8;

pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_FRAGMENT: u8 = 44;
const HOPS: u8 = 64;
/// The flag "more fragments" of IPv4, beside the offset in units of 8 bytes.
const IPV4_MORE: u16 = 0x2000;
/// linux/udp.h; libc has no name for it.
const UDP_NO_CHECK6_RX: libc::c_int = 102;

/// The hardware addresses of a link.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// Whose frames they are.
    pub from: [u8; 6],
    /// Who takes them.
    pub to: [u8; 6],
}

/// A fragment of a UDP datagram.
#[derive(Debug, Clone, Copy)]
pub struct Fragment<'a> {
    /// Where it says it comes from.
    pub source: IpAddr,
    /// Where it goes; of the same family.
    pub target: IpAddr,
    /// The datagram that it belongs to; IPv4 has 16 bits of it.
    pub identifier: u32,
    /// Where its bytes belong in the datagram, a multiple of 8.
    pub offset: u16,
    /// Whether more follow behind it.
    pub more: bool,
    /// Its bytes of the datagram, UDP header included.
    pub bytes: &'a [u8],
}

impl Fragment<'_> {
    /// The frame that carries it.
    pub fn frame(&self, wire: Wire) -> Vec<u8> {
        let mut frame = Vec::with_capacity(ETHERNET + IPV6 + IPV6_FRAGMENT + self.bytes.len());
        frame.extend(wire.to);
        frame.extend(wire.from);
        match (self.source, self.target) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                frame.extend(ETHERTYPE_IPV4.to_be_bytes());
                self.ipv4(&mut frame, source.octets(), target.octets());
            }
            (source, target) => {
                frame.extend(ETHERTYPE_IPV6.to_be_bytes());
                self.ipv6(&mut frame, in_ipv6(source), in_ipv6(target));
            }
        }
        frame.extend(self.bytes);
        frame
    }

    /// RFC 791, section 3.1.
    fn ipv4(&self, frame: &mut Vec<u8>, source: [u8; 4], target: [u8; 4]) {
        let more = if self.more { IPV4_MORE } else { 0 };
        let place = (self.offset / 8) | more;
        let header = Ipv4 {
            source,
            target,
            protocol: PROTOCOL_UDP,
            identifier: self.identifier as u16,
            place,
        };
        frame.extend(header.bytes(self.bytes.len()));
    }

    /// RFC 8200, sections 3 and 4.5.
    fn ipv6(&self, frame: &mut Vec<u8>, source: Ipv6Addr, target: Ipv6Addr) {
        let length = (IPV6_FRAGMENT + self.bytes.len()) as u16;
        frame.extend([6 << 4, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([PROTOCOL_FRAGMENT, HOPS]);
        frame.extend(source.octets());
        frame.extend(target.octets());
        frame.extend([PROTOCOL_UDP, 0]);
        frame.extend((self.offset | u16::from(self.more)).to_be_bytes());
        frame.extend(self.identifier.to_be_bytes());
    }
}

/// A header of IPv4 without options (RFC 791, section 3.1).
pub(super) struct Ipv4 {
    pub source: [u8; 4],
    pub target: [u8; 4],
    pub protocol: u8,
    pub identifier: u16,
    /// Flags, and the offset in units of 8 bytes.
    pub place: u16,
}

impl Ipv4 {
    /// As it stands before so many bytes.
    pub fn bytes(&self, payload: usize) -> [u8; IPV4] {
        let mut header = [0; IPV4];
        header[0] = 4 << 4 | (IPV4 / 4) as u8;
        header[2..4].copy_from_slice(&((IPV4 + payload) as u16).to_be_bytes());
        header[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        header[6..8].copy_from_slice(&self.place.to_be_bytes());
        header[8] = HOPS;
        header[9] = self.protocol;
        header[12..16].copy_from_slice(&self.source);
        header[16..20].copy_from_slice(&self.target);
        let checksum = internet_checksum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header
    }
}

fn in_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The bytes of the UDP datagram `sequence` with `size` bytes of payload, as [`Datagrams`] expects it; with a checksum or
/// without one.
pub fn udp(source: SocketAddr, target: SocketAddr, sequence: u32, size: usize, checksum: bool) -> Vec<u8> {
    let mut payload = pattern(size);
    write_sequence(&mut payload, sequence);
    let length = (UDP + size) as u16;
    let mut datagram = Vec::with_capacity(UDP + size);
    datagram.extend(source.port().to_be_bytes());
    datagram.extend(target.port().to_be_bytes());
    datagram.extend(length.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    if checksum {
        // Zero would say that there is none (RFC 768).
        let sum = match internet_checksum(
            &[
                pseudo_header(source.ip(), target.ip(), PROTOCOL_UDP, length),
                datagram.clone(),
            ]
            .concat(),
        ) {
            0 => 0xffff,
            sum => sum,
        };
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    datagram
}

/// What the checksum covers besides the datagram (RFC 768; RFC 8200, section 8.1).
pub(super) fn pseudo_header(source: IpAddr, target: IpAddr, protocol: u8, length: u16) -> Vec<u8> {
    let mut header = Vec::new();
    for address in [source, target] {
        match address {
            IpAddr::V4(address) => header.extend(address.octets()),
            IpAddr::V6(address) => header.extend(address.octets()),
        }
    }
    header.extend([0, protocol]);
    header.extend(length.to_be_bytes());
    header
}

/// A datagram in fragments of `size` bytes, a multiple of 8; the last may be shorter.
pub fn fragments(source: IpAddr, target: IpAddr, identifier: u32, datagram: &[u8], size: usize) -> Vec<Fragment<'_>> {
    let pieces = datagram.chunks(size).enumerate();
    let fragment = |(index, bytes): (usize, _)| Fragment {
        source,
        target,
        identifier,
        offset: (index * size) as u16,
        more: (index + 1) * size < datagram.len(),
        bytes,
    };
    pieces.map(fragment).collect()
}

/// Sends frames by an interface.
pub struct FrameSender {
    socket: OwnedFd,
}

impl FrameSender {
    /// By an interface of the calling thread's namespace. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// There is no such interface, or the socket is refused.
    pub fn open(interface: &str) -> Result<Self> {
        let index = if_nametoindex(interface).with_context(|| format!("no interface {interface}"))?;
        // Of protocol 0: it receives nothing.
        // SAFETY: the call takes no memory of ours.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let socket = Errno::result(socket).context("cannot make a packet socket")?;
        // SAFETY: it is new, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // SAFETY: an all-zero sockaddr_ll is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index as i32;
        // SAFETY: the address lives through the call, and is as long as it says.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        Errno::result(bound).with_context(|| format!("cannot bind to {interface}"))?;
        enlarge_buffers(&socket)?;
        Ok(Self { socket })
    }

    /// Sends all of them, in their order, with as few calls as can be.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub fn send<T: AsRef<[u8]>>(&self, frames: &[T]) -> Result<()> {
        let mut pieces: Vec<libc::iovec> = frames.iter().map(|frame| piece(frame.as_ref())).collect();
        let mut messages: Vec<libc::mmsghdr> = pieces.iter_mut().map(message).collect();
        let mut sent = 0;
        while sent < messages.len() {
            let rest = &mut messages[sent..];
            // SAFETY: as many messages as are said; what they point to, `pieces` and `frames`, lives through the call, which
            // reads the frames and changes nothing but the messages' lengths.
            let outcome = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0) };
            match Errno::result(outcome) {
                Ok(count) => sent += count as usize,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot send a frame"),
            }
        }
        Ok(())
    }
}

fn piece(frame: &[u8]) -> libc::iovec {
    libc::iovec {
        // The kernel only reads it.
        iov_base: frame.as_ptr().cast_mut().cast(),
        iov_len: frame.len(),
    }
}

fn message(piece: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: an all-zero mmsghdr is valid: no address, no data, no control messages.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = piece;
    message.msg_hdr.msg_iovlen = 1;
    message
}

/// Takes the datagrams of [`udp`] as they are delivered.
pub struct Datagrams {
    socket: UdpSocket,
    /// Their payload but for the number.
    expected: Vec<u8>,
    buffer: Vec<u8>,
}

impl Datagrams {
    /// At this address of the calling thread's namespace. Each has `size` bytes of payload, at least 4, of which `read` are
    /// copied and compared.
    ///
    /// # Errors
    /// The socket cannot be made, or not bound.
    pub fn open(address: SocketAddr, size: usize, read: usize) -> Result<Self> {
        let socket = udp_server(address)?;
        socket
            .set_nonblocking(true)
            .context("cannot set a socket non-blocking")?;
        if address.is_ipv6() {
            // RFC 6936: without it what has no checksum is dropped.
            take_without_checksum(&socket)?;
        }
        Ok(Self {
            socket,
            expected: pattern(size),
            buffer: vec![0; read.clamp(4, size)],
        })
    }

    /// Waits until one is there, or so long.
    ///
    /// # Errors
    /// The socket fails.
    pub fn wait(&self, patience: Duration) -> Result<()> {
        let until = monotonic_ns() + patience.as_nanos() as u64;
        wait(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], until).map(drop)
    }

    /// Takes what is there and calls `note` with each one's number, and whether it is as it was sent.
    ///
    /// # Errors
    /// The socket fails.
    pub fn take(&mut self, mut note: impl FnMut(u32, bool)) -> Result<()> {
        loop {
            // With MSG_TRUNC the result is the whole datagram's length.
            // SAFETY: the buffer is as long as it says, and lives through the call.
            let length = unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    self.buffer.as_mut_ptr().cast(),
                    self.buffer.len(),
                    libc::MSG_TRUNC,
                )
            };
            match Errno::result(length) {
                Ok(length) => {
                    let read = (length as usize).min(self.buffer.len());
                    let Some((number, rest)) = self.buffer[..read].split_first_chunk() else {
                        continue;
                    };
                    let is_intact = length as usize == self.expected.len() && *rest == self.expected[4..read];
                    note(u32::from_le_bytes(*number), is_intact);
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot receive a datagram"),
            }
        }
    }
}

fn take_without_checksum(socket: &UdpSocket) -> Result<()> {
    let yes: libc::c_int = 1;
    // SAFETY: the value lives through the call, and is as long as it says.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            UDP_NO_CHECK6_RX,
            (&raw const yes).cast(),
            size_of_val(&yes) as libc::socklen_t,
        )
    };
    Errno::result(outcome)
        .context("cannot take datagrams without a checksum")
        .map(drop)
}

#[cfg(test)]
mod tests;
