//! What is set up on a device before it is watched: a line in the journal, and the program where it can run.

use std::os::fd::AsFd;

use anyhow::Result;

use crate::STAGE;
use crate::buffers;
use crate::change::PollChange;
use crate::device::Device;
use crate::programs::Programs;
use crate::standing::standing;
use tarn_base::output::log;
use tarn_frame::journal::{Change, Journal};
use tarn_frame::up;
use tarn_kernel::attach::{self, XdpMode};

/// Writes down that a device may become threaded, and has it run the program where it can. Returns whether it can shed.
///
/// # Errors
/// The journal's.
pub fn prepare(device: &Device, programs: &Programs, journal: &mut Journal) -> Result<bool> {
    let (interface, index) = (device.name.clone(), device.index);
    journal.record_once(STAGE, PollChange::Threaded { interface, index }.into())?;
    match device.can_shed {
        true => attach_to(device, programs, journal),
        false => Ok(false),
    }
}

/// The same of a device that comes later; `None` where another tarn is at work, which may wait for this agent to end.
///
/// # Errors
/// The journal's.
pub fn prepare_later(device: &Device, programs: &Programs) -> Result<Option<bool>> {
    let (state, _) = up::find(STAGE, "agent", standing)?;
    let Some(_lock) = state.try_lock("poll agent")? else {
        return Ok(None);
    };
    let mut journal = Journal::open(&state)?;
    let can_shed = prepare(device, programs, &mut journal)?;
    if can_shed {
        buffers::enlarge(&mut journal)?;
    }
    Ok(Some(can_shed))
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

/// Attaches the program to a device, in the place of an earlier agent's. Returns false where another program is, or the driver refuses.
fn attach_to(device: &Device, programs: &Programs, journal: &mut Journal) -> Result<bool> {
    let change = Change::Xdp {
        index: device.index,
        interface: device.name.clone(),
        program_id: attach::program_id(programs.shed())?,
        mode: XdpMode::Native,
    };
    let ours = journal
        .changes(STAGE)
        .find(|(_, earlier)| earlier.has_place_of(&change) && earlier.stands())
        .map(|(id, earlier)| (id, earlier.clone()));
    let replaced = match &ours {
        Some((_, Change::Xdp { program_id, .. })) => attach::open_program(*program_id)?,
        _ => None,
    };
    if replaced.is_none()
        && let Some(other) = attach::xdp_program(device.index)?
    {
        log(
            STAGE,
            format!(
                "{} has another XDP program (id {other}): nothing is shed there",
                device.name
            ),
        );
        return Ok(false);
    }
    let recorded = journal.record(STAGE, change)?;
    if let Err(error) = attach::attach_xdp(device.index, programs.shed(), replaced.as_ref().map(AsFd::as_fd)) {
        log(
            STAGE,
            format!(
                "{} takes no XDP program ({error:#}): nothing is shed there",
                device.name
            ),
        );
        journal.forget(recorded)?;
        return Ok(false);
    }
    if let Some((earlier, _)) = ours {
        journal.supersede(earlier, recorded)?;
    }
    Ok(true)
}
