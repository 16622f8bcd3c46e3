//! A netlink socket and the attributes of its messages: as much as the kernel parts of tarn need.
//!
//! Every family is a request, then a dump or an acknowledgement (Linux `Documentation/userspace-api/netlink/intro.rst`).
//! Integers are in host byte order unless an attribute says otherwise.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, NetlinkAddr, SockProtocol, bind, recv, send};

/// `NLM_F_REQUEST`
const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
/// The kernel's dumps come in messages of up to 32 KiB.
const RECEIVE_BUFFER: usize = 64 * 1024;
const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// The two flag bits of an attribute's type: nested, and in network byte order.
const TYPE_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

/// A netlink socket of one protocol.
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// One message of the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `nlmsg_type`
    pub kind: u16,
    /// What follows `struct nlmsghdr`: the family's own header, then attributes.
    pub payload: Vec<u8>,
}

impl Netlink {
    /// Opens a socket and joins the multicast groups whose bits are set in `groups`.
    pub fn open(protocol: SockProtocol, groups: u32) -> Result<Self> {
        Self::open_number(protocol as i32, groups)
    }

    /// The same for a protocol that nix has no name for.
    pub(super) fn open_number(protocol: i32, groups: u32) -> Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: the call takes numbers only.
        let socket = Errno::result(unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) });
        let socket = socket.context("open a netlink socket")?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups)).context("bind a netlink socket")?;
        explain_refusals(&socket);
        Ok(Self { socket, sequence: 0 })
    }

    /// Lets the kernel leave out of dumps what the request's header does not ask for (`NETLINK_GET_STRICT_CHK`).
    ///
    /// # Errors
    /// A kernel that does not know how.
    pub fn filter_dumps(&self) -> Result<()> {
        let on: libc::c_int = 1;
        set_option(self, libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, &[on]).context("ask for filtered dumps")
    }

    /// Sends a request and returns every message of the answer, up to the end of the dump or the acknowledgement.
    ///
    /// # Errors
    /// The kernel's error number, with its own words where it has some, as [`Refusal`].
    pub fn request(&mut self, kind: u16, flags: u16, payload: &[u8]) -> Result<Vec<Message>> {
        let mut answer = Vec::new();
        self.stream(kind, flags, payload, |kind, payload| {
            answer.push(Message {
                kind,
                payload: payload.to_vec(),
            });
            Ok(())
        })?;
        Ok(answer)
    }

    /// As [`Netlink::request`], but hands every message on as it comes, for answers of any size. An error of `each`
    /// is returned after the end of the answer, so that the socket can be used again.
    ///
    /// Returns false when what was dumped changed meanwhile: the answer is neither the old nor the new state then.
    ///
    /// # Errors
    /// As [`Netlink::request`], and what `each` returns.
    pub fn stream(
        &mut self,
        kind: u16,
        flags: u16,
        payload: &[u8],
        mut each: impl FnMut(u16, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        let message = build(kind, REQUEST | flags, self.sequence, payload);
        send(self.socket.as_raw_fd(), &message, MsgFlags::empty()).context("send a netlink request")?;
        let mut buffer = vec![0; RECEIVE_BUFFER];
        let mut answer = Answer {
            ended: false,
            consistent: true,
            outcome: Ok(()),
        };
        while !answer.ended {
            self.receive_part(&mut buffer, &mut answer, &mut each)?;
        }
        answer.outcome.map(|()| answer.consistent)
    }

    /// Waits for messages of the groups that were joined. An overrun (messages were lost) is an empty answer.
    pub fn receive(&mut self) -> Result<Vec<Message>> {
        let mut buffer = vec![0; RECEIVE_BUFFER];
        let length = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(length) => length,
            Err(Errno::ENOBUFS) => return Ok(Vec::new()),
            Err(error) => return Err(error).context("receive from a netlink socket"),
        };
        let mut messages = Vec::new();
        each_message(&buffer[..length], |header, payload| {
            messages.push(Message {
                kind: header.kind,
                payload: payload.to_vec(),
            });
            Ok(())
        })?;
        Ok(messages)
    }

    /// Receives one datagram of an answer.
    fn receive_part(
        &self,
        buffer: &mut [u8],
        answer: &mut Answer,
        each: &mut impl FnMut(u16, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let length = match recv(self.socket.as_raw_fd(), buffer, MsgFlags::empty()) {
            Err(Errno::EINTR) => return Ok(()),
            received => received.context("receive a netlink answer")?,
        };
        each_message(&buffer[..length], |header, payload| {
            if header.sequence != self.sequence {
                return Ok(()); // of an earlier request that was given up
            }
            answer.consistent &= header.flags & libc::NLM_F_DUMP_INTR as u16 == 0;
            match i32::from(header.kind) {
                libc::NLMSG_DONE | libc::NLMSG_ERROR => {
                    answer.ended = true;
                    refused(payload)?;
                }
                libc::NLMSG_NOOP => {}
                _ if answer.outcome.is_ok() => answer.outcome = each(header.kind, payload),
                _ => {}
            }
            Ok(())
        })
    }
}

/// Asks the kernel to give reasons in its errors, and not to send the whole request back with them, behind which they would
/// stand. One that cannot loses nothing else.
fn explain_refusals(socket: &OwnedFd) {
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
        let on: libc::c_int = 1;
        let _ = set_option(socket, libc::SOL_NETLINK, option, &[on]);
    }
}

/// Sets an option of a socket that nix does not know.
pub(super) fn set_option<T: Copy>(socket: &impl AsFd, level: i32, name: i32, value: &[T]) -> nix::Result<()> {
    let length = size_of_val(value) as libc::socklen_t;
    // SAFETY: the value has the length given, and lives for the call.
    let result = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    Errno::result(result).map(drop)
}

/// How far an answer is.
struct Answer {
    ended: bool,
    consistent: bool,
    outcome: Result<()>,
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The kernel said no.
#[derive(Debug, thiserror::Error)]
#[error("the kernel refused: {errno}{}", .words.as_ref().map(|words| format!(" ({words})")).unwrap_or_default())]
pub struct Refusal {
    /// The error number.
    pub errno: Errno,
    /// The extended acknowledgement's text.
    pub words: Option<String>,
}

/// The number of the kernel's refusal.
pub fn refusal(error: &anyhow::Error) -> Option<Errno> {
    error.downcast_ref::<Refusal>().map(|refusal| refusal.errno)
}

/// `NLMSGERR_ATTR_MSG`
const REFUSAL_TEXT: u16 = 1;

/// The outcome that an acknowledgement carries.
///
/// # Errors
/// [`Refusal`].
pub(super) fn refused(payload: &[u8]) -> Result<()> {
    let code = integer32(payload).context("a netlink error without its number")? as i32;
    if code >= 0 {
        return Ok(());
    }
    // Behind the number: the request's header (capped), then the attributes of the extended acknowledgement.
    let attributes = payload.get(4 + HEADER..).unwrap_or_default();
    let words = Attributes(attributes)
        .find(|(kind, _)| *kind == REFUSAL_TEXT)
        .map(|(_, text)| text_of(text));
    Err(Refusal {
        errno: Errno::from_raw(-code),
        words,
    }
    .into())
}

/// A message with its header.
pub(super) fn build(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = (HEADER + payload.len()) as u32;
    let mut message = Vec::with_capacity(length as usize);
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.extend_from_slice(&0_u32.to_ne_bytes());
    message.extend_from_slice(payload);
    message
}

/// `struct nlmsghdr` without its length.
pub(super) struct Header {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
}

/// Calls `each` with header and payload of every message of a datagram.
pub(super) fn each_message(mut datagram: &[u8], mut each: impl FnMut(&Header, &[u8]) -> Result<()>) -> Result<()> {
    while let Some((header, length)) = header(datagram) {
        let Some(payload) = datagram.get(HEADER..length) else {
            bail!("a netlink message is cut off")
        };
        each(&header, payload)?;
        datagram = datagram.get(aligned(length)..).unwrap_or_default();
    }
    Ok(())
}

/// The first header of a datagram and the length in bytes of the message with it.
fn header(datagram: &[u8]) -> Option<(Header, usize)> {
    let number16 = |at: usize| integer16(datagram.get(at..)?);
    let sequence = integer32(datagram.get(8..HEADER)?)?;
    let header = Header {
        kind: number16(4)?,
        flags: number16(6)?,
        sequence,
    };
    Some((header, integer32(datagram)? as usize))
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// The attributes of a message or of a nested attribute: type (without its flag bits) and value.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(integer16(self.0)?);
        let kind = integer16(self.0.get(2..)?)? & TYPE_MASK;
        let value = self.0.get(ATTRIBUTE_HEADER..length)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Appends an attribute.
pub fn put(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = (ATTRIBUTE_HEADER + value.len()) as u16;
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(aligned(message.len()), 0);
}

/// Appends an attribute that holds others, which `fill` appends.
pub fn put_nested(message: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut nested = Vec::new();
    fill(&mut nested);
    put(message, kind | NESTED, &nested);
}

/// The first two bytes in host byte order.
pub fn integer16(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?))
}

/// The first four bytes in host byte order.
pub fn integer32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// The first eight bytes in host byte order.
pub fn integer64(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))
}

/// A text up to its terminating zero.
pub fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// An address in network byte order.
pub fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// An address from its 4 or 16 bytes.
pub fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let mut message = Vec::new();
        put(&mut message, 1, b"abc");
        put_nested(&mut message, 2, |nested| put(nested, 3, &7_u32.to_ne_bytes()));
        let read: Vec<_> = Attributes(&message).collect();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0], (1, b"abc".as_slice()));
        assert_eq!(Attributes(read[1].1).next(), Some((3, 7_u32.to_ne_bytes().as_slice())));
    }

    #[test]
    fn a_cut_off_attribute_ends_the_list_instead_of_reading_on() {
        let mut message = Vec::new();
        put(&mut message, 1, b"abcdef");
        for length in 0..message.len() - 2 {
            assert_eq!(Attributes(&message[..length]).next(), None, "{length} bytes");
        }
    }

    #[test]
    fn a_refusal_carries_number_and_words() {
        let mut payload = (-libc::EEXIST).to_ne_bytes().to_vec();
        payload.resize(4 + HEADER, 0);
        put(&mut payload, REFUSAL_TEXT, b"Exclusivity flag on\0");
        let error = refused(&payload).unwrap_err();
        assert!(error.to_string().contains("Exclusivity flag on"), "{error}");
        assert_eq!(
            error.downcast_ref::<Refusal>().map(|refusal| refusal.errno),
            Some(Errno::EEXIST)
        );
    }

    #[test]
    fn addresses_are_read_as_they_were_written() {
        for text in ["10.1.2.3", "2001:db8::1"] {
            let address = text.parse::<IpAddr>().unwrap();
            assert_eq!(address_of(&address_bytes(address)), Some(address));
        }
        assert_eq!(address_of(&[1, 2, 3]), None);
    }
}
