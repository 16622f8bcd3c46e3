//! How a rule becomes elements of nftables maps, and what an element read back means.
//!
//! A map looks one key up in constant time, whatever its size, as long as it holds no intervals; so none does. What a
//! rule leaves open is cut off the key before it is looked up, and each way of cutting has a map of its own:
//!
//! - an address that may be any is not part of the key (`_any`);
//! - of the source, the first bits are (`_from24`); without a source prefix it is not part of the key;
//! - a range of ports is taken apart into aligned blocks of 2, 4, ... ports, as prefixes take an address range apart
//!   (`_ports64`): at most 30 elements for any range.
//!
//! A block of ports whose number stays the same leads to an address alone (`keep`), everything else to an address and
//! a port (`to`). nftables cannot compute a port, so that a range that is shifted becomes one element a port. A set of
//! the same form (`count`) counts what was redirected.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::rule::{Address, Family, Origin, PortRange, Prefix, Protocol, Rule};

mod bytes;
mod text;

pub use text::{comment, id_of, network};

/// What part of the key is looked up: one way of cutting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// The family of all addresses.
    pub family: Family,
    /// Whether the destination is any address of this host.
    pub any: bool,
    /// Bits of the source that are looked up; 0 when every sender is meant.
    pub source: u8,
    /// The block of ports, as the number of low bits cut off: 0 is a single port.
    pub block: u8,
}

/// What a map or set is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A map to an address and a port.
    To,
    /// A map to an address; the port stays.
    Keep,
    /// A set whose elements count.
    Count,
}

/// One map or set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// What its elements are.
    pub role: Role,
    /// What its keys are.
    pub shape: Shape,
}

/// A key; parts that the shape leaves out are unspecified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The protocol.
    pub protocol: Protocol,
    /// The first address of the source prefix.
    pub source: IpAddr,
    /// The destination.
    pub address: IpAddr,
    /// The first port of the block.
    pub port: u16,
    /// In a counting set: where packets went.
    pub target: IpAddr,
}

/// One element, of the rule `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// Where it is.
    pub place: Place,
    /// What it is found by.
    pub key: Key,
    /// The target's address, unspecified in a counting set.
    pub to: IpAddr,
    /// The target's port, 0 where the place holds none.
    pub to_port: u16,
    /// The rule's id.
    pub id: u32,
}

impl Shape {
    /// The bits of a port that are looked up.
    pub fn port_mask(self) -> u16 {
        u16::MAX.checked_shl(u32::from(self.block)).unwrap_or(0)
    }
}

impl Element {
    /// Where it is, and what it is found by there.
    pub fn full_key(&self) -> (Place, Key) {
        (self.place, self.key)
    }

    /// The element that counts what this one leads on.
    pub fn counting(&self) -> Element {
        let none = unspecified(self.place.shape.family);
        let place = Place {
            role: Role::Count,
            ..self.place
        };
        Element {
            place,
            key: Key {
                target: self.to,
                ..self.key
            },
            to: none,
            to_port: 0,
            ..*self
        }
    }

    /// A rule that has this element's effect, for what has to be known of an element whose rule is gone.
    pub fn as_rule(&self) -> Rule {
        let Shape {
            family,
            any,
            source,
            block,
        } = self.place.shape;
        let ports = PortRange {
            first: self.key.port,
            last: self.key.port | !u16::MAX.checked_shl(block.into()).unwrap_or(0),
        };
        Rule {
            id: self.id,
            protocol: self.key.protocol,
            source: (source > 0).then(|| Prefix::of(self.key.source, source)),
            address: if any {
                Address::Any(family)
            } else {
                Address::Ip(self.key.address)
            },
            ports,
            to: self.to,
            to_ports: if self.to_port == 0 {
                ports
            } else {
                PortRange::single(self.to_port)
            },
            origin: Origin::Command,
            note: None,
        }
    }
}

/// The elements that carry `rule` out: for each block of its ports one that leads on, and one that counts.
pub fn elements(rule: &Rule) -> impl Iterator<Item = Element> + '_ {
    steering(rule).flat_map(|element| [element, element.counting()])
}

/// The elements of `rule` that lead on.
pub fn steering(rule: &Rule) -> impl Iterator<Item = Element> + '_ {
    blocks(rule).map(|(port, block)| {
        let any = matches!(rule.address, Address::Any(_));
        let shape = Shape {
            family: rule.family(),
            any,
            source: rule.source.map_or(0, |prefix| prefix.length),
            block,
        };
        let keep = rule.keeps_port() && block > 0;
        let none = unspecified(shape.family);
        let source = rule.source.map_or(none, |prefix| prefix.address);
        Element {
            place: Place {
                role: if keep { Role::Keep } else { Role::To },
                shape,
            },
            key: Key {
                protocol: rule.protocol,
                source,
                address: rule.address.ip(),
                port,
                target: none,
            },
            to: rule.to,
            to_port: if keep { 0 } else { rule.target_port(port) },
            id: rule.id,
        }
    })
}

/// Elements by where they are and what they are found by.
pub fn by_key(elements: impl Iterator<Item = Element>) -> HashMap<(Place, Key), Element> {
    elements.map(|element| (element.full_key(), element)).collect()
}

/// How many elements [`elements`] gives, without making them.
pub fn element_count(rule: &Rule) -> u64 {
    2 * match shifts(rule) {
        true => u64::from(rule.ports.count()),
        false => blocks(rule).count() as u64,
    }
}

/// Whether each port leads to another one.
fn shifts(rule: &Rule) -> bool {
    !rule.keeps_port() && !rule.to_ports.is_single()
}

/// The rule's ports as aligned blocks: the first port and the block's size as a number of bits.
fn blocks(rule: &Rule) -> impl Iterator<Item = (u16, u8)> {
    let largest = if shifts(rule) { 0 } else { 15 };
    let (mut next, end) = (u32::from(rule.ports.first), u32::from(rule.ports.last) + 1);
    std::iter::from_fn(move || {
        let left = (next < end).then(|| end - next)?;
        let bits = next.trailing_zeros().min(left.ilog2()).min(largest);
        let block = (u16::try_from(next).ok()?, bits as u8);
        next += 1 << bits;
        Some(block)
    })
}

fn unspecified(family: Family) -> IpAddr {
    Address::Any(family).ip()
}

#[cfg(test)]
mod tests;
