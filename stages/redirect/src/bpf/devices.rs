//! Which devices carry the programs, and by which of them packets can leave without the stack.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags};

use super::load::{ETHERNET_PROGRAMS, IP_PROGRAMS, Loaded};
use super::maps::Maps;
use super::skeleton::types;
use super::xdp;
use crate::STAGE;
use tarn_base::output::log;
use tarn_frame::journal::{Change, Journal};
use tarn_kernel::attach::Direction;
use tarn_kernel::attach::{self, FILTER_HANDLE, FILTER_PRIORITY};
use tarn_kernel::links::Link;
use tarn_kernel::netdev;
use tarn_kernel::plain::bytes_of;

/// Attaches the programs to a device, in the place of those of an earlier instance where there are any. One that `is_port` gets
/// what packets meet that leave; see [`crate::devices::Devices::is_port`].
pub fn attach(link: &Link, is_port: bool, loaded: &Loaded, journal: &mut Journal, xdp: bool) -> Result<()> {
    let directions: &[Direction] = match is_port {
        true => &[Direction::Egress],
        false => &[Direction::Ingress, Direction::Egress],
    };
    if is_port {
        journal.undo_of(STAGE, |change| {
            device_of(change) == Some(link.index) && meets_arrivals(change)
        })?;
    }
    for direction in directions.iter().copied() {
        let program = loaded.program(tc_program(link, direction))?;
        if attach::has_tcx() {
            attach_tcx(link, direction, program, journal)?;
        } else {
            attach_filter(link, direction, program, journal)?;
        }
    }
    // A bridge's frames are others' too, and XDP cannot tell whose; what a master forwards, tc sees at the master.
    if xdp && !is_port && link.is_ethernet() && link.master.is_none() {
        xdp::attach(link, loaded, journal)?;
    }
    Ok(())
}

/// Whether any device has something of ours.
pub fn is_anything_attached(journal: &Journal) -> bool {
    journal.changes(STAGE).any(|(_, change)| device_of(change).is_some())
}

/// Takes everything of ours from all devices.
pub fn detach_all(journal: &mut Journal) -> Result<()> {
    journal.undo_of(STAGE, |change| device_of(change).is_some()).map(drop)
}

/// Takes everything of ours from a device.
pub fn detach(index: u32, journal: &mut Journal) -> Result<()> {
    journal
        .undo_of(STAGE, |change| device_of(change) == Some(index))
        .map(drop)
}

/// Whether a change has attached a program that packets meet as they come in.
fn meets_arrivals(change: &Change) -> bool {
    match change {
        Change::Tcx { direction, .. } | Change::TcFilter { direction, .. } => *direction == Direction::Ingress,
        Change::Xdp { .. } | Change::XdpNext { .. } => true,
        _ => false,
    }
}

/// The index of the device that a change of ours is about.
pub fn device_of(change: &Change) -> Option<u32> {
    match change {
        Change::Tcx { index, .. }
        | Change::TcFilter { index, .. }
        | Change::Qdisc { index, .. }
        | Change::Xdp { index, .. }
        | Change::XdpNext { index, .. } => Some(*index),
        _ => None,
    }
}

fn tc_program(link: &Link, direction: Direction) -> &'static str {
    let [ingress, egress] = if link.is_ethernet() {
        ETHERNET_PROGRAMS
    } else {
        IP_PROGRAMS
    };
    match direction {
        Direction::Ingress => ingress,
        Direction::Egress => egress,
    }
}

fn attach_tcx(link: &Link, direction: Direction, program: BorrowedFd<'_>, journal: &mut Journal) -> Result<()> {
    let change = Change::Tcx {
        index: link.index,
        interface: link.name.clone(),
        direction,
        program_id: attach::program_id(program)?,
    };
    put(change, journal, |old| {
        attach::attach_tcx(link.index, direction, program, old).map(|()| true)
    })
}

fn attach_filter(link: &Link, direction: Direction, program: BorrowedFd<'_>, journal: &mut Journal) -> Result<()> {
    if !attach::has_clsact(link.index)? {
        add_clsact(link, journal)?;
    }
    let change = Change::TcFilter {
        index: link.index,
        interface: link.name.clone(),
        direction,
        handle: FILTER_HANDLE,
        priority: FILTER_PRIORITY,
        program_id: attach::program_id(program)?,
    };
    put(change, journal, |old| {
        attach::attach_filter(link.index, direction, program, old.is_some()).map(|()| true)
    })
}

/// Attaches a program as `change` says, in the place of an earlier instance's where there is one, which `attach` is given.
/// It returns false when the device takes none.
pub fn put(
    change: Change,
    journal: &mut Journal,
    attach: impl FnOnce(Option<BorrowedFd<'_>>) -> Result<bool>,
) -> Result<()> {
    let earlier = journal
        .changes(STAGE)
        .find(|(_, earlier)| earlier.has_place_of(&change) && earlier.stands())
        .map(|(id, earlier)| (id, program_of(earlier)));
    let old = match earlier {
        Some((_, program)) if program == program_of(&change) => return Ok(()),
        Some((_, Some(program))) => attach::open_program(program)?,
        _ => None,
    };
    let recorded = journal.record(STAGE, change)?;
    if !attach(old.as_ref().map(AsFd::as_fd))? {
        return journal.forget(recorded);
    }
    earlier.map_or(Ok(()), |(earlier, _)| journal.supersede(earlier, recorded))
}

/// The id of the program that a change has attached.
fn program_of(change: &Change) -> Option<u32> {
    match change {
        Change::Tcx { program_id, .. }
        | Change::TcFilter { program_id, .. }
        | Change::Xdp { program_id, .. }
        | Change::XdpNext { program_id, .. } => Some(*program_id),
        _ => None,
    }
}

/// Adds a clsact queueing discipline. Where one called `ingress` is in its place, it is somebody's and stays.
fn add_clsact(link: &Link, journal: &mut Journal) -> Result<()> {
    let change = Change::Qdisc {
        interface: link.name.clone(),
        index: link.index,
    };
    let recorded = journal.record(STAGE, change)?;
    if attach::create_clsact(link.index)? {
        return Ok(());
    }
    journal.forget(recorded)?;
    bail!(
        "{0} has an ingress queueing discipline, which leaves no room for clsact: remove it \
         (`tc qdisc del dev {0} ingress`), or leave {0} out of `devices` in tarn.toml",
        link.name
    )
}

/// Says once at the start where XDP programs cannot deliver as was asked for.
pub fn say_what_xdp_cannot() -> Result<()> {
    if !netdev::tells_xdp_features()? {
        log(
            STAGE,
            "this kernel cannot tell which devices take frames from XDP (Linux 6.3 can): packets are delivered at tc instead",
        );
    }
    Ok(())
}

/// Tells the programs by which devices packets can leave without the stack.
pub fn set_exits(links: &[Link], maps: &Maps, xdp: bool, journal: &Journal) -> Result<()> {
    let is_behind = xdp && xdp::is_behind(links, journal)?;
    for link in links {
        let key = bytes_of(&link.index);
        let Some(exit) = exit_of(link, xdp, is_behind)? else {
            let _ = maps.exits.delete(key); // it may never have been there
            continue;
        };
        if exit.by_xdp != 0 {
            maps.xdp_devices
                .update(key, key, MapFlags::ANY)
                .context("tell a device to the XDP program")?;
        }
        maps.exits
            .update(key, bytes_of(&exit), MapFlags::ANY)
            .context("tell a device to the programs")?;
    }
    forget_gone(links, maps)
}

/// How packets leave by a veth whose other end lies in another namespace, and which takes frames from XDP, too.
pub fn exit_to_peer() -> types::exit {
    types::exit {
        delivery: types::delivery::BY_PEER,
        by_xdp: 1,
    }
}

/// Where XDP programs run behind another stage's, which bounds what is received, packets to other namespaces leave at tc: frames from XDP
/// are received once more by the veth's peer, in a softirq that nobody bounds. Tc hands packets over, which costs less besides.
fn exit_of(link: &Link, xdp: bool, is_behind: bool) -> Result<Option<types::exit>> {
    if link.is_loopback || !link.is_ethernet() {
        return Ok(None);
    }
    let delivery = if link.has_peer_elsewhere() {
        types::delivery::BY_PEER
    } else {
        types::delivery::BY_EGRESS
    };
    let may = xdp && !(is_behind && link.has_peer_elsewhere());
    let by_xdp = u32::from(may && netdev::takes_xdp_frames(link.index)?);
    Ok(Some(types::exit { delivery, by_xdp }))
}

fn forget_gone(links: &[Link], maps: &Maps) -> Result<()> {
    let gone: Vec<Vec<u8>> = maps
        .exits
        .keys()
        .filter(|key| !links.iter().any(|link| bytes_of(&link.index) == key.as_slice()))
        .collect();
    super::maps::delete_all(&maps.exits, &gone)?;
    super::maps::delete_all(&maps.xdp_devices, &gone)
}
