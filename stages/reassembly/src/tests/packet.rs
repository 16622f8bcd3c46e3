//! Datagrams and fragments built field by field.
//!
//! Checksums here are plain sums over whole packets (RFC 1071, section 4.1); the code under test never computes one, it adds what
//! the kernel or a device has summed up.

use std::net::{IpAddr, SocketAddr};

pub const HOP_BY_HOP: u8 = 0;
pub const ICMP: u8 = 1;
pub const UDP: u8 = 17;
pub const ROUTING: u8 = 43;
pub const FRAGMENT: u8 = 44;
pub const ICMPV6: u8 = 58;
pub const DESTINATION_OPTIONS: u8 = 60;
/// For experiments (RFC 3692).
pub const EXPERIMENT: u8 = 253;

pub const ETHERNET: usize = 14;

/// The sum of 16-bit words in one's complement; an odd last byte is the high half of a word.
pub fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A UDP datagram without a checksum.
pub fn unsummed_udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut segment = Vec::with_capacity(8 + payload.len());
    segment.extend(source.port().to_be_bytes());
    segment.extend(destination.port().to_be_bytes());
    segment.extend(((8 + payload.len()) as u16).to_be_bytes());
    segment.extend([0; 2]);
    segment.extend(payload);
    segment
}

/// A UDP datagram with its checksum (RFC 768; RFC 8200, section 8.1).
pub fn udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut segment = unsummed_udp(source, destination, payload);
    let mut covered = octets(source.ip());
    covered.extend(octets(destination.ip()));
    covered.extend((segment.len() as u32).to_be_bytes());
    covered.extend(u32::from(UDP).to_be_bytes());
    covered.extend(&segment);
    let checksum = match !sum(&covered) {
        0 => 0xffff,
        checksum => checksum,
    };
    segment[6..8].copy_from_slice(&checksum.to_be_bytes());
    segment
}

/// The header of a datagram's packets, and what may stand between it and the transport header.
#[derive(Debug, Clone)]
pub struct Ip {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// Type of service, or traffic class.
    pub service: u8,
    pub hop_limit: u8,
    pub identification: u32,
    /// DF, of IPv4.
    pub is_whole: bool,
    /// Of IPv4: whole 32-bit words.
    pub options: Vec<u8>,
    /// Of IPv6: extension headers by number, with what follows their first two bytes: 6, 14, 22 ... bytes. Those of a fragment
    /// stand before its fragment header.
    pub extensions: Vec<(u8, Vec<u8>)>,
}

impl Ip {
    pub fn between(source: IpAddr, destination: IpAddr) -> Self {
        Self {
            source,
            destination,
            protocol: UDP,
            service: 0,
            hop_limit: 64,
            identification: 0,
            is_whole: false,
            options: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// A packet with this header around what it carries.
    pub fn packet(&self, content: &[u8]) -> Vec<u8> {
        if self.source.is_ipv4() {
            self.packet4(0, content)
        } else {
            self.packet6(&self.extensions, content)
        }
    }

    /// The same in fragments of `size` bytes each, a multiple of 8; in order.
    pub fn fragments(&self, content: &[u8], size: usize) -> Vec<Vec<u8>> {
        self.cut(content, &vec![size; content.len().div_ceil(size)])
    }

    /// The same in fragments of these sizes, of which the last may be larger than what is left.
    pub fn cut(&self, content: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
        let mut offset = 0;
        let piece = |size: &usize| {
            let (start, end) = (offset, content.len().min(offset + size));
            offset = end;
            self.fragment(start, end < content.len(), &content[start..end])
        };
        sizes.iter().map(piece).collect()
    }

    /// One fragment at `offset`.
    pub fn fragment(&self, offset: usize, more: bool, piece: &[u8]) -> Vec<u8> {
        if self.source.is_ipv4() {
            return self.packet4((offset / 8) as u16 | u16::from(more) << 13, piece);
        }
        let mut body = (offset as u16 | u16::from(more)).to_be_bytes().to_vec();
        body.extend(self.identification.to_be_bytes());
        let mut extensions = self.extensions.clone();
        extensions.push((FRAGMENT, body));
        self.packet6(&extensions, piece)
    }

    fn packet4(&self, position: u16, content: &[u8]) -> Vec<u8> {
        let length = 20 + self.options.len();
        let mut packet = Vec::with_capacity(length + content.len());
        packet.extend([0x40 | (length / 4) as u8, self.service]);
        packet.extend(((length + content.len()) as u16).to_be_bytes());
        packet.extend((self.identification as u16).to_be_bytes());
        packet.extend((position | u16::from(self.is_whole) << 14).to_be_bytes());
        packet.extend([self.hop_limit, self.protocol, 0, 0]);
        packet.extend(octets(self.source));
        packet.extend(octets(self.destination));
        packet.extend(&self.options);
        let checksum = !sum(&packet);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.extend(content);
        packet
    }

    fn packet6(&self, extensions: &[(u8, Vec<u8>)], content: &[u8]) -> Vec<u8> {
        let kinds: Vec<u8> = extensions
            .iter()
            .map(|(kind, _)| *kind)
            .chain([self.protocol])
            .collect();
        let mut behind = Vec::with_capacity(content.len() + 8 * extensions.len());
        for ((kind, body), next) in extensions.iter().zip(&kinds[1..]) {
            let length = if *kind == FRAGMENT { 0 } else { (body.len() + 2) / 8 - 1 };
            behind.extend([*next, length as u8]);
            behind.extend(body);
        }
        behind.extend(content);
        let mut packet = vec![0x60 | self.service >> 4, self.service << 4, 0, 0];
        packet.extend((behind.len() as u16).to_be_bytes());
        packet.extend([kinds[0], self.hop_limit]);
        packet.extend(octets(self.source));
        packet.extend(octets(self.destination));
        packet.extend(behind);
        packet
    }
}

/// An Ethernet frame around an IP packet.
pub fn frame(to: [u8; 6], from: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let is_ipv6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
    let mut frame = [to, from].concat();
    frame.extend(if is_ipv6 { 0x86dd_u16 } else { 0x0800 }.to_be_bytes());
    frame.extend(packet);
    frame
}

/// A payload of which every part is different from every other.
pub fn payload(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let byte = |_| {
        // Xorshift (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    };
    (0..length).map(byte).collect()
}
