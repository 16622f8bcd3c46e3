//! Prefixes that belong to one provider: what comes from there leaves by its uplink, because the other providers drop it (RFC 2827)
//! or their answers come back elsewhere. IPv6 networks behind two providers have one of each.
//!
//! ```text
//!  rule 32765:  from 2001:db8:b::/56 ─► main, but for default routes: this host's own networks
//!  rule 32765:  from 2001:db8:b::/56 ─► table 0x74610002: default ─► nexthop 0x74610002
//!  rule 32766:  all ─► main: default ─► the group
//! ```
//!
//! Both rules have one priority, the last before the main table's: the kernel asks rules of one priority in the order in which they
//! were added, so that an administrator's rules come first, whether they are older (from 32765 downwards, by default) or newer.
//!
//! Where several groups have rules for one prefix, or for one that lies in another, those of the group that leads to fewer addresses
//! are asked first: its route in the main table is more specific than a default route, and the other group's first rule would send
//! packets there, by whichever uplink is in use. Groups that differ in the metric alone share the first rule of a prefix.

use std::cmp::Reverse;

use anyhow::Result;

use crate::foreign::MAIN_TABLE;
use tarn_kernel::netlink::Netlink;
use tarn_kernel::route::{Destination, Rule};

/// Right before the rule of the main table.
const PRIORITY: u32 = 32_765;

/// The two rules of a prefix, in the order in which they are asked.
pub type Pair = [Rule; 2];

/// Packets from a prefix to where a group leads go by this table, unless a more specific route of the main table leads there.
pub fn rules(from: Destination, to: Destination, table: u32) -> Pair {
    let rule = Rule {
        is_ipv6: to.address.is_ipv6(),
        priority: PRIORITY,
        mark: 0,
        mask: 0,
        table,
        from: Some(from),
        to: (to.length > 0).then_some(to),
        suppress: None,
    };
    let own_networks = Rule {
        table: MAIN_TABLE,
        suppress: Some(to.length),
        ..rule
    };
    [own_networks, rule]
}

/// Sets the rules, in their order. Returns whether any was missing.
///
/// # Errors
/// What the kernel refuses.
pub fn set([own_networks, rule]: &Pair, netlink: &mut Netlink) -> Result<bool> {
    let was_missing = own_networks.set(netlink)?;
    if was_missing {
        // One that was added now is asked after one that was there.
        rule.remove(netlink)?;
    }
    Ok(rule.set(netlink)? || was_missing)
}

/// Has the kernel ask the rules of several groups for one prefix in their order, after some were added. `pairs` are those of all
/// uplinks.
///
/// # Errors
/// What the kernel refuses.
pub fn arrange<'a>(pairs: impl Iterator<Item = &'a Pair>, netlink: &mut Netlink) -> Result<()> {
    for rule in shared(pairs) {
        rule.move_behind(netlink)?;
    }
    Ok(())
}

/// The rules of prefixes that meet another pair's, each once, in the order in which they are asked.
fn shared<'a>(pairs: impl Iterator<Item = &'a Pair>) -> Vec<Rule> {
    let mut pairs: Vec<&Pair> = pairs.collect();
    let length = |prefix: Option<Destination>| prefix.map_or(0, |prefix| prefix.length);
    pairs.sort_by_key(|[_, rule]| Reverse((length(rule.to), length(rule.from))));
    let meets = |one: &Pair, other: &Pair| {
        let (one, other) = (one[1].from, other[1].from);
        one.zip(other).is_some_and(|(one, other)| one.overlaps(*other))
    };
    let is_shared = |pair: &&&Pair| pairs.iter().filter(|other| meets(pair, other)).count() > 1;
    let mut rules = Vec::new();
    for rule in pairs.iter().filter(is_shared).copied().flatten() {
        if !rules.contains(rule) {
            rules.push(*rule);
        }
    }
    rules
}

/// As commands that a person can read.
pub fn commands(pair: &Pair) -> impl Iterator<Item = String> + '_ {
    pair.iter().filter_map(|rule| {
        let from = rule.from?;
        let family = if rule.is_ipv6 { "-6 " } else { "" };
        let to = rule.to.map(|to| format!(" to {to}")).unwrap_or_default();
        let suppress = rule.suppress.map(|length| format!(" suppress_prefixlength {length}"));
        let table = if rule.table == MAIN_TABLE {
            "main".to_owned()
        } else {
            rule.table.to_string()
        };
        Some(format!(
            "ip {family}rule add priority {} from {from}{to} lookup {table}{}",
            rule.priority,
            suppress.unwrap_or_default()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A company's networks, by the uplink's tunnel provider, must not go by another uplink because the default route has one.
    #[test]
    fn the_rules_of_the_narrower_group_come_first() {
        let destination = |text: &str| text.parse::<Destination>().unwrap();
        let pair = |from: &str, to: &str, table| rules(destination(from), destination(to), table);
        let pairs = [
            pair("fd0a::/64", "::/0", 1),
            pair("fd0b::/64", "::/0", 2),
            pair("fd0a::/64", "fd00::/8", 3),
            pair("fd0a::/64", "fd09::/16", 4),
        ];
        let tables = |pairs: &[Pair]| -> Vec<u32> { shared(pairs.iter()).iter().map(|rule| rule.table).collect() };
        assert_eq!(tables(&pairs), [MAIN_TABLE, 4, MAIN_TABLE, 3, MAIN_TABLE, 1]);
        assert!(tables(&pairs[..2]).is_empty(), "no prefix has two");
        // A backup by another metric: this host's own networks are asked once, before both uplinks.
        let backup = [pair("fd0b::/64", "::/0", 1), pair("fd0b::/64", "::/0", 2)];
        assert_eq!(tables(&backup), [MAIN_TABLE, 1, 2]);
        let within = [pair("fd0b::/56", "::/0", 1), pair("fd0b:0:0:1::/64", "fd09::/16", 2)];
        assert_eq!(tables(&within), [MAIN_TABLE, 2, MAIN_TABLE, 1]);
    }
}
