//! Carries rules out in BPF: see `redirect.bpf.c`.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags};
use serde::{Deserialize, Serialize};

pub mod devices;
pub mod load;
pub mod locals;
pub mod maps;
pub mod probe;
#[allow(missing_docs)]
mod skeleton;
mod tables;
#[cfg(test)]
mod tests;

use self::devices::Devices;
use self::load::{Clock, Limits, Loaded};
use self::maps::{MapIds, Maps, delete_all, delete_others, look_up, write_all};
use self::skeleton::types;
use self::tables::{Addresses, HAS_LED_ONLY, Key, PORT_WORDS, Ports, Services, has_led, is_empty, is_unused};
use super::carrier::{Carrier, Counters};
use super::rule::Rule;
use tarn_base::error::Usage;
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_kernel::links::{self, Link};
use tarn_kernel::plain::{bytes_of, from_bytes};

/// The file in the state directory that tells another process where the maps are.
pub const FILE: &str = "redirect.bpf";

/// The programs on their devices.
#[derive(Debug, Clone)]
pub struct Bpf {
    /// Where the programs are.
    pub devices: Devices,
    /// How much they hold.
    pub limits: Limits,
    /// Where the file about the running maps is.
    pub state: StateDirectory,
}

/// What the file holds.
#[derive(Serialize, Deserialize)]
struct Running {
    /// The version that loaded the programs: maps of another may mean something else.
    tarn: String,
    maps: MapIds,
}

#[derive(Deserialize)]
struct Version {
    tarn: String,
}

impl Bpf {
    /// The maps of the running programs.
    pub fn running(&self) -> Result<Option<Maps>> {
        let path = self.state.path().join(FILE);
        let Ok(text) = std::fs::read_to_string(&path) else {
            return Ok(None);
        };
        let damaged = || format!("{} is damaged", path.display());
        // Of another version, nothing but this is known.
        let version: Version = serde_json::from_str(&text).with_context(damaged)?;
        if version.tarn != env!("CARGO_PKG_VERSION") {
            return Ok(None);
        }
        let running: Running = serde_json::from_str(&text).with_context(damaged)?;
        Ok(Maps::open(&running.maps).ok())
    }

    /// What the programs met that is not about one rule, since they were loaded.
    pub fn events(&self) -> Result<Vec<(&'static str, u64)>> {
        let values = self
            .maps()?
            .events
            .lookup_percpu(bytes_of(&0_u32), MapFlags::ANY)
            .context("read the events")?;
        let mut sum = types::events::default();
        for event in values
            .unwrap_or_default()
            .iter()
            .filter_map(|bytes| from_bytes::<types::events>(bytes))
        {
            sum.flow_opened += event.flow_opened;
            sum.flow_not_stored += event.flow_not_stored;
            sum.passed_to_stack += event.passed_to_stack;
            sum.icmp_error_rewritten += event.icmp_error_rewritten;
            sum.fragment_held += event.fragment_held;
            sum.fragment_released += event.fragment_released;
            sum.fragment_evicted += event.fragment_evicted;
            sum.fragment_too_long += event.fragment_too_long;
            sum.fragment_too_many += event.fragment_too_many;
        }
        Ok(vec![
            ("flow opened", sum.flow_opened),
            ("flow not stored", sum.flow_not_stored),
            ("passed to the stack", sum.passed_to_stack),
            ("ICMP error rewritten", sum.icmp_error_rewritten),
            ("fragment held", sum.fragment_held),
            ("fragment released", sum.fragment_released),
            ("fragment lost, room was needed", sum.fragment_evicted),
            ("fragment lost, too long to hold", sum.fragment_too_long),
            ("fragment lost, too many of a datagram", sum.fragment_too_many),
        ])
    }

    fn maps(&self) -> Result<Maps> {
        self.running()?
            .context("the redirect programs do not run here: `tarn up` starts them")
    }

    /// Lets rules that are new in their slots begin to count at zero, where programs run already.
    pub fn count_anew(&self, rules: &[Rule]) -> Result<()> {
        let Some(maps) = self.running()? else { return Ok(()) };
        let most = maps.rule_counters.max_entries();
        let mut slots = rules.iter().map(|rule| rule.id).filter(|slot| *slot < most);
        slots.try_for_each(|slot| clear_counters(&maps, slot))
    }

    /// Loads the programs, puts the rules into their maps and attaches them.
    pub fn start(&self, journal: &mut Journal, rules: &[Rule]) -> Result<Loaded> {
        if self.limits.xdp_delivers {
            devices::say_what_xdp_cannot()?;
        }
        let links = links::all()?;
        let loaded = self.load(&links)?;
        locals::set(&loaded.maps, &locals::all()?)?;
        synchronise(&loaded.maps, rules)?;
        self.take_over(&links, &loaded, journal)?;
        Ok(loaded)
    }

    /// Acts on what has changed among the devices since the programs were loaded.
    pub fn follow(&self, links: &[Link], loaded: &mut Loaded, journal: &mut Journal) -> Result<()> {
        if !loaded.serves(self.devices.framing(links)) {
            *loaded = self.load(links)?;
        }
        self.take_over(links, loaded, journal)
    }

    fn load(&self, links: &[Link]) -> Result<Loaded> {
        load::load(self.limits, self.devices.framing(links), self.running()?.as_ref())
    }

    /// Attaches loaded programs, in the place of those that ran before.
    fn take_over(&self, links: &[Link], loaded: &Loaded, journal: &mut Journal) -> Result<()> {
        devices::set_exits(links, &loaded.maps, self.limits.xdp_delivers)?;
        self.attach_all(links, loaded, journal)?;
        self.remember(&Running {
            tarn: env!("CARGO_PKG_VERSION").to_owned(),
            maps: loaded.maps.ids()?,
        })
    }

    /// Makes the running programs carry out exactly these rules, if there are any programs.
    pub fn carry_on(&self, rules: &[Rule]) -> Result<()> {
        self.running()?.map_or(Ok(()), |maps| synchronise(&maps, rules))
    }

    /// Writes the file about the running maps, whole or not at all.
    fn remember(&self, file: &Running) -> Result<()> {
        let path = self.state.path().join(FILE);
        let new = path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(file)?)
            .and_then(|()| std::fs::rename(&new, &path))
            .with_context(|| format!("write {}", path.display()))
    }

    /// Brings the programs to the devices that are there, and off those that are no longer chosen.
    fn attach_all(&self, links: &[Link], loaded: &Loaded, journal: &mut Journal) -> Result<()> {
        for link in links.iter().filter(|link| self.devices.include(link)) {
            devices::attach(link, loaded, journal, self.limits.xdp)
                .with_context(|| format!("attach the redirect programs to {}", link.name))?;
        }
        let carrying: HashSet<u32> = journal
            .changes("redirect")
            .filter_map(|(_, change)| devices::device_of(change))
            .collect();
        for index in carrying {
            if !links
                .iter()
                .any(|link| link.index == index && self.devices.include(link))
            {
                devices::detach(index, journal)?;
            }
        }
        Ok(())
    }
}

impl Carrier for Bpf {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn plan(&self, _rules: &[Rule]) -> Result<Vec<String>> {
        let mut plan = Vec::new();
        for link in links::all()?.iter().filter(|link| self.devices.include(link)) {
            plan.push(format!(
                "attach the redirect programs to {} (tc ingress and egress)",
                link.name
            ));
            if self.limits.xdp && link.is_ethernet() {
                plan.push(format!("attach the redirect program to {} (XDP)", link.name));
            }
        }
        Ok(plan)
    }

    fn room(&self, rules: &[Rule]) -> Result<()> {
        let needed = rules.iter().map(|rule| u64::from(rule.ports.count())).sum::<u64>();
        let most = self.limits.ports();
        if needed > most {
            let text = format!(
                "the rules match {needed} ports, more than the {most} that max_rules = {} has room for: \
                 every port of a range counts; raise max_rules in the section [redirect], or use mode = \"nftables\"",
                self.limits.rules
            );
            return Err(Usage(text).into());
        }
        Ok(())
    }

    fn up(&self, _state: &StateDirectory, journal: &mut Journal, rules: &[Rule]) -> Result<()> {
        self.start(journal, rules).map(drop)
    }

    fn change(&self, add: &[Rule], remove: &[Rule]) -> Result<()> {
        change(&self.maps()?, add, remove)
    }

    fn counters(&self, rules: &[Rule]) -> Result<Vec<Counters>> {
        let maps = self.maps()?;
        let clock = load::clock()?;
        rules.iter().map(|rule| counters(&maps, rule.id, &clock)).collect()
    }
}

/// Makes the maps hold exactly these rules. A service that stays is written once, so no packet meets a gap.
///
/// What tells answers and fragments apart from other packets is there before the first request is led to a new target,
/// or its answer would pass unseen.
pub(super) fn synchronise(maps: &Maps, rules: &[Rule]) -> Result<()> {
    let mut wanted = Services::default();
    let mut addresses = Addresses::default();
    for rule in rules {
        wanted.add(rule);
        addresses.add(rule);
    }
    let sources = source_entries(rules);
    let [no_services, no_addresses, no_sources] = [&maps.services, &maps.addresses, &maps.sources].map(maps::is_empty);
    add_ports(maps, rules)?;
    write_addresses(maps, &addresses)?;
    write_all(&maps.sources, &sources)?;
    write_all(
        &maps.services,
        &wanted
            .0
            .iter()
            .map(|(key, service)| (*key, *service))
            .collect::<Vec<_>>(),
    )?;
    let kept: HashSet<&[u8]> = sources.iter().map(|(key, _)| key.as_slice()).collect();
    let key = |bytes: &[u8]| Key::try_from(bytes).ok();
    let is_service = |bytes: &[u8]| key(bytes).is_some_and(|key| wanted.0.contains_key(&key));
    delete_others(&maps.services, no_services, is_service)?;
    delete_others(&maps.sources, no_sources, |bytes| kept.contains(bytes))?;
    maps.next_generation()?;
    if no_addresses {
        Ok(())
    } else {
        retire_addresses(maps, &addresses)
    }
}

/// Takes rules away and adds others; what goes is deleted last. In the order of [`synchronise`].
pub(super) fn change(maps: &Maps, add: &[Rule], remove: &[Rule]) -> Result<()> {
    check_room(maps, add)?;
    let mut services = touched(maps, add.iter().chain(remove))?;
    remove.iter().for_each(|rule| services.remove(rule));
    add.iter().for_each(|rule| services.add(rule));
    for rule in add {
        clear_counters(maps, rule.id)?;
    }
    add_ports(maps, add)?;
    add_addresses(maps, add)?;
    let added = source_entries(add);
    write_all(&maps.sources, &added)?;
    let (gone, staying): (HashMap<_, _>, HashMap<_, _>) =
        services.0.into_iter().partition(|(_, service)| is_empty(service));
    write_all(&maps.services, &staying.into_iter().collect::<Vec<_>>())?;
    delete_all(&maps.services, &gone.into_keys().collect::<Vec<_>>())?;
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
    let most = maps.rule_counters.max_entries();
    if add.iter().any(|rule| rule.id >= most) {
        bail!("no room for another rule: {most} are the most; raise `max_rules` in tarn.toml, then run `tarn up`");
    }
    Ok(())
}

/// The services that these rules match, as the maps hold them.
fn touched<'a>(maps: &Maps, rules: impl Iterator<Item = &'a Rule>) -> Result<Services> {
    let mut services = Services::default();
    for rule in rules {
        for (key, _) in tables::matched(rule) {
            let bytes = tables::key_bytes(&key);
            if let (false, Some(known)) = (services.0.contains_key(&bytes), look_up(&maps.services, &bytes)?) {
                services.0.insert(bytes, known);
            }
        }
    }
    Ok(services)
}

/// What the map says of the addresses of these rules.
fn known_addresses(maps: &Maps, rules: &[Rule]) -> Result<Addresses> {
    let mut addresses = Addresses::default();
    for key in rules.iter().flat_map(tables::address_keys) {
        if let (false, Some(known)) = (addresses.0.contains_key(&key), look_up(&maps.addresses, &key)?) {
            addresses.0.insert(key, known);
        }
    }
    Ok(addresses)
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
    let is_gone = |used: &types::address_use| is_unused(used) && !has_led(used);
    let (gone, staying): (HashMap<_, _>, HashMap<_, _>) = addresses.0.into_iter().partition(|(_, used)| is_gone(used));
    write_all(&maps.addresses, &staying.into_iter().collect::<Vec<_>>())?;
    delete_all(&maps.addresses, &gone.into_keys().collect::<Vec<_>>())
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

fn counters(maps: &Maps, slot: u32, clock: &Clock) -> Result<Counters> {
    let values = maps
        .rule_counters
        .lookup_percpu(bytes_of(&slot), MapFlags::ANY)
        .context("read a rule's counters")?
        .unwrap_or_default();
    let mut sum = Counters::default();
    let mut lost = 0;
    let mut last_used = 0;
    for count in values.iter().filter_map(|bytes| from_bytes::<types::counters>(bytes)) {
        sum.packets += count.packets;
        sum.bytes += count.bytes;
        lost += count.lost_fragments;
        last_used = count.last_used.max(last_used);
    }
    sum.drops.push(("fragments lost", lost));
    sum.last_used_ns = (last_used != 0).then(|| clock.monotonic_ns(last_used));
    Ok(sum)
}

fn clear_counters(maps: &Maps, slot: u32) -> Result<()> {
    let cpus = libbpf_rs::num_possible_cpus().context("count the CPUs")?;
    let zero = vec![vec![0; size_of::<types::counters>()]; cpus];
    maps.rule_counters
        .update_percpu(bytes_of(&slot), &zero, MapFlags::ANY)
        .context("clear a rule's counters")
}
