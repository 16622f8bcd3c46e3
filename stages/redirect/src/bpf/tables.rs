//! Rules as the programs' maps hold them. Pure: what must stand in the maps for a set of rules, and what a change of
//! rules changes.
//!
//! A port range is one service a port, so that a packet costs the same whatever ranges there are.

use std::collections::HashMap;
use std::net::IpAddr;

use super::skeleton::types;
use crate::rule::{Family, Prefix, Rule};
use tarn_kernel::plain::{Plain, bytes_of};

macro_rules! plain {
    ($($name:ident),*) => {
        $(
            // SAFETY: a repr(C) structure of integers, laid out in shared.h (the program's variables: by libbpf-cargo)
            // without padding that is not a field.
            unsafe impl Plain for types::$name {}
        )*
    };
}

plain!(
    service_key,
    service,
    source_key,
    target,
    local_key,
    counters,
    exit,
    ingress,
    address_key,
    address_use,
    events,
    clock,
    bss
);

/// `NO_RULE` in shared.h.
pub const NO_RULE: u32 = u32::MAX;
/// Of a service whose rules all ask for a source prefix.
const NO_TARGET: types::target = types::target {
    address: types::address { word: [0; 4] },
    rule: NO_RULE,
    port: 0,
    padding: 0,
};
/// `SERVICE_BITS` in shared.h: the part of a source key before the source's address.
const SERVICE_BITS: u32 = size_of::<types::service_key>() as u32 * 8;
/// `FAMILY_BITS` in shared.h: the part of a local key before the address.
const FAMILY_BITS: u32 = 32;
/// Words of a port set: `PORT_WORDS` in shared.h.
pub const PORT_WORDS: usize = 1024;

/// The key of a service or of an address as its bytes, which can be hashed and compared.
pub type Key = [u8; size_of::<types::service_key>()];
const _: () = assert!(size_of::<types::address_key>() == size_of::<Key>());

/// The bytes of a key.
pub fn key_bytes<T: Plain>(key: &T) -> Key {
    const { assert!(size_of::<T>() == size_of::<Key>()) };
    let mut bytes = [0; size_of::<Key>()];
    bytes.copy_from_slice(bytes_of(key));
    bytes
}

/// The services that some rules touch, as they are or as they shall be.
#[derive(Debug, Default, Clone)]
pub struct Services(pub HashMap<Key, types::service>);

/// A packet's destination port as the programs load it: network byte order in a host integer.
pub fn port_as_loaded(port: u16) -> u16 {
    port.to_be()
}

/// An address as the maps hold it.
pub fn address(address: IpAddr) -> types::address {
    let mut word = [0; 4];
    match address {
        IpAddr::V4(address) => word[0] = u32::from_ne_bytes(address.octets()),
        IpAddr::V6(address) => {
            for (word, bytes) in word.iter_mut().zip(address.octets().chunks_exact(4)) {
                *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
    }
    types::address { word }
}

fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => libc::AF_INET as u8,
        Family::V6 => libc::AF_INET6 as u8,
    }
}

fn service_key(rule: &Rule, at: IpAddr, port: u16) -> types::service_key {
    types::service_key {
        address: address(at),
        port: port_as_loaded(port),
        protocol: rule.protocol.number(),
        family: family_number(rule.family()),
    }
}

/// The services a rule matches, and where it leads them. An unspecified address stands for any of this host, in the maps
/// too.
pub fn matched(rule: &Rule) -> impl Iterator<Item = (types::service_key, types::target)> + '_ {
    (rule.ports.first..=rule.ports.last).map(|port| (service_key(rule, rule.address.ip(), port), target(rule, port)))
}

fn target(rule: &Rule, port: u16) -> types::target {
    types::target {
        address: address(rule.to),
        rule: rule.id,
        port: port_as_loaded(rule.target_port(port)),
        padding: 0,
    }
}

/// The key of a rule's source prefix for one of the services it matches.
pub fn source_key(service: types::service_key, source: Prefix) -> types::source_key {
    types::source_key {
        prefix_length: SERVICE_BITS + u32::from(source.length),
        service,
        address: address(source.address),
    }
}

/// The key of a prefix among this host's addresses.
pub fn local_key(prefix: Prefix) -> types::local_key {
    types::local_key {
        prefix_length: FAMILY_BITS + u32::from(prefix.length),
        family: u32::from(family_number(Family::of(prefix.address))),
        address: address(prefix.address),
    }
}

impl Services {
    /// What stands for `key`, or an empty service.
    fn at(&mut self, key: &types::service_key) -> &mut types::service {
        self.0.entry(key_bytes(key)).or_insert(types::service {
            target: NO_TARGET,
            sources: 0,
        })
    }

    /// Adds a rule.
    pub fn add(&mut self, rule: &Rule) {
        for (key, target) in matched(rule) {
            let service = self.at(&key);
            if rule.source.is_some() {
                service.sources += 1;
            } else {
                service.target = target;
            }
        }
    }

    /// Takes a rule away that was added.
    pub fn remove(&mut self, rule: &Rule) {
        for (key, _) in matched(rule) {
            let service = self.at(&key);
            if rule.source.is_some() {
                service.sources = service.sources.saturating_sub(1);
            } else if service.target.rule == rule.id {
                service.target = NO_TARGET;
            }
        }
    }
}

/// Where rules lead to, and how many of them, as they are or as they shall be.
#[derive(Debug, Default, Clone)]
pub struct Targets(pub HashMap<Key, u32>);

/// The keys of the addresses and ports that a rule leads to, each once.
pub fn target_keys(rule: &Rule) -> impl Iterator<Item = Key> + '_ {
    (rule.to_ports.first..=rule.to_ports.last).map(|port| key_bytes(&service_key(rule, rule.to, port)))
}

impl Targets {
    /// Adds a rule.
    pub fn add(&mut self, rule: &Rule) {
        target_keys(rule).for_each(|key| *self.0.entry(key).or_default() += 1);
    }

    /// Takes a rule away that was added.
    pub fn remove(&mut self, rule: &Rule) {
        for key in target_keys(rule) {
            let count = self.0.entry(key).or_default();
            *count = count.saturating_sub(1);
        }
    }
}

/// Whether a service says nothing any more and can go.
pub fn is_empty(service: &types::service) -> bool {
    service.target.rule == NO_RULE && service.sources == 0
}

/// The addresses that some rules match or lead to, as they are or as they shall be: what fragments are looked at by.
#[derive(Debug, Default, Clone)]
pub struct Addresses(pub HashMap<Key, types::address_use>);

/// The keys of the addresses that a rule matches and leads to.
pub fn address_keys(rule: &Rule) -> [Key; 2] {
    [rule.address.ip(), rule.to].map(|ip| {
        let key = types::address_key {
            address: address(ip),
            family: u32::from(family_number(rule.family())),
        };
        key_bytes(&key)
    })
}

/// In `leads_here` beside the number of rules: one has led here since the programs were loaded. Answers under way outlive
/// their rule, in fragments too, so such an address is looked at as long as there is room.
const HAS_LED: u32 = 1 << 31;
/// What is left of an address that rules led to.
pub const HAS_LED_ONLY: types::address_use = types::address_use {
    matched: 0,
    leads_here: HAS_LED,
};

impl Addresses {
    /// Adds a rule.
    pub fn add(&mut self, rule: &Rule) {
        let [matched, to] = address_keys(rule);
        self.0.entry(matched).or_default().matched += 1;
        let used = self.0.entry(to).or_default();
        used.leads_here = (used.leads_here + 1) | HAS_LED;
    }

    /// Takes a rule away that was added.
    pub fn remove(&mut self, rule: &Rule) {
        let [matched, to] = address_keys(rule);
        let used = self.0.entry(matched).or_default();
        used.matched = used.matched.saturating_sub(1);
        let used = self.0.entry(to).or_default();
        used.leads_here = (used.leads_here & !HAS_LED).saturating_sub(1) | HAS_LED;
    }
}

/// Whether no rule uses an address any more.
pub fn is_unused(used: &types::address_use) -> bool {
    used.matched == 0 && used.leads_here & !HAS_LED == 0
}

/// Whether rules have led to an address.
pub fn has_led(used: &types::address_use) -> bool {
    used.leads_here & HAS_LED != 0
}

/// A set of ports as the programs test it.
#[derive(Clone)]
pub struct Ports(pub [u64; PORT_WORDS]);

impl Ports {
    /// Adds a port.
    pub fn insert(&mut self, port: u16) {
        let loaded = port_as_loaded(port);
        if let Some(word) = self.0.get_mut(usize::from(loaded >> 6)) {
            *word |= 1 << (loaded & 63);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{self, Written};
    use crate::rule::Origin;

    fn rule(id: u32, from: &str, to: &str, source: Option<&str>) -> Rule {
        let written = Written {
            protocols: &["udp"],
            from,
            to,
            source,
            note: None,
        };
        let mut rule = parse::rules(&written, Origin::Config).unwrap().remove(0);
        rule.id = id;
        rule
    }

    #[test]
    fn addresses_lie_in_the_map_as_in_a_packet() {
        let four = address("192.168.64.2".parse().unwrap());
        assert_eq!(bytes_of(&four)[..4], [192, 168, 64, 2]);
        assert_eq!(bytes_of(&four)[4..], [0; 12]);
        let six = address("2001:db8::1".parse().unwrap());
        assert_eq!(
            bytes_of(&six),
            "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets()
        );
    }

    // SAFETY: four integers.
    unsafe impl Plain for types::address {}

    #[test]
    fn a_rule_taken_away_leaves_nothing_behind() {
        let rules = [
            rule(0, "192.168.64.2:8000-8003", "10.0.1.2:9000-9003", None),
            rule(1, "192.168.64.2:8001", "10.0.1.3:80", Some("10.0.0.0/8")),
        ];
        let mut services = Services::default();
        rules.iter().for_each(|rule| services.add(rule));
        assert_eq!(services.0.len(), 4);
        rules.iter().for_each(|rule| services.remove(rule));
        assert!(services.0.values().all(is_empty));
    }

    #[test]
    fn a_replaced_rule_keeps_its_service_when_the_new_one_is_added_first_or_last() {
        let old = rule(0, "192.168.64.2:80", "10.0.1.2:80", None);
        let new = rule(1, "192.168.64.2:80", "10.0.1.3:80", None);
        let mut services = Services::default();
        services.add(&old);
        services.add(&new);
        services.remove(&old);
        assert_eq!(services.at(&matched(&new).next().unwrap().0).target.rule, 1);
    }

    #[test]
    fn ports_are_tested_in_the_byte_order_of_the_packet() {
        let mut ports = Ports([0; PORT_WORDS]);
        ports.insert(8080);
        let loaded = u16::from_ne_bytes([0x1f, 0x90]);
        assert_ne!(ports.0[usize::from(loaded >> 6)] & (1 << (loaded & 63)), 0);
        assert_eq!(ports.0.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
    }
}
