//! Clients by their addresses: `220.0.0.0/8`, `2001:db8::/32`, `192.0.2.1`, `192.0.2.1-192.0.2.9`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Addresses of one family, from one to another. Ordered by family, then by the first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    /// The first address.
    pub first: IpAddr,
    /// The last one, no less.
    pub last: IpAddr,
}

/// Text that is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {remedy}")]
pub struct NoNetwork {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub remedy: String,
}

impl Network {
    /// Whether it is one address.
    pub fn is_one(&self) -> bool {
        self.first == self.last
    }

    /// Whether both have an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first.is_ipv4() == other.first.is_ipv4() && self.first <= other.last && other.first <= self.last
    }

    /// The prefix of `length` bits that `address` begins; `None` when it begins none.
    fn prefix(address: IpAddr, length: u8) -> Option<Self> {
        let last = match address {
            IpAddr::V4(v4) => {
                let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
                (v4.to_bits() & host == 0).then(|| Ipv4Addr::from_bits(v4.to_bits() | host).into())
            }
            IpAddr::V6(v6) => {
                let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
                (v6.to_bits() & host == 0).then(|| Ipv6Addr::from_bits(v6.to_bits() | host).into())
            }
        };
        last.map(|last| Self { first: address, last })
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn address(text: &str) -> Result<IpAddr, NoNetwork> {
    let wrong = |_| NoNetwork {
        message: format!("'{text}' is no address"),
        remedy: "write a network, as in 192.0.2.0/24 or 2001:db8::/32, or one address; names are not looked up"
            .to_owned(),
    };
    text.trim().parse().map_err(wrong)
}

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let wrong = |message: String, remedy: String| Err(NoNetwork { message, remedy });
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (address(first)?, address(last)?);
            if first.is_ipv4() != last.is_ipv4() || first > last {
                let message = format!("'{text}' leads from an address to none behind it");
                return wrong(message, "write the lower address of one family first".to_owned());
            }
            return Ok(Self { first, last });
        }
        let Some((begin, length)) = text.split_once('/') else {
            let only = address(text)?;
            return Ok(Self {
                first: only,
                last: only,
            });
        };
        let begin = address(begin)?;
        let Some(length) = length.parse::<u8>().ok().filter(|length| *length <= bits(begin)) else {
            let message = format!("'/{length}' is no prefix length of {begin}");
            return wrong(message, format!("write 0 to {}", bits(begin)));
        };
        match Self::prefix(begin, length) {
            Some(network) => Ok(network),
            None => {
                let message = format!("{begin}/{length} has bits set after the first {length}");
                wrong(
                    message,
                    format!("write the network's first address, or {begin} for that one client"),
                )
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return self.first.fmt(formatter);
        }
        match (0..bits(self.first)).find(|length| Self::prefix(self.first, *length) == Some(*self)) {
            Some(length) => write!(formatter, "{}/{length}", self.first),
            None => write!(formatter, "{}-{}", self.first, self.last),
        }
    }
}

impl TryFrom<String> for Network {
    type Error = NoNetwork;

    fn try_from(text: String) -> Result<Self, NoNetwork> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn networks_are_shown_as_they_were_written() {
        for text in [
            "220.0.0.0/8",
            "192.0.2.1",
            "0.0.0.0/0",
            "255.255.255.255",
            "2001:db8::/32",
            "::1",
            "192.0.2.1-192.0.2.9",
        ] {
            assert_eq!(network(text).to_string(), text);
        }
        assert_eq!(network("192.0.2.0-192.0.2.255").to_string(), "192.0.2.0/24");
        assert_eq!(network("192.0.2.1/32").to_string(), "192.0.2.1");
    }

    #[test]
    fn what_is_none_is_told_with_what_would_be_right() {
        for (text, told) in [
            ("gold", "'gold' is no address"),
            ("10.0.0.0/33", "write 0 to 32"),
            ("10.0.0.1/8", "10.0.0.1 for that one client"),
            ("10.0.0.9-10.0.0.1", "lower address"),
            ("10.0.0.1-::1", "of one family"),
        ] {
            let error = text.parse::<Network>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn families_never_overlap() {
        assert!(network("10.0.0.0/8").overlaps(&network("10.1.0.0/16")));
        assert!(!network("10.0.0.0/8").overlaps(&network("11.0.0.0/8")));
        assert!(!network("0.0.0.0/0").overlaps(&network("::/0")));
    }

    proptest! {
        #[test]
        fn every_network_is_read_back(first: u32, span in 0u32..100_000) {
            let (first, last) = (Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(first.saturating_add(span)));
            let network = Network { first: first.into(), last: last.into() };
            prop_assert_eq!(network.to_string().parse::<Network>().unwrap(), network);
        }
    }
}
