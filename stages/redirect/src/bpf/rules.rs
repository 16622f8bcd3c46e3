//! Rules on their way into the programs' maps, and out of them.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail};
use libbpf_rs::{MapCore, MapHandle};

use super::maps::{Maps, delete_all, delete_others, look_up, write_all};
use super::skeleton::types;
use super::tables::{Addresses, HAS_LED_ONLY, Key, PORT_WORDS, Ports, Services, Targets, has_led, is_empty, is_unused};
use super::{counters, maps, tables};
use crate::rule::Rule;
use tarn_kernel::plain::{Plain, bytes_of};

/// Makes the maps hold exactly these rules. A service that stays is written once, so no packet meets a gap.
///
/// What tells answers and fragments apart from other packets is there before the first request is led to a new target,
/// or its answer would pass unseen.
pub fn synchronise(maps: &Maps, rules: &[Rule]) -> Result<()> {
    let mut wanted = Services::default();
    let mut addresses = Addresses::default();
    let mut targets = Targets::default();
    for rule in rules {
        wanted.add(rule);
        addresses.add(rule);
        targets.add(rule);
    }
    let sources = source_entries(rules);
    let [no_services, no_addresses, no_sources, no_targets] =
        [&maps.services, &maps.addresses, &maps.sources, &maps.targets].map(maps::is_empty);
    add_ports(maps, rules)?;
    write_addresses(maps, &addresses)?;
    let counts: Vec<_> = targets.0.iter().map(|(key, count)| (*key, *count)).collect();
    write_all(&maps.targets, &counts)?;
    write_all(&maps.sources, &sources)?;
    let services: Vec<_> = wanted.0.iter().map(|(key, service)| (*key, *service)).collect();
    write_all(&maps.services, &services)?;
    let kept: HashSet<&[u8]> = sources.iter().map(|(key, _)| key.as_slice()).collect();
    let key = |bytes: &[u8]| Key::try_from(bytes).ok();
    let is_service = |bytes: &[u8]| key(bytes).is_some_and(|key| wanted.0.contains_key(&key));
    delete_others(&maps.services, no_services, is_service)?;
    delete_others(&maps.sources, no_sources, |bytes| kept.contains(bytes))?;
    let is_target = |bytes: &[u8]| key(bytes).is_some_and(|key| targets.0.contains_key(&key));
    delete_others(&maps.targets, no_targets, is_target)?;
    maps.next_generation()?;
    if no_addresses {
        Ok(())
    } else {
        retire_addresses(maps, &addresses)
    }
}

/// Takes rules away and adds others; what goes is deleted last. In the order of [`synchronise`].
pub fn change(maps: &Maps, add: &[Rule], remove: &[Rule]) -> Result<()> {
    check_room(maps, add)?;
    let mut services = touched(maps, add.iter().chain(remove))?;
    remove.iter().for_each(|rule| services.remove(rule));
    add.iter().for_each(|rule| services.add(rule));
    let mut targets = Targets(held(
        &maps.targets,
        add.iter().chain(remove).flat_map(tables::target_keys),
    )?);
    remove.iter().for_each(|rule| targets.remove(rule));
    add.iter().for_each(|rule| targets.add(rule));
    let counters = counters::Table::of(&maps.rule_counters)?;
    add.iter().for_each(|rule| counters.clear(rule.id));
    add_ports(maps, add)?;
    add_addresses(maps, add)?;
    write_or_delete(&maps.targets, targets.0, |count| *count == 0)?;
    let added = source_entries(add);
    write_all(&maps.sources, &added)?;
    write_or_delete(&maps.services, services.0, is_empty)?;
    let kept: HashSet<Vec<u8>> = added.into_iter().map(|(key, _)| key).collect();
    let unsourced: Vec<_> = source_entries(remove)
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| !kept.contains(key))
        .collect();
    delete_all(&maps.sources, &unsourced)?;
    maps.next_generation()?;
    remove_addresses(maps, remove)
}

fn check_room(maps: &Maps, add: &[Rule]) -> Result<()> {
    let most = counters::slots(&maps.rule_counters)?;
    if add.iter().any(|rule| rule.id >= most) {
        bail!("no room for another rule: {most} are the most; raise `max_rules` in tarn.toml, then run `tarn up`");
    }
    Ok(())
}

/// The services that these rules match, as the maps hold them.
fn touched<'a>(maps: &Maps, rules: impl Iterator<Item = &'a Rule>) -> Result<Services> {
    let keys = rules.flat_map(tables::matched).map(|(key, _)| tables::key_bytes(&key));
    held(&maps.services, keys).map(Services)
}

/// What the map says of the addresses of these rules.
fn known_addresses(maps: &Maps, rules: &[Rule]) -> Result<Addresses> {
    held(&maps.addresses, rules.iter().flat_map(tables::address_keys)).map(Addresses)
}

/// What a map holds under these keys.
fn held<V: Plain>(map: &MapHandle, keys: impl Iterator<Item = Key>) -> Result<HashMap<Key, V>> {
    let mut values = HashMap::new();
    for key in keys {
        if let (false, Some(value)) = (values.contains_key(&key), look_up(map, &key)?) {
            values.insert(key, value);
        }
    }
    Ok(values)
}

/// Writes these, and deletes those of them that say nothing any more.
fn write_or_delete<V: Plain>(map: &MapHandle, entries: HashMap<Key, V>, is_gone: impl Fn(&V) -> bool) -> Result<()> {
    let (gone, staying): (HashMap<_, _>, HashMap<_, _>) = entries.into_iter().partition(|(_, value)| is_gone(value));
    write_all(map, &staying.into_iter().collect::<Vec<_>>())?;
    delete_all(map, &gone.into_keys().collect::<Vec<_>>())
}

fn add_addresses(maps: &Maps, add: &[Rule]) -> Result<()> {
    let mut addresses = known_addresses(maps, add)?;
    add.iter().for_each(|rule| addresses.add(rule));
    write_addresses(maps, &addresses)
}

/// Those that rules led to stay.
fn remove_addresses(maps: &Maps, remove: &[Rule]) -> Result<()> {
    let mut addresses = known_addresses(maps, remove)?;
    remove.iter().for_each(|rule| addresses.remove(rule));
    write_or_delete(&maps.addresses, addresses.0, |used| is_unused(used) && !has_led(used))
}

/// Writes these. Where there is no room, those go first that rules only led to once.
fn write_addresses(maps: &Maps, addresses: &Addresses) -> Result<()> {
    let entries: Vec<_> = addresses.0.iter().map(|(key, used)| (*key, *used)).collect();
    if write_all(&maps.addresses, &entries).is_ok() {
        return Ok(());
    }
    let keys: Vec<Vec<u8>> = maps.addresses.keys().collect();
    for key in keys {
        if look_up(&maps.addresses, &key)?.is_some_and(|used| is_unused(&used)) {
            delete_all(&maps.addresses, &[key])?;
        }
    }
    write_all(&maps.addresses, &entries)
}

/// Takes away what no rule uses any more, but for what rules led to.
fn retire_addresses(maps: &Maps, addresses: &Addresses) -> Result<()> {
    let is_other = |bytes: &Vec<u8>| Key::try_from(bytes.as_slice()).is_ok_and(|key| !addresses.0.contains_key(&key));
    let others: Vec<Vec<u8>> = maps.addresses.keys().filter(is_other).collect();
    for key in others {
        if look_up(&maps.addresses, &key)?.is_some_and(|used| has_led(&used)) {
            write_all(&maps.addresses, &[(key, HAS_LED_ONLY)])?;
        } else {
            delete_all(&maps.addresses, &[key])?;
        }
    }
    Ok(())
}

fn source_entries(rules: &[Rule]) -> Vec<(Vec<u8>, types::target)> {
    let mut entries = Vec::new();
    for rule in rules {
        let Some(source) = rule.source else { continue };
        for (service, target) in tables::matched(rule) {
            entries.push((bytes_of(&tables::source_key(service, source)).to_vec(), target));
        }
    }
    entries
}

fn add_ports(maps: &Maps, rules: &[Rule]) -> Result<()> {
    let mut in_use = Ports([0; PORT_WORDS]);
    let mut of_targets = Ports([0; PORT_WORDS]);
    for rule in rules {
        (rule.ports.first..=rule.ports.last).for_each(|port| in_use.insert(port));
        for port in rule.to_ports.first..=rule.to_ports.last {
            in_use.insert(port);
            of_targets.insert(port);
        }
    }
    maps.add_ports(&in_use, &of_targets)
}
