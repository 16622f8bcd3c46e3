//! Which rule a packet meets: the order stated in [`super::rule`], in plain code.
//!
//! The kernel parts do the lookup for packets; this one serves tests as their oracle, and conntrack's entries when
//! rules change.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::rule::{Address, Family, Prefix, Protocol, Rule};

/// Rules by what they match.
pub struct Index<'a> {
    rules: &'a [Rule],
    /// Indices by first port.
    places: HashMap<(Protocol, Address, Option<Prefix>), Vec<usize>>,
    /// The lengths of source prefixes that occur, IPv4 and IPv6.
    lengths: [BTreeSet<u8>; 2],
}

impl<'a> Index<'a> {
    /// Indexes rules that have no conflicts.
    pub fn new(rules: &'a [Rule]) -> Self {
        let mut places: HashMap<_, Vec<usize>> = HashMap::new();
        let mut lengths = [BTreeSet::new(), BTreeSet::new()];
        for (index, rule) in rules.iter().enumerate() {
            places
                .entry((rule.protocol, rule.address, rule.source))
                .or_default()
                .push(index);
            if let Some(source) = rule.source {
                lengths[source.family() as usize].insert(source.length);
            }
        }
        for place in places.values_mut() {
            place.sort_unstable_by_key(|&index| rules[index].ports.first);
        }
        Index { rules, places, lengths }
    }

    /// The rule for a packet; `local` says whether the host has the address `destination`.
    pub fn find(
        &self,
        protocol: Protocol,
        source: IpAddr,
        destination: IpAddr,
        port: u16,
        local: bool,
    ) -> Option<&'a Rule> {
        let any = local && Address::any_may_be(destination);
        let named = self.find_at(protocol, source, Address::Ip(destination), port);
        named.or_else(|| {
            any.then(|| self.find_at(protocol, source, Address::Any(Family::of(destination)), port))
                .flatten()
        })
    }

    fn find_at(&self, protocol: Protocol, source: IpAddr, address: Address, port: u16) -> Option<&'a Rule> {
        let lengths = self.lengths[Family::of(source) as usize].iter().rev();
        let prefixes = lengths.map(|&length| Some(Prefix::of(source, length))).chain([None]);
        prefixes
            .filter_map(|prefix| self.places.get(&(protocol, address, prefix)))
            .find_map(|place| {
                let after = place.partition_point(|&index| self.rules[index].ports.first <= port);
                let rule = &self.rules[*place.get(after.checked_sub(1)?)?];
                rule.ports.contains(port).then_some(rule)
            })
    }
}
