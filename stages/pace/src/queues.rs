//! The queueing discipline `fq` on the devices that connections leave by: it paces each of them, and has them take turns.
//!
//! Without it TCP paces by a timer for each connection, which does the same for more work. So `fq` is put only where nothing is lost by
//! it: where the kernel's own choice stands, and on a host that forwards nothing. What a router forwards has nobody else to keep its queue short, and
//! `fq` does not.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;

use crate::STAGE;
use crate::change::PaceChange;
use crate::config::{Config, Fq};
use tarn_base::network::Prefix;
use tarn_base::output::log;
use tarn_frame::journal::{Change, Journal};
use tarn_frame::state::StateDirectory;
use tarn_kernel::links::{self, Link};
use tarn_kernel::netlink::refusal;
use tarn_kernel::qdisc::{self, Qdisc, ROOT, Setting};
use tarn_kernel::{route, sysctl};

#[cfg(test)]
mod tests;

/// The handle of what we put at a device's root.
const HANDLE: u32 = 0x7ac0 << 16;
/// Addresses on the way to everywhere else (documentation, RFC 5737 and RFC 3849).
const ELSEWHERE: [&str; 2] = ["203.0.113.1", "2001:db8::1"];
/// Why no device gets it, and what to do.
const FORWARDS: &str =
    "this host forwards, and fq does not keep the queue short for others; fq = [\"eth0\"] sets it nevertheless";
const NO_WAY: &str = "no route leads the connections to a device yet; run `tarn up` again when there is one, \
                      or name the device: fq = [\"eth0\"]";
const FORWARDING: [&str; 2] = [
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv6/conf/all/forwarding",
];

/// Puts `fq` where the configuration wants it and nothing speaks against it. Where it does, connections are paced by TCP itself.
///
/// Returns the indexes of the devices that were meant.
///
/// # Errors
/// The kernel's; a device that is named and is not there.
pub fn set(config: &Config, journal: &mut Journal) -> Result<BTreeSet<u32>> {
    let links = links::all()?;
    let meant = devices(config, &links)?;
    if let Some(reason) = absence(config, &meant)? {
        log(STAGE, format!("no device gets fq: {reason}"));
    }
    for link in &meant {
        let qdiscs = qdisc::of(link.index)?;
        match obstacle(&qdiscs, had(link, journal)) {
            None => put(link, &qdiscs, journal)?,
            Some(Obstacle::Paces) => {}
            Some(Obstacle::Other(reason)) => log(STAGE, kept(link, &reason)),
        }
    }
    Ok(meant.into_iter().map(|link| link.index).collect())
}

/// What [`set`] would do, as commands that a person can read.
///
/// # Errors
/// As [`set`].
pub fn plan(config: &Config) -> Result<Vec<String>> {
    let links = links::all()?;
    let meant = devices(config, &links)?;
    let absence = absence(config, &meant)?;
    let mut plan = Vec::from_iter(absence.map(|reason| format!("# no device gets fq: {reason}")));
    // Without the right to read the journal, the plan is that of a host without one.
    let journal = StateDirectory::of_this_namespace().and_then(|state| Journal::open(&state));
    for link in meant {
        let qdiscs = qdisc::of(link.index)?;
        let had = journal.as_ref().is_ok_and(|journal| had(link, journal));
        match obstacle(&qdiscs, had) {
            None => plan.extend(commands(&link.name, &qdiscs)),
            Some(Obstacle::Paces) => plan.push(format!("# {} has fq already", link.name)),
            Some(Obstacle::Other(reason)) => plan.push(format!("# {}", kept(link, &reason))),
        }
    }
    Ok(plan)
}

/// Refuses a device that is named and is not there.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn check(config: &Config) -> Result<()> {
    match &config.fq {
        Fq::Devices(names) => named(names, &links::all()?).map(drop),
        Fq::Auto | Fq::Off => Ok(()),
    }
}

/// Why `fq` is not put on a device.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    /// It is there already, ours or the kernel's own.
    Paces,
    /// Something else; the reason follows the device's name.
    Other(String),
}

/// `had` is whether an earlier `up` has put `fq` there.
fn obstacle(qdiscs: &[Qdisc], had: bool) -> Option<Obstacle> {
    let other = |reason: String| Some(Obstacle::Other(reason));
    match qdiscs.iter().find(|qdisc| qdisc.parent == ROOT) {
        None => other("it is down; run `tarn up` again when it is up".to_owned()),
        Some(root) if root.handle == HANDLE => Some(Obstacle::Paces),
        Some(root) if root.kind == "noqueue" => other("it has no queue".to_owned()),
        Some(root) if root.handle != 0 => other(format!("somebody has chosen {}", root.kind)),
        Some(_) if queues(qdiscs).all(|queue| queue.kind == "fq") => Some(Obstacle::Paces),
        Some(_) if had => {
            other("somebody has taken fq away; `tarn down`, then `tarn up` puts it there again".to_owned())
        }
        Some(_) => None,
    }
}

/// What the kernel has put on a device's queues: several below an `mq`, or one.
fn queues(qdiscs: &[Qdisc]) -> impl Iterator<Item = &Qdisc> {
    let own = qdiscs.iter().filter(|qdisc| qdisc.handle == 0);
    own.filter(|qdisc| qdisc.kind != "mq")
}

fn kept(link: &Link, reason: &str) -> String {
    format!("{} keeps its queueing discipline: {reason}", link.name)
}

/// Whether the journal has it that `fq` was put on a device, under any name of the device's.
fn had(link: &Link, journal: &Journal) -> bool {
    let is_of = |change| matches!(PaceChange::of(change), Some(PaceChange::Queue { index, .. }) if index == link.index);
    journal.changes(STAGE).any(|(_, change)| is_of(change))
}

/// The devices that are named, or those that the connections meant leave by.
fn devices<'a>(config: &Config, links: &'a [Link]) -> Result<Vec<&'a Link>> {
    match &config.fq {
        Fq::Off => Ok(Vec::new()),
        Fq::Devices(names) => named(names, links),
        Fq::Auto if !config.chooses() || forwards()? => Ok(Vec::new()),
        Fq::Auto => {
            let used = used(config)?;
            Ok(links
                .iter()
                .filter(|link| used.contains(&link.index) && !link.is_loopback)
                .collect())
        }
    }
}

fn named<'a>(names: &[String], links: &'a [Link]) -> Result<Vec<&'a Link>> {
    let find = |name: &String| links.iter().find(|link| link.name == *name);
    let found = |name: &String| {
        find(name).with_context(|| {
            format!("fq: there is no network device {name}: name one that `ip link` lists, or use fq = \"auto\"")
        })
    };
    names.iter().map(found).collect()
}

/// Why no device is meant, although connections were chosen.
fn absence(config: &Config, meant: &[&Link]) -> Result<Option<&'static str>> {
    if config.fq != Fq::Auto || !config.chooses() || !meant.is_empty() {
        return Ok(None);
    }
    Ok(Some(if forwards()? { FORWARDS } else { NO_WAY }))
}

fn forwards() -> Result<bool> {
    for path in FORWARDING.map(Path::new) {
        // A host without IPv6 has no such file.
        if path.exists() && sysctl::read(path)? != "0" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The indexes of the devices by which the connections meant leave.
fn used(config: &Config) -> Result<BTreeSet<u32>> {
    let mut netlink = route::open()?;
    let mut used = BTreeSet::new();
    for address in targets(config) {
        used.extend(route::device_to(address, &mut netlink)?);
    }
    Ok(used)
}

/// Addresses that the connections meant go to.
fn targets(config: &Config) -> Vec<IpAddr> {
    // A control group's connections may go anywhere.
    let is_anywhere = config.everybody || !config.groups.is_empty();
    // 0.0.0.0 and :: are no destinations: a lookup of them finds the loopback, or nothing.
    let (whole, parts): (Vec<Prefix>, Vec<Prefix>) = config.destinations.iter().partition(|prefix| prefix.length == 0);
    let is_meant = |address: &IpAddr| is_anywhere || whole.iter().any(|prefix| prefix.contains(*address));
    let elsewhere = ELSEWHERE.iter().filter_map(|address| address.parse().ok());
    let parts = parts.iter().map(|prefix| prefix.address);
    elsewhere.filter(is_meant).chain(parts).collect()
}

/// Puts `fq` on a device. The change is in the journal before; how `fq` is set is known, and recorded, only after.
fn put(link: &Link, qdiscs: &[Qdisc], journal: &mut Journal) -> Result<()> {
    let change = change(link, None);
    let id = journal.record(STAGE, change.clone())?;
    let Err(error) = add(link.index, qdiscs) else {
        let settings = qdisc::settings(link.index)?;
        let new = journal.record(STAGE, self::change(link, Some(settings)))?;
        return journal.supersede(id, new);
    };
    journal.undo_of(STAGE, |recorded| *recorded == change)?;
    if refusal(&error) == Some(Errno::ENOENT) {
        let name = &link.name;
        log(
            STAGE,
            format!("{name} gets no fq, which this kernel does not have: TCP paces by itself"),
        );
        return Ok(());
    }
    Err(error).with_context(|| format!("put fq on {}", link.name))
}

fn change(link: &Link, settings: Option<BTreeSet<Setting>>) -> Change {
    let change = PaceChange::Queue {
        interface: link.name.clone(),
        index: link.index,
        handle: HANDLE,
        settings,
    };
    change.into()
}

fn is_multiple(qdiscs: &[Qdisc]) -> bool {
    qdiscs.iter().any(|qdisc| qdisc.parent == ROOT && qdisc.kind == "mq")
}

/// Where a device has several queues, each gets one.
fn add(index: u32, qdiscs: &[Qdisc]) -> Result<()> {
    if !is_multiple(qdiscs) {
        return qdisc::add(index, ROOT, HANDLE, "fq");
    }
    qdisc::add(index, ROOT, HANDLE, "mq")?;
    let count = queues(qdiscs).count() as u32;
    (1..=count).try_for_each(|queue| qdisc::add(index, HANDLE | queue, 0, "fq"))
}

/// [`add`] as tc(8) has it.
fn commands(name: &str, qdiscs: &[Qdisc]) -> Vec<String> {
    let major = HANDLE >> 16;
    let root = |kind| format!("tc qdisc replace dev {name} root handle {major:x}: {kind}");
    if !is_multiple(qdiscs) {
        return vec![root("fq")];
    }
    let queue = |queue| format!("tc qdisc replace dev {name} parent {major:x}:{queue:x} fq");
    let queues = (1..=queues(qdiscs).count()).map(queue);
    std::iter::once(root("mq")).chain(queues).collect()
}
