//! The table around the elements: which chains look which maps up, and in what order.
//!
//! ```text
//! packet in    -> chain prerouting (nat, -100) --+-> steer4 / steer6 -> named addresses, longest prefix first
//! local client -> chain output     (nat, -100) --+         `-> steer4_any / steer6_any, when the host has the address
//!
//! packet in    -> chain prerouting_count (filter, -50) --+-> counting4 / counting6, when it was redirected
//! local client -> chain output_count     (filter, -50) --+
//!
//! packet in    -> chain late_prerouting (filter, -300) --+-> late4 / late6, once rules changed under traffic: see
//! local server -> chain late_output     (filter, -300) --+   the module `late`
//! ```
//!
//! The kernel passes the first packet of a connection through nat chains and does the same to all others by itself,
//! replies included; so counting needs chains of its own, which find the rule by what the client had sent.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::element::{Place, Role, network};
use crate::devices::Devices;
use crate::rule::{Family, Protocol};
use tarn_kernel::nft::MARK;
use tarn_kernel::nft::read::Table;

/// The table's family: one table for IPv4 and IPv6.
pub const FAMILY: &str = "inet";
/// The table's name.
pub const TABLE: &str = "tarn_redirect";

/// Both address families.
pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// A chain as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Type, hook and priority of a base chain.
    pub hook: Option<&'static str>,
    /// Its rules, without comments.
    pub rules: Vec<String>,
}

impl Chain {
    /// A base chain.
    pub fn base(name: &str, hook: &'static str, rules: impl Into<Vec<String>>) -> Self {
        Chain {
            name: name.to_owned(),
            hook: Some(hook),
            rules: rules.into(),
        }
    }
}

/// The line that makes the table.
pub fn table() -> String {
    format!("add table {FAMILY} {TABLE} {{ comment \"{MARK} redirect\"; }}\n")
}

/// The line that makes a map or set; `last` says whether elements also keep when they were found last.
pub fn set(place: Place, last: bool) -> String {
    let counter = match place.role {
        Role::Count if last => " counter; last;",
        Role::Count => " counter;",
        Role::To | Role::Keep => "",
    };
    let types = place.types();
    format!(
        "add {} {FAMILY} {TABLE} {place} {{ type {types};{counter} comment \"{MARK}\"; }}\n",
        place.kind()
    )
}

/// The chains that look up these maps and sets.
pub fn chains(places: &BTreeSet<Place>) -> Vec<Chain> {
    let mut chains = Vec::new();
    for family in FAMILIES {
        let of = |role: fn(Role) -> bool, any| {
            in_order(places, move |place| {
                place.shape.family == family && place.shape.any == any && role(place.role)
            })
        };
        let steers = |role| role != Role::Count;
        let any: Vec<String> = of(steers, true).map(steer).collect();
        let mut named: Vec<String> = of(steers, false).map(steer).collect();
        if !any.is_empty() {
            named.push(format!(
                "fib daddr type local {} jump {}",
                not_of_any(family),
                chain("steer", family, "_any")
            ));
        }
        let counted = |role| role == Role::Count;
        let counts = of(counted, false).chain(of(counted, true)).flat_map(count).collect();
        for (name, suffix, rules) in [("steer", "_any", any), ("steer", "", named), ("counting", "", counts)] {
            chains.push(Chain {
                name: chain(name, family, suffix),
                hook: None,
                rules,
            });
        }
    }
    chains
}

/// The chains that the kernel begins with. Where devices are named, only packets that come in by them are redirected:
/// those of clients on this host are not.
pub fn base_chains(devices: &Devices) -> [Chain; 4] {
    let jumps = |condition: &str, to: &str| -> Vec<String> {
        FAMILIES
            .map(|family| {
                format!(
                    "meta nfproto {}{condition} jump {}",
                    nfproto(family),
                    chain(to, family, "")
                )
            })
            .into()
    };
    let (received, sent) = match devices {
        Devices::All => (jumps("", "steer"), jumps("", "steer")),
        Devices::Named(names) => {
            let names: Vec<String> = names
                .iter()
                .map(|name| format!("\"{}\"", name.replace('*', "\\*")))
                .collect();
            let named = format!(" iifname {{ {} }}", names.join(", "));
            (jumps(&named, "steer"), Vec::new())
        }
    };
    let redirected = " ct status dnat ct direction original";
    [
        Chain::base("prerouting", "type nat hook prerouting priority -100", received),
        Chain::base("output", "type nat hook output priority -100", sent),
        // What comes back over loopback was counted on its way out.
        Chain::base(
            "prerouting_count",
            "type filter hook prerouting priority -50",
            jumps(&format!(" iif != lo{redirected}"), "counting"),
        ),
        Chain::base(
            "output_count",
            "type filter hook output priority -50",
            jumps(redirected, "counting"),
        ),
    ]
}

/// Places in the order they are looked up: the longest source prefix first. The size of the block does not matter,
/// because a port lies in one block of its rule only.
fn in_order(places: &BTreeSet<Place>, chosen: impl Fn(&Place) -> bool) -> impl Iterator<Item = Place> {
    let mut places: Vec<Place> = places.iter().copied().filter(chosen).collect();
    places.sort_by_key(|place| (Reverse(place.shape.source), place.shape.block, place.role));
    places.into_iter()
}

/// Steering places in the order the kernel looks them up for a packet to an address that is named or not.
pub fn lookup_order(places: &BTreeSet<Place>, family: Family) -> impl Iterator<Item = Place> {
    let of = |any| {
        in_order(places, move |place| {
            place.shape.family == family && place.shape.any == any && place.role != Role::Count
        })
    };
    of(false).chain(of(true))
}

fn steer(place: Place) -> String {
    format!(
        "dnat {} to {} map @{place}",
        network(place.shape.family),
        place.expression()
    )
}

/// nft knows the type of a port in `ct original` only where the protocol is known: hence one rule each.
fn count(place: Place) -> impl Iterator<Item = String> {
    let protocols = Protocol::ALL.into_iter();
    protocols.map(move |protocol| {
        format!(
            "meta l4proto {} {} @{place} return",
            protocol.number(),
            place.expression()
        )
    })
}

/// Local addresses that are not meant by any: see `Address::any_may_be`.
fn not_of_any(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip daddr != 127.0.0.0/8",
        Family::V6 => "ip6 daddr != { ::1, fe80::/10 }",
    }
}

fn nfproto(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

fn chain(name: &str, family: Family, suffix: &str) -> String {
    format!("{name}{}{suffix}", if family == Family::V4 { 4 } else { 6 })
}

/// The lines that bring the chains of `table` to what is wanted; none when they are so already.
///
/// A chain's own rules are known by a fingerprint in their comment. Rules that someone else added are left.
pub fn chain_changes(wanted: &[Chain], table: &Table) -> Vec<String> {
    let mut lines = Vec::new();
    for chain in wanted
        .iter()
        .filter(|chain| !table.chains.iter().any(|found| found.name == chain.name))
    {
        let hook = chain
            .hook
            .map(|hook| format!(" {hook}; policy accept;"))
            .unwrap_or_default();
        lines.push(format!(
            "add chain {FAMILY} {TABLE} {} {{{hook} comment \"{MARK}\"; }}\n",
            chain.name
        ));
    }
    for chain in wanted {
        let found: Vec<_> = table
            .rules
            .iter()
            .filter(|rule| rule.chain == chain.name && rule.object.is_ours())
            .collect();
        let comments: Vec<String> = chain.rules.iter().map(|rule| fingerprint(rule)).collect();
        if found.iter().map(|rule| &rule.object.comment).eq(&comments) {
            continue;
        }
        let delete = |handle| format!("delete rule {FAMILY} {TABLE} {} handle {handle}\n", chain.name);
        lines.extend(found.iter().map(|rule| delete(rule.object.handle)));
        let add = |(rule, comment)| {
            format!(
                "add rule {FAMILY} {TABLE} {} {rule} comment \"{comment}\"\n",
                chain.name
            )
        };
        lines.extend(chain.rules.iter().zip(&comments).map(add));
    }
    lines
}

/// The comment of a rule of ours: the same rule has the same one in every version (FNV-1a, 64 bits).
fn fingerprint(rule: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = rule.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{MARK} {hash:016x}")
}

/// The places that a table has.
pub fn places(table: &Table) -> BTreeSet<Place> {
    table
        .sets
        .iter()
        .filter(|set| set.is_ours())
        .filter_map(|set| Place::named(&set.name))
        .collect()
}
