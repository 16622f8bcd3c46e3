//! What is up here: in the state directory, and in the kernel by the journal.

use anyhow::Result;

use crate::STAGE;
use crate::change::PaceChange;
use crate::config::Config;
use crate::registration::{Identity, Registration};
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;

/// What runs, in the state directory.
pub const FILE: &str = "pace.json";

/// The congestion control of connections that nothing else chooses one for.
pub const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The settings of the stage that is up; `None` when it is down.
///
/// # Errors
/// A file that is damaged.
pub fn config_of(state: &StateDirectory) -> Result<Option<Config>> {
    state.read_json(FILE)
}

/// What stands of the congestion control in the journal, with its number there; `None` when none can be chosen.
pub fn registered(journal: &Journal) -> Result<Option<(u64, Identity, Registration)>> {
    let known = journal
        .changes(STAGE)
        .rev()
        .filter_map(|(id, change)| match PaceChange::of(change) {
            Some(PaceChange::CongestionControl(identity)) => Some((id, identity)),
            _ => None,
        });
    for (id, identity) in known {
        if let Some(registration) = Registration::open(&identity)?
            && registration.stands()?
        {
            return Ok(Some((id, identity, registration)));
        }
    }
    Ok(None)
}
