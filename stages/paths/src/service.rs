//! Brings the stage up, and adopts what an earlier agent has left.

use std::time::Duration;

use anyhow::{Result, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::config::{self, Config, FILE};
use super::group::{self, Working, announce, refuse_foreign_route};
use super::history;
use super::judge::{MAIN, Measure, STANDBY};
use super::layout::{self, Layout};
use super::numbers;
use super::pin::{self, Pins};
use super::snapshot;
use super::tcp::TcpMeter;
use super::watch::{self, Watch};
use super::{STAGE, adopt, filters, gateways, networks, probe, translation, useless};
use crate::change::PathsChange;
use crate::nexthop;
use crate::nexthop::{WEIGHT_MOST, WEIGHT_MOST_OLD};
use tarn_base::output::{Priority, log, log_at};
use tarn_frame::journal::{Change, Journal};
use tarn_frame::state::StateDirectory;
use tarn_frame::{Ability, Configured, Running, up};
use tarn_kernel::netlink::Netlink;
use tarn_kernel::{addresses, links, route, sysctl};

impl Configured for Config {
    fn missing(&self) -> Vec<Ability> {
        let pins = self.groups.iter().any(|group| group.pin);
        let needed = probe::abilities(self.settings.measure).into_iter();
        needed
            .chain(pins.then(probe::pins))
            .chain(self.tcp.then(probe::round_trips))
            .filter(|ability| ability.required && !ability.present)
            .collect()
    }

    fn fits(&self, state: &StateDirectory) -> Result<()> {
        let mut netlink = route::open()?;
        let (config, before) = resolved(self, state, &Journal::open(state)?, &mut netlink)?;
        useless::refuse(&config, &addresses::all()?)?;
        let mut layouts = layout::of(&config, WEIGHT_MOST);
        gateways::find(&mut layouts, &links::carrying()?, &mut netlink)?;
        useless::refuse_gateways(&config, &layouts)?;
        layouts
            .iter()
            .try_for_each(|layout| refuse_taken(layout, &mut netlink))?;
        if let Err(error) = pin::refuse_rules(self.mark_mask) {
            // Rules that came later must not keep an agent from coming back to what runs.
            if before.as_ref().is_none_or(|before| before.mark_mask != self.mark_mask) {
                return Err(error);
            }
            log_at(Priority::Warning, STAGE, format!("{error:#}"));
        }
        let Some(pins) = Pins::of(&layouts) else { return Ok(()) };
        // Also where nobody has asked for them: without, translated connections would be lost silently.
        if let Err(error) = Pins::probe() {
            return Err(error.context(
                "connections have to stay on their uplinks, because addresses are translated (pin = false: they need not)",
            ));
        }
        pins.refuse_taken()?;
        let is_marked_by_tarn = |change: &Change| {
            matches!(
                PathsChange::of(change),
                Some(PathsChange::ConnectionMark { .. } | PathsChange::ConnectionMarks { .. })
            )
        };
        // What an earlier agent has left bears its marks.
        if !Journal::open(state)?
            .changes(STAGE)
            .any(|(_, change)| is_marked_by_tarn(change))
        {
            pins.refuse_marked()?;
        }
        let had = before.filter(|before| before.groups.iter().any(|group| group.pin));
        if had.is_some_and(|before| before.mark_mask != self.mark_mask) {
            bail!("connections bear marks of another mark_mask: `tarn down`, then `tarn up`");
        }
        Ok(())
    }

    fn plan(&self) -> Result<Vec<String>> {
        let state = StateDirectory::of_this_namespace()?;
        self.fits(&state)?;
        let mut netlink = route::open()?;
        let (config, _) = resolved(self, &state, &Journal::open(&state)?, &mut netlink)?;
        let carrying = links::carrying()?;
        let mut plan = Vec::new();
        for (path, value) in filters::loosened(&config)? {
            plan.push(format!("sysctl {}={value}", sysctl::name(&path)));
        }
        if config.settings.measure == Measure::Load {
            plan.push("# a BPF program counts what every device sends, as long as the agent lives".into());
        }
        if config.tcp {
            plan.push(
                "# a BPF program takes the round trips of this host's TCP connections, as long as the agent lives"
                    .into(),
            );
        }
        let found = config.groups.iter().filter(|group| group.finds_pin);
        plan.extend(found.map(|group| format!("# {}", translation::said(group))));
        let mut layouts = layout::of(&config, WEIGHT_MOST);
        gateways::find(&mut layouts, &carrying, &mut netlink)?;
        if let Some(pins) = Pins::of(&layouts) {
            plan.extend(pins.commands()?);
            plan.push("# connections under way get the mark of the uplink whose address they have".into());
        }
        for layout in layouts {
            let first = layout.ways.iter().position(|way| carrying.contains_key(&way.device));
            let first = first.unwrap_or(0);
            let weight = |index| if index == first { MAIN } else { STANDBY };
            let weights: Vec<u32> = (0..layout.ways.len()).map(weight).collect();
            plan.extend(layout.commands(&weights));
            let absent = layout.ways.iter().filter(|way| !carrying.contains_key(&way.device));
            plan.extend(absent.map(|way| format!("# {}", absence(&way.device))));
            let unknown = layout.ways.iter().filter(|way| !way.is_known);
            plan.extend(unknown.map(|way| format!("# {}", gateways::absence(&way.device))));
        }
        Ok(plan)
    }

    fn up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let (config, before) = resolved(self, state, journal, &mut route::open()?)?;
        match bring_up(&config, before.as_ref(), state, journal) {
            Ok(watch) => {
                forget_others(&config, journal);
                Ok(Box::new(watch))
            }
            Err(error) => Err(carry_on(before, &config, state, journal, error)),
        }
    }
}

/// A configuration with the uplinks of routes that are taken over, and the numbers that it has in the kernel; and the one that runs,
/// if one does.
fn resolved(
    written: &Config,
    state: &StateDirectory,
    journal: &Journal,
    netlink: &mut Netlink,
) -> Result<(Config, Option<Config>)> {
    let before: Option<Config> = state.read_json(FILE)?;
    let mut config = written.clone();
    let adopted = adopt::adopted(journal);
    adopt::resolve(&mut config, &adopted, netlink)?;
    config.bound_probes()?;
    translation::resolve(&mut config)?;
    before
        .iter()
        .for_each(|before| translation::keep(&mut config.groups, &before.groups));
    networks::find(&mut config.groups)?;
    let held = adopt::held(&config, &adopted);
    numbers::assign(&mut config, before.as_ref(), &held);
    Ok((config, before))
}

fn bring_up(config: &Config, before: Option<&Config>, state: &StateDirectory, journal: &mut Journal) -> Result<Watch> {
    let mut netlink = route::open()?;
    // Before anything changes: this kernel may refuse it.
    let meter = watch::meter(&config.settings)?;
    let uplinks = config.groups.iter().map(|group| group.uplinks.len()).sum();
    let tcp = config.tcp.then(|| TcpMeter::attach(uplinks)).transpose()?;
    allow_descriptors();
    let weight_most = weight_most(journal, &mut netlink)?;
    let layouts = layout::of(config, weight_most);
    record(&layouts, journal)?;
    filters::loosen(config, journal)?;
    let (groups, pins) = set(config, layouts, before, state, &mut netlink)?;
    for group in config.groups.iter().filter(|group| group.finds_pin) {
        log(STAGE, translation::said(group));
    }
    state.write_json(FILE, config)?;
    let mut watch = Watch::new(state.clone(), config.clone(), groups, pins, netlink, meter, tcp);
    watch.write_figures()?;
    Ok(watch)
}

/// Every change that the groups are, in the order to be made.
fn changes(layouts: &[Layout]) -> Vec<Change> {
    let pins = Pins::of(layouts).map(|pins| pins.changes()).unwrap_or_default();
    pins.into_iter()
        .chain(layouts.iter().flat_map(Layout::changes))
        .collect()
}

/// Writes those down that the journal has not yet.
fn record(layouts: &[Layout], journal: &mut Journal) -> Result<()> {
    for change in changes(layouts) {
        journal.record_once(STAGE, change)?;
    }
    Ok(())
}

/// The greatest weight that the kernel takes, found out by trying.
fn weight_most(journal: &mut Journal, netlink: &mut Netlink) -> Result<u32> {
    let mut recorded = Vec::new();
    for id in layout::SCRATCH {
        recorded.push(journal.record(STAGE, PathsChange::Nexthop { id }.into())?);
    }
    let takes_great = nexthop::takes_great_weights(netlink, layout::SCRATCH)?;
    recorded.into_iter().try_for_each(|id| journal.forget(id))?;
    Ok(if takes_great { WEIGHT_MOST } else { WEIGHT_MOST_OLD })
}

/// A socket for each target of each uplink can be more than a process may have by default. Without the room, those that find none
/// say so.
fn allow_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Sets every group, with the weights that are in force, or with a first choice. Connections that are to stay on their uplinks are
/// marked before anything could lead them elsewhere; `before` is what ran until now.
fn set(
    config: &Config,
    mut layouts: Vec<Layout>,
    before: Option<&Config>,
    state: &StateDirectory,
    netlink: &mut Netlink,
) -> Result<(Vec<Working>, Option<Pins>)> {
    let carrying = links::carrying()?;
    gateways::find(&mut layouts, &carrying, netlink)?;
    let mut pins = Pins::of(&layouts);
    if let Some(pins) = &mut pins {
        let before = before.and_then(|before| Pins::of(&layout::of(before, WEIGHT_MOST)));
        pins.begin(before.as_ref())?;
    }
    let mut groups = Vec::new();
    for (group, layout) in config.groups.iter().zip(layouts) {
        for way in layout.ways.iter().filter(|way| !carrying.contains_key(&way.device)) {
            log_at(Priority::Notice, STAGE, absence(&way.device));
        }
        let mut working = Working::adopt(config, group, layout, &carrying, netlink)?;
        working.follow(&carrying, Duration::ZERO, netlink)?;
        if let Some(decision) = working.decide(Duration::ZERO, netlink)? {
            announce(state, &working, None, decision);
        }
        groups.push(working);
    }
    group::arrange_rules(&mut groups, netlink)?;
    Ok((groups, pins))
}

fn absence(device: &str) -> String {
    format!(
        "{device} cannot send now (absent, down or without a carrier): it will be used once it can; `ip link` shows all"
    )
}

/// Numbers that somebody else uses, and a route in the place of ours, are refused before anything changes.
fn refuse_taken(layout: &Layout, netlink: &mut Netlink) -> Result<()> {
    let ids = layout.ways.iter().map(|way| way.id).chain([layout.group.id]);
    for id in ids {
        if nexthop::find(netlink, id)?.is_some_and(|found| !found.is_ours()) {
            bail!("nexthop {id} is somebody else's: `ip nexthop show id {id}` tells whose; tarn needs that number");
        }
    }
    refuse_foreign_route(&layout.group, netlink)
}

/// Puts back what an earlier configuration had and this one has not. What cannot be put back stays in the journal, for the next
/// `tarn up` or `tarn down`: it is no reason to take down what is up. The nexthops stay then, too: a route of ours that stands for
/// one that cannot come back yet goes by some of them.
fn forget_others(config: &Config, journal: &mut Journal) {
    let wanted = changes(&layout::of(config, WEIGHT_MOST));
    let uplinks = config.groups.iter().flat_map(|group| &group.uplinks);
    let path = |uplink: &config::Uplink| filters::path(&uplink.device).display().to_string();
    let paths: Vec<String> = uplinks.map(path).collect();
    // What an earlier version wrote down means the marks of today's uplinks, too: they go with `down`.
    let masks: Vec<u32> = config
        .groups
        .iter()
        .filter(|group| group.pin)
        .map(|_| config.mark_mask)
        .collect();
    let is_of_all_marks = |change: &Change| match PathsChange::of(change) {
        Some(PathsChange::ConnectionMarks { mask }) => masks.contains(&mask),
        _ => false,
    };
    let is_other = |change: &Change| match change {
        Change::Sysctl { path, .. } => !paths.contains(path),
        change => !wanted.contains(change) && !is_of_all_marks(change),
    };
    let is_nexthop = |change: &Change| matches!(PathsChange::of(change), Some(PathsChange::Nexthop { .. }));
    let undone = forget_succeeded(is_other, journal)
        .and_then(|()| journal.undo_of(STAGE, |change| is_other(change) && !is_nexthop(change)))
        .and_then(|_| journal.undo_of(STAGE, is_other));
    if let Err(error) = undone {
        log_at(
            Priority::Error,
            STAGE,
            format!("{error:#}; `tarn up` tries it again, too"),
        );
    }
}

/// Forgets those of these changes that are about another route, if ours stands for yet another one by now, which somebody had put in
/// the place of that one.
fn forget_succeeded(is_other: impl Fn(&Change) -> bool, journal: &mut Journal) -> Result<()> {
    let is_succeeded = |(id, change): &(u64, &Change)| match PathsChange::of(change) {
        Some(PathsChange::AdoptedRoute { route, .. }) if is_other(change) => journal
            .changes(STAGE)
            .any(|(other, change)| other > *id && adopt::stands_for_another(&route, change)),
        _ => false,
    };
    let succeeded = journal.changes(STAGE).filter(is_succeeded);
    let ids: Vec<u64> = succeeded.map(|(id, _)| id).collect();
    ids.into_iter().try_for_each(|id| journal.forget(id))
}

/// After an `up` of `failed`: what an earlier one has set up goes on as before.
fn carry_on(
    before: Option<Config>,
    failed: &Config,
    state: &StateDirectory,
    journal: &mut Journal,
    error: anyhow::Error,
) -> anyhow::Error {
    let Some(before) = before else {
        // The journal puts everything back, and what is not up is not to be gone on from.
        return match clean_up(state) {
            Ok(()) => error,
            Err(again) => error.context(format!("{again:#}")),
        };
    };
    let restored = route::open().and_then(|mut netlink| {
        let weight_most = weight_most(journal, &mut netlink)?;
        let layouts = layout::of(&before, weight_most);
        // What an `up` that was interrupted has had put back is put back again, after this one.
        record(&layouts, journal)?;
        set(&before, layouts, Some(failed), state, &mut netlink).map(drop)
    });
    forget_others(&before, journal);
    // Also when not all of it is restored: the next `up` goes on from there.
    let written = state.write_json(FILE, &before);
    up::gone_on(error, restored.and(written))
}

/// Removes the files that tell what is up.
///
/// # Errors
/// A file that cannot be removed.
pub fn clean_up(state: &StateDirectory) -> Result<()> {
    state.remove_files(&[FILE, history::FILE, snapshot::FILE])
}
