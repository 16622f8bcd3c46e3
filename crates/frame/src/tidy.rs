//! What is left behind when nothing is up: nothing.

use anyhow::Result;
use tarn_base::error::paragraph;

use crate::agent;
use crate::journal::Journal;
use crate::state::{Lock, StateDirectory};

/// Removes a state directory that is there for its lock alone, which `lock` is: nothing is up and no agent lives.
///
/// # Errors
/// A journal that cannot be read, or a directory that cannot be removed.
pub fn tidy(state: &StateDirectory, lock: &Lock) -> Result<()> {
    let journal = Journal::open(state)?;
    if agent::is_running(state) || journal.is_unfinished() || !journal.is_empty() {
        return Ok(());
    }
    state.remove(lock)
}

/// Leaves no state directory behind an `up` that failed, unless something of an earlier one is up still. `lock` is
/// that of the directory.
pub fn tidy_after(state: &StateDirectory, lock: &Lock, error: anyhow::Error) -> anyhow::Error {
    match Journal::open(state) {
        Ok(journal) if journal.is_unfinished() => error,
        Ok(journal) if journal.is_empty() => match state.remove(lock) {
            Ok(()) => error,
            Err(removing) => {
                let both = format!("{}; and then: {removing:#}", paragraph(&error));
                error.context(both)
            }
        },
        Ok(_) => {
            let up = "what an earlier `tarn up` set up is up still, without an agent: `tarn down` puts it back";
            let both = format!("{} ({up})", paragraph(&error));
            error.context(both)
        }
        Err(_) => error,
    }
}
