//! ICMP echo requests and replies over raw sockets (RFC 792, RFC 4443).

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::netlink::{address_bytes, set_option};

/// Bytes of an echo header: type, code, checksum, identifier, sequence number.
pub const HEADER: usize = 8;

/// `ICMP_FILTER`, and `ICMPV6_FILTER` of the same number.
const ICMP_FILTER: i32 = 1;

/// A raw socket for echo requests to hosts of `target`'s family. It receives echo replies, all that come to the namespace until
/// it is bound to something less.
///
/// # Errors
/// A process without CAP_NET_RAW, or without a descriptor left.
pub fn echo_socket(target: IpAddr) -> Result<OwnedFd> {
    let (family, protocol) = match target {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)
        .context("cannot make a raw socket, which needs root (CAP_NET_RAW)")?;
    only_echo_replies(&socket, target)?;
    Ok(socket)
}

/// Has the kernel throw away what does not come from this host, before anybody is woken up for it.
///
/// # Errors
/// The kernel's.
pub fn only_from(socket: &impl AsFd, sender: IpAddr) -> Result<()> {
    /// Where the kernel finds the network header, whatever the socket delivers (`SKF_NET_OFF`).
    const NETWORK_HEADER: u32 = 0xfff0_0000;
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let bytes = address_bytes(sender);
    let (first, words) = if sender.is_ipv4() { (12, 1) } else { (8, 4) };
    let mut program = Vec::new();
    for (index, word) in bytes.chunks_exact(4).enumerate() {
        let value = word.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        // Behind all that is left to compare, and what accepts.
        let to_the_end = (2 * (words - 1 - index) + 1) as u8;
        program.push(instruction(LOAD, 0, NETWORK_HEADER + first + 4 * index as u32));
        program.push(instruction(JUMP_IF_EQUAL, to_the_end, value));
    }
    program.extend([instruction(RETURN, 0, u32::MAX), instruction(RETURN, 0, 0)]);
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &[filter])
        .context("cannot filter what a socket receives")
}

/// Fills the header of a request. The kernel computes ICMPv6's checksum, which covers the addresses (RFC 4443, 2.3).
pub fn write_request(request: &mut [u8], target: IpAddr, identifier: u16, sequence: u16) {
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
pub fn read_reply(message: &[u8], target: IpAddr) -> Option<(u16, u16)> {
    let kind = if target.is_ipv4() { 0 } else { 129 };
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    (message.len() >= HEADER && message[0] == kind).then(|| (word(4), word(6)))
}

/// The ICMP message of what was received: a raw IPv4 socket delivers the IP header too, an IPv6 one does not.
pub fn message(packet: &[u8], target: IpAddr) -> Option<&[u8]> {
    match target {
        IpAddr::V4(_) => packet.get(usize::from(packet.first()? & 0xf) * 4..),
        IpAddr::V6(_) => Some(packet),
    }
}

/// RFC 1071: the one's complement of the one's complement sum of 16-bit words.
pub fn internet_checksum(bytes: &[u8]) -> u16 {
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
    let (level, mask) = match target {
        // A set bit blocks the type; the reply is type 0.
        IpAddr::V4(_) => (libc::SOL_RAW, vec![!1_u32]),
        // 256 bits, type 129 is bit 1 of word 4.
        IpAddr::V6(_) => (
            libc::SOL_ICMPV6,
            (0..8).map(|word| if word == 4 { !2 } else { !0 }).collect(),
        ),
    };
    set_option(socket, level, ICMP_FILTER, &mask).context("cannot filter ICMP messages")
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
        assert_eq!(message(&[0x46; 30], v4).map(<[u8]>::len), Some(6));
        assert_eq!(message(&[], v4), None);
    }
}
