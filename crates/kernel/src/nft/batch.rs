//! Changes to sets and maps of address intervals, written straight to the kernel.
//!
//! `nft` reads a whole set of intervals before it changes one element, to find overlaps by itself: with a million
//! elements one `add element` took 90 s, and to load them 2.5 GB of memory (nft 1.0.6). The kernel finds overlaps too, at
//! the cost of a look-up. So elements are written here, in one transaction of any size, at about 60 bytes an interval.
//!
//! An interval is two elements in the kernel: its first key, and the first key behind it, which is marked as an end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt, socket,
    sockopt,
};

use super::read::{INTERVAL_END, SUBSYSTEM};
use crate::netlink::{build, each_message, explain_refusals, put, put_nested, refused};
use crate::nfnetlink::zero_ended;

/// `NFNL_MSG_BATCH_BEGIN`, `NFNL_MSG_BATCH_END`
const BEGIN: u16 = 0x10;
const END: u16 = 0x11;
/// `NFT_MSG_NEWSETELEM`, `NFT_MSG_DELSETELEM`
const NEW_ELEMENT: u8 = 12;
const DELETE_ELEMENT: u8 = 14;
/// `NFTA_SET_ELEM_LIST_TABLE`, `..._SET`, `..._ELEMENTS`
const TABLE: u16 = 1;
const SET: u16 = 2;
const ELEMENTS: u16 = 3;
/// `NFTA_LIST_ELEM`, `NFTA_DATA_VALUE`
const ONE: u16 = 1;
const VALUE: u16 = 1;
/// `NFTA_SET_ELEM_KEY`, `..._DATA`, `..._FLAGS`, `..._TIMEOUT`
const KEY: u16 = 1;
const DATA: u16 = 2;
const FLAGS: u16 = 3;
const TIMEOUT: u16 = 4;
/// Bytes of elements in one message: an attribute holds less than 64 KiB.
const MESSAGE_BYTES: usize = 48 << 10;

/// Addresses from `first` on, to what they lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The first address.
    pub first: IpAddr,
    /// The last one, of the same family.
    pub last: IpAddr,
    /// What the map holds for it.
    pub data: u32,
    /// After which the kernel takes it out by itself.
    pub timeout: Option<Duration>,
}

/// A transaction.
pub struct Batch<'a> {
    family: u8,
    table: &'a str,
    bytes: Vec<u8>,
    sequence: u32,
    /// The message that is being filled: kind, set, elements.
    open: Option<(u8, &'a str, Vec<u8>)>,
}

impl<'a> Batch<'a> {
    /// An empty one, on a table of the family `inet`.
    pub fn on(table: &'a str) -> Self {
        let mut batch = Self {
            family: libc::NFPROTO_INET as u8,
            table,
            bytes: Vec::new(),
            sequence: 0,
            open: None,
        };
        batch.frame(BEGIN);
        batch
    }

    /// Adds an interval. One of the same addresses, and one that overlaps, makes the whole transaction fail.
    pub fn add(&mut self, map: &'a str, interval: &Interval) {
        let list = self.elements(NEW_ELEMENT, map);
        element(list, interval.first, false, |inner| {
            put_nested(inner, DATA, |data| put(data, VALUE, &interval.data.to_ne_bytes()));
            if let Some(timeout) = interval.timeout {
                let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
                put(inner, TIMEOUT, &milliseconds.to_be_bytes());
            }
        });
        end(list, interval);
    }

    /// Takes an interval out. One that is not there makes the whole transaction fail.
    pub fn delete(&mut self, map: &'a str, interval: &Interval) {
        let list = self.elements(DELETE_ELEMENT, map);
        element(list, interval.first, false, |_| {});
        end(list, interval);
    }

    /// Carries all of it out, or nothing.
    ///
    /// # Errors
    /// [`crate::netlink::Refusal`] with the kernel's reason.
    pub fn commit(mut self) -> Result<()> {
        self.close(libc::NLM_F_ACK as u16);
        let last = self.sequence;
        if last == 1 {
            return Ok(());
        }
        self.frame(END);
        let socket = open(self.bytes.len())?;
        send(socket.as_raw_fd(), &self.bytes, MsgFlags::empty()).context("send a transaction to nftables")?;
        answer(&socket, last)
    }

    fn frame(&mut self, kind: u16) {
        self.sequence += 1;
        let [high, low] = u16::from(SUBSYSTEM).to_be_bytes();
        let payload = [libc::AF_UNSPEC as u8, libc::NFNETLINK_V0 as u8, high, low];
        let message = build(kind, libc::NLM_F_REQUEST as u16, self.sequence, &payload);
        self.bytes.extend(message);
    }

    /// The list of elements to append to.
    fn elements(&mut self, kind: u8, set: &'a str) -> &mut Vec<u8> {
        let fits = |open: &(u8, &str, Vec<u8>)| open.0 == kind && open.1 == set && open.2.len() < MESSAGE_BYTES;
        if !self.open.as_ref().is_some_and(fits) {
            self.close(0);
        }
        &mut self.open.get_or_insert_with(|| (kind, set, Vec::new())).2
    }

    fn close(&mut self, flags: u16) {
        let Some((kind, set, elements)) = self.open.take() else {
            return;
        };
        let create = match kind {
            NEW_ELEMENT => libc::NLM_F_CREATE | libc::NLM_F_EXCL,
            _ => 0,
        };
        let mut payload = vec![self.family, libc::NFNETLINK_V0 as u8, 0, 0];
        put(&mut payload, TABLE, &zero_ended(self.table));
        put(&mut payload, SET, &zero_ended(set));
        put_nested(&mut payload, ELEMENTS, |list| list.extend(elements));
        self.sequence += 1;
        let number = u16::from(SUBSYSTEM) << 8 | u16::from(kind);
        let flags = flags | (libc::NLM_F_REQUEST | create) as u16;
        self.bytes.extend(build(number, flags, self.sequence, &payload));
    }
}

fn element(list: &mut Vec<u8>, key: IpAddr, is_end: bool, more: impl FnOnce(&mut Vec<u8>)) {
    put_nested(list, ONE, |inner| {
        put_nested(inner, KEY, |value| put(value, VALUE, &key_of(key)));
        if is_end {
            put(inner, FLAGS, &INTERVAL_END.to_be_bytes());
        }
        more(inner);
    });
}

/// An interval up to the last address of all has no end.
fn end(list: &mut Vec<u8>, interval: &Interval) {
    if let Some(after) = next(interval.last) {
        element(list, after, true, |_| {});
    }
}

/// The address as the kernel keeps it as a key.
pub fn key_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address that a key is.
pub fn address_of(key: &[u8]) -> Option<IpAddr> {
    let four = || <[u8; 4]>::try_from(key).ok().map(IpAddr::from);
    let sixteen = || <[u8; 16]>::try_from(key).ok().map(IpAddr::from);
    four().or_else(sixteen)
}

/// The address behind this one; `None` behind the last.
pub fn next(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().checked_add(1)?).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits().checked_add(1)?).into(),
    })
}

/// The address before this one; `None` before the first.
pub fn previous(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().checked_sub(1)?).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits().checked_sub(1)?).into(),
    })
}

/// A socket that takes `bytes` at once: a transaction is one datagram.
fn open(bytes: usize) -> Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )
    .context("open a netlink socket")?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).context("bind a netlink socket")?;
    explain_refusals(&socket);
    // The kernel counts what is kept besides the bytes themselves, too; a small one fits as it is.
    let room = usize::min(2 * bytes + (64 << 10), i32::MAX as usize / 2);
    if bytes > 64 << 10 {
        setsockopt(&socket, sockopt::SndBufForce, &room).context("make room for a transaction of nftables")?;
    }
    Ok(socket)
}

/// The kernel has answered when sending returns. What it refuses comes before the acknowledgement of the last message.
fn answer(socket: &OwnedFd, last: u32) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut is_done = false;
    while !is_done {
        let length = match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => bail!("nftables gave no answer to a transaction"),
            received => received.context("receive the answer of nftables")?,
        };
        each_message(&buffer[..length], |header, payload| {
            if i32::from(header.kind) == libc::NLMSG_ERROR {
                refused(payload)?;
                is_done |= header.sequence == last;
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service for all the world: its last network must not begin anew at 0.0.0.0.
    #[test]
    fn neighbours_of_addresses_end_at_the_ends() {
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(next(at("10.0.0.255")), Some(at("10.0.1.0")));
        assert_eq!(next(at("255.255.255.255")), None);
        assert_eq!(next(at("2001:db8::ffff")), Some(at("2001:db8::1:0")));
        assert_eq!(previous(at("10.0.1.0")), Some(at("10.0.0.255")));
        assert_eq!(previous(at("::")), None);
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        for text in ["10.1.2.3", "2001:db8::1"] {
            let address = text.parse::<IpAddr>().unwrap();
            assert_eq!(address_of(&key_of(address)), Some(address));
        }
        assert_eq!(address_of(&[1, 2, 3]), None);
    }
}
