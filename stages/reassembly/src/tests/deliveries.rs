//! Thousands of made-up datagrams, with the module and without: sockets get the same, but for what is listed here.

use std::collections::BTreeMap;
use std::time::Duration;

use super::packet::payload;
use super::rig::{FAMILIES, Family, Rig, taken};
use crate::module::tests::SETTINGS;
use crate::module::{Module, Settings};
use tarn_lab::random::Random;
use tarn_lab::testing::{is_thorough, seed};

/// Room for all that is left over.
const ROOMY: Settings = Settings {
    memory: 256 << 20,
    share: 2,
    ..SETTINGS
};

/// In what a datagram may be delivered otherwise than by the stock kernel.
const OVERLAP: &str =
    "a fragment within others, or across a border: the stock kernel ignores or discards, by order; we discard";
const ODD_LENGTH: &str = "a length that is no multiple of 8: the stock kernel cuts off what is too much (IPv4) or ignores the fragment (IPv6); we discard";
const SECOND_END: &str = "a second end within others: the stock kernel ignores it; we discard";

/// One datagram as it is sent.
struct Case {
    family: Family,
    content: Vec<u8>,
    packets: Vec<Vec<u8>>,
    /// Why it may be delivered otherwise; none: it may not.
    differences: Vec<&'static str>,
}

/// Where its fragments are cut.
fn sizes(random: &mut Random, length: usize) -> Vec<usize> {
    let most = [8, 64, 800, 1440][random.below(4) as usize];
    // Not hundreds of fragments each.
    let most = most.max(length / 40 / 8 * 8);
    let is_mixed = random.below(4) == 0;
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < length {
        let size = if is_mixed {
            8 + random.below(most as u64 / 8) as usize * 8
        } else {
            most
        };
        sizes.push(size);
    }
    sizes
}

fn case(random: &mut Random, identification: u32) -> Case {
    let family = FAMILIES[random.below(2) as usize];
    let length = [30, 500, 3000, 20_000][random.below(4) as usize];
    let content = payload(1 + random.below(length) as usize, identification);
    let datagram = family.udp(&content);
    let mut ip = family.ip();
    ip.identification = identification;
    let mut packets = ip.cut(&datagram, &sizes(random, datagram.len()));
    // One alone is not a fragment.
    if packets.len() == 1 {
        packets = ip.cut(&datagram, &[8, datagram.len()]);
    }
    let mut differences = Vec::new();
    let any = |random: &mut Random, packets: &[Vec<u8>]| packets[random.below(packets.len() as u64) as usize].clone();
    let one_in = |random: &mut Random, number| random.below(number) == 0;
    if one_in(random, 3) {
        for _ in 0..=random.below(3) {
            let again = any(random, &packets);
            packets.push(again);
        }
    }
    if one_in(random, 6) {
        let offset = random.below(datagram.len() as u64 / 8) as usize * 8;
        let length = (8 + random.below(40) as usize * 8).min((datagram.len() - offset) / 8 * 8);
        let mut bytes = datagram[offset..offset + length].to_vec();
        bytes[0] ^= random.below(2) as u8;
        packets.push(ip.fragment(offset, true, &bytes));
        differences.push(OVERLAP);
    }
    if one_in(random, 12) {
        packets.push(ip.fragment(8, true, &payload(1 + random.below(6) as usize, 2)));
        differences.push(ODD_LENGTH);
    }
    if one_in(random, 12) {
        let offset = random.below(datagram.len() as u64 / 8) as usize * 8;
        packets.push(ip.fragment(offset, false, &payload(1 + random.below(100) as usize, 1)));
        differences.push(SECOND_END);
    }
    if one_in(random, 12) {
        let lost = random.below(packets.len() as u64) as usize;
        packets.remove(lost);
    }
    match random.below(4) {
        0 => {}
        1 => packets.reverse(),
        _ => random.shuffle(&mut packets),
    }
    Case {
        family,
        content,
        packets,
        differences,
    }
}

/// What the socket gets of each datagram.
fn deliver(rig: &Rig, cases: &[Case]) -> Vec<Vec<Vec<u8>>> {
    let deliver = |case: &Case| {
        rig.send_all(&case.packets);
        rig.settle();
        std::iter::from_fn(|| taken(rig.socket(case.family))).collect()
    };
    let delivered = cases.iter().map(deliver).collect();
    // What is left over is given up.
    std::thread::sleep(SETTINGS.timeout6 + Duration::from_secs(2));
    delivered
}

/// Whoever changes from the stock kernel's reassembly to this one must not lose datagrams that arrived before, or get others.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_sockets_get_what_they_got_without_it() {
    let rig = Rig::with(&ROOMY);
    let most = (256 << 20).to_string();
    rig.receiver().sysctl("net/ipv4/ipfrag_high_thresh", &most).unwrap();
    rig.receiver().sysctl("net/ipv6/ip6frag_high_thresh", &most).unwrap();
    let mut random = Random::new(seed().into(), "deliveries");
    let number = if is_thorough() { 10_000 } else { 1000 };
    let cases: Vec<Case> = (0..number).map(|number| case(&mut random, 0x2000 + number)).collect();
    let ours = deliver(&rig, &cases);
    rig.expect_empty();
    rig.module(Module::stop).unwrap();
    let stock = deliver(&rig, &cases);

    let mut differences = BTreeMap::new();
    let mut delivered = 0;
    for (number, case) in cases.iter().enumerate() {
        delivered += ours[number].len();
        if ours[number] == stock[number] {
            continue;
        }
        let what = format!(
            "{} {number}: {} instead of {} datagrams",
            case.family.name(),
            ours[number].len(),
            stock[number].len()
        );
        assert!(!case.differences.is_empty(), "{what}");
        // It may be lost, or survive; it must not be another.
        assert!(ours[number].iter().all(|payload| *payload == case.content), "{what}");
        let fate = if ours[number].len() < stock[number].len() {
            "lost"
        } else {
            "delivered"
        };
        for name in &case.differences {
            *differences.entry((*name, fate)).or_insert(0) += 1;
        }
    }
    assert!(delivered > cases.len() / 2, "{delivered} of {}", cases.len());
    println!("{delivered} of {} delivered; otherwise: {differences:#?}", cases.len());
}
