//! Requests for TCP connections, as frames: from any address, answered by nobody.

use std::net::{IpAddr, SocketAddrV4};

use super::frames::{ETHERTYPE_IPV4, Ipv4, Wire, pseudo_header};
use tarn_kernel::icmp::internet_checksum;

const PROTOCOL_TCP: u8 = 6;
/// Bytes of a header without options.
const TCP: usize = 20;
const SYN: u8 = 2;
/// The window that is offered, in bytes.
const WINDOW: u16 = 64_240;

/// The frame with a SYN (RFC 9293, section 3.1).
pub fn syn(wire: Wire, source: SocketAddrV4, target: SocketAddrV4, sequence: u32) -> Vec<u8> {
    let mut segment = [0; TCP];
    segment[0..2].copy_from_slice(&source.port().to_be_bytes());
    segment[2..4].copy_from_slice(&target.port().to_be_bytes());
    segment[4..8].copy_from_slice(&sequence.to_be_bytes());
    segment[12] = ((TCP / 4) as u8) << 4;
    segment[13] = SYN;
    segment[14..16].copy_from_slice(&WINDOW.to_be_bytes());
    let addresses = [*source.ip(), *target.ip()].map(IpAddr::V4);
    let pseudo = pseudo_header(addresses[0], addresses[1], PROTOCOL_TCP, TCP as u16);
    let checksum = internet_checksum(&[pseudo, segment.to_vec()].concat());
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    let header = Ipv4 {
        source: source.ip().octets(),
        target: target.ip().octets(),
        protocol: PROTOCOL_TCP,
        identifier: 0,
        place: 0,
    };
    [
        &wire.to[..],
        &wire.from,
        &ETHERTYPE_IPV4.to_be_bytes(),
        &header.bytes(TCP),
        &segment,
    ]
    .concat()
}
