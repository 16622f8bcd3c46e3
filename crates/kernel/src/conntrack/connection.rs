//! One tracked connection, kept by a program: to be deleted, or to be copied into another zone before.

use std::net::IpAddr;

use anyhow::Result;
use nix::errno::Errno;

use super::{
    Entry, MARK, NEW, STATUS, TUPLE_IP, TUPLE_ORIGINAL, TUPLE_PROTOCOL, TUPLE_REPLY, Tuple, ZONE, delete, kind,
};
use crate::netlink::{address_bytes, put, put_nested, refusal};
use crate::nfnetlink::Socket;

/// `CTA_...`
const NAT_SOURCE: u16 = 6;
const TIMEOUT: u16 = 7;
const NAT_DESTINATION: u16 = 13;
/// Within a tuple: `CTA_TUPLE_ZONE`, of a zone that holds for one direction.
const TUPLE_ZONE: u16 = 3;
/// `IPS_SEEN_REPLY | IPS_CONFIRMED`: replies are those of a connection, as a firewall sees them; not
/// `IPS_ASSURED`, so that a full table drops the copy first.
const REPLIED: u32 = 1 << 1 | 1 << 3;

/// An entry with all that is needed to delete or to copy it.
#[derive(Debug, Clone)]
pub struct Connection {
    /// As the client sends.
    pub original: Tuple,
    /// As replies arrive.
    pub reply: Tuple,
    family: u8,
    /// What names it and no later one.
    name: Vec<u8>,
    /// `CTA_TUPLE_ORIG` as the kernel wrote it.
    original_bytes: Vec<u8>,
    /// `CTA_MARK` as the kernel wrote it.
    mark: Option<Vec<u8>>,
}

impl Connection {
    /// Keeps an entry. `None` for one in a zone: by that an administrator chose what its packets belong to.
    pub fn of(entry: &Entry<'_>) -> Option<Self> {
        let tuples = [TUPLE_ORIGINAL, TUPLE_REPLY].map(|number| entry.attributes.nested(number));
        let zoned = tuples.iter().flatten().any(|tuple| tuple.get(TUPLE_ZONE).is_some());
        if zoned || entry.zone() != 0 {
            return None;
        }
        Some(Connection {
            original: entry.original,
            reply: entry.reply,
            family: entry.family,
            name: entry.name(),
            original_bytes: entry.attributes.get(TUPLE_ORIGINAL)?.to_vec(),
            mark: entry.attributes.get(MARK).map(<[u8]>::to_vec),
        })
    }

    /// Deletes it, unless it has ended by itself.
    ///
    /// # Errors
    /// No rights.
    pub fn delete(&self, socket: &mut Socket) -> Result<()> {
        delete(socket, self.family, &self.name)
    }

    /// Makes a copy of it in a zone: replies that are looked up in that zone are translated as they were before.
    /// A copy that is there already lives on for as long.
    ///
    /// # Errors
    /// A kernel whose table is full, or that has no zones.
    pub fn copy(&self, socket: &mut Socket, zone: u16, seconds: u32) -> Result<()> {
        match self.send(
            socket,
            libc::NLM_F_CREATE | libc::NLM_F_EXCL,
            &self.description(zone, seconds),
        ) {
            Err(error) if refusal(&error) == Some(Errno::EEXIST) => self.send(socket, 0, &self.lifetime(zone, seconds)),
            other => other,
        }
    }

    fn send(&self, socket: &mut Socket, flags: i32, attributes: &[u8]) -> Result<()> {
        socket.change(kind(NEW, self.family), flags, attributes)
    }

    /// What a copy is found by, and how long it is kept.
    fn lifetime(&self, zone: u16, seconds: u32) -> Vec<u8> {
        let mut attributes = Vec::new();
        put_nested(&mut attributes, TUPLE_ORIGINAL, |tuple| {
            tuple.extend(&self.original_bytes)
        });
        put(&mut attributes, ZONE, &zone.to_be_bytes());
        put(&mut attributes, TIMEOUT, &seconds.to_be_bytes());
        attributes
    }

    /// The kernel wants the reply as it would be without translation, and then what is translated.
    fn description(&self, zone: u16, seconds: u32) -> Vec<u8> {
        let (original, reply) = (self.original, self.reply);
        let mut attributes = self.lifetime(zone, seconds);
        put_nested(&mut attributes, TUPLE_REPLY, |tuple| {
            put_tuple(tuple, &original.inverse())
        });
        put(&mut attributes, STATUS, &REPLIED.to_be_bytes());
        if let Some(mark) = &self.mark {
            put(&mut attributes, MARK, mark);
        }
        let (to, from) = (
            (reply.source, reply.source_port),
            (reply.destination, reply.destination_port),
        );
        if to != (original.destination, original.destination_port) {
            put_nested(&mut attributes, NAT_DESTINATION, |range| put_range(range, to));
        }
        if from != (original.source, original.source_port) {
            put_nested(&mut attributes, NAT_SOURCE, |range| put_range(range, from));
        }
        attributes
    }
}

impl Tuple {
    /// The other direction, if nothing is translated.
    fn inverse(&self) -> Tuple {
        Tuple {
            protocol: self.protocol,
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }
}

/// The form that [`super::tuple`] reads.
fn put_tuple(attributes: &mut Vec<u8>, tuple: &Tuple) {
    let (source, destination) = if tuple.source.is_ipv4() { (1, 2) } else { (3, 4) };
    put_nested(attributes, TUPLE_IP, |ip| {
        put(ip, source, &address_bytes(tuple.source));
        put(ip, destination, &address_bytes(tuple.destination));
    });
    put_nested(attributes, TUPLE_PROTOCOL, |protocol| {
        put(protocol, 1, &[tuple.protocol]);
        put(protocol, 2, &tuple.source_port.to_be_bytes());
        put(protocol, 3, &tuple.destination_port.to_be_bytes());
    });
}

/// One address and port: `CTA_NAT_V4_MINIP`, `MAXIP` (1, 2) or `CTA_NAT_V6_...` (4, 5), and `CTA_NAT_PROTO` (3) with
/// `CTA_PROTONAT_PORT_MIN` and `MAX` (1, 2).
fn put_range(attributes: &mut Vec<u8>, (address, port): (IpAddr, u16)) {
    let numbers = if address.is_ipv4() { [1, 2] } else { [4, 5] };
    numbers
        .into_iter()
        .for_each(|number| put(attributes, number, &address_bytes(address)));
    put_nested(attributes, 3, |ports| {
        put(ports, 1, &port.to_be_bytes());
        put(ports, 2, &port.to_be_bytes());
    });
}
