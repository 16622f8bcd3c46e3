//! Has connections take the congestion control by their destination or by their control group (`steer.bpf.c`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject};

use crate::STAGE;
use crate::change::PaceChange;
use crate::config::Config;
use crate::destinations;
use crate::registration::NAME;
use crate::skeleton::steer::{SteerSkel, SteerSkelBuilder};
use tarn_base::output::log;
use tarn_frame::journal::{Change, Journal};
use tarn_kernel::attach::program_id;
use tarn_kernel::{cgroup, libbpf, netns};

/// Has those take it that the configuration names. Programs that an earlier `up` has attached stay: for a moment, a connection may be
/// asked for twice.
///
/// A group that is not there, because its service does not run, is left to the agent.
///
/// # Errors
/// No control groups of version 2 are mounted; somebody's program allows none beside it; what the kernel refuses.
pub fn attach(config: &Config, journal: &mut Journal) -> Result<()> {
    if config.destinations.is_empty() && config.groups.is_empty() {
        return Ok(());
    }
    let root = cgroup::root()?;
    let mut storage = MaybeUninit::uninit();
    let loaded = load(&mut storage)?;
    for prefix in &config.destinations {
        let written = loaded
            .maps
            .destinations
            .update(&destinations::key(*prefix), &[1], MapFlags::ANY);
        written.with_context(|| format!("cannot note the destination {prefix}"))?;
    }
    if !config.destinations.is_empty() {
        attach_one(&root, loaded.progs.by_destination.as_fd(), journal)?;
    }
    for group in &config.groups {
        let path = root.join(group);
        if path.is_dir() {
            attach_one(&path, loaded.progs.by_group.as_fd(), journal)?;
        } else {
            let group = group.display();
            log(
                STAGE,
                format!("there is no control group {group} yet: its connections take {NAME} once it is there"),
            );
        }
    }
    Ok(())
}

/// Attaches a program to a group that was made anew, if none is there: what was attached to the old one has gone with it. Returns
/// whether it did.
///
/// # Errors
/// Those of [`attach`].
pub fn attach_again(group: &Path, journal: &mut Journal) -> Result<bool> {
    let path = cgroup::root()?.join(group);
    let attached = cgroup::socket_programs(&path)?.unwrap_or_default();
    let of_this_group = |change: &Change| match PaceChange::of(change) {
        Some(PaceChange::GroupProgram { group, program }) => (group == path).then_some(program),
        _ => None,
    };
    let recorded: Vec<(u64, u32)> = journal
        .changes(STAGE)
        .filter_map(|(id, change)| Some((id, of_this_group(change)?)))
        .collect();
    let (standing, gone): (Vec<_>, Vec<_>) = recorded.iter().partition(|(_, program)| attached.contains(program));
    if !standing.is_empty() {
        return Ok(false);
    }
    let mut storage = MaybeUninit::uninit();
    let loaded = load(&mut storage)?;
    attach_one(&path, loaded.progs.by_group.as_fd(), journal)?;
    gone.iter().try_for_each(|(id, _)| journal.forget(*id))?;
    Ok(true)
}

fn load(storage: &mut MaybeUninit<OpenObject>) -> Result<SteerSkel<'_>> {
    let mut open = SteerSkelBuilder::default()
        .open(storage)
        .context("open the programs that choose a congestion control")?;
    let constants = open.maps.rodata_data.as_deref_mut();
    constants
        .context("the programs that choose a congestion control have no variables")?
        .namespace = netns::cookie()?;
    libbpf::load(
        "the kernel refused the programs that choose a congestion control",
        || open.load(),
    )
}

fn attach_one(group: &Path, program: BorrowedFd<'_>, journal: &mut Journal) -> Result<()> {
    let change = PaceChange::GroupProgram {
        group: group.to_owned(),
        program: program_id(program)?,
    };
    journal.record(STAGE, change.into())?;
    cgroup::attach_to_sockets(group, program)
}
