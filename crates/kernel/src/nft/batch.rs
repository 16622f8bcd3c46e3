//! Changes to the elements of sets and maps, written straight to the kernel.
//!
//! `nft` needs 2 KiB for each element of a script, and most of a large script's time. It also reads a whole set of
//! intervals before it changes one element, to find overlaps by itself: with a million elements one `add element` took
//! 90 s, and to load them 2.5 GB of memory (nft 1.0.6). The kernel finds overlaps too, at the cost of a look-up. So
//! elements are written here, in one transaction of any size, at about 60 bytes an element or interval.
//!
//! An interval is two elements in the kernel: its first key, and the first key behind it, which is marked as an end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockProtocol, recv, send, setsockopt, sockopt};

use super::read::{COMMENT, INTERVAL_END, SUBSYSTEM};
use crate::netlink::{Netlink, address_bytes, build, each_message, put, put_nested, refused};
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
/// `NFTA_SET_ELEM_KEY`, `..._DATA`, `..._FLAGS`, `..._TIMEOUT`, `..._USERDATA`
const KEY: u16 = 1;
const DATA: u16 = 2;
const FLAGS: u16 = 3;
const TIMEOUT: u16 = 4;
const USER_DATA: u16 = 6;
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
    table: &'a str,
    bytes: Vec<u8>,
    sequence: u32,
    /// The message that is being filled.
    open: Option<Message>,
}

struct Message {
    kind: u8,
    /// `NLM_F_CREATE`, ...
    flags: i32,
    set: String,
    elements: Vec<u8>,
}

impl<'a> Batch<'a> {
    /// An empty one, on a table of the family `inet`.
    pub fn on(table: &'a str) -> Self {
        let mut batch = Self {
            table,
            bytes: Vec::new(),
            sequence: 0,
            open: None,
        };
        batch.frame(BEGIN);
        batch
    }

    /// Adds an element with a comment to a set or map that has no intervals; in a set, `data` is empty. One of the same key
    /// with other data makes the whole transaction fail.
    pub fn put(&mut self, set: &str, key: &[u8], data: &[u8], comment: &str) {
        let list = self.elements(NEW_ELEMENT, libc::NLM_F_CREATE, set);
        element(list, key, false, |inner| {
            if !data.is_empty() {
                put_nested(inner, DATA, |value| put(value, VALUE, data));
            }
            let text = zero_ended(comment);
            put(inner, USER_DATA, &[&[COMMENT, text.len() as u8], &text[..]].concat());
        });
    }

    /// Takes an element out. One that is not there makes the whole transaction fail.
    pub fn remove(&mut self, set: &str, key: &[u8]) {
        element(self.elements(DELETE_ELEMENT, 0, set), key, false, |_| {});
    }

    /// Adds an interval. One of the same addresses, and one that overlaps, makes the whole transaction fail.
    pub fn add(&mut self, map: &str, interval: &Interval) {
        let list = self.elements(NEW_ELEMENT, libc::NLM_F_CREATE | libc::NLM_F_EXCL, map);
        element(list, &address_bytes(interval.first), false, |inner| {
            put_nested(inner, DATA, |data| put(data, VALUE, &interval.data.to_ne_bytes()));
            if let Some(timeout) = interval.timeout {
                let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
                put(inner, TIMEOUT, &milliseconds.to_be_bytes());
            }
        });
        end(list, interval);
    }

    /// Takes an interval out. One that is not there makes the whole transaction fail.
    pub fn delete(&mut self, map: &str, interval: &Interval) {
        let list = self.elements(DELETE_ELEMENT, 0, map);
        element(list, &address_bytes(interval.first), false, |_| {});
        end(list, interval);
    }

    /// Carries all of it out, or nothing.
    ///
    /// # Errors
    /// [`crate::netlink::Refusal`] with the kernel's reason.
    pub fn commit(mut self) -> Result<()> {
        self.close(libc::NLM_F_ACK);
        let last = self.sequence;
        if last == 1 {
            return Ok(());
        }
        self.frame(END);
        let netlink = Netlink::open(SockProtocol::NetlinkNetFilter, 0)?;
        make_room(&netlink, self.bytes.len())?;
        let sent = send(netlink.as_fd().as_raw_fd(), &self.bytes, MsgFlags::empty());
        sent.with_context(|| {
            let bytes = self.bytes.len();
            format!("send a transaction of {bytes} bytes to nftables; root of a container needs a higher net.core.wmem_max for a large one")
        })?;
        answer(&netlink, last)
    }

    fn frame(&mut self, kind: u16) {
        self.sequence += 1;
        let [high, low] = u16::from(SUBSYSTEM).to_be_bytes();
        let payload = [libc::AF_UNSPEC as u8, libc::NFNETLINK_V0 as u8, high, low];
        let message = build(kind, libc::NLM_F_REQUEST as u16, self.sequence, &payload);
        self.bytes.extend(message);
    }

    /// The list of elements to append to.
    fn elements(&mut self, kind: u8, flags: i32, set: &str) -> &mut Vec<u8> {
        let fits = |open: &Message| {
            (open.kind, open.flags, &open.set[..]) == (kind, flags, set) && open.elements.len() < MESSAGE_BYTES
        };
        if !self.open.as_ref().is_some_and(fits) {
            self.close(0);
        }
        let begin = || Message {
            kind,
            flags,
            set: set.to_owned(),
            elements: Vec::new(),
        };
        &mut self.open.get_or_insert_with(begin).elements
    }

    fn close(&mut self, flags: i32) {
        let Some(message) = self.open.take() else {
            return;
        };
        let mut payload = vec![libc::NFPROTO_INET as u8, libc::NFNETLINK_V0 as u8, 0, 0];
        put(&mut payload, TABLE, &zero_ended(self.table));
        put(&mut payload, SET, &zero_ended(&message.set));
        put_nested(&mut payload, ELEMENTS, |list| list.extend(message.elements));
        self.sequence += 1;
        let number = u16::from(SUBSYSTEM) << 8 | u16::from(message.kind);
        let flags = (flags | libc::NLM_F_REQUEST | message.flags) as u16;
        self.bytes.extend(build(number, flags, self.sequence, &payload));
    }
}

fn element(list: &mut Vec<u8>, key: &[u8], is_end: bool, more: impl FnOnce(&mut Vec<u8>)) {
    put_nested(list, ONE, |inner| {
        put_nested(inner, KEY, |value| put(value, VALUE, key));
        if is_end {
            put(inner, FLAGS, &INTERVAL_END.to_be_bytes());
        }
        more(inner);
    });
}

/// An interval up to the last address of all has no end.
fn end(list: &mut Vec<u8>, interval: &Interval) {
    if let Some(after) = next(interval.last) {
        element(list, &address_bytes(after), true, |_| {});
    }
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

/// Has the socket take `bytes` at once: a transaction is one datagram. The kernel counts what is kept besides the bytes
/// themselves, too; a small one fits as it is.
fn make_room(netlink: &Netlink, bytes: usize) -> Result<()> {
    if bytes <= 64 << 10 {
        return Ok(());
    }
    let room = usize::min(2 * bytes + (64 << 10), i32::MAX as usize / 2);
    // Root of a user namespace gets as much as the host's administrator allows everybody, which is enough for a smaller one.
    setsockopt(netlink, sockopt::SndBufForce, &room)
        .or_else(|_| setsockopt(netlink, sockopt::SndBuf, &room))
        .context("make room for a transaction of nftables")
}

/// The kernel has answered when sending returns. What it refuses comes before the acknowledgement of the last message.
fn answer(netlink: &Netlink, last: u32) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut is_done = false;
    while !is_done {
        let length = match recv(netlink.as_fd().as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
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
}
