use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::lookup::Index;
use crate::rule::samples::{crowded_rule, rules, udp};

/// Every pair, compared.
fn in_conflict(rules: &[Rule]) -> bool {
    let pair = |a: &Rule, b: &Rule| {
        let same = a.protocol == b.protocol && a.address == b.address && a.source == b.source;
        let chain = a.protocol == b.protocol && b.address == Address::Ip(a.to) && a.to_ports.intersects(b.ports);
        same && a.ports.intersects(b.ports) || chain
    };
    (0..rules.len()).any(|a| (0..rules.len()).any(|b| a != b && pair(&rules[a], &rules[b])))
}

/// The rules one could keep when adding them one by one.
fn compatible(rules: Vec<Rule>) -> Vec<Rule> {
    rules.into_iter().fold(Vec::new(), |mut kept, rule| {
        kept.push(rule);
        if in_conflict(&kept) {
            kept.pop();
        }
        kept
    })
}

#[test]
fn a_rule_that_stands_twice_is_named() {
    let rules = [
        udp("192.0.2.1:53", "10.0.1.2", None),
        udp("192.0.2.1:53", "10.0.1.2", None),
    ];
    let found = conflicts(&rules);
    assert_eq!(
        found,
        [Conflict {
            kind: Kind::Duplicate,
            rule: 1,
            other: 0
        }]
    );
    let (message, remedy) = found[0].describe(&rules, |index| format!("line {}", index + 3));
    assert_eq!(
        message,
        "the rule stands twice: udp 192.0.2.1:53 to 10.0.1.2:53 (line 3) is the same"
    );
    assert_eq!(remedy, "one is enough");
}

#[test]
fn a_range_hidden_behind_a_short_one_is_found() {
    let rules = [
        udp("192.0.2.1:1-1000", "10.0.1.2", None),
        udp("192.0.2.1:2000", "10.0.1.3", None),
        udp("192.0.2.1:5-7", "10.0.1.4", Some("10.0.0.0/8")),
        udp("192.0.2.1:900-2000", "10.0.1.5", None),
    ];
    let found: Vec<_> = conflicts(&rules).iter().map(|c| (c.kind, c.rule, c.other)).collect();
    assert_eq!(found, [(Kind::Ports, 3, 0), (Kind::Ports, 3, 1)]);
}

#[test]
fn a_chain_is_found_whatever_the_source_prefixes() {
    let rules = [
        udp("192.0.2.1:53", "192.0.2.2:5353", Some("10.0.0.0/8")),
        udp("192.0.2.2:5000-6000", "192.0.2.3", Some("172.16.0.0/12")),
    ];
    let found = conflicts(&rules);
    assert_eq!(
        found,
        [Conflict {
            kind: Kind::Chain,
            rule: 0,
            other: 1
        }]
    );
    let (message, _) = found[0].describe(&rules, |index| format!("id {index}"));
    assert!(
        message.starts_with("the target 192.0.2.2:5353 is the match of udp 192.0.2.2:5000-6000"),
        "{message}"
    );
}

#[test]
fn other_protocols_prefixes_and_addresses_may_share_ports() {
    let mut set = rules(&["tcp", "udp"], "192.0.2.1:53", "10.0.1.2", None);
    set.push(udp("0.0.0.0:53", "10.0.1.3", None));
    set.push(udp("192.0.2.1:53", "10.0.1.4", Some("10.0.0.0/8")));
    set.push(udp("192.0.2.1:53", "10.0.1.5", Some("10.1.0.0/16")));
    assert_eq!(conflicts(&set), []);
}

/// A host with a million rules starts within seconds; the bound is generous because test machines are slow.
#[test]
fn a_million_rules_are_checked_in_seconds() {
    let mut rules: Vec<Rule> = Vec::with_capacity(1_000_001);
    let template = udp("192.0.2.1:1", "10.0.1.2:1", None);
    for number in 0..1_000_000u32 {
        let address = Address::Ip(std::net::Ipv4Addr::from_bits(0xac10_0000 + number / 4).into());
        let ports = PortRange::single(1 + (number % 4) as u16);
        let source = (number % 3 == 0).then(|| Prefix::of(IpAddr::from([10, number as u8, 0, 0]), 16));
        rules.push(Rule {
            address,
            ports,
            source,
            ..template.clone()
        });
    }
    rules.push(Rule {
        to: IpAddr::from([192, 0, 2, 9]),
        ..rules[777_777].clone()
    });
    let start = Instant::now();
    assert_eq!(
        conflicts(&rules),
        [Conflict {
            kind: Kind::Ports,
            rule: 1_000_000,
            other: 777_777
        }]
    );
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    println!("1,000,001 rules checked in {:?}", start.elapsed());
}

proptest! {
    /// No pair that gets in each other's way is overlooked, and none is made up.
    #[test]
    fn as_comparing_every_pair(rules in prop::collection::vec(crowded_rule(), 0..8)) {
        prop_assert_eq!(!conflicts(&rules).is_empty(), in_conflict(&rules));
    }

    /// A packet meets the rule that the documented order says.
    #[test]
    fn the_index_finds_what_trying_every_rule_finds(
        rules in prop::collection::vec(crowded_rule(), 0..24), port in 1..20u16, host in 0..4u32, sender in 0..4u32,
        local in any::<bool>(), tcp in any::<bool>(),
    ) {
        let rules = compatible(rules);
        let ip = |low: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 + low));
        let protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
        let best = rules.iter().filter(|rule| {
            let address = match rule.address { Address::Ip(address) => address == ip(host), Address::Any(_) => local };
            rule.protocol == protocol && address && rule.ports.contains(port)
                && rule.source.is_none_or(|source| Prefix::of(ip(sender), source.length) == source)
        }).max_by_key(|rule| (matches!(rule.address, Address::Ip(_)), rule.source.map_or(0, |prefix| prefix.length)));
        prop_assert_eq!(Index::new(&rules).find(protocol, ip(sender), ip(host), port, local), best);
    }
}
