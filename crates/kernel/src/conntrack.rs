//! The kernel's connection tracking table: read whole, delete and copy single entries, over ctnetlink.
//!
//! Attribute numbers are those of `linux/netfilter/nfnetlink_conntrack.h`.

use std::net::IpAddr;

use anyhow::{Context, Result};

use nix::errno::Errno;

use super::netlink::{Attributes, address_of, put, put_nested, refusal};
use super::nfnetlink::{Dump, Kind, Socket};

mod connection;
mod mark;

pub use connection::Connection;
pub use mark::{forget_marked, is_missing, remark};

/// `NFNL_SUBSYS_CTNETLINK`.
const SUBSYSTEM: u8 = 1;
/// `IPCTNL_MSG_CT_NEW`, `IPCTNL_MSG_CT_GET`, `IPCTNL_MSG_CT_DELETE`.
const NEW: u8 = 0;
const GET: u8 = 1;
const DELETE: u8 = 2;
const ALL_FAMILIES: u8 = libc::AF_UNSPEC as u8;
/// `CTA_...`
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOCOL_INFO: u16 = 4;
const MARK: u16 = 8;
const ID: u16 = 12;
const ZONE: u16 = 18;
/// Within a tuple: `CTA_TUPLE_IP`, `CTA_TUPLE_PROTO`.
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
/// `CTA_PROTOINFO_TCP`, `CTA_PROTOINFO_TCP_STATE`.
const INFO_TCP: u16 = 1;
const INFO_TCP_STATE: u16 = 1;
/// `IPS_DST_NAT`: the destination is translated.
const STATUS_DESTINATION_NAT: u32 = 1 << 5;
/// `TCP_CONNTRACK_ESTABLISHED`, `TCP_CONNTRACK_LAST_ACK`: the ends have an established connection, or close one.
const TCP_ESTABLISHED: u8 = 3;
const TCP_LAST_ACK: u8 = 6;

/// The addresses and ports of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// `IPPROTO_...`
    pub protocol: u8,
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
}

/// The addresses of one direction, of any protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
}

/// One tracked connection.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// As the client sends.
    pub original: Tuple,
    /// As replies arrive: their source is the real server.
    pub reply: Tuple,
    /// Whether the client's destination is translated.
    pub destination_nat: bool,
    /// Whether it is a TCP connection that both ends know, from the handshake to the last acknowledgement.
    pub tcp_established: bool,
    attributes: Attributes<'a>,
    family: u8,
}

impl<'a> Entry<'a> {
    /// Reads an entry; `None` for protocols without ports.
    fn read(family: u8, attributes: Attributes<'a>) -> Option<Self> {
        let original = tuple(attributes.nested(TUPLE_ORIGINAL)?)?;
        let state = attributes
            .nested(PROTOCOL_INFO)
            .and_then(|info| info.nested(INFO_TCP)?.byte(INFO_TCP_STATE));
        Some(Entry {
            original,
            reply: tuple(attributes.nested(TUPLE_REPLY)?)?,
            destination_nat: attributes.be32(STATUS)? & STATUS_DESTINATION_NAT != 0,
            tcp_established: state.is_some_and(|state| (TCP_ESTABLISHED..=TCP_LAST_ACK).contains(&state)),
            attributes,
            family,
        })
    }

    /// The zone that both directions are looked up in; 0 is where all are that nobody put elsewhere.
    pub fn zone(&self) -> u16 {
        self.attributes.be16(ZONE).unwrap_or(0)
    }

    /// A number that no later connection with the same addresses has.
    #[cfg(any(test, feature = "testing"))]
    pub fn id(&self) -> u32 {
        self.attributes.be32(ID).unwrap_or(0)
    }

    /// What names this entry and no later one with the same addresses.
    fn name(&self) -> Vec<u8> {
        name(self.attributes)
    }
}

fn name(attributes: Attributes<'_>) -> Vec<u8> {
    let mut name = Vec::new();
    for number in [TUPLE_ORIGINAL, ZONE, ID] {
        if let Some(value) = attributes.get(number) {
            match number {
                TUPLE_ORIGINAL => put_nested(&mut name, number, |nested| nested.extend(value)),
                _ => put(&mut name, number, value),
            }
        }
    }
    name
}

/// Reads `CTA_TUPLE_IP`: source and destination, 1 and 2 for IPv4, 3 and 4 for IPv6.
fn ends(attributes: Attributes<'_>) -> Option<Ends> {
    let ip = attributes.nested(TUPLE_IP)?;
    let address = |v4: u16, v6: u16| address_of(ip.get(v4).or_else(|| ip.get(v6))?);
    Some(Ends {
        source: address(1, 3)?,
        destination: address(2, 4)?,
    })
}

/// Reads the addresses and `CTA_TUPLE_PROTO`: protocol number, source and destination port, 1, 2 and 3.
fn tuple(attributes: Attributes<'_>) -> Option<Tuple> {
    let Ends { source, destination } = ends(attributes)?;
    let protocol = attributes.nested(TUPLE_PROTOCOL)?;
    Some(Tuple {
        protocol: protocol.byte(1)?,
        source,
        destination,
        source_port: protocol.be16(2)?,
        destination_port: protocol.be16(3)?,
    })
}

/// Deletes every tracked connection that `chosen` says.
///
/// The table is read as a stream and nothing of it is kept, whatever its size. An entry that ends by itself
/// meanwhile is not an error, nor is a kernel that tracks nothing.
///
/// # Errors
/// No rights; a kernel without ctnetlink.
pub fn forget(mut chosen: impl FnMut(&Entry<'_>) -> bool) -> Result<()> {
    let mut deleting = Socket::open()?;
    each(|family, attributes| match Entry::read(family, attributes) {
        Some(entry) if chosen(&entry) => delete(&mut deleting, entry.family, &entry.name()),
        _ => Ok(()),
    })
}

/// Hands on every entry, of its family; some twice, when the table changes meanwhile.
fn each(mut each: impl FnMut(u8, Attributes<'_>) -> Result<()>) -> Result<()> {
    Socket::open()?
        .dump(kind(GET, ALL_FAMILIES), &[], |dump| match dump {
            Dump::Begin => Ok(()),
            Dump::Entry(family, attributes) => each(family, attributes),
        })
        .context("cannot go through the kernel's connection tracking table (needs the module nf_conntrack_netlink)")
}

/// A request of ctnetlink's, about entries of this family.
fn kind(message: u8, family: u8) -> Kind {
    Kind {
        subsystem: SUBSYSTEM,
        message,
        family,
    }
}

/// Deletes an entry; one that has ended by itself is no error.
fn delete(socket: &mut Socket, family: u8, name: &[u8]) -> Result<()> {
    match socket.request(kind(DELETE, family), name, |_, _| Ok(())) {
        Err(error) if refusal(&error) == Some(Errno::ENOENT) => Ok(()),
        other => other.context("cannot delete a tracked connection"),
    }
}
