//! Carries rules out in BPF: see `redirect.bpf.c`.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};
use serde::{Deserialize, Serialize};

mod counters;
pub mod devices;
mod follower;
mod ingress;
pub mod load;
pub mod locals;
pub mod maps;
pub mod probe;
mod rules;
#[allow(missing_docs)]
mod tables;
#[cfg(test)]
mod tests;
mod xdp;

tarn_kernel::skeleton!(mod skeleton, "redirect");

use self::follower::Follower;
use self::load::{Clock, Framing, Limits, Loaded};
use self::maps::{MapIds, Maps};
pub(super) use self::rules::{change, synchronise};
use self::skeleton::types;
use super::STAGE;
use super::carrier::{Carrier, Counters};
use super::devices::Devices;
use super::ipsec;
use super::rule::Rule;
use super::store::Reconciled;
use tarn_base::error::Usage;
use tarn_base::output::{Priority, log_at};
use tarn_frame::Running;
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_kernel::links::{self, Link};
use tarn_kernel::netconf;
use tarn_kernel::plain::{bytes_of, from_bytes};

/// The file in the state directory that tells another process where the maps are.
pub const FILE: &str = "redirect.bpf";
const VERSION: &str = env!("CARGO_PKG_VERSION");

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
struct Record {
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
    fn running(&self) -> Result<Option<Maps>> {
        // Of another version, nothing but this is known.
        let version: Option<Version> = self.state.read_json(FILE)?;
        if version.is_none_or(|version| version.tarn != VERSION) {
            return Ok(None);
        }
        let running: Option<Record> = self.state.read_json(FILE)?;
        Ok(running.and_then(|running| Maps::open(&running.maps).ok()))
    }

    /// Whether there are devices for the programs.
    fn has_devices(&self) -> Result<bool> {
        Ok(links::all()?.iter().any(|link| self.devices.include(link)))
    }

    fn maps(&self) -> Result<Maps> {
        self.running()?
            .context("the redirect programs do not run here: `tarn up` starts them")
    }

    /// Lets rules that are new in their slots begin to count at zero, where programs run already.
    fn count_anew(&self, rules: &[Rule]) -> Result<()> {
        let Some(maps) = self.running()? else { return Ok(()) };
        let counters = counters::Table::of(&maps.rule_counters)?;
        rules.iter().for_each(|rule| counters.clear(rule.id));
        Ok(())
    }

    /// Loads the programs, puts the rules into their maps and attaches them.
    pub fn start(&self, journal: &mut Journal, rules: &[Rule]) -> Result<Loaded> {
        ipsec::refuse()?;
        if self.limits.xdp {
            devices::say_what_xdp_cannot()?;
        }
        let links = links::all()?;
        let loaded = self.load(&links)?;
        locals::set(&loaded.maps, &locals::all()?)?;
        ingress::set(&loaded.maps, &links, &netconf::reverse_paths()?)?;
        synchronise(&loaded.maps, rules)?;
        self.take_over(&links, &loaded, journal)?;
        Ok(loaded)
    }

    /// Acts on what has changed among the devices since the programs were loaded.
    pub fn follow(&self, links: &[Link], loaded: &mut Loaded, journal: &mut Journal) -> Result<()> {
        if !loaded.serves(Framing::of(&self.devices, links)) {
            *loaded = self.load(links)?;
        }
        self.take_over(links, loaded, journal)
    }

    fn load(&self, links: &[Link]) -> Result<Loaded> {
        load::load(self.limits, Framing::of(&self.devices, links), self.running()?.as_ref())
    }

    /// Attaches loaded programs, in the place of those that ran before.
    fn take_over(&self, links: &[Link], loaded: &Loaded, journal: &mut Journal) -> Result<()> {
        devices::set_exits(links, &loaded.maps, self.limits.xdp, journal)?;
        self.attach_all(links, loaded, journal)?;
        let running = Record {
            tarn: VERSION.to_owned(),
            maps: loaded.maps.ids()?,
        };
        self.state.write_json(FILE, &running)
    }

    /// Brings the programs to the devices that are there, and off those that are no longer chosen.
    fn attach_all(&self, links: &[Link], loaded: &Loaded, journal: &mut Journal) -> Result<()> {
        for link in links.iter().filter(|link| self.devices.include(link)) {
            let is_port = self.devices.is_port(link, links);
            devices::attach(link, is_port, loaded, journal, self.limits.xdp)
                .with_context(|| format!("attach the redirect programs to {}", link.name))?;
        }
        let carrying: HashSet<u32> = journal
            .changes(STAGE)
            .filter_map(|(_, change)| devices::device_of(change))
            .collect();
        for index in carrying {
            let carries = |link: &Link| link.index == index && self.devices.include(link);
            if !links.iter().any(carries) {
                devices::detach(index, journal)?;
            }
        }
        Ok(())
    }
}

impl Carrier for Bpf {
    fn name(&self) -> &'static str {
        "bpf"
    }

    fn plan(&self, _rules: &[Rule]) -> Result<Vec<String>> {
        let mut plan = Vec::new();
        let links = links::all()?;
        for link in links.iter().filter(|link| self.devices.include(link)) {
            let is_port = self.devices.is_port(link, &links);
            plan.push(format!(
                "attach the redirect programs to {} (tc {})",
                link.name,
                if is_port { "egress" } else { "ingress and egress" }
            ));
            if self.limits.xdp && !is_port && link.is_ethernet() {
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

    /// Where the tables of running programs are full, takes away first what goes and leaves its place to another rule:
    /// no packet of the one is to meet the other in its slot. Rules that are led elsewhere are not among them.
    fn make_room(&self, rules: &Reconciled) -> Result<()> {
        // Held until the end: maps of programs that are on no device go with the agent that held them.
        let Some(maps) = self.running()? else {
            return Ok(());
        };
        let new: HashMap<u32, &Rule> = rules.added.iter().map(|rule| (rule.id, rule)).collect();
        let vanishes = |gone: &&Rule| new.get(&gone.id).is_none_or(|new| !new.same_match(gone));
        let is_reused = |gone: &&Rule| new.contains_key(&gone.id) && vanishes(gone);
        let old_and_new: Vec<Rule> = rules.rules.iter().chain(&rules.removed).cloned().collect();
        if !rules.removed.iter().any(|gone| is_reused(&gone)) && self.room(&old_and_new).is_ok() {
            return Ok(());
        }
        let gone: Vec<Rule> = rules.removed.iter().filter(vanishes).cloned().collect();
        change(&maps, &[], &gone)
    }

    fn up(&self, journal: &mut Journal, rules: &[Rule], new: &[Rule]) -> Result<Box<dyn Running>> {
        self.count_anew(new)?;
        let loaded = self.start(journal, rules)?;
        Ok(Box::new(Follower::new(self.clone(), loaded)))
    }

    /// Beside policies it does not go on: packets would leave in clear, and nobody is there who would notice.
    fn carry_on(&self, journal: &mut Journal, rules: &[Rule]) -> Result<()> {
        if ipsec::refuse().is_err() {
            devices::detach_all(journal)?;
            log_at(
                Priority::Error,
                STAGE,
                format!("{}: nothing is redirected any more", ipsec::REASON),
            );
        }
        self.running()?.map_or(Ok(()), |maps| synchronise(&maps, rules))
    }

    fn change(&self, add: &[Rule], remove: &[Rule]) -> Result<()> {
        change(&self.maps()?, add, remove)
    }

    fn counters(&self, rules: &[Rule]) -> Result<Vec<Counters>> {
        let table = counters::Table::of(&self.maps()?.rule_counters)?;
        let clock = load::clock()?;
        Ok(rules.iter().map(|rule| carried(&table, rule.id, &clock)).collect())
    }

    fn trouble(&self) -> Result<Option<String>> {
        let is_attached = devices::is_anything_attached(&Journal::open(&self.state)?);
        if !is_attached && !self.has_devices()? {
            return Ok(None);
        }
        let text = match ipsec::refuse() {
            Ok(()) if is_attached => return Ok(None),
            // An agent acts on them within a moment.
            Err(error) if is_attached => {
                return Ok(Some(format!("packets are redirected past IPsec policies: {error:#}")));
            }
            Ok(()) => {
                "nothing is redirected: no device has the programs, as after IPsec policies that are gone by now; \
                       `tarn up` attaches them again"
                    .to_owned()
            }
            Err(error) => format!("nothing is redirected: {error:#}"),
        };
        Ok(Some(text))
    }

    fn events(&self) -> Result<Vec<(&'static str, u64)>> {
        let values = self
            .maps()?
            .events
            .lookup_percpu(bytes_of(&0_u32), MapFlags::ANY)
            .context("read the events")?;
        let values = values.unwrap_or_default();
        let of_cpus: Vec<types::events> = values.iter().filter_map(|bytes| from_bytes(bytes)).collect();
        Ok(EVENTS
            .iter()
            .map(|(name, count)| (*name, of_cpus.iter().map(count).sum()))
            .collect())
    }
}

type EventCount = fn(&types::events) -> u64;

/// The events, and where each is counted.
const EVENTS: [(&str, EventCount); 15] = [
    ("flow opened", |events| events.flow_opened),
    ("flow pushed out before it was established", |events| {
        events.flow_pushed_out
    }),
    ("established flow pushed out", |events| events.established_pushed_out),
    ("answer dropped, its flow was pushed out", |events| {
        events.answer_dropped
    }),
    ("request dropped, its source is no client's", |events| {
        events.source_refused
    }),
    ("left to the stack, no way leads back", |events| events.source_doubted),
    ("flow not stored", |events| events.flow_not_stored),
    ("passed to the stack", |events| events.passed_to_stack),
    ("ICMP error rewritten", |events| events.icmp_error_rewritten),
    ("ICMP redirect dropped", |events| events.icmp_redirect_dropped),
    ("fragment held", |events| events.fragment_held),
    ("fragment released", |events| events.fragment_released),
    ("fragment lost, room was needed", |events| events.fragment_evicted),
    ("fragment lost, too long to hold", |events| events.fragment_too_long),
    ("fragment lost, too many of a datagram", |events| {
        events.fragment_too_many
    }),
];

fn carried(table: &counters::Table, slot: u32, clock: &Clock) -> Counters {
    let mut sum = Counters::default();
    let mut lost = 0;
    let mut last_used = 0;
    for count in table.of_rule(slot) {
        sum.packets += count.packets;
        sum.bytes += count.bytes;
        lost += count.lost_fragments;
        last_used = count.last_used.max(last_used);
    }
    sum.drops.push(("fragments lost", lost));
    sum.last_used_ns = (last_used != 0).then(|| clock.monotonic_ns(last_used));
    sum
}
