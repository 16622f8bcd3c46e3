//! What is up, in the state directory: names of classes, which the kernel does not know, and the settings by which
//! `tarn classes start` begins again.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::network::Network;
use tarn_frame::state::StateDirectory;

/// The file in the state directory.
pub const FILE: &str = "classes.json";

/// What is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The configuration, with what was changed by command since.
    pub config: Config,
    /// The networks of the configuration that are in the kernel's maps, each with its class's number. Others there were
    /// added by command.
    pub networks: Vec<(Network, usize)>,
    /// The size of the maps, as they were made.
    pub max_clients: u32,
    /// Whether `tarn classes stop` has ended it. Otherwise, when nothing is scheduled, somebody else has.
    #[serde(default)]
    pub stopped: bool,
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
