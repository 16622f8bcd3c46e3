//! The devices that packets to be redirected come in by.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use tarn_kernel::links::{self, Link};

/// Devices by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Devices {
    /// All but loopback, those to come included.
    #[default]
    All,
    /// Those of these names, when they are there.
    Named(Vec<String>),
}

impl Devices {
    /// Whether it is a port of a bridge or bond that carries the BPF programs itself: what comes in by the port comes in by that,
    /// too, and a request that has been rewritten would be taken for one to its new address. Answers between two ports leave by
    /// one without having met the bridge.
    pub fn is_port(&self, link: &Link, links: &[Link]) -> bool {
        link.above(links).any(|master| self.include(master))
    }

    /// Whether the BPF programs belong on this device.
    pub fn include(&self, link: &Link) -> bool {
        let chosen = match self {
            Devices::All => true,
            Devices::Named(names) => names.contains(&link.name),
        };
        chosen && !link.is_loopback && (link.is_ethernet() || link.is_ip_only())
    }

    /// The devices that are named and not there.
    ///
    /// # Errors
    /// A kernel that does not say which there are.
    pub fn absent(&self) -> Result<Vec<String>> {
        let Devices::Named(names) = self else {
            return Ok(Vec::new());
        };
        let links = links::all()?;
        let absent = names.iter().filter(|name| links.iter().all(|link| link.name != **name));
        Ok(absent.cloned().collect())
    }
}
