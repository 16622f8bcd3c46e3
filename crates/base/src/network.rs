//! Values that several stages read, compare and show: protocols, ports, address families, prefixes.

use std::cmp::Ordering;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::wrong::Wrong;

/// A transport protocol that has ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP, protocol number 6.
    Tcp,
    /// UDP, protocol number 17.
    Udp,
}

impl Protocol {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// The number in the IPv4 protocol field or the last IPv6 next header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => libc::IPPROTO_TCP as u8,
            Self::Udp => libc::IPPROTO_UDP as u8,
        }
    }

    /// The protocol with this number.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.number() == number)
    }

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// The protocol that is written so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Ports from `first` to `last`, both included; `first` is at least 1 and at most `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortRange {
    /// The lowest port.
    pub first: u16,
    /// The highest port.
    pub last: u16,
}

impl PortRange {
    /// One port.
    pub fn single(port: u16) -> Self {
        Self {
            first: port,
            last: port,
        }
    }

    /// How many ports: 1 to 65,535.
    pub fn count(self) -> u32 {
        u32::from(self.last) - u32::from(self.first) + 1
    }

    /// Whether it is a single port.
    pub fn is_single(self) -> bool {
        self.first == self.last
    }

    /// Whether `port` lies in it.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Whether a port lies in both.
    pub fn intersects(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_single() {
            true => write!(formatter, "{}", self.first),
            false => write!(formatter, "{}-{}", self.first, self.last),
        }
    }
}

impl FromStr for PortRange {
    type Err = Wrong;

    /// `80`, `8000-8100`.
    fn from_str(text: &str) -> Result<Self, Wrong> {
        let Some((first, last)) = text.split_once('-') else {
            return port(text).map(Self::single);
        };
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            let message = format!("the range {first}-{last} runs backwards");
            return Err(Wrong::new(message, format!("write {last}-{first}")));
        }
        Ok(Self { first, last })
    }
}

fn port(text: &str) -> Result<u16, Wrong> {
    number(text).filter(|port| *port > 0).ok_or_else(|| {
        let names = text.contains(char::is_alphabetic);
        let looked_up = if names { "; names are not looked up" } else { "" };
        let remedy = format!("write 1 to 65535, or a range like 8000-8100{looked_up}");
        Wrong::new(format!("'{text}' is no port"), remedy)
    })
}

/// A decimal number without a sign, which Rust's own reader allows.
fn number<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Bits in an address.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// An address prefix as classless routing has it (RFC 4632): `10.0.0.0/8`. No bit is set after the first `length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    /// The first address.
    pub address: IpAddr,
    /// The number of leading bits that must agree: 0 to 32 or 128.
    pub length: u8,
}

impl Prefix {
    /// The prefix of `length` bits that `address` lies in; `length` is cut to the family's bits.
    pub fn of(address: IpAddr, length: u8) -> Self {
        Self {
            address: with_host_bits(address, length, false),
            length: length.min(Family::of(address).bits()),
        }
    }

    /// The last address.
    pub fn last(self) -> IpAddr {
        with_host_bits(self.address, self.length, true)
    }

    /// The address family.
    pub fn family(self) -> Family {
        Family::of(self.address)
    }

    /// Whether an address lies in it.
    pub fn contains(self, address: IpAddr) -> bool {
        Self::of(address, self.length) == self
    }

    /// Whether an address lies in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

/// By family, address and length.
impl Ord for Prefix {
    fn cmp(&self, other: &Self) -> Ordering {
        // Millions are sorted: numbers compare faster than what is derived.
        let key = |prefix: &Self| match prefix.address {
            IpAddr::V4(address) => (false, address.to_bits().into(), prefix.length),
            IpAddr::V6(address) => (true, address.to_bits(), prefix.length),
        };
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Prefix {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `address` with all but its first `length` bits set, or all of them clear.
fn with_host_bits(address: IpAddr, length: u8, set: bool) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & !host | if set { host } else { 0 }).into()
        }
        IpAddr::V6(v6) => {
            let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & !host | if set { host } else { 0 }).into()
        }
    }
}

impl TryFrom<String> for Prefix {
    type Error = Wrong;

    fn try_from(text: String) -> Result<Self, Wrong> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl FromStr for Prefix {
    type Err = Wrong;

    /// `192.0.2.0/24`; an address alone is a prefix of all its bits.
    fn from_str(text: &str) -> Result<Self, Wrong> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address = address_of(address)?;
        let family = Family::of(address);
        let wrong = |digits| {
            let message = format!("'/{digits}' is no prefix length of {family}");
            Wrong::new(message, format!("write 0 to {}", family.bits()))
        };
        let length = length.map_or(Ok(family.bits()), |digits| {
            number(digits)
                .filter(|length| *length <= family.bits())
                .ok_or_else(|| wrong(digits))
        })?;
        let prefix = Self::of(address, length);
        if prefix.address != address {
            let message = format!("{address}/{length} has bits set after the first {length}");
            return Err(Wrong::new(
                message,
                format!("write {prefix}, or {address} for that one address"),
            ));
        }
        Ok(prefix)
    }
}

/// An address, with spaces around it at most.
///
/// # Errors
/// Text that is none.
pub fn address_of(text: &str) -> Result<IpAddr, Wrong> {
    text.trim().parse().map_err(|_| {
        let remedy = "write a network, as in 192.0.2.0/24 or 2001:db8::/32, or one address; names are not looked up";
        Wrong::new(format!("'{text}' is no address"), remedy)
    })
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_the_prefixes_around_it() {
        for (text, length, around, last) in [
            ("192.0.2.77", 24, "192.0.2.0/24", "192.0.2.255"),
            ("192.0.2.77", 0, "0.0.0.0/0", "255.255.255.255"),
            ("192.0.2.77", 255, "192.0.2.77/32", "192.0.2.77"),
            (
                "2001:db8::1",
                32,
                "2001:db8::/32",
                "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            ),
            ("2001:db8::1", 128, "2001:db8::1/128", "2001:db8::1"),
        ] {
            let address = text.parse().unwrap();
            let prefix = Prefix::of(address, length);
            assert_eq!(
                (prefix.to_string(), prefix.contains(address)),
                (around.to_owned(), true)
            );
            assert_eq!(prefix.last().to_string(), last);
            assert_eq!(around.parse(), Ok(prefix));
        }
        let network = Prefix::of("192.0.2.0".parse().unwrap(), 24);
        for other in ["192.0.3.0", "192.0.1.255", "::ffff:192.0.2.1"] {
            assert!(!network.contains(other.parse().unwrap()), "{other}");
        }
        assert_eq!("192.0.2.1".parse::<Prefix>().unwrap().length, 32);
    }

    #[test]
    fn a_mistake_is_told_with_what_would_be_right() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap_err().to_string();
        assert!(prefix("gold").contains("names are not looked up"));
        assert_eq!(
            prefix("10.0.0.0/33"),
            "'/33' is no prefix length of IPv4; write 0 to 32"
        );
        assert!(prefix("10.0.0.0/+8").contains("no prefix length") && prefix("::/").contains("no prefix length"));
        assert!(prefix("10.0.0.1/8").ends_with("write 10.0.0.0/8, or 10.0.0.1 for that one address"));
        let ports = |text: &str| text.parse::<PortRange>().unwrap_err().to_string();
        assert_eq!(ports("9-1"), "the range 9-1 runs backwards; write 1-9");
        for wrong in ["", "0", "65536", "+80", "http", "1-"] {
            assert!(ports(wrong).contains("is no port; write 1 to 65535"), "{wrong}");
        }
    }
}
