//! What is up, in the state directory: names of classes, which the kernel does not know, and the settings by which
//! `tarn classes start` begins again.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::config::Config;
use tarn_frame::state::StateDirectory;

/// The file in the state directory.
pub const FILE: &str = "classes.json";

/// What is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The configuration, with what was changed by command since.
    pub config: Config,
    /// Whether `tarn classes stop` has ended it. Otherwise, when nothing is scheduled, somebody else has.
    #[serde(default)]
    pub stopped: bool,
    /// Whether the file names clients, which `tarn classes start` cannot bring back when they are gone.
    #[serde(default)]
    pub names_clients: bool,
    /// How often `tarn classes reset` had counting begin anew.
    #[serde(default)]
    pub resets: u32,
}

impl Known {
    /// What is up in this namespace; `None` when nothing is.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged.
    pub fn load(state: &StateDirectory) -> Result<Option<Self>> {
        state.read_json(FILE)
    }

    /// Remembers it.
    ///
    /// # Errors
    /// A full disk, no rights.
    pub fn save(&self, state: &StateDirectory) -> Result<()> {
        state.write_json(FILE, self)
    }

    /// A class's name, or its number where there is no such class any more.
    pub fn name(&self, class: usize) -> String {
        let found = self.config.classes.get(class);
        found.map_or_else(|| class.to_string(), |class| class.name.clone())
    }
}
