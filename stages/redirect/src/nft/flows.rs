//! Connections that the kernel tracks go where the first packet went, whatever the rules say since. When rules change,
//! those that the change is about are forgotten, and only those, so that their next packet meets the rules.
//!
//! A TCP connection that is established stays where it began when a rule is added: moved to a server that does not
//! know it, it would be reset. When its rule is removed it is forgotten all the same.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use anyhow::Result;

use super::element::{Key, Place};
use super::late::{self, Late};
use super::layout::{FAMILY, TABLE, lookup_order};
use crate::STAGE;
use crate::lookup::Index;
use crate::rule::{Address, Family, Prefix, Protocol, Rule};
use tarn_base::output::{Priority, log_at};
use tarn_kernel::addresses;
use tarn_kernel::conntrack::{self, Entry};
use tarn_kernel::nft::read::{self, Table};
use tarn_kernel::nft::{Nft, settle};

/// Forgets connections that the removed rules had redirected, and those that the added rules redirect from now on;
/// their answers that are under way arrive all the same, see [`Late`].
///
/// `places` are the table's maps when `added` is not all of its rules: then they are asked which rule wins.
/// What goes wrong is logged: rules hold for new connections all the same.
pub fn forget(nft: &Nft, added: &[Rule], removed: &[Rule], places: Option<&BTreeSet<Place>>) {
    if added.is_empty() && removed.is_empty() {
        return;
    }
    if let Err(error) = try_forget(nft, added, removed, places) {
        let text = format!("connections known before keep their old way until they end: {error:#}");
        log_at(Priority::Warning, STAGE, text);
    }
}

/// Forgets connections that these rules had redirected, when nothing of them is in the kernel any more: another NAT
/// of this host would go on to translate them.
pub fn forget_all(rules: &[Rule]) {
    if rules.is_empty() {
        return;
    }
    settle();
    let rules = Index::new(rules);
    let redirected = |entry: &Entry<'_>| {
        let rule = rule_for(&rules, entry, true)?;
        Some(entry.destination_nat && leads_to(rule, entry))
    };
    if let Err(error) = conntrack::forget(|entry| redirected(entry).unwrap_or(false)) {
        let text = format!("connections that were redirected may go on to be so until they end: {error:#}");
        log_at(Priority::Warning, STAGE, text);
    }
}

fn try_forget(nft: &Nft, added: &[Rule], removed: &[Rule], places: Option<&BTreeSet<Place>>) -> Result<()> {
    // A connection that began a moment ago, by the rules before, is in the table once its packet has passed.
    settle();
    let change = Change {
        added: Index::new(added),
        removed: Index::new(removed),
        local: addresses::local()?,
        places,
    };
    let mut late = Late::new();
    conntrack::forget(|entry| {
        let about = !late::is_copy(entry) && change.is_about(entry).unwrap_or(false);
        about && !late.take(entry)
    })?;
    late.lead_elsewhere(nft, &Table::read(FAMILY, TABLE)?)
}

struct Change<'a> {
    added: Index<'a>,
    removed: Index<'a>,
    local: HashSet<IpAddr>,
    places: Option<&'a BTreeSet<Place>>,
}

impl Change<'_> {
    fn is_about(&self, entry: &Entry<'_>) -> Option<bool> {
        // Of a connection that was redirected it is known that the address was local, if that was asked.
        let removed = rule_for(&self.removed, entry, true);
        if removed.is_some_and(|rule| entry.destination_nat && leads_to(rule, entry)) {
            return Some(true);
        }
        let local = self.local.contains(&entry.original.destination);
        let rule = rule_for(&self.added, entry, local)?;
        if leads_to(rule, entry) || entry.tcp_established {
            return Some(false);
        }
        Some(!entry.destination_nat || !self.is_right(rule.protocol, entry, local))
    }

    /// Whether a connection that is redirected elsewhere is so by a rule that goes before the added ones.
    fn is_right(&self, protocol: Protocol, entry: &Entry<'_>, local: bool) -> bool {
        let Some(places) = self.places else { return false };
        let to = entry.original;
        let none = Address::Any(Family::of(to.destination)).ip();
        lookup_order(places, Family::of(to.destination))
            .filter(|place| local || !place.shape.any)
            .find_map(|place| {
                let key = Key {
                    protocol,
                    source: Prefix::of(to.source, place.shape.source).address,
                    address: to.destination,
                    port: to.destination_port & place.shape.port_mask(),
                    target: none,
                };
                let (mut found, keys) = (None, [place.encode(&key)]);
                let looked_up = read::find(FAMILY, TABLE, &place.to_string(), &keys, |_, read| {
                    found = read.and_then(|read| place.decode(read.key, read.data, 0));
                    Ok(())
                });
                looked_up.ok().and(found)
            })
            .is_some_and(|element| leads_to(&element.as_rule(), entry))
    }
}

/// The rule for a connection's packets as the client sends them; `local` says whether the host has their destination.
fn rule_for<'a>(rules: &Index<'a>, entry: &Entry<'_>, local: bool) -> Option<&'a Rule> {
    let to = entry.original;
    let protocol = Protocol::numbered(to.protocol)?;
    rules.find(protocol, to.source, to.destination, to.destination_port, local)
}

/// Whether the connection goes where the rule leads.
fn leads_to(rule: &Rule, entry: &Entry<'_>) -> bool {
    let port = rule.target_port(entry.original.destination_port);
    (entry.reply.source, entry.reply.source_port) == (rule.to, port)
}
