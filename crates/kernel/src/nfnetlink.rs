//! The netfilter netlink family: dumps of tables that can hold millions of entries, and its attributes, whose integers
//! are in network byte order.

use anyhow::{Result, bail};
use nix::sys::socket::SockProtocol;

use super::netlink::{Attributes, Netlink, text_of};

/// Bytes of `struct nfgenmsg`, which every message of this family begins with.
const NFGEN: usize = 4;
/// How often a dump is begun again when the table changed below it.
const DUMP_ATTEMPTS: usize = 10;

/// What a request is about.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// `NFNL_SUBSYS_...`
    pub subsystem: u8,
    /// The subsystem's message number.
    pub message: u8,
    /// `NFPROTO_...`, or `AF_UNSPEC` for all.
    pub family: u8,
}

/// What a dump hands on.
pub enum Dump<'a> {
    /// Entries follow, from the first on: what came before is out of date.
    Begin,
    /// One entry: its address family and its attributes.
    Entry(u8, Attributes<'a>),
}

/// A socket of the family, in the network namespace of the thread that opened it.
pub struct Socket(Netlink);

impl Socket {
    /// Opens a socket.
    ///
    /// # Errors
    /// A kernel without netfilter; too many open files.
    pub fn open() -> Result<Self> {
        Netlink::open(SockProtocol::NetlinkNetFilter, 0).map(Socket)
    }

    /// Asks for a whole table and hands `each` its entries as they come, after [`Dump::Begin`].
    ///
    /// When the table changed meanwhile, the dump is begun again, and entries come a second time.
    ///
    /// # Errors
    /// The kernel's reason; what `each` returns; a table that never stays the same.
    pub fn dump(&mut self, kind: Kind, attributes: &[u8], mut each: impl FnMut(Dump<'_>) -> Result<()>) -> Result<()> {
        for _ in 0..DUMP_ATTEMPTS {
            each(Dump::Begin)?;
            let hand_on = |family, entry: Attributes<'_>| each(Dump::Entry(family, entry));
            if self.stream(kind, libc::NLM_F_DUMP, attributes, hand_on)? {
                return Ok(());
            }
        }
        bail!("the netfilter tables kept changing while they were read; try again")
    }

    /// Sends one request and waits for what the kernel says to it; entries that it answers with go to `each`.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn request(
        &mut self,
        kind: Kind,
        attributes: &[u8],
        each: impl FnMut(u8, Attributes<'_>) -> Result<()>,
    ) -> Result<()> {
        self.stream(kind, libc::NLM_F_ACK, attributes, each).map(|_| ())
    }

    /// Sends one request with flags of its own (`NLM_F_CREATE`, ...) and waits for what the kernel says to it.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn change(&mut self, kind: Kind, flags: i32, attributes: &[u8]) -> Result<()> {
        self.stream(kind, libc::NLM_F_ACK | flags, attributes, |_, _| Ok(()))
            .map(|_| ())
    }

    fn stream(
        &mut self,
        kind: Kind,
        flags: i32,
        attributes: &[u8],
        mut each: impl FnMut(u8, Attributes<'_>) -> Result<()>,
    ) -> Result<bool> {
        let number = u16::from(kind.subsystem) << 8 | u16::from(kind.message);
        let mut payload = vec![kind.family, libc::NFNETLINK_V0 as u8, 0, 0];
        payload.extend(attributes);
        self.0.stream(number, flags as u16, &payload, |_, answer| {
            match answer.split_at_checked(NFGEN) {
                Some((header, attributes)) => each(header[0], Attributes(attributes)),
                None => Ok(()),
            }
        })
    }
}

/// Values among attributes.
impl<'a> Attributes<'a> {
    /// The value of the first attribute of this type; nested attributes are a value too.
    pub fn get(mut self, number: u16) -> Option<&'a [u8]> {
        self.find(|(found, _)| *found == number).map(|(_, value)| value)
    }

    /// The attributes inside of one.
    pub fn nested(self, number: u16) -> Option<Attributes<'a>> {
        self.get(number).map(Attributes)
    }

    /// An integer in network byte order.
    pub fn be64(self, number: u16) -> Option<u64> {
        self.get(number)?.try_into().ok().map(u64::from_be_bytes)
    }

    /// An integer in network byte order.
    pub fn be32(self, number: u16) -> Option<u32> {
        self.get(number)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// An integer in network byte order.
    pub fn be16(self, number: u16) -> Option<u16> {
        self.get(number)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// A byte.
    pub fn byte(self, number: u16) -> Option<u8> {
        self.get(number)?.first().copied()
    }

    /// A text; empty where there is none.
    pub fn text(self, number: u16) -> String {
        self.get(number).map(text_of).unwrap_or_default()
    }
}

/// A text's bytes with the zero at the end that the kernel wants.
pub fn zero_ended(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{put, put_nested};

    #[test]
    fn values_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        put(&mut bytes, 1, &zero_ended("tarn"));
        put_nested(&mut bytes, 3, |inner| put(inner, 2, &7u16.to_be_bytes()));
        put(&mut bytes, 4, &9u64.to_be_bytes());
        let attributes = Attributes(&bytes);
        assert_eq!(attributes.text(1), "tarn");
        assert_eq!(attributes.nested(3).and_then(|nested| nested.be16(2)), Some(7));
        assert_eq!(attributes.be64(4), Some(9));
        assert_eq!((attributes.get(5), attributes.be32(4)), (None, None));
    }

    /// Attributes cut off anywhere end the reading, not the program.
    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut bytes = Vec::new();
        put(&mut bytes, 1, &[1, 2, 3, 4, 5]);
        put(&mut bytes, 2, &[6]);
        for length in 0..bytes.len() {
            assert!(Attributes(&bytes[..length]).count() <= 2);
        }
    }
}
