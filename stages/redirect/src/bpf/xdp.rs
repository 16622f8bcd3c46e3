//! The XDP program on a device: alone, or behind that of another stage.

use std::os::fd::BorrowedFd;

use anyhow::Result;

use super::devices::put;
use crate::STAGE;
use tarn_base::output::{Priority, log, log_at};
use tarn_frame::journal::{Change, Journal};
use tarn_kernel::attach::{self, XdpMode};
use tarn_kernel::links::Link;
use tarn_kernel::xdp_next::Place;

/// Attaches the program to a device, in the place of an earlier instance's where there is one. A device whose driver has no XDP, or
/// that has somebody else's program, is served by the tc programs alone.
///
/// # Errors
/// The journal's, and those of a device that is gone.
pub fn attach(link: &Link, program: BorrowedFd<'_>, journal: &mut Journal) -> Result<()> {
    let is_ours = |id| {
        journal
            .changes(STAGE)
            .any(|(_, change)| is_alone(change, link.index, id))
    };
    match attach::xdp_program(link.index)?.filter(|id| !is_ours(*id)) {
        None => attach_alone(link, program, journal)?,
        Some(other) => attach_behind(link, other, program, journal)?,
    }
    forget_replaced(link.index, journal)
}

/// Whether the program runs, or can run, behind another stage's on any of these devices.
///
/// # Errors
/// The kernel's.
pub fn is_behind(links: &[Link]) -> Result<bool> {
    for link in links.iter().filter(|link| link.xdp_program.is_some()) {
        if Place::of(link.index)?.is_some() {
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
    let Some(place) = Place::of(link.index)? else {
        let name = &link.name;
        log(
            STAGE,
            format!("{name} has another XDP program (id {other}): served at tc instead"),
        );
        return Ok(());
    };
    let change = Change::XdpNext {
        index: link.index,
        interface: link.name.clone(),
        program_id: attach::program_id(program)?,
    };
    put(change, journal, |_| {
        let placed = place.put(program);
        if let Err(error) = &placed {
            log(STAGE, format!("{}: {error:#}: served at tc instead", link.name));
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

    fn link(kind: &str) -> Link {
        Link {
            index: 7,
            name: "left".to_owned(),
            kind: kind.to_owned(),
            hardware: libc::ARPHRD_ETHER,
            lower: None,
            other_namespace: false,
            master: None,
            is_loopback: false,
            xdp_program: None,
        }
    }

    /// Who asks for XDP on a veth learns that TCP gets slower by it; a card with a driver of its own is not talked about.
    #[test]
    fn xdp_on_a_veth_is_warned_of() {
        assert!(warning(&link("veth")).is_some_and(|text| text.starts_with("left: XDP on a veth")));
        assert_eq!(warning(&link("")), None);
    }
}
