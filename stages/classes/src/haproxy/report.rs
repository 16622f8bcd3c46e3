//! How the services behind HAProxy do, as the agent writes it down: for `status`, and for the next agent to go on with.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::rule::Shares;
use tarn_frame::state::StateDirectory;

/// The file in the state directory.
pub const FILE: &str = "classes-haproxy.json";

/// What the agent writes about once a second.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// When, as time since the host was started.
    pub at: Duration,
    /// By name: the shares, and why HAProxy is not steered.
    pub services: HashMap<String, (Shares, Option<String>)>,
}

impl Report {
    /// The last one; `None` before the first.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged.
    pub fn load(state: &StateDirectory) -> Result<Option<Self>> {
        state.read_json(FILE)
    }

    /// Writes it down.
    ///
    /// # Errors
    /// A full disk, no rights.
    pub fn save(&self, state: &StateDirectory) -> Result<()> {
        state.write_json(FILE, self)
    }
}
