//! Clients by their addresses: `220.0.0.0/8`, `2001:db8::/32`, `192.0.2.1`, `192.0.2.1-192.0.2.9`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use tarn_base::network::{Family, Prefix, address_of};
use tarn_base::wrong::Wrong;

/// Addresses of one family, from one to another. Ordered by family, then by the first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    /// The first address.
    pub first: IpAddr,
    /// The last one, no less.
    pub last: IpAddr,
}

impl Network {
    /// Whether it is one address.
    pub fn is_one(&self) -> bool {
        self.first == self.last
    }

    /// The fewest prefixes that have the same addresses, in order.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> + use<> {
        let (mut first, last) = (Some(self.first), self.last);
        std::iter::from_fn(move || {
            let address = first.filter(|address| *address <= last)?;
            let prefix = widest(address, last);
            first = next(prefix.last());
            Some(prefix)
        })
    }
}

/// The widest prefix that begins with the first address and has none behind the last.
fn widest(first: IpAddr, last: IpAddr) -> Prefix {
    let (low, high) = (number(first), number(last));
    let room = (high - low).checked_add(1).map_or(u128::BITS, u128::ilog2);
    let varying = low.trailing_zeros().min(room);
    Prefix::of(first, Family::of(first).bits() - varying as u8)
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A program that listens on IPv6 sees clients of IPv4 as `::ffff:192.0.2.1` (RFC 4291, section 2.5.5.2); their packets are of IPv4.
fn as_packets_have_it(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(found) => found.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// The address behind this one; `None` behind the last.
fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => u32::from(address).checked_add(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(address) => u128::from(address).checked_add(1).map(|next| IpAddr::V6(next.into())),
    }
}

impl From<Prefix> for Network {
    fn from(prefix: Prefix) -> Self {
        Self {
            first: prefix.address,
            last: prefix.last(),
        }
    }
}

impl FromStr for Network {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (address_of(first)?, address_of(last)?),
            None => {
                let prefix: Prefix = text.parse()?;
                (prefix.address, prefix.last())
            }
        };
        let (first, last) = match (as_packets_have_it(first), as_packets_have_it(last)) {
            ipv4 @ (IpAddr::V4(_), IpAddr::V4(_)) => ipv4,
            // A network around them, such as ::/0, is one of IPv6.
            _ => (first, last),
        };
        if first.is_ipv4() != last.is_ipv4() || first > last {
            let message = format!("'{text}' leads from an address to none behind it");
            return Err(Wrong::new(message, "write the lower address of one family first"));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_one() {
            return self.first.fmt(formatter);
        }
        let prefix = widest(self.first, self.last);
        if Self::from(prefix) == *self {
            return prefix.fmt(formatter);
        }
        write!(formatter, "{}-{}", self.first, self.last)
    }
}

impl TryFrom<String> for Network {
    type Error = Wrong;

    fn try_from(text: String) -> Result<Self, Wrong> {
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
    use std::net::Ipv4Addr;

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

    /// A client in none of them would be served as an unknown one.
    #[test]
    fn a_range_is_as_many_prefixes_as_it_takes() {
        let prefixes = |text: &str| {
            network(text)
                .prefixes()
                .map(|prefix| prefix.to_string())
                .collect::<Vec<_>>()
        };
        let expected = ["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/30", "192.0.2.8/31"];
        assert_eq!(prefixes("192.0.2.1-192.0.2.9"), expected);
        assert_eq!(prefixes("0.0.0.0/0"), ["0.0.0.0/0"]);
        assert_eq!(prefixes("255.255.255.255"), ["255.255.255.255/32"]);
        let expected = ["2001:db8::ffff/128", "2001:db8::1:0/128"];
        assert_eq!(prefixes("2001:db8::ffff-2001:db8::1:0"), expected);
        assert_eq!(prefixes("::/0"), ["::/0"]);
    }

    /// What a login handler reads from its socket would be accepted, and match no packet.
    #[test]
    fn mapped_addresses_are_those_of_ipv4() {
        for (text, shown) in [
            ("::ffff:10.5.0.1", "10.5.0.1"),
            ("::ffff:10.5.0.0/112", "10.5.0.0/16"),
            ("::FFFF:0a05:0001", "10.5.0.1"),
            ("::ffff:10.5.0.1/128", "10.5.0.1"),
            ("::ffff:10.5.0.1-::ffff:10.5.0.9", "10.5.0.1-10.5.0.9"),
            ("::ffff:10.5.0.1-10.5.0.9", "10.5.0.1-10.5.0.9"),
            ("10.5.0.1-::ffff:10.5.0.9", "10.5.0.1-10.5.0.9"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("::fffe:0:0/95", "::fffe:0:0/95"),
            ("::-::ffff:10.5.0.1", "::-::ffff:10.5.0.1"),
        ] {
            assert_eq!(network(text).to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_none_is_told_with_what_would_be_right() {
        for (text, told) in [
            ("gold", "'gold' is no address"),
            ("10.0.0.0/33", "write 0 to 32"),
            ("10.0.0.1/8", "10.0.0.1 for that one address"),
            ("10.0.0.9-10.0.0.1", "lower address"),
            ("10.0.0.1-::1", "of one family"),
        ] {
            let error = text.parse::<Network>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
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
