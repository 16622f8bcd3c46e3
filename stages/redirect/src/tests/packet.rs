//! Packets built field by field, and read again.
//!
//! Checksums here are plain sums over the whole packet (RFC 1071, section 4.1), unlike the differences that the code
//! under test adds (RFC 1624).

use std::net::{IpAddr, SocketAddr};

pub const HOP_BY_HOP: u8 = 0;
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const FRAGMENT: u8 = 44;
pub const ICMPV6: u8 = 58;
pub const DESTINATION_OPTIONS: u8 = 60;

pub const ETHERNET: usize = 14;
const UDP_HEADER: usize = 8;
const TCP_HEADER: usize = 20;

/// The sum of 16-bit words in one's complement; an odd last byte is the high half of a word.
pub fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// What a transport checksum covers besides the segment itself (RFC 768, RFC 8200 section 8.1).
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> Vec<u8> {
    let mut bytes = octets(source);
    bytes.extend(octets(destination));
    bytes.extend((length as u32).to_be_bytes());
    bytes.extend(u32::from(protocol).to_be_bytes());
    bytes
}

pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The checksum of a transport segment whose checksum field is zero.
fn transport_checksum(source: SocketAddr, destination: SocketAddr, protocol: u8, segment: &[u8]) -> u16 {
    let mut covered = pseudo_header(source.ip(), destination.ip(), protocol, segment.len());
    covered.extend(segment);
    match !sum(&covered) {
        0 if protocol == UDP => 0xffff,
        checksum => checksum,
    }
}

/// A UDP datagram without a checksum.
pub fn unsummed_udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(source.port().to_be_bytes());
    segment.extend(destination.port().to_be_bytes());
    segment.extend(((UDP_HEADER + payload.len()) as u16).to_be_bytes());
    segment.extend([0; 2]);
    segment.extend(payload);
    segment
}

/// A UDP datagram.
pub fn udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut segment = unsummed_udp(source, destination, payload);
    let checksum = transport_checksum(source, destination, UDP, &segment);
    segment[6..8].copy_from_slice(&checksum.to_be_bytes());
    segment
}

/// A TCP segment that opens a connection, with data (as RFC 9293 permits).
pub fn tcp_syn(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(source.port().to_be_bytes());
    segment.extend(destination.port().to_be_bytes());
    segment.extend(1_000_u32.to_be_bytes()); // sequence number
    segment.extend(0_u32.to_be_bytes()); // acknowledgment number
    segment.push((TCP_HEADER as u8 / 4) << 4);
    segment.push(0x02); // SYN
    segment.extend(0xffff_u16.to_be_bytes()); // window
    segment.extend([0; 4]); // checksum and urgent pointer
    segment.extend(payload);
    let checksum = transport_checksum(source, destination, TCP, &segment);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    segment
}

/// A segment that acknowledges what came before this number, and carries nothing.
pub fn tcp_ack(source: SocketAddr, destination: SocketAddr, acknowledged: u32) -> Vec<u8> {
    let mut segment = tcp_syn(source, destination, b"");
    segment.truncate(TCP_HEADER);
    segment[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    segment[12] = (TCP_HEADER as u8 / 4) << 4;
    segment[13] = 0x10;
    segment[16..18].fill(0);
    let checksum = transport_checksum(source, destination, TCP, &segment);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    segment
}

/// An ICMP error of this type and code, with the four bytes that depend on them, about `packet`.
pub fn icmp_error(kind: [u8; 2], rest: [u8; 4], packet: &[u8]) -> Vec<u8> {
    let mut message = [&kind[..], &[0; 2], &rest, packet].concat();
    let checksum = !sum(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// A segment of either protocol.
pub fn segment(protocol: u8, source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    match protocol {
        TCP => tcp_syn(source, destination, payload),
        _ => udp(source, destination, payload),
    }
}

/// Two bytes of payload for which a segment's checksum comes out as zero, before RFC 768 makes it 0xffff.
pub fn payload_for_zero(protocol: u8, source: SocketAddr, destination: SocketAddr) -> [u8; 2] {
    let segment = segment(protocol, source, destination, &[0; 2]);
    let at = if protocol == TCP { 16 } else { 6 };
    // With a payload of zero this is the inverted sum of all else; adding it makes the sum 0xffff.
    [segment[at], segment[at + 1]]
}

/// An IP header and what may stand between it and the transport header.
#[derive(Debug, Clone)]
pub struct Ip {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub hop_limit: u8,
    pub identification: u32,
    /// Of IPv4: whole 32-bit words.
    pub options: Vec<u8>,
    /// Of IPv6: extension headers by number, with what follows their first two bytes: 6, 14, 22 ... bytes.
    pub extensions: Vec<(u8, Vec<u8>)>,
}

impl Ip {
    pub fn between(source: IpAddr, destination: IpAddr) -> Self {
        Ip {
            source,
            destination,
            hop_limit: 64,
            identification: 0x1234,
            options: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// A packet with this header around a transport segment.
    pub fn packet(&self, protocol: u8, segment: &[u8]) -> Vec<u8> {
        if self.source.is_ipv4() {
            self.packet4(protocol, 0, segment)
        } else {
            self.packet6(protocol, &self.extensions, segment)
        }
    }

    /// The same in fragments of `size` bytes of payload, a multiple of 8; in order.
    pub fn fragments(&self, protocol: u8, segment: &[u8], size: usize) -> Vec<Vec<u8>> {
        let count = segment.len().div_ceil(size);
        let pieces = segment.chunks(size).enumerate();
        pieces
            .map(|(index, piece)| self.fragment(protocol, index * size, index + 1 < count, piece))
            .collect()
    }

    /// One fragment at `offset`.
    pub fn fragment(&self, protocol: u8, offset: usize, more: bool, piece: &[u8]) -> Vec<u8> {
        if self.source.is_ipv4() {
            return self.packet4(protocol, (offset / 8) as u16 | u16::from(more) << 13, piece);
        }
        let mut body = (offset as u16 | u16::from(more)).to_be_bytes().to_vec();
        body.extend(self.identification.to_be_bytes());
        let mut extensions = self.extensions.clone();
        extensions.push((FRAGMENT, body));
        self.packet6(protocol, &extensions, piece)
    }

    fn packet4(&self, protocol: u8, fragment: u16, segment: &[u8]) -> Vec<u8> {
        let length = 20 + self.options.len();
        let mut packet = vec![0x40 | (length / 4) as u8, 0];
        packet.extend(((length + segment.len()) as u16).to_be_bytes());
        packet.extend((self.identification as u16).to_be_bytes());
        packet.extend(fragment.to_be_bytes());
        packet.extend([self.hop_limit, protocol, 0, 0]);
        packet.extend(octets(self.source));
        packet.extend(octets(self.destination));
        packet.extend(&self.options);
        let checksum = !sum(&packet);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.extend(segment);
        packet
    }

    fn packet6(&self, protocol: u8, extensions: &[(u8, Vec<u8>)], segment: &[u8]) -> Vec<u8> {
        let kinds: Vec<u8> = extensions.iter().map(|(kind, _)| *kind).chain([protocol]).collect();
        let mut behind = Vec::new();
        for ((kind, body), next) in extensions.iter().zip(&kinds[1..]) {
            let length = if *kind == FRAGMENT { 0 } else { (body.len() + 2) / 8 - 1 };
            behind.extend([*next, length as u8]);
            behind.extend(body);
        }
        behind.extend(segment);
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((behind.len() as u16).to_be_bytes());
        packet.extend([kinds[0], self.hop_limit]);
        packet.extend(octets(self.source));
        packet.extend(octets(self.destination));
        packet.extend(behind);
        packet
    }
}

/// A whole packet of one UDP datagram or TCP segment.
pub fn packet(protocol: u8, source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    Ip::between(source.ip(), destination.ip()).packet(protocol, &segment(protocol, source, destination, payload))
}

/// An Ethernet frame around an IP packet.
pub fn frame(to: [u8; 6], from: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let is_ipv6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
    let mut frame = [to, from].concat();
    frame.extend(if is_ipv6 { 0x86dd_u16 } else { 0x0800 }.to_be_bytes());
    frame.extend(packet);
    frame
}

/// A whole IP packet as it was read.
#[derive(Debug, Clone)]
pub struct Read {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub protocol: u8,
    pub hop_limit: u8,
    /// IPv4 options, or all IPv6 extension headers.
    pub options: Vec<u8>,
    /// Of IPv4: the header sums up.
    pub header_is_right: bool,
    /// The transport checksum field.
    pub checksum: u16,
    /// The transport checksum is that of the packet.
    pub checksum_is_right: bool,
    /// The transport checksum field holds the sum of the pseudo header, for a device to complete.
    pub checksum_is_begun: bool,
    /// Behind the UDP header or the TCP header and its options; all behind an ICMP header's first 8 bytes.
    pub payload: Vec<u8>,
}

/// Reads an IP packet that is not a fragment. `None` when its lengths do not agree with one another.
pub fn read(packet: &[u8]) -> Option<Read> {
    let is_ipv6 = packet.first()? >> 4 == 6;
    let (source, destination, start, protocol, end) = if is_ipv6 { read6(packet)? } else { read4(packet)? };
    let segment = packet.get(start..end)?;
    let port = |at: usize| Some(u16::from_be_bytes(segment.get(at..at + 2)?.try_into().ok()?));
    let (header, field) = match protocol {
        UDP => (UDP_HEADER, 6),
        TCP => (usize::from(segment.get(12)? >> 4) * 4, 16),
        _ => (8, 2),
    };
    let ports = if matches!(protocol, UDP | TCP) {
        (port(0)?, port(2)?)
    } else {
        (0, 0)
    };
    let checksum = port(field)?;
    let mut pseudo = pseudo_header(source, destination, protocol, segment.len());
    let begun = sum(&pseudo);
    if protocol == ICMP {
        pseudo.clear();
    }
    pseudo.extend(segment);
    let header_length = if is_ipv6 { 40 } else { 20 };
    Some(Read {
        source: SocketAddr::new(source, ports.0),
        destination: SocketAddr::new(destination, ports.1),
        protocol,
        hop_limit: packet[if is_ipv6 { 7 } else { 8 }],
        options: packet[header_length..start].to_vec(),
        header_is_right: is_ipv6 || sum(&packet[..start]) == 0xffff,
        checksum,
        checksum_is_right: sum(&pseudo) == 0xffff || (protocol == UDP && checksum == 0 && !is_ipv6),
        checksum_is_begun: checksum == begun,
        payload: segment.get(header..)?.to_vec(),
    })
}

type Headers = (IpAddr, IpAddr, usize, u8, usize);

fn read4(packet: &[u8]) -> Option<Headers> {
    let start = usize::from(packet.first()? & 15) * 4;
    let end = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
    let fragment = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?) & 0x3fff;
    let address = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let headers = (address(12)?, address(16)?, start, packet[9], end);
    (start >= 20 && end >= start && end <= packet.len() && fragment == 0).then_some(headers)
}

fn read6(packet: &[u8]) -> Option<Headers> {
    let end = 40 + usize::from(u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?));
    let address = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
    let (mut next, mut start) = (*packet.get(6)?, 40);
    while matches!(next, HOP_BY_HOP | DESTINATION_OPTIONS) {
        let header = packet.get(start..start + 2)?;
        (next, start) = (header[0], start + 8 * (usize::from(header[1]) + 1));
    }
    (next != FRAGMENT && end >= start && end <= packet.len()).then_some((address(8)?, address(24)?, start, next, end))
}

#[test]
fn a_packet_is_read_as_it_was_built() {
    for (from, to) in [
        ("192.0.2.1:1000", "198.51.100.2:53"),
        ("[2001:db8::1]:1000", "[2001:db8::2]:53"),
    ] {
        let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
        for protocol in [UDP, TCP] {
            let read = read(&packet(protocol, from, to, b"odd")).unwrap();
            assert_eq!(
                (read.source, read.destination, read.payload.as_slice()),
                (from, to, &b"odd"[..])
            );
            assert!(read.header_is_right && read.checksum_is_right && !read.checksum_is_begun);
            let zero = segment(protocol, from, to, &payload_for_zero(protocol, from, to));
            let field = if protocol == UDP { &zero[6..8] } else { &zero[16..18] };
            assert_eq!(field, if protocol == UDP { [0xff; 2] } else { [0; 2] });
        }
    }
}
