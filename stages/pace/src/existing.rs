//! Has connections that stand take the congestion control, and give it back (`existing.bpf.c`).

use std::io::Read;
use std::mem::MaybeUninit;

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Iter, MapCore, MapFlags};

use crate::config::Config;
use crate::destinations;
use crate::registration::NAME;
use crate::skeleton::existing::ExistingSkelBuilder;
use tarn_base::network::Prefix;
use tarn_kernel::libbpf;

/// How many were moved, and how many the kernel refused to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Connections.
    pub taken: u64,
    /// Connections.
    pub refused: u64,
}

/// Has those of the calling thread's network namespace take it that the configuration's `for` means, and whose process has chosen no
/// other one than `default`.
///
/// # Errors
/// The kernel refuses the program.
pub fn take(config: &Config, default: &str) -> Result<Moved> {
    let everybody = config.everybody;
    walk(NAME, Who::WithoutChoice { default, everybody }, &config.destinations)
}

/// Has those of the calling thread's network namespace that use it take another one.
///
/// # Errors
/// The kernel refuses the program, or has no such congestion control for a connection.
pub fn give_back(to: &str) -> Result<Moved> {
    walk(to, Who::Ours, &[])
}

/// The connections that are moved.
#[derive(Clone, Copy)]
enum Who<'a> {
    /// Those that use it.
    Ours,
    /// Those that do not, whose process has chosen none, or the default; all, or those to the destinations.
    WithoutChoice { default: &'a str, everybody: bool },
}

/// Writes a name and zeros to a variable of a program.
fn write_name(variable: &mut [i8], name: &str) -> Result<()> {
    // One byte stays 0.
    ensure!(
        name.len() < variable.len(),
        "{name:?} is no name of a congestion control"
    );
    for (place, byte) in variable.iter_mut().zip(name.bytes()) {
        *place = byte as _;
    }
    Ok(())
}

fn walk(target: &str, who: Who<'_>, destinations: &[Prefix]) -> Result<Moved> {
    let mut storage = MaybeUninit::uninit();
    let mut open = ExistingSkelBuilder::default()
        .open(&mut storage)
        .context("open the program that moves connections")?;
    let constants = open.maps.rodata_data.as_deref_mut();
    let constants = constants.context("the program that moves connections has no variables")?;
    write_name(&mut constants.target, target)?;
    match who {
        Who::Ours => (constants.away, constants.everybody) = (true, true),
        Who::WithoutChoice { default, everybody } => {
            write_name(&mut constants.usual, default)?;
            constants.everybody = everybody;
        }
    }
    let mut loaded = libbpf::load("the kernel refused the program that moves connections", || open.load())?;
    for prefix in destinations {
        let written = loaded
            .maps
            .destinations
            .update(&destinations::key(*prefix), &[1], MapFlags::ANY);
        written.with_context(|| format!("cannot note the destination {prefix}"))?;
    }
    loaded.attach().context("cannot move connections")?;
    let link = loaded
        .links
        .walk
        .as_ref()
        .context("the program that moves connections is not attached")?;
    let mut nothing = Vec::new();
    let read = Iter::new(link)
        .context("cannot move connections")?
        .read_to_end(&mut nothing);
    read.context("cannot move connections")?;
    let chosen = loaded
        .maps
        .bss_data
        .as_deref()
        .context("the program that moves connections has no count")?
        .chosen;
    Ok(Moved {
        taken: chosen.taken,
        refused: chosen.refused,
    })
}
