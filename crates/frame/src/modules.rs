//! Kernel modules that stages of several network namespaces share.

use anyhow::{Context, Result};
use nix::errno::Errno;
use tarn_kernel::genl::{Family, refusal};
use tarn_kernel::modules;
use tarn_kernel::undone::Undone;

use crate::state::StateDirectory;

/// The family of a module that is loaded: to ask the kernel for one loads it.
///
/// # Errors
/// Those of netlink.
pub fn family(name: &str, version: u8) -> Result<Option<Family>> {
    match modules::is_loaded(name) {
        true => Family::find(name, version),
        false => Ok(None),
    }
}

/// An answer about what runs; `None` when nothing does, which the module says by `ENOENT`.
///
/// # Errors
/// All others.
pub fn unless_nothing_runs<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if refusal(&error) == Some(Errno::ENOENT) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Ends what a module does in this namespace. A module that is not loaded does nothing, and is not loaded for this.
///
/// # Errors
/// The kernel's refusal.
pub fn stop(name: &str, version: u8, stop: u8) -> Result<Undone> {
    let Some(mut family) = family(name, version)? else {
        return Ok(Undone::Gone);
    };
    let answer = unless_nothing_runs(family.request(stop, &[])).with_context(|| format!("cannot stop {name}"))?;
    Ok(Undone::of(answer.is_some()))
}

/// Takes the module out, unless tarn needs it in another network namespace: then that one takes it out.
///
/// # Errors
/// The kernel's refusal.
pub fn unload(name: &str) -> Result<Undone> {
    match loader_elsewhere(name)? {
        Some(other) if modules::is_loaded(name) => Ok(Undone::LeftAlone(format!("{other} needs it, and takes it out"))),
        _ => modules::unload(name),
    }
}

/// Another network namespace whose journal says that tarn has loaded the module.
///
/// # Errors
/// A directory that cannot be read.
pub fn loader_elsewhere(name: &str) -> Result<Option<String>> {
    let told = format!("{{\"kind\":\"module\",\"name\":\"{name}\"}}");
    let tells = |state: &StateDirectory| {
        let journal = std::fs::read_to_string(state.path().join("journal"));
        journal.is_ok_and(|text| text.contains(&told))
    };
    let others = StateDirectory::of_this_namespace()?.others()?;
    Ok(others.into_iter().find(tells).map(|state| state.name()))
}
