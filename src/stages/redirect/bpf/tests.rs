//! The programs on packets whose sum the device has told (CHECKSUM_COMPLETE): the sum must follow what they rewrite, or
//! the receiver's kernel complains of the hardware and adds every packet up itself.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use libbpf_rs::libbpf_sys as sys;
use nix::errno::Errno;

use super::load::{self, Framing, Limits, Loaded};
use super::synchronise;
use crate::kernel::netns::testing::in_new_namespace;
use crate::stages::redirect::parse::{self, Written};
use crate::stages::redirect::rule::Origin;

/// The kernel gives the packet its sum, and compares it with the packet afterwards.
const CHECKSUM_COMPLETE: u32 = sys::BPF_F_TEST_SKB_CHECKSUM_COMPLETE;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The part of a datagram that a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    First,
    Second,
}

fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)))
        .sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The transport header and 100 bytes of data, with its checksum.
fn transport(protocol: u8, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (header, place) = if protocol == UDP { (8, 6) } else { (20, 16) };
    let mut bytes = vec![0; header];
    bytes[..2].copy_from_slice(&from.port().to_be_bytes());
    bytes[2..4].copy_from_slice(&to.port().to_be_bytes());
    bytes.extend((0..100).map(|byte: u8| byte.wrapping_mul(37)));
    let length = bytes.len() as u16;
    if protocol == UDP {
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
    } else {
        bytes[12] = 5 << 4;
    }
    let pseudo = sum(&octets(from.ip())) + sum(&octets(to.ip())) + u64::from(protocol) + u64::from(length);
    let checksum = !folded(pseudo + sum(&bytes));
    bytes[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// A frame with one part of a datagram; the first part ends after 64 bytes.
fn frame(protocol: u8, from: SocketAddr, to: SocketAddr, part: Part) -> Vec<u8> {
    let bytes = transport(protocol, from, to);
    let (payload, fragment) = match part {
        Part::Whole => (bytes, None),
        Part::First => (bytes[..64].to_vec(), Some((0_u16, true))),
        Part::Second => (bytes[64..].to_vec(), Some((64, false))),
    };
    let (ether_type, header) = if from.is_ipv4() {
        (0x0800_u16, ipv4(protocol, from, to, payload.len(), fragment))
    } else {
        (0x86dd, ipv6(protocol, from, to, payload.len(), fragment))
    };
    [vec![0; 12], ether_type.to_be_bytes().to_vec(), header, payload].concat()
}

fn ipv4(protocol: u8, from: SocketAddr, to: SocketAddr, payload: usize, fragment: Option<(u16, bool)>) -> Vec<u8> {
    let mut header = vec![0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(20 + payload as u16).to_be_bytes());
    header[4..6].copy_from_slice(&7_u16.to_be_bytes());
    if let Some((offset, more)) = fragment {
        header[6..8].copy_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
    }
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&octets(from.ip()));
    header[16..20].copy_from_slice(&octets(to.ip()));
    let checksum = !folded(sum(&header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

fn ipv6(protocol: u8, from: SocketAddr, to: SocketAddr, payload: usize, fragment: Option<(u16, bool)>) -> Vec<u8> {
    let extension = fragment.map_or(Vec::new(), |(offset, more)| {
        let place = (offset | u16::from(more)).to_be_bytes();
        [[protocol, 0, place[0], place[1]], 7_u32.to_be_bytes()].concat()
    });
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((extension.len() as u16 + payload as u16).to_be_bytes());
    header.extend([if fragment.is_some() { 44 } else { protocol }, 64]);
    header.extend(octets(from.ip()));
    header.extend(octets(to.ip()));
    [header, extension].concat()
}

/// Runs `redirect_in` once. Returns the frame as it left, or the error: EBADMSG when the sum is wrong.
fn run(loaded: &Loaded, frame: &[u8], flags: u32) -> Result<Vec<u8>, Errno> {
    let mut left = vec![0; 2048];
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: left.as_mut_ptr().cast(),
        data_size_out: left.len() as u32,
        repeat: 1,
        flags,
        ..Default::default()
    };
    let program = loaded.program("redirect_in").unwrap();
    // SAFETY: the program is open, and both buffers have the lengths given and live until the call returns.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    if result < 0 {
        return Err(Errno::from_raw(-result));
    }
    left.truncate(options.data_size_out as usize);
    Ok(left)
}

#[test]
#[ignore = "needs the lab"]
fn lab_the_sum_that_a_device_has_told_follows_what_is_rewritten() {
    in_new_namespace(|| {
        let limits = Limits {
            rules: 8,
            flows: 1024,
            xdp_delivers: false,
            xdp: false,
        };
        let loaded = load::load(limits, Framing::Ethernet, None).unwrap();
        let ends = [
            ("10.9.0.7:5000", "192.0.2.1:8080", "10.1.2.3:8083"),
            ("[2001:db8:9::7]:5000", "[2001:db8::1]:8080", "[2001:db8:1::3]:8083"),
        ];
        let mut rules = Vec::new();
        for (_, from, to) in ends {
            let written = Written {
                protocols: &["udp", "tcp"],
                from,
                to,
                source: None,
                note: None,
            };
            rules.extend(parse::rules(&written, Origin::Config).unwrap());
        }
        rules.iter_mut().zip(0..).for_each(|(rule, id)| rule.id = id);
        synchronise(&loaded.maps, &rules).unwrap();
        let elsewhere = "192.0.2.99:9".parse().unwrap();
        if run(
            &loaded,
            &frame(UDP, elsewhere, elsewhere, Part::Whole),
            CHECKSUM_COMPLETE,
        ) == Err(Errno::EINVAL)
        {
            println!("SKIP: this kernel cannot run a program on a packet with a sum (Linux 6.16 can)");
            return;
        }
        for (client, from, to) in ends {
            let [client, matched, target] = [client, from, to].map(|end| end.parse::<SocketAddr>().unwrap());
            for (protocol, part) in [UDP, TCP]
                .into_iter()
                .flat_map(|protocol| [Part::Whole, Part::First, Part::Second].map(|part| (protocol, part)))
            {
                let arrived = frame(protocol, client, matched, part);
                let left = run(&loaded, &arrived, CHECKSUM_COMPLETE);
                let expected = frame(protocol, client, target, part);
                assert_eq!(
                    left.as_deref(),
                    Ok(expected.as_slice()),
                    "{client} protocol {protocol} {part:?}"
                );
            }
        }
    });
}
