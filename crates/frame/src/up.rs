//! What a stage has up in this network namespace, for its verbs; and what ran before an `up` that failed.

use anyhow::{Result, anyhow};
use tarn_kernel::features::require_root;

use crate::state::{Lock, StateDirectory};
use crate::tidy;

/// Finds what a stage has up; `read` reads it from the state directory.
///
/// # Errors
/// A process that is not root's; a stage that is not up, and how it comes up.
pub fn find<T>(
    stage: &str,
    verb: &str,
    read: impl Fn(&StateDirectory) -> Result<Option<T>>,
) -> Result<(StateDirectory, T)> {
    require_root(&format!("{stage} {verb}"))?;
    let state = StateDirectory::of_this_namespace()?;
    let found = read(&state)?.ok_or_else(|| not_up(stage))?;
    Ok((state, found))
}

/// Finds what a stage has up, to change it: with the lock held, and read again under it.
///
/// # Errors
/// Those of [`find`]; another tarn that holds the lock.
pub fn lock<T>(
    stage: &str,
    verb: &str,
    read: impl Fn(&StateDirectory) -> Result<Option<T>>,
) -> Result<(StateDirectory, T, Lock)> {
    // The lock would leave a directory behind where nothing is up.
    let (state, _) = find(stage, verb, &read)?;
    let lock = state.lock_for(&format!("{stage} {verb}"))?;
    match read(&state)? {
        Some(found) => Ok((state, found, lock)),
        None => {
            tidy::tidy(&state, &lock)?;
            Err(not_up(stage))
        }
    }
}

/// The error of a verb whose stage is not up.
pub fn not_up(stage: &str) -> anyhow::Error {
    anyhow!("the stage {stage} is not up here: `tarn up` with a section [{stage}] brings it up")
}

/// The error of an `up` that failed, once it was tried to have what ran before go on as it was.
pub fn gone_on(error: anyhow::Error, restored: Result<()>) -> anyhow::Error {
    match restored {
        Ok(()) => error,
        Err(again) => {
            let both = format!("{error:#}; and what ran before does not go on as it was: {again:#}");
            error.context(both)
        }
    }
}
