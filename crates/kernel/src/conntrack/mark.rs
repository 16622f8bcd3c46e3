//! Marks of tracked connections: given, taken away, and connections forgotten by them.

use anyhow::Result;
use nix::errno::Errno;

use super::{ALL_FAMILIES, Ends, Entry, MARK, NEW, TUPLE_ORIGINAL, TUPLE_REPLY, delete, each, ends, kind, name};
use crate::netlink::{put, refusal};
use crate::nfnetlink::Socket;

/// `IPCTNL_MSG_CT_GET_STATS`: how many connections there are.
const STATISTICS: u8 = 5;
/// `CTA_MARK_MASK`
const MASK: u16 = 21;

/// Gives every tracked connection the mark that `wanted` says, as far as `mask` goes; the other bits stay. It is told the one
/// that the connection has, its addresses as the client sends, and those of replies. Returns how many have got another mark.
///
/// A connection that ends meanwhile is not an error.
///
/// # Errors
/// No rights; a kernel without ctnetlink.
pub fn remark(mask: u32, mut wanted: impl FnMut(u32, Ends, Ends) -> u32) -> Result<u64> {
    let mut changing = Socket::open()?;
    let mut changed = 0;
    each(|family, attributes| {
        let mark = attributes.be32(MARK).unwrap_or(0) & mask;
        let read = |number| attributes.nested(number).and_then(ends);
        let Some((original, reply)) = read(TUPLE_ORIGINAL).zip(read(TUPLE_REPLY)) else {
            return Ok(());
        };
        let new = wanted(mark, original, reply) & mask;
        if new == mark {
            return Ok(());
        }
        let mut message = name(attributes);
        put_mark(&mut message, new, mask);
        match changing.change(kind(NEW, family), 0, &message) {
            Ok(()) => changed += 1,
            Err(error) if refusal(&error) == Some(Errno::ENOENT) => {}
            Err(error) => return Err(error.context("cannot mark a tracked connection")),
        }
        Ok(())
    })?;
    Ok(changed)
}

/// Forgets connections with this mark, as far as `mask` goes: what comes next of one is a new connection. TCP connections that both
/// ends know stay: to begin them anew takes both ends.
///
/// One that ends meanwhile is not an error.
///
/// # Errors
/// No rights; a kernel without ctnetlink.
pub fn forget_marked(mark: u32, mask: u32) -> Result<()> {
    let mut deleting = Socket::open()?;
    each(|family, attributes| {
        let is_marked = attributes.be32(MARK).unwrap_or(0) & mask == mark;
        let is_established = Entry::read(family, attributes).is_some_and(|entry| entry.tcp_established);
        match is_marked && !is_established {
            true => delete(&mut deleting, family, &name(attributes)),
            false => Ok(()),
        }
    })
}

/// Why connections cannot be marked here; `None` when they can.
pub fn is_missing() -> Option<anyhow::Error> {
    let request = kind(STATISTICS, ALL_FAMILIES);
    let asked = Socket::open().and_then(|mut socket| socket.request(request, &[], |_, _| Ok(())));
    asked.err()
}

fn put_mark(message: &mut Vec<u8>, mark: u32, mask: u32) {
    put(message, MARK, &mark.to_be_bytes());
    put(message, MASK, &mask.to_be_bytes());
}
