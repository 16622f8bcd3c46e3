//! The programs one by one: what they cost the verifier, and what they do with packets whose sum the device has told
//! (CHECKSUM_COMPLETE): the sum must follow what they rewrite, or the receiver's kernel complains of the hardware and adds
//! every packet up itself.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, libbpf_sys as sys};
use nix::errno::Errno;

use super::load::{self, Framing, Limits, Loaded};
use super::skeleton::types;
use super::tables::address_keys;
use super::{change, synchronise};
use crate::config::FLOWS_DEFAULT;
use crate::parse::{self, Written};
use crate::rule::{Origin, Rule};
use crate::store::LIMIT_DEFAULT;
use tarn_kernel::netns::testing::in_new_namespace;
use tarn_kernel::plain::bytes_of;
use tarn_kernel::{links, sysctl};

/// The kernel gives the packet its sum, and compares it with the packet afterwards.
const CHECKSUM_COMPLETE: u32 = sys::BPF_F_TEST_SKB_CHECKSUM_COMPLETE;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What the verifier may look at of each program, in instructions: a quarter more than on the dearest of Debian's kernels,
/// 6.1 to 7.2, when this was written. Its limit is a million; a program that comes near it fails on some kernel to come.
const VERIFIED_AT_MOST: [(&str, u32); 5] = [
    ("redirect_in", 36_000),
    ("redirect_in_ip", 28_000),
    ("redirect_out", 27_500),
    ("redirect_out_ip", 27_500),
    ("redirect_xdp", 15_500),
];

/// For loading with tables of the default sizes, the verifier's work included, on the lab's clock of instructions. It took
/// about half of that when this was written, and longer than that with a per-CPU array for the counters.
const LOADED_WITHIN: Duration = Duration::from_secs(1);

/// Clients, what they ask, and the targets, of both families.
const ENDS: [(&str, &str, &str); 2] = [
    ("10.9.0.7:5000", "192.0.2.1:8080", "10.1.2.3:8083"),
    ("[2001:db8:9::7]:5000", "[2001:db8::1]:8080", "[2001:db8:1::3]:8083"),
];

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

/// The same packet with another time to live or hop limit, which `frame` makes 64.
fn with_hops(mut frame: Vec<u8>, hops: u8) -> Vec<u8> {
    let header = &mut frame[14..];
    if header[0] >> 4 == 6 {
        header[7] = hops;
        return frame;
    }
    header[8] = hops;
    header[10..12].fill(0);
    let checksum = !folded(sum(&header[..20]));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Runs `redirect_in` once over a frame that came in by loopback. Returns the frame as it left, or the error: EBADMSG when
/// the sum is wrong.
fn run(loaded: &Loaded, frame: &[u8], flags: u32) -> Result<Vec<u8>, Errno> {
    let mut left = vec![0; 2048];
    let mut context = [0_u8; 44]; // of struct __sk_buff, up to ifindex
    context[36..40].copy_from_slice(&1_u32.to_ne_bytes()); // ingress_ifindex
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: left.as_mut_ptr().cast(),
        data_size_out: left.len() as u32,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: context.len() as u32,
        repeat: 1,
        flags,
        ..Default::default()
    };
    let program = loaded.program("redirect_in").unwrap();
    // SAFETY: the program is open, and the buffers have the lengths given and live until the call returns.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    if result < 0 {
        return Err(Errno::from_raw(-result));
    }
    left.truncate(options.data_size_out as usize);
    Ok(left)
}

/// The rules for both protocols.
fn rules(from: &str, to: &str) -> Vec<Rule> {
    let written = Written {
        protocols: &["udp", "tcp"],
        from,
        to,
        source: None,
        note: None,
    };
    parse::rules(&written, Origin::Config).unwrap()
}

fn load(xdp: bool) -> Loaded {
    let limits = Limits {
        rules: 8,
        flows: 1024,
        xdp,
    };
    let loaded = load::load(limits, Framing::EthernetAndIp, None).unwrap();
    let mut rules: Vec<Rule> = ENDS.into_iter().flat_map(|(_, from, to)| rules(from, to)).collect();
    rules.iter_mut().zip(0..).for_each(|(rule, id)| rule.id = id);
    synchronise(&loaded.maps, &rules).unwrap();
    loaded
}

/// Whole and fragmented packets leave for their targets with the right sum, and with this many hops left.
fn the_sum_follows(loaded: &Loaded, hops: u8) {
    let elsewhere = "192.0.2.99:9".parse().unwrap();
    if run(
        loaded,
        &frame(UDP, elsewhere, elsewhere, Part::Whole),
        CHECKSUM_COMPLETE,
    ) == Err(Errno::EINVAL)
    {
        println!("SKIP: this kernel cannot run a program on a packet with a sum (Linux 6.11 can)");
        return;
    }
    for (client, from, to) in ENDS {
        let [client, matched, target] = [client, from, to].map(|end| end.parse::<SocketAddr>().unwrap());
        for (protocol, part) in [UDP, TCP]
            .into_iter()
            .flat_map(|protocol| [Part::Whole, Part::First, Part::Second].map(|part| (protocol, part)))
        {
            let left = run(loaded, &frame(protocol, client, matched, part), CHECKSUM_COMPLETE);
            let expected = with_hops(frame(protocol, client, target, part), hops);
            assert_eq!(
                left.as_deref().map(|left| &left[12..]),
                Ok(&expected[12..]),
                "{client} protocol {protocol} {part:?}"
            );
        }
    }
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_the_sum_that_a_device_has_told_follows_what_is_rewritten() {
    in_new_namespace(|| the_sum_follows(&load(false), 64));
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_the_sum_that_a_device_has_told_follows_what_is_sent_on() {
    in_new_namespace(|| {
        for command in [
            "link set lo up",
            "link add out address 02:00:00:00:00:01 type veth peer far",
            "address add 10.1.2.1/24 dev out",
            "address add 2001:db8:1::1/64 dev out nodad",
            "link set far up",
            "link set out up",
            // The way back to the client.
            "route add 10.9.0.0/16 dev out",
            "neighbour add 10.1.2.3 lladdr 02:00:00:00:00:02 dev out",
            "neighbour add 2001:db8:1::3 lladdr 02:00:00:00:00:02 dev out",
        ] {
            let done = std::process::Command::new("ip").args(command.split(' ')).status();
            assert!(done.unwrap().success(), "ip {command}");
        }
        for parameter in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            std::fs::write(sysctl::path(parameter), "1").unwrap();
        }
        let loaded = load(false);
        let out = links::all()
            .unwrap()
            .into_iter()
            .find(|link| link.name == "out")
            .unwrap();
        let exit = types::exit {
            delivery: types::delivery::BY_EGRESS,
            by_xdp: 0,
        };
        let key = bytes_of(&out.index);
        loaded.maps.exits.update(key, bytes_of(&exit), MapFlags::ANY).unwrap();
        the_sum_follows(&loaded, 63);
    });
}

/// A service that is led from server to server, for years: the map of addresses remembers where rules have led, and is full
/// some day. A change must not fail for that, nor what the rules in force lead to be forgotten.
#[test]
#[ignore = "needs the lab"]
fn lab_addresses_that_rules_led_to_make_room() {
    let loaded = load(false);
    let map = &loaded.maps.addresses;
    let is_known = |key: &[u8]| map.lookup(key, MapFlags::ANY).unwrap().is_some();
    let led = |number: u32| {
        let mut rules = rules("192.0.2.9:53", &format!("10.2.0.{number}:53"));
        rules.iter_mut().zip(4..).for_each(|(rule, id)| rule.id = id);
        rules
    };
    let mut counts = Vec::new();
    change(&loaded.maps, &led(1), &[]).unwrap();
    for number in 2..=100 {
        let rules = led(number);
        change(&loaded.maps, &rules, &led(number - 1)).unwrap();
        assert!(
            rules.iter().flat_map(address_keys).all(|key| is_known(&key)),
            "{number}"
        );
        counts.push(map.keys().count() as u32);
    }
    assert!(
        counts.contains(&map.max_entries()),
        "the map was never full: {counts:?}"
    );
    for rule in ENDS.into_iter().flat_map(|(_, from, to)| rules(from, to)) {
        assert!(address_keys(&rule).iter().all(|key| is_known(key)), "{rule:?}");
    }
}

/// How many instructions the verifier looked at.
fn verified(program: BorrowedFd<'_>) -> u32 {
    let mut info = sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: the program is open; the structure has the length given and asks for nothing behind its pointers.
    let result = unsafe { sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut length) };
    assert_eq!(result, 0);
    info.verified_insns
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_the_programs_cost_the_verifier_no_more_than_before() {
    let loaded = load(true);
    let counted = VERIFIED_AT_MOST.map(|(name, most)| (name, verified(loaded.program(name).unwrap()), most));
    println!("{counted:?}");
    assert!(counted.iter().all(|(_, count, most)| count <= most), "{counted:?}");
}

/// `tarn up` with nothing configured about sizes: the tables are made for 65,536 rules and 262,144 flows of each family,
/// which must not take the time of entries that the kernel allocates one by one.
#[test]
#[ignore = "needs the lab"]
fn lab_the_default_tables_are_made_without_a_wait() {
    let limits = Limits {
        rules: LIMIT_DEFAULT,
        flows: FLOWS_DEFAULT,
        xdp: false,
    };
    let began = Instant::now();
    let loaded = load::load(limits, Framing::Ethernet, None).unwrap();
    let took = began.elapsed();
    println!("loaded in {took:?}");
    let sizes = [&loaded.maps.flows4, &loaded.maps.flows6].map(MapCore::max_entries);
    assert_eq!(sizes, [limits.flow_tables()[0]; 2]);
    assert_eq!(
        super::counters::slots(&loaded.maps.rule_counters).unwrap(),
        LIMIT_DEFAULT
    );
    assert!(took < LOADED_WITHIN, "{took:?}");
}

/// Counts of entries that are in no table any more would have flows counted as pushed out while there is room, and answers
/// dropped that nobody has lost.
#[test]
#[ignore = "needs the lab"]
fn lab_flows_are_counted_anew_when_their_tables_are_of_another_size() {
    let of_size = |flows, running: Option<&Loaded>| {
        let limits = Limits {
            rules: 16,
            flows,
            xdp: false,
        };
        load::load(limits, Framing::Ethernet, running.map(|running| &running.maps)).unwrap()
    };
    let counts = |loaded: &Loaded| {
        let bytes = loaded.maps.rooms.lookup(bytes_of(&0_u32), MapFlags::ANY);
        bytes.unwrap().unwrap()
    };
    let first = of_size(4096, None);
    let full = vec![1; counts(&first).len()];
    first.maps.rooms.update(bytes_of(&0_u32), &full, MapFlags::ANY).unwrap();
    let same = of_size(4096, Some(&first));
    assert_eq!(counts(&same), full, "the tables are the same");
    let larger = of_size(8192, Some(&same));
    assert_eq!(counts(&larger), vec![0; full.len()]);
}
