//! What is up here, in the state directory.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use tarn_frame::state::StateDirectory;

/// The file with what runs.
pub const FILE: &str = "poll.json";

/// What runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Standing {
    /// What was configured.
    pub config: Config,
    /// The maps, by the kernel's numbers; 0 where there is nothing to do. They end with the agent, unless a program holds them.
    pub maps: Maps,
}

/// The numbers of the maps; the kernel does not give a number twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maps {
    /// `napis` of poll.bpf.c
    pub napis: u32,
    /// `devices`
    pub devices: u32,
    /// `counts`
    pub counts: u32,
    /// `senders`
    pub senders: u32,
    /// `control`
    pub control: u32,
    /// `shares`
    pub shares: u32,
    /// `first`
    #[serde(default)]
    pub first: u32,
}

impl Maps {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// The numbers, in the order of the fields.
    pub fn to_array(self) -> [u32; Self::COUNT] {
        [
            self.napis,
            self.devices,
            self.counts,
            self.senders,
            self.control,
            self.shares,
            self.first,
        ]
    }

    /// From [`Maps::to_array`].
    pub fn from_array([napis, devices, counts, senders, control, shares, first]: [u32; Self::COUNT]) -> Self {
        Self {
            napis,
            devices,
            counts,
            senders,
            control,
            shares,
            first,
        }
    }
}

/// What is up; `None` when the stage is down.
///
/// # Errors
/// A file that is damaged.
pub fn standing(state: &StateDirectory) -> Result<Option<Standing>> {
    state.read_json(FILE)
}
