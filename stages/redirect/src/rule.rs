//! The rule model: what is matched, and where it goes.
//!
//! A rule takes packets of one protocol to one address and port (or range of ports) and sends them to another.
//! Which rule a packet meets does not depend on the order rules were written in:
//!
//! 1. a rule that names the packet's destination address goes before one for any local address;
//! 2. among those, the rule with the longest source prefix wins, and one without a prefix comes last;
//! 3. among those there is at most one: [`super::overlap`] refuses two rules of one protocol, address and
//!    source prefix whose ports intersect.
//!
//! A packet is redirected at most once.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

pub use tarn_base::network::{Family, PortRange, Prefix, Protocol};

/// The destination address that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// Any address of this host, loopback and IPv6 link-local ones excepted: written `0.0.0.0` or `[::]`.
    Any(Family),
    /// This address, whether the host has it or only forwards to it.
    Ip(IpAddr),
}

impl Address {
    /// The address family.
    pub fn family(self) -> Family {
        match self {
            Address::Any(family) => family,
            Address::Ip(address) => Family::of(address),
        }
    }

    /// The address as sockets know it: the unspecified one stands for any.
    pub fn ip(self) -> IpAddr {
        match self {
            Address::Any(Family::V4) => Ipv4Addr::UNSPECIFIED.into(),
            Address::Any(Family::V6) => Ipv6Addr::UNSPECIFIED.into(),
            Address::Ip(address) => address,
        }
    }

    /// Whether [`Address::Any`] can stand for `address`, given that the host has it.
    pub fn any_may_be(address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => !v4.is_loopback(),
            IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
        }
    }
}

/// Where a rule was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// In `tarn.toml`: it goes when a new configuration no longer has it.
    Config,
    /// By `tarn redirect add`: it stays until `tarn redirect del` or `tarn down`.
    Command,
}

/// One redirection, valid in itself.
///
/// Its JSON form is flat and the same in the store and in `list --json`:
/// `{"id":3,"protocol":"udp","from":"192.168.64.2:8080","to":"10.0.1.2:8083","source":"10.0.0.0/8","origin":"config"}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The slot in `0..max_rules`, given by the store; 0 before.
    pub id: u32,
    /// The protocol matched.
    pub protocol: Protocol,
    /// The senders matched; all when `None`.
    pub source: Option<Prefix>,
    /// The destination address matched.
    pub address: Address,
    /// The destination ports matched.
    pub ports: PortRange,
    /// The new destination address, of the same family.
    pub to: IpAddr,
    /// The new destination ports: as many as `ports`, taken one to one, or a single one for all.
    pub to_ports: PortRange,
    /// Where the rule was written.
    pub origin: Origin,
    /// What its author had to say about it.
    pub note: Option<String>,
}

/// What a rule matches.
pub type Match = (Protocol, Option<Prefix>, Address, PortRange);

impl Rule {
    /// The address family of both ends.
    pub fn family(&self) -> Family {
        Family::of(self.to)
    }

    /// Whether the port stays as it is.
    pub fn keeps_port(&self) -> bool {
        self.ports == self.to_ports
    }

    /// The new port for the matched port `port`, which must lie in `ports`.
    pub fn target_port(&self, port: u16) -> u16 {
        if self.to_ports.is_single() {
            self.to_ports.first
        } else {
            self.to_ports
                .first
                .saturating_add(port.saturating_sub(self.ports.first))
        }
    }

    /// The match's address and ports as written: `192.168.64.2:8000-8100`, `[::]:53`.
    pub fn match_text(&self) -> String {
        endpoint_text(self.address.ip(), self.ports)
    }

    /// The target's address and ports as written.
    pub fn target_text(&self) -> String {
        endpoint_text(self.to, self.to_ports)
    }

    /// Whether both match the same packets and send them to the same place; id, origin and note aside.
    pub fn same_effect(&self, other: &Rule) -> bool {
        self.same_match(other) && self.to == other.to && self.to_ports == other.to_ports
    }

    /// Whether both match the same packets.
    pub fn same_match(&self, other: &Rule) -> bool {
        self.matched() == other.matched()
    }

    /// Which packets it matches.
    pub fn matched(&self) -> Match {
        (self.protocol, self.source, self.address, self.ports)
    }
}

/// An address and ports as written.
pub fn endpoint_text(address: IpAddr, ports: PortRange) -> String {
    match address {
        IpAddr::V4(v4) => format!("{v4}:{ports}"),
        IpAddr::V6(v6) => format!("[{v6}]:{ports}"),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} {} to {}",
            self.protocol,
            self.match_text(),
            self.target_text()
        )?;
        match self.source {
            Some(source) => write!(formatter, " source {source}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub mod samples;
