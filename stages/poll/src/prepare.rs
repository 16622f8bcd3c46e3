//! What is set up on a device before it is watched: a line in the journal, and the program where it can run.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use anyhow::Result;

use crate::STAGE;
use crate::buffers;
use crate::change::PollChange;
use crate::config::Config;
use crate::device::Device;
use crate::programs::{Programs, SHARES};
use crate::standing::standing;
use tarn_base::output::log;
use tarn_frame::journal::{Change, Journal};
use tarn_frame::up;
use tarn_kernel::attach::{self, XdpMode};
use tarn_kernel::links;

/// Changes of devices that are gone which the journal remembers: two a device.
const GONE_MOST: usize = 512;

/// Writes down that a device may become threaded, and has it run the program where it can. Returns whether it can shed.
///
/// # Errors
/// The journal's.
pub fn prepare(device: &Device, config: &Config, programs: &Programs, journal: &mut Journal) -> Result<bool> {
    let change = PollChange::Threaded {
        interface: device.name.clone(),
        index: device.index,
        cpus: config.cpus.clone(),
    };
    journal.record_once(STAGE, change.into())?;
    match device.can_shed {
        true => attach_to(device, programs, journal),
        false => Ok(false),
    }
}

/// The same of a device that comes later; `None` where another tarn is at work, which may wait for this agent to end.
///
/// # Errors
/// The journal's.
pub fn prepare_later(device: &Device, config: &Config, programs: &Programs) -> Result<Option<bool>> {
    let (state, _) = up::find(STAGE, "agent", standing)?;
    let Some(_lock) = state.try_lock("poll agent")? else {
        return Ok(None);
    };
    let mut journal = Journal::open(&state)?;
    let here: BTreeSet<u32> = links::all()?.into_iter().map(|link| link.index).collect();
    forget_gone(&mut journal, &here)?;
    let can_shed = prepare(device, config, programs, &mut journal)?;
    if can_shed {
        buffers::enlarge(&mut journal)?;
    }
    Ok(Some(can_shed))
}

/// Where many devices have gone, forgets what was written down first about any of them: a host whose cards come and go would fill its
/// journal. There is nothing to put back on a device that is gone. It is remembered for a while nevertheless, since it may only be in
/// another network namespace.
///
/// # Errors
/// The journal's.
fn forget_gone(journal: &mut Journal, here: &BTreeSet<u32>) -> Result<()> {
    let gone = journal
        .changes(STAGE)
        .filter(|(_, change)| device_of(change).is_some_and(|index| !here.contains(&index)));
    let gone: Vec<u64> = gone.map(|(id, _)| id).collect();
    let excess = gone.len().saturating_sub(GONE_MOST);
    gone[..excess].iter().try_for_each(|id| journal.forget(*id))
}

/// The device that a change is about, if it is about one.
fn device_of(change: &Change) -> Option<u32> {
    if let Change::Xdp { index, .. } = change {
        return Some(*index);
    }
    PollChange::of(change).map(|PollChange::Threaded { index, .. }| index)
}

/// Forgets that a device may have become threaded: somebody else manages that from now on. Returns false where another tarn is at work.
///
/// # Errors
/// The journal's.
pub fn forget_later(device: u32) -> Result<bool> {
    let (state, _) = up::find(STAGE, "agent", standing)?;
    let Some(_lock) = state.try_lock("poll agent")? else {
        return Ok(false);
    };
    let mut journal = Journal::open(&state)?;
    let is_it =
        |change: &Change| matches!(PollChange::of(change), Some(PollChange::Threaded { index, .. }) if index == device);
    let changes = journal.changes(STAGE).filter(|(_, change)| is_it(change));
    let ids: Vec<u64> = changes.map(|(id, _)| id).collect();
    ids.into_iter().try_for_each(|id| journal.forget(id))?;
    Ok(true)
}

/// Attaches the program to a device, in the place of an earlier agent's, or before another stage's (see `tarn_kernel::xdp_next`). Returns
/// false where somebody else's program is, or the driver refuses.
fn attach_to(device: &Device, programs: &Programs, journal: &mut Journal) -> Result<bool> {
    let attached = attach::xdp_program(device.index)?;
    if let Some(why) = why_not(device.index, attached, journal) {
        log(STAGE, format!("{} {why}: nothing is shed there", device.name));
        return Ok(false);
    }
    let earlier = journal
        .changes(STAGE)
        .find(|(_, change)| is_on(change, device.index, attached));
    let earlier = earlier.map(|(id, _)| id);
    let replaced = attached.map(attach::open_program).transpose()?.flatten();
    let recorded = journal.record(
        STAGE,
        Change::Xdp {
            index: device.index,
            interface: device.name.clone(),
            program_id: attach::program_id(programs.shed())?,
            mode: XdpMode::Native,
        },
    )?;
    if let Err(error) = attach::attach_xdp(device.index, programs.shed(), replaced.as_ref().map(AsFd::as_fd)) {
        let name = &device.name;
        log(
            STAGE,
            format!("{name} takes no XDP program ({error:#}): nothing is shed there"),
        );
        journal.forget(recorded)?;
        return Ok(false);
    }
    let recorded = match earlier {
        Some(earlier) => {
            journal.supersede(earlier, recorded)?;
            earlier
        }
        None => recorded,
    };
    forget_replaced(device.index, recorded, journal)?;
    Ok(true)
}

/// Forgets all programs that were on a device before: no stage has one there but this.
fn forget_replaced(device: u32, recorded: u64, journal: &mut Journal) -> Result<()> {
    let is_over =
        |id, change: &Change| id != recorded && matches!(change, Change::Xdp { index, .. } if *index == device);
    let changes = journal.stages().into_iter().flat_map(|stage| journal.changes(stage));
    let over: Vec<u64> = changes
        .filter(|(id, change)| is_over(*id, change))
        .map(|(id, _)| id)
        .collect();
    over.into_iter().try_for_each(|id| journal.forget(id))
}

/// Why the program cannot be attached to a device that has this program.
fn why_not(device: u32, attached: Option<u32>, journal: &Journal) -> Option<String> {
    let mut changes = journal.stages().into_iter().flat_map(|stage| journal.changes(stage));
    if let Some(other) = attached.filter(|_| !changes.any(|(_, change)| is_on(change, device, attached))) {
        return Some(format!("has another XDP program (id {other})"));
    }
    let shares_entry = |change: &Change| match change {
        Change::Xdp { index, .. } => *index != device && index % SHARES == device % SHARES && change.stands(),
        _ => false,
    };
    let is_shared = journal.changes(STAGE).any(|(_, change)| shares_entry(change));
    is_shared.then(|| format!("has an index that differs from another device's by a multiple of {SHARES}"))
}

/// Whether a change has attached this program to a device.
fn is_on(change: &Change, device: u32, program: Option<u32>) -> bool {
    matches!(change, Change::Xdp { index, program_id, .. } if *index == device && Some(*program_id) == program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_frame::state::StateDirectory;

    /// On a host that makes a card for each of its guests, the journal must not fill up.
    #[test]
    fn the_journal_forgets_what_has_gone_long_ago() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(&directory.path().join("tarn"), "netns-1");
        let mut journal = Journal::open(&state).unwrap();
        let threaded = |index| PollChange::Threaded {
            interface: format!("eth{index}"),
            index,
            cpus: None,
        };
        let here = BTreeSet::from([1]);
        for index in 1..=2 * GONE_MOST as u32 {
            journal.record(STAGE, threaded(index).into()).unwrap();
            forget_gone(&mut journal, &here).unwrap();
        }
        let left: Vec<u32> = journal
            .changes(STAGE)
            .filter_map(|(_, change)| device_of(change))
            .collect();
        let last = 2 * GONE_MOST as u32;
        let youngest = last - GONE_MOST as u32 + 1..=last;
        assert_eq!(left, std::iter::once(1).chain(youngest).collect::<Vec<u32>>());
    }
}
