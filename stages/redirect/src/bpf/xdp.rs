//! The XDP program on a device: alone, or behind that of another stage.

use std::os::fd::BorrowedFd;

use anyhow::Result;

use super::devices::put;
use super::load::{Loaded, XDP_PROGRAM};
use crate::STAGE;
use tarn_base::output::{Priority, log, log_at};
use tarn_frame::journal::{Change, Journal};
use tarn_kernel::attach::{self, XdpMode};
use tarn_kernel::links::Link;
use tarn_kernel::xdp_next::Place;

/// Attaches the program to a device, in the place of an earlier instance's where there is one. A device whose driver has no XDP, or
/// that has somebody else's program, is served by the tc programs alone; as is one from which somebody has taken this very program.
///
/// # Errors
/// The journal's, and those of a device that is gone.
pub fn attach(link: &Link, loaded: &Loaded, journal: &mut Journal) -> Result<()> {
    let program = loaded.program(XDP_PROGRAM)?;
    let id = attach::program_id(program)?;
    let attached = attach::xdp_program(link.index)?;
    if attached.is_none() && was_taken(link.index, id, journal) {
        if loaded.left_alone.borrow_mut().insert(link.index) {
            let text = format!(
                "somebody else has taken the XDP program from {}: served at tc until the next `tarn up`",
                link.name
            );
            log_at(Priority::Notice, STAGE, text);
        }
        return Ok(());
    }
    let is_ours = |id| {
        journal
            .changes(STAGE)
            .any(|(_, change)| is_alone(change, link.index, id))
    };
    match attached.filter(|id| !is_ours(*id)) {
        None => attach_alone(link, program, journal)?,
        Some(other) => attach_behind(link, other, program, journal)?,
    }
    forget_replaced(link.index, journal)
}

/// Whether a device without a program had this one, or another stage's that still counts on it: a stage that has given its own back has
/// nothing in the journal.
fn was_taken(device: u32, program: u32, journal: &Journal) -> bool {
    let is_of_another = |stage: &str| stage != STAGE;
    let mut changes = journal
        .stages()
        .into_iter()
        .flat_map(|stage| journal.changes(stage).map(move |(_, change)| (stage, change)));
    changes.any(|(stage, change)| match change {
        Change::Xdp { index, program_id, .. } => *index == device && (is_of_another(stage) || *program_id == program),
        _ => false,
    })
}

/// The place behind another stage's program on a device; `None` where it has no program, or one that is not tarn's here.
fn place_behind(device: u32, journal: &Journal) -> Result<Option<Place>> {
    let Some(first) = attach::xdp_program(device)? else {
        return Ok(None);
    };
    let others = journal.stages().into_iter().filter(|stage| *stage != STAGE);
    let mut changes = others.flat_map(|stage| journal.changes(stage));
    if !changes.any(|(_, change)| is_alone(change, device, first)) {
        return Ok(None);
    }
    Place::of(device)
}

/// Whether the program runs, or can run, behind another stage's on any of these devices.
///
/// # Errors
/// The kernel's.
pub fn is_behind(links: &[Link], journal: &Journal) -> Result<bool> {
    for link in links.iter().filter(|link| link.xdp_program.is_some()) {
        if place_behind(link.index, journal)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn attach_alone(link: &Link, program: BorrowedFd<'_>, journal: &mut Journal) -> Result<()> {
    let change = Change::Xdp {
        index: link.index,
        interface: link.name.clone(),
        program_id: attach::program_id(program)?,
        mode: XdpMode::Native,
    };
    put(change, journal, |old| {
        let attached = attach::attach_xdp(link.index, program, old);
        if let Err(error) = &attached {
            let text = format!("{} takes no XDP program ({error:#}): served at tc instead", link.name);
            log(STAGE, text);
        } else if let Some(warning) = warning(link) {
            log_at(Priority::Warning, STAGE, warning);
        }
        Ok(attached.is_ok())
    })
}

/// Behind another stage's program.
fn attach_behind(link: &Link, other: u32, program: BorrowedFd<'_>, journal: &mut Journal) -> Result<()> {
    let instead = |why: &str| log(STAGE, format!("{} {why}: served at tc instead", link.name));
    let Some(place) = place_behind(link.index, journal)? else {
        instead(&format!("has another XDP program (id {other})"));
        return Ok(());
    };
    let next = |program_id| Change::XdpNext {
        index: link.index,
        interface: link.name.clone(),
        program_id,
    };
    if let Some(taken) = place.program()?
        && !journal.changes(STAGE).any(|(_, change)| *change == next(taken))
    {
        instead(&format!("has another next XDP program (id {taken})"));
        return Ok(());
    }
    put(next(attach::program_id(program)?), journal, |_| {
        let placed = place.put(program);
        if let Err(error) = &placed {
            instead(&format!("takes no next XDP program ({error:#})"));
        }
        Ok(placed.is_ok())
    })
}

/// Forgets programs of ours that are no longer on a device: another stage's has taken the place of one that was alone there, or one that
/// was behind such a program is alone.
fn forget_replaced(device: u32, journal: &mut Journal) -> Result<()> {
    let is_over = |change: &Change| {
        matches!(change, Change::Xdp { index, .. } | Change::XdpNext { index, .. } if *index == device)
            && !change.stands()
    };
    let over = journal.changes(STAGE).filter(|(_, change)| is_over(change));
    let over: Vec<u64> = over.map(|(id, _)| id).collect();
    over.into_iter().try_for_each(|id| journal.forget(id))
}

fn is_alone(change: &Change, device: u32, program: u32) -> bool {
    matches!(change, Change::Xdp { index, program_id, .. } if (*index, *program_id) == (device, program))
}

/// What an administrator has to know of a device that XDP costs more than it gains.
fn warning(link: &Link) -> Option<String> {
    (link.kind == "veth").then(|| {
        format!(
            "{}: XDP on a veth takes segmentation offload from TCP, which is then slower than by plain routing; \
             leave `deliver` out of tarn.toml unless most traffic is UDP",
            link.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_frame::survey::testing::link;

    /// Who asks for XDP on a veth learns that TCP gets slower by it; a card with a driver of its own is not talked about.
    #[test]
    fn xdp_on_a_veth_is_warned_of() {
        assert!(warning(&link(7, "left", "veth")).is_some_and(|text| text.starts_with("left: XDP on a veth")));
        assert_eq!(warning(&link(7, "left", "")), None);
    }
}
