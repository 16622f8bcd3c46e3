use std::collections::BTreeMap;

use super::*;

const WIRE: Wire = Wire {
    from: [2, 0, 0, 0, 0, 1],
    to: [2, 0, 0, 0, 0, 2],
};

fn ends(source: &str, target: &str) -> (SocketAddr, SocketAddr) {
    (source.parse().unwrap(), target.parse().unwrap())
}

/// The sum of 16-bit words in one's complement, folded: 0xffff over what contains a right checksum.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    words.fold(0, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    })
}

/// A fragment with a wrong header would be dropped before what is measured.
#[test]
fn an_ipv4_fragment_is_laid_out_as_rfc_791_says() {
    let fragment = Fragment {
        source: "10.0.0.1".parse().unwrap(),
        target: "10.0.0.2".parse().unwrap(),
        identifier: 0xdead_1234,
        offset: 1480,
        more: true,
        bytes: &[0xaa; 16],
    };
    let frame = fragment.frame(WIRE);
    assert_eq!(frame[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    let (header, bytes) = frame[14..].split_at(20);
    assert_eq!(header[..4], [0x45, 0, 0, 36]);
    assert_eq!(header[4..6], [0x12, 0x34]);
    assert_eq!(header[6..8], (0x2000_u16 | 185).to_be_bytes());
    assert_eq!(header[8..10], [64, 17]);
    assert_eq!(header[12..], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(sum(header), 0xffff);
    assert_eq!(bytes, [0xaa; 16]);
}

#[test]
fn an_ipv6_fragment_is_laid_out_as_rfc_8200_says() {
    let fragment = Fragment {
        source: "fd00::1".parse().unwrap(),
        target: "fd00::2".parse().unwrap(),
        identifier: 0xdead_1234,
        offset: 1448,
        more: true,
        bytes: &[0xaa; 24],
    };
    let frame = fragment.frame(WIRE);
    assert_eq!(frame[12..14], [0x86, 0xdd]);
    let (header, rest) = frame[14..].split_at(40);
    assert_eq!(header[..8], [0x60, 0, 0, 0, 0, 32, 44, 64]);
    assert_eq!(header[8..10], [0xfd, 0]);
    assert_eq!((header[23], header[39]), (1, 2));
    assert_eq!(rest[..8], [17, 0, 0x05, 0xa9, 0xde, 0xad, 0x12, 0x34]);
    assert_eq!(rest[8..], [0xaa; 24]);
}

#[test]
fn fragments_cover_the_datagram_and_the_last_one_says_so() {
    let datagram: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let (source, target) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let parts = fragments(source, target, 7, &datagram, 304);
    let places: Vec<_> = parts
        .iter()
        .map(|part| (part.offset, part.bytes.len(), part.more))
        .collect();
    assert_eq!(
        places,
        [(0, 304, true), (304, 304, true), (608, 304, true), (912, 88, false)]
    );
    let whole: BTreeMap<u16, &[u8]> = parts.iter().map(|part| (part.offset, part.bytes)).collect();
    assert_eq!(whole.into_values().collect::<Vec<_>>().concat(), datagram);
    // One that is a multiple ends with a whole piece.
    let parts = fragments(source, target, 7, &datagram[..608], 304);
    assert_eq!(parts.iter().map(|part| part.more).collect::<Vec<_>>(), [true, false]);
}

/// With a wrong checksum the kernel would drop it, and the experiment would say that it was not put together.
#[test]
fn a_datagram_has_a_right_checksum_or_none() {
    for (source, target) in [ends("10.0.0.1:5", "10.0.0.2:6"), ends("[fd00::1]:5", "[fd00::2]:6")] {
        for size in [4, 5, 1000] {
            let datagram = udp(source, target, 9, size, true);
            assert_eq!(datagram.len(), 8 + size);
            let mut covered = Vec::new();
            match (source.ip(), target.ip()) {
                (IpAddr::V4(source), IpAddr::V4(target)) => covered.extend([source.octets(), target.octets()].concat()),
                (IpAddr::V6(source), IpAddr::V6(target)) => covered.extend([source.octets(), target.octets()].concat()),
                _ => unreachable!(),
            }
            covered.extend([0, 17]);
            covered.extend(((8 + size) as u16).to_be_bytes());
            covered.extend(&datagram);
            assert_eq!(sum(&covered), 0xffff, "{source}, {size} bytes");
            assert_eq!(udp(source, target, 9, size, false)[6..8], [0, 0]);
        }
    }
}

/// A datagram that an attacker's fragment has got into must not count as delivered.
#[test]
fn only_what_arrives_as_it_was_sent_is_intact() {
    let mut datagrams = Datagrams::open("127.0.0.1:0".parse().unwrap(), 100, 100).unwrap();
    let target = datagrams.socket.local_addr().unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let source = sender.local_addr().unwrap();
    let good = udp(source, target, 3, 100, false)[8..].to_vec();
    let mut bad = udp(source, target, 4, 100, false)[8..].to_vec();
    bad[50] ^= 1;
    let short = good[..99].to_vec();
    for payload in [&good, &bad, &short, &vec![1, 2, 3]] {
        sender.send_to(payload, target).unwrap();
    }
    let mut seen = Vec::new();
    datagrams
        .take(|number, is_intact| seen.push((number, is_intact)))
        .unwrap();
    assert_eq!(seen, [(3, true), (4, false), (3, false)]);
}
