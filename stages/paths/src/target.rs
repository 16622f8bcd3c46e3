//! Who is asked by probes, and how: pings, or datagrams to a port.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a target by UDP is written.
const UDP: &str = "udp:";
/// What an address is that means something on its link only.
const ON_LINK: &str = "an address on the link";
/// The port of domain name servers.
const DNS_PORT: u16 = 53;

/// Somebody who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// Pings: ICMP echo requests (RFC 792, RFC 4443).
    Echo(IpAddr),
    /// Datagrams to this port. A domain name server (port 53) is asked a question, whoever else listens is to send back what it
    /// gets (RFC 862).
    Udp(SocketAddr),
}

impl Target {
    /// Its address.
    pub fn address(&self) -> IpAddr {
        match self {
            Self::Echo(address) => *address,
            Self::Udp(socket) => socket.ip(),
        }
    }

    /// Why an answer of its could tell nothing of an uplink, whatever the host.
    pub fn uselessness(&self) -> Option<&'static str> {
        match self.address() {
            address if address.is_loopback() => Some("this host itself"),
            address if address.is_multicast() => Some("a multicast group"),
            address if address.is_unspecified() => Some("no host"),
            IpAddr::V4(address) if address.is_broadcast() => Some("everybody on the link"),
            IpAddr::V4(address) if address.is_link_local() => Some(ON_LINK),
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(ON_LINK),
            IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => Some("an IPv4 address in IPv6's form"),
            _ => None,
        }
    }

    /// Whether it is a domain name server.
    pub fn is_dns(&self) -> bool {
        matches!(self, Self::Udp(socket) if socket.port() == DNS_PORT)
    }
}

impl Display for Target {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo(address) => write!(formatter, "{address}"),
            Self::Udp(socket) => write!(formatter, "{UDP}{socket}"),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("'{text}' is no target; write an address, or udp: with address and port, as in udp:192.0.2.53:53")
        };
        match text.strip_prefix(UDP) {
            Some(socket) => {
                let socket = socket.parse::<SocketAddr>().map_err(|_| wrong())?;
                if socket.port() == 0 {
                    Err(wrong())
                } else {
                    Ok(Self::Udp(socket))
                }
            }
            None => text.parse().map(Self::Echo).map_err(|_| wrong()),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They answer, or nobody does, whatever becomes of the provider.
    #[test]
    fn addresses_that_tell_nothing_of_an_uplink_are_useless() {
        for (text, expected) in [
            ("fe80::1", Some(ON_LINK)),
            ("udp:[fe80::1]:53", Some(ON_LINK)),
            ("169.254.1.1", Some(ON_LINK)),
            ("::ffff:1.1.1.1", Some("an IPv4 address in IPv6's form")),
            ("255.255.255.255", Some("everybody on the link")),
            ("1.1.1.1", None),
            ("2606:4700:4700::1111", None),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().uselessness(), expected, "{text}");
        }
    }

    #[test]
    fn targets_are_read_and_shown_alike() {
        for text in ["192.0.2.1", "2001:db8::1", "udp:192.0.2.1:7", "udp:[2001:db8::1]:53"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "example.org",
            "udp:192.0.2.1",
            "udp:2001:db8::1:53",
            "udp:192.0.2.1:0",
            "tcp:192.0.2.1:80",
        ] {
            assert!(wrong.parse::<Target>().unwrap_err().contains("no target"), "{wrong}");
        }
        assert!("udp:192.0.2.1:53".parse::<Target>().unwrap().is_dns());
    }
}
