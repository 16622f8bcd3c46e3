//! Kernel modules that stages of several network namespaces share.

use anyhow::Result;
use tarn_kernel::modules;
use tarn_kernel::undone::Undone;

use crate::state::StateDirectory;

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

/// Another network namespace whose journal tells that tarn has loaded the module.
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
