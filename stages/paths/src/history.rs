//! The changes of the last time, in the state directory.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::judge::Reason;
use tarn_frame::state::StateDirectory;

/// The file in the state directory.
pub const FILE: &str = "paths-history.json";
/// Older changes are forgotten.
const MOST: usize = 256;

/// One change of the weights of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When: seconds since 1970, UTC.
    pub at: u64,
    /// What the group leads to.
    pub group: String,
    /// The metric of its route.
    #[serde(default)]
    pub metric: u32,
    /// The uplink that got the most new flows before; none at the beginning.
    pub from: Option<String>,
    /// The uplink that gets the most from then on.
    pub to: String,
    /// All weights, by uplink.
    pub weights: Vec<(String, u32)>,
    /// Why.
    pub reason: Reason,
}

/// Adds a change.
///
/// # Errors
/// A full disk, no rights.
pub fn add(state: &StateDirectory, entry: Entry) -> Result<()> {
    let mut entries = load(state).unwrap_or_default();
    let surplus = (entries.len() + 1).saturating_sub(MOST);
    entries.drain(..surplus);
    entries.push(entry);
    state.write_json(FILE, &entries)
}

/// The changes, oldest first.
///
/// # Errors
/// A file that cannot be read or is damaged.
pub fn load(state: &StateDirectory) -> Result<Vec<Entry>> {
    Ok(state.read_json(FILE)?.unwrap_or_default())
}
