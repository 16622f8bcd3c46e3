//! The memory is full: who has to go, and who does not notice.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::packet::{Ip, payload};
use super::rig::{Counted, FAMILIES, Family, Rig};
use crate::module::tests::SETTINGS;
use crate::module::{Module, Settings};

/// The least that can be set: some hundred fragments.
const SMALL: Settings = Settings {
    memory: 256 << 10,
    ..SETTINGS
};
/// A fragment, with its packet, may be on top of that for a moment.
const ABOVE: u64 = 8 << 10;

/// One of many senders, each a source of its own: in IPv6 that is a /64.
fn source(family: Family, number: u32) -> IpAddr {
    if family.is_second {
        let [high, low] = [(number >> 16) as u16, number as u16];
        Ipv6Addr::new(0x2001, 0xdb8, high, low, 0, 0, 0, 1).into()
    } else {
        Ipv4Addr::from(0xac10_0000 + number).into()
    }
}

/// The first fragments of datagrams that never go on, each from the next of `sources` sources.
struct Flood<'a> {
    rig: &'a Rig,
    family: Family,
    sources: u32,
    sent: u32,
}

impl Flood<'_> {
    fn send(&mut self, count: u32) {
        for _ in 0..count {
            let ip = Ip {
                source: source(self.family, self.sent % self.sources),
                ..self.rig.ip(self.family)
            };
            self.rig.send(&ip.fragment(0, true, &[0x5a; 1000]));
            self.sent += 1;
        }
    }
}

fn flood(rig: &Rig, family: Family, sources: u32) -> Flood<'_> {
    Flood {
        rig,
        family,
        sources,
        sent: 0,
    }
}

fn count(counted: &Counted, name: &str) -> u64 {
    counted
        .iter()
        .find(|(found, _)| *found == name)
        .map_or(0, |(_, count)| *count)
}

/// Datagrams of 8 fragments of one sender arrive, each with `between` fragments of a flood before every one of its own.
fn expect_undisturbed(rig: &Rig, flood: &mut Flood<'_>, between: u32) {
    let content = payload(6000, 1);
    for _ in 0..20 {
        for fragment in rig.ip(flood.family).fragments(&flood.family.udp(&content), 800) {
            flood.send(between);
            rig.send(&fragment);
        }
        rig.expect(flood.family, &content, &format!("with {} sources", flood.sources));
    }
}

/// As many have gone as have come, and some more while the datagrams were held that arrived.
fn expect_evicted(counted: &Counted, reason: &str, came: u64) {
    let evicted = count(counted, reason);
    assert!((came..came + 20).contains(&evicted), "{counted:?}");
}

/// The memory is within its bounds, now and before.
fn expect_within(rig: &Rig, settings: &Settings) {
    let held = rig.held();
    assert!(held.memory <= settings.memory, "{held:?}");
    assert!(held.memory_max <= settings.memory + ABOVE, "{held:?}");
    assert!(held.memory_max > settings.memory / 2, "the memory was full: {held:?}");
}

/// It ends, and everything is given back.
fn expect_all_freed(rig: &Rig) {
    let sleep = SETTINGS.timeout6 + Duration::from_secs(1);
    std::thread::sleep(sleep);
    rig.expect_empty();
    rig.module(Module::stop).unwrap();
}

/// One sender of endless first fragments would stop everybody else's datagrams, as with the stock kernel.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_one_source_that_fills_the_memory_evicts_its_own() {
    for family in FAMILIES {
        let rig = Rig::with(&SMALL);
        let mut flood = flood(&rig, family, 1);
        flood.send(500);
        rig.counted(family);
        expect_undisturbed(&rig, &mut flood, 10);
        let counted = rig.counted(family);
        assert_eq!(count(&counted, "completed"), 20);
        expect_evicted(&counted, "evicted_share", 1600);
        assert_eq!(counted.len(), 3, "{counted:?}");
        expect_within(&rig, &SMALL);
        let sources = rig.module(Module::sources).unwrap();
        let largest = sources.iter().max_by_key(|source| source.memory).unwrap();
        assert!(
            largest.memory > SMALL.memory / 2 && largest.failed > 1000,
            "{largest:?}"
        );
        expect_all_freed(&rig);
    }
}

/// Thousands of senders with a fragment each are each below any share: who is known must not notice.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_many_sources_that_fill_the_memory_evict_strangers() {
    for family in FAMILIES {
        let rig = Rig::with(&SMALL);
        let mut flood = flood(&rig, family, 10_000);
        // Who has completed a datagram is known.
        rig.send_all(&rig.ip(family).fragments(&family.udp(&payload(100, 1)), 64));
        rig.expect(family, &payload(100, 1), "before");
        flood.send(500);
        rig.counted(family);
        // So slow that a stranger's datagram would be evicted several times.
        expect_undisturbed(&rig, &mut flood, 60);
        let counted = rig.counted(family);
        assert_eq!(count(&counted, "completed"), 20);
        expect_evicted(&counted, "evicted_stranger", 9600);
        assert_eq!(counted.len(), 3, "{counted:?}");
        expect_within(&rig, &SMALL);
        expect_all_freed(&rig);
    }
}

/// When all are known and hold little, the oldest goes: the memory would grow without end.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_known_sources_that_fill_the_memory_evict_the_oldest() {
    for family in FAMILIES {
        let rig = Rig::with(&SMALL);
        let with_source = |number: u32| Ip {
            source: source(family, number),
            ..rig.ip(family)
        };
        for number in 0..200 {
            rig.send_all(&with_source(number).fragments(&[0; 24], 16));
        }
        let counted = rig.counted(family);
        assert_eq!(counted, [("fragments", 400), ("completed", 200)]);
        let mut flood = flood(&rig, family, 200);
        flood.send(1000);
        let counted = rig.counted(family);
        let evicted = count(&counted, "evicted_age");
        assert!(evicted > 500, "{counted:?}");
        assert_eq!(counted, [("fragments", 1000), ("evicted_age", evicted)]);
        assert_eq!(evicted + u64::from(rig.held().datagrams), 1000);
        assert_eq!(rig.held().strangers, 0);
        expect_within(&rig, &SMALL);
        expect_all_freed(&rig);
    }
}

/// Whoever evicts must not send messages: an attacker would have the host send one for each of its packets, to anybody.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_nobody_is_told_of_an_eviction() {
    let rig = Rig::with(&SMALL);
    for family in FAMILIES {
        rig.wire.drain(Duration::from_millis(100));
        let mut flood = flood(&rig, family, 1);
        flood.send(1000);
        assert!(count(&rig.counted(family), "evicted_share") > 500);
        let answers = rig.wire.drain(Duration::from_secs(1));
        let ours = |frame: &&Vec<u8>| frame[super::packet::ETHERNET + 9] == super::packet::ICMP;
        assert_eq!(answers.iter().filter(ours).count(), 0, "{}", family.name());
    }
}

/// What is set lower evicts at once, until that is kept.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_lower_ceiling_holds_at_once() {
    let rig = Rig::with(&Settings {
        memory: 16 << 20,
        ..SETTINGS
    });
    for family in FAMILIES {
        flood(&rig, family, 2000).send(2000);
    }
    assert_eq!(rig.held().datagrams, 4000);
    rig.module(|module| module.set(&SMALL)).unwrap();
    let held = rig.held();
    assert!(
        held.memory <= SMALL.memory && held.memory > SMALL.memory / 2,
        "{held:?}"
    );
    expect_all_freed(&rig);
}
