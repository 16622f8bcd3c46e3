//! Which rules cannot stand together.
//!
//! Sorting by protocol, address and first port brings every pair that could intersect side by side, so that a
//! million rules are checked in the time it takes to sort them.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::IpAddr;

use super::rule::{Address, PortRange, Prefix, Protocol, Rule};

/// The most conflicts reported at once; who has more will not read them.
pub const REPORTED_MAX: usize = 20;

/// Why two rules cannot stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// They match the same packets and send them to the same place.
    Duplicate,
    /// They match the same protocol, address and source prefix, and their ports intersect.
    Ports,
    /// The one's target is the other's match: its packets would be redirected twice, and are not.
    Chain,
}

/// Two rules that cannot stand together, as indices into the slice that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// What is wrong between them.
    pub kind: Kind,
    /// The rule to complain about: of a chain the one with the target, otherwise the later one.
    pub rule: usize,
    /// The rule it cannot stand with.
    pub other: usize,
}

impl Conflict {
    /// What is wrong and what would be right; `place` says where a rule stands, as in `line 12` or `id 3`.
    pub fn describe(&self, rules: &[Rule], place: impl Fn(usize) -> String) -> (String, String) {
        let other = format!("{} ({})", rules[self.other], place(self.other));
        match self.kind {
            Kind::Duplicate => (
                format!("the rule stands twice: {other} is the same"),
                "one is enough".to_owned(),
            ),
            Kind::Ports => (
                format!("{} is matched by {other} too", rules[self.rule].match_text()),
                "let each port of an address lead to one target, or give one of them a source prefix".to_owned(),
            ),
            Kind::Chain => (
                format!("the target {} is the match of {other}", rules[self.rule].target_text()),
                format!(
                    "a packet is redirected once: name the last target, {}",
                    rules[self.other].target_text()
                ),
            ),
        }
    }
}

/// The conflicts among `rules`, each rule at most once a kind, at most [`REPORTED_MAX`], by the rule complained about.
///
/// None are found if and only if there are none.
pub fn conflicts(rules: &[Rule]) -> Vec<Conflict> {
    let sweep = Sweep::new(rules);
    let mut found: Vec<Conflict> = sweep
        .intersections()
        .take(REPORTED_MAX)
        .chain(sweep.chains().take(REPORTED_MAX))
        .collect();
    found.sort_by_key(|conflict| conflict.rule);
    found.truncate(REPORTED_MAX);
    found
}

/// What is wrong between two rules, `rule` being the one to complain about: see [`Conflict::rule`].
pub fn between(rule: &Rule, other: &Rule) -> Option<Kind> {
    if rule.protocol != other.protocol {
        return None;
    }
    if rule.address == other.address && rule.source == other.source && rule.ports.intersects(other.ports) {
        return Some(intersection(rule, other));
    }
    (other.address == Address::Ip(rule.to) && rule.to_ports.intersects(other.ports)).then_some(Kind::Chain)
}

/// Of two rules with the same protocol, address and source prefix, and a port in common.
fn intersection(rule: &Rule, other: &Rule) -> Kind {
    match rule.same_effect(other) {
        true => Kind::Duplicate,
        false => Kind::Ports,
    }
}

/// The rules in the order of protocol, address and first port.
struct Sweep<'a> {
    rules: &'a [Rule],
    order: Vec<usize>,
    /// For each place in `order`, the rule with the highest last port so far among those of one protocol and address.
    reach: Vec<usize>,
}

impl<'a> Sweep<'a> {
    fn new(rules: &'a [Rule]) -> Self {
        let mut order: Vec<usize> = (0..rules.len()).collect();
        order.sort_unstable_by_key(|&index| (key(&rules[index]), index));
        let mut reach: Vec<usize> = Vec::with_capacity(order.len());
        for &index in &order {
            let rule = &rules[index];
            let farthest = match reach.last() {
                Some(&last) if same_place(&rules[last], rule) && rules[last].ports.last >= rule.ports.last => last,
                _ => index,
            };
            reach.push(farthest);
        }
        Sweep { rules, order, reach }
    }

    /// Pairs of one protocol, address and source prefix with a port in common.
    fn intersections(&self) -> impl Iterator<Item = Conflict> + '_ {
        self.order
            .chunk_by(|&a, &b| same_place(&self.rules[a], &self.rules[b]))
            .flat_map(|place| self.intersections_at(place))
    }

    fn intersections_at(&self, place: &[usize]) -> Vec<Conflict> {
        let mut found = Vec::new();
        if place.len() == 1 {
            return found;
        }
        let mut farthest: HashMap<Option<Prefix>, usize> = HashMap::new();
        for &index in place {
            let rule = &self.rules[index];
            let entry = farthest.entry(rule.source).or_insert(index);
            let other = &self.rules[*entry];
            if *entry != index && rule.ports.intersects(other.ports) && found.len() < REPORTED_MAX {
                found.push(Conflict {
                    kind: intersection(rule, other),
                    rule: index.max(*entry),
                    other: index.min(*entry),
                });
            }
            if rule.ports.last > other.ports.last {
                *entry = index;
            }
        }
        found
    }

    /// Rules whose target another rule matches, whatever its source prefix.
    fn chains(&self) -> impl Iterator<Item = Conflict> + '_ {
        self.rules.iter().enumerate().filter_map(|(index, rule)| {
            let other = self.matching(rule.protocol, rule.to, rule.to_ports)?;
            Some(Conflict {
                kind: Kind::Chain,
                rule: index,
                other,
            })
        })
    }

    /// A rule that names `address` and has a port in `ports`.
    fn matching(&self, protocol: Protocol, address: IpAddr, ports: PortRange) -> Option<usize> {
        let bound = (protocol, Address::Ip(address), ports.last);
        let end = self
            .order
            .partition_point(|&index| key(&self.rules[index]).cmp(&bound) != Ordering::Greater);
        let index = *self.reach.get(end.checked_sub(1)?)?;
        let rule = &self.rules[index];
        let matches = rule.protocol == protocol && rule.address == bound.1 && rule.ports.intersects(ports);
        matches.then_some(index)
    }
}

fn key(rule: &Rule) -> (Protocol, Address, u16) {
    (rule.protocol, rule.address, rule.ports.first)
}

fn same_place(a: &Rule, b: &Rule) -> bool {
    a.protocol == b.protocol && a.address == b.address
}

#[cfg(test)]
mod tests;
