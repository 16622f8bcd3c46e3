//! The section `[pace]` of `tarn.toml`.
//!
//! ```toml
//! [pace]
//! for = "all"                         # new connections that use it: all of this network namespace,
//! # for = ["198.51.100.0/24", "2001:db8::/32"]   # or those to these destinations
//! cgroups = ["system.slice/backup.service"]      # and those of these control groups
//! existing = true                     # open connections that `for` covers use it too, until `down`
//! fq = "auto"                         # on the devices that they leave by, unless this host forwards; or "off", or ["eth0"]
//! response = "tarn"                   # or "off", "published", "published-repaired"
//! window_gain = 125                   # and the other parameters of parameters.rs
//! ```
//!
//! Without `for` and `cgroups` only sockets that ask for it by name use it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tarn_base::network::Prefix;

use crate::parameters::{PARAMETERS, Parameter, RESPONSES};
use crate::skeleton::types::pace_parameters;

mod read;
#[cfg(test)]
mod tests;

pub use read::read;

/// The most destinations.
pub const DESTINATIONS_MOST: usize = 65_536;
/// The most control groups.
pub const GROUPS_MOST: usize = 64;

/// Which devices get the queueing discipline `fq`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fq {
    /// Those that the connections leave by, on a host that forwards nothing.
    #[default]
    Auto,
    /// None.
    Off,
    /// These.
    Devices(Vec<String>),
}

/// A valid section. In the state directory, what an earlier tarn did not know is at its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Whether it is the default of the network namespace.
    pub everybody: bool,
    /// Destinations whose connections use it, in the order of the file; none where it is the default.
    pub destinations: Vec<Prefix>,
    /// Control groups whose connections use it, below the root of the groups.
    pub groups: Vec<PathBuf>,
    /// Whether open connections that `for` covers use it as well, and return to the former one at `down`.
    pub existing: bool,
    /// Which devices get `fq`.
    pub fq: Fq,
    /// The number of the response.
    pub response: u32,
    /// The parameters.
    pub values: Values,
}

/// Values of [`PARAMETERS`] by name, each in its unit. One without a value is at its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Values(BTreeMap<String, u32>);

impl Values {
    /// The value of a parameter.
    pub fn get(&self, parameter: &Parameter) -> u32 {
        self.0.get(parameter.name).copied().unwrap_or(parameter.default)
    }

    /// Sets it; `value` is in its range.
    pub fn set(&mut self, parameter: &Parameter, value: u32) {
        self.0.insert(parameter.name.to_owned(), value);
    }
}

impl Config {
    /// Whether it chooses connections; else only sockets that ask for it use it.
    pub fn chooses(&self) -> bool {
        self.everybody || !self.destinations.is_empty() || !self.groups.is_empty()
    }

    /// The parameters as the core has them.
    pub fn parameters(&self) -> pace_parameters {
        let mut parameters = pace_parameters {
            response: self.response,
            ..pace_parameters::default()
        };
        for parameter in &PARAMETERS {
            parameter.set(&mut parameters, self.values.get(parameter));
        }
        parameters
    }

    /// The response by its name.
    pub fn response_name(&self) -> &'static str {
        let found = RESPONSES.iter().find(|(_, number)| *number == self.response);
        found.map_or("tarn", |(name, _)| name)
    }
}
