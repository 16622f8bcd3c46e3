//! Local ports: `tcp/80`, `udp/53`, `tcp/8000-8100`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// `IPPROTO_TCP` or `IPPROTO_UDP`.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => libc::IPPROTO_TCP as u8,
            Self::Udp => libc::IPPROTO_UDP as u8,
        }
    }

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Ports of one protocol, 1 to 65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    /// The protocol.
    pub protocol: Protocol,
    /// The lowest port.
    pub first: u16,
    /// The highest port, no less.
    pub last: u16,
}

impl PortRange {
    /// Whether both have a port.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.protocol == other.protocol && self.first <= other.last && other.first <= self.last
    }

    /// The ports without the protocol.
    pub fn numbers(&self) -> String {
        match self.first == self.last {
            true => self.first.to_string(),
            false => format!("{}-{}", self.first, self.last),
        }
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no port");
        let (protocol, ports) = text.split_once('/').ok_or_else(wrong)?;
        let protocol = Protocol::ALL.into_iter().find(|known| known.name() == protocol);
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
        let (protocol, first, last) = (protocol.ok_or_else(wrong)?, number(first)?, number(last)?);
        if first > last {
            return Err(format!("'{text}' leads from a port to a lower one"));
        }
        Ok(Self { protocol, first, last })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.protocol.name(), self.numbers())
    }
}
