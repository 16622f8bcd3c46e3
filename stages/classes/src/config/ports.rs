//! Local ports: `tcp/80`, `udp/53`, `tcp/8000-8100`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use tarn_base::network::{PortRange, Protocol};
use tarn_base::wrong::Wrong;

/// Ports of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalPorts {
    /// The protocol.
    pub protocol: Protocol,
    /// Which.
    pub range: PortRange,
}

impl LocalPorts {
    /// Whether both have a port.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.protocol == other.protocol && self.range.intersects(other.range)
    }
}

impl FromStr for LocalPorts {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let wrong = || Wrong::new(format!("'{text}' is no port"), super::PORTS_REMEDY);
        let (protocol, range) = text.split_once('/').ok_or_else(wrong)?;
        Ok(Self {
            protocol: Protocol::named(protocol).ok_or_else(wrong)?,
            range: range.parse()?,
        })
    }
}

impl fmt::Display for LocalPorts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.protocol, self.range)
    }
}
