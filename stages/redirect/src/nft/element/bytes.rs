//! Elements as the kernel keeps them: every part of a key filled up to a multiple of 4 bytes, in network byte order.

use std::net::IpAddr;

use super::{Element, Key, Place, Role, unspecified};
use crate::rule::{Family, Protocol};
use tarn_kernel::netlink::{address_bytes, address_of};

impl Place {
    /// The bytes of a key.
    pub fn encode(self, key: &Key) -> Vec<u8> {
        let mut bytes = vec![key.protocol.number(), 0, 0, 0];
        if self.shape.source > 0 {
            bytes.extend(address_bytes(key.source));
        }
        if !self.shape.any {
            bytes.extend(address_bytes(key.address));
        }
        put_port(&mut bytes, key.port);
        if self.role == Role::Count {
            bytes.extend(address_bytes(key.target));
        }
        bytes
    }

    /// An element from the bytes of its key and data, of the rule `id`; `None` when they are not of this place's form.
    pub fn decode(self, key: &[u8], data: &[u8], id: u32) -> Option<Element> {
        let mut rest = key;
        let protocol = Protocol::numbered(*take(&mut rest, 4)?.first()?)?;
        let family = self.shape.family;
        let none = unspecified(family);
        let source = if self.shape.source > 0 {
            take_address(&mut rest, family)?
        } else {
            none
        };
        let address = if self.shape.any {
            none
        } else {
            take_address(&mut rest, family)?
        };
        let port = take_port(&mut rest)?;
        let target = if self.role == Role::Count {
            take_address(&mut rest, family)?
        } else {
            none
        };
        let mut rest = data;
        let (to, to_port) = match self.role {
            Role::To => (take_address(&mut rest, family)?, take_port(&mut rest)?),
            Role::Keep => (take_address(&mut rest, family)?, 0),
            Role::Count => (none, 0),
        };
        Some(Element {
            place: self,
            key: Key {
                protocol,
                source,
                address,
                port,
                target,
            },
            to,
            to_port,
            id,
        })
    }
}

impl Element {
    /// The bytes of what a map leads to; none in a set.
    pub fn data(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.place.role != Role::Count {
            bytes.extend(address_bytes(self.to));
        }
        if self.place.role == Role::To {
            put_port(&mut bytes, self.to_port);
        }
        bytes
    }
}

fn put_port(bytes: &mut Vec<u8>, port: u16) {
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 0]);
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn take_address(bytes: &mut &[u8], family: Family) -> Option<IpAddr> {
    address_of(take(bytes, usize::from(family.bits() / 8))?)
}

/// A port; its last two bytes fill it up to four, and may be left out at the end.
fn take_port(bytes: &mut &[u8]) -> Option<u16> {
    let port = take(bytes, 2)?;
    *bytes = bytes.get(2..).unwrap_or(&[]);
    port.try_into().ok().map(u16::from_be_bytes)
}
