//! Rules of nftables before and behind the module, and connection tracking on the receiver.

use super::orders::{expect_any_order, orders};
use super::packet::{self, payload};
use super::rig::{FAMILIES, Family, IPV4, Rig, counter};
use super::wire::Wire;
use crate::module::tests::SETTINGS;
use crate::module::{Datagrams, Settings};
use tarn_lab::topology::Namespace;

/// Counts fragments before the module and behind it, and whole datagrams behind it.
const COUNTERS: &str = "table inet seen {
    counter early {}
    counter late {}
    counter whole {}
    chain early {
        type filter hook prerouting priority -450;
        ip frag-off & 0x3fff != 0 counter name early
        exthdr frag exists counter name early
    }
    chain late {
        type filter hook prerouting priority -300;
        ip frag-off & 0x3fff != 0 counter name late
        exthdr frag exists counter name late
        udp dport 2000 counter name whole
    }
}";

/// Packets of a named counter.
fn packets(namespace: &Namespace, name: &str) -> u64 {
    let printed = namespace
        .run("nft", &["reset", "counter", "inet", "seen", name])
        .unwrap();
    let (_, after) = printed.split_once("packets ").unwrap();
    after.split(' ').next().unwrap().parse().unwrap()
}

/// Rules that match fragments go on where they stand before -401; those behind see whole datagrams, ports included.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_rules_see_fragments_before_it_and_datagrams_behind() {
    let rig = Rig::new();
    rig.receiver().run("nft", &[COUNTERS]).unwrap();
    for family in FAMILIES {
        expect_any_order(&rig, family, "with rules");
        let seen = ["early", "late", "whole"].map(|name| packets(rig.receiver(), name));
        assert_eq!(seen, [36, 0, 6], "{}", family.name());
    }
    // An administrator who drops fragments drops them before they take memory.
    let drop = "add chain inet seen no { type filter hook prerouting priority -450; }; \
                add rule inet seen no ip frag-off & 0x3fff != 0 drop; add rule inet seen no exthdr frag exists drop";
    rig.receiver().run("nft", &[drop]).unwrap();
    for family in FAMILIES {
        rig.send_all(&rig.ip(family).fragments(&family.udp(&payload(3000, 1)), 800));
        rig.expect_nothing(family, "dropped");
        assert_eq!(rig.counted(family), []);
    }
    rig.expect_empty();
}

/// What is not to be tracked is not reassembled before the stack does it: who relies on that for forwarded traffic would be surprised.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_untracked_fragments_are_left_to_the_stack() {
    let rig = Rig::new();
    let rules = "table inet raw {
        chain raw { type filter hook prerouting priority -450; notrack; }
    }";
    rig.receiver().run("nft", &[rules]).unwrap();
    for (family, done) in FAMILIES.into_iter().zip(["IpReasmOKs", "Ip6ReasmOKs"]) {
        let before = counter(rig.receiver(), done);
        let content = payload(3000, 1);
        for order in 0..6 {
            let fragments = rig.ip(family).fragments(&family.udp(&content), 800);
            rig.send_all(&orders(&fragments, 1)[order].1);
            rig.expect(family, &content, "by the stack");
        }
        assert_eq!(rig.counted(family), []);
        assert_eq!(counter(rig.receiver(), done) - before, 6);
    }
}

/// With connection tracking on the host itself, a datagram is one packet of its connection, once.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_tracked_datagram_is_one_packet() {
    let rig = Rig::new();
    rig.receiver().run("nft", &[COUNTERS]).unwrap();
    let rules = "table inet tracking {
        chain in { type filter hook input priority 0; ct state invalid drop; }
    }";
    rig.receiver().run("nft", &[rules]).unwrap();
    for datagrams in Datagrams::CHOICES {
        let settings = Settings { datagrams, ..SETTINGS };
        rig.module(|module| module.set(&settings)).unwrap();
        for family in FAMILIES {
            expect_any_order(&rig, family, datagrams.name());
            assert_eq!(packets(rig.receiver(), "whole"), 6, "{} {datagrams}", family.name());
        }
    }
    rig.expect_empty();
}

/// Zones are for networks with the same addresses: a customer would get what is another's.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_zones_of_connection_tracking_are_kept_apart() {
    let rig = Rig::new();
    let rules = "table inet zones {
        chain zones { type filter hook prerouting priority -450; ct zone set iifname map { eth0 : 1, eth1 : 2 }; }
        chain in { type filter hook input priority 0; ct state invalid drop; }
    }";
    // A second link between both, whose frames say that they are from the same sender.
    let place = format!("/proc/{}/fd/{}", std::process::id(), {
        use std::os::fd::{AsFd, AsRawFd};
        rig.receiver().as_fd().as_raw_fd()
    });
    let add = format!("link add eth1 type veth peer eth1 address 02:00:00:00:00:01 netns {place}");
    rig.sender().ip_batch(&[add, "link set eth1 up".to_owned()]).unwrap();
    rig.receiver().ip("link set eth1 up").unwrap();
    rig.receiver().run("nft", &[rules]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let second = Wire::open(rig.sender(), "eth1", 0);
    for family in FAMILIES {
        let (ip, contents) = (rig.ip(family), [payload(3000, 1), payload(3000, 2)]);
        let both = [0, 1].map(|number: usize| {
            orders(&ip.fragments(&family.udp(&contents[number]), 800), 2)
                .remove(5 + number)
                .1
        });
        for (one, other) in both[0].iter().zip(&both[1]) {
            rig.send(one);
            second.send(&packet::frame(super::rig::RECEIVER_MAC, super::rig::SENDER_MAC, other));
        }
        let mut received = [rig.received(family), rig.received(family)];
        received.sort();
        let mut expected = contents.map(Some);
        expected.sort();
        assert!(received == expected, "{}: {:?}", family.name(), rig.counted(family));
    }
    rig.expect_empty();
}

/// A large ping is what an administrator tries first.
#[test]
#[ignore = "needs the lab"]
fn lab_reassembly_large_pings_are_answered() {
    let rig = Rig::new();
    for family in [IPV4.receiver, FAMILIES[1].receiver] {
        rig.sender()
            .run("ping", &["-c", "3", "-i", "0.2", "-s", "60000", family])
            .unwrap();
    }
    let completed = |family: Family| rig.counted(family).contains(&("completed", 3));
    assert!(FAMILIES.into_iter().all(completed));
    rig.expect_empty();
}
