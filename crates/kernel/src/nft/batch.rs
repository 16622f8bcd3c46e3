//! Changes to the elements of sets and maps, written straight to the kernel.
//!
//! `nft` needs 2 KiB for each element of a script, and most of a large script's time (nft 1.0.6). Elements are written here, in one
//! transaction of any size, at about 60 bytes an element.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockProtocol, recv, send, setsockopt, sockopt};

use super::read::{COMMENT, SUBSYSTEM};
use crate::netlink::{Netlink, build, each_message, put, put_nested, refused};
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
/// `NFTA_SET_ELEM_KEY`, `..._DATA`, `..._USERDATA`
const KEY: u16 = 1;
const DATA: u16 = 2;
const USER_DATA: u16 = 6;
/// Bytes of elements in one message: an attribute holds less than 64 KiB.
const MESSAGE_BYTES: usize = 48 << 10;

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
        element(list, key, |inner| {
            if !data.is_empty() {
                put_nested(inner, DATA, |value| put(value, VALUE, data));
            }
            let text = zero_ended(comment);
            put(inner, USER_DATA, &[&[COMMENT, text.len() as u8], &text[..]].concat());
        });
    }

    /// Takes an element out. One that is not there makes the whole transaction fail.
    pub fn remove(&mut self, set: &str, key: &[u8]) {
        element(self.elements(DELETE_ELEMENT, 0, set), key, |_| {});
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

fn element(list: &mut Vec<u8>, key: &[u8], more: impl FnOnce(&mut Vec<u8>)) {
    put_nested(list, ONE, |inner| {
        put_nested(inner, KEY, |value| put(value, VALUE, key));
        more(inner);
    });
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
