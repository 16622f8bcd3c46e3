//! Frames put onto an interface and taken from it, by packet sockets.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::packet::{self, ETHERNET};
use tarn_lab::topology::Namespace;

/// As long as anything takes that happens at all.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longer than any frame, segments to be cut included.
const LONGEST: usize = 70_000;

/// An interface, from now on.
pub struct Wire {
    socket: OwnedFd,
}

/// A frame that an interface received.
#[derive(Debug, Clone)]
pub struct Frame {
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
    /// The sender left the transport checksum to a device, and none has completed it.
    pub is_partial: bool,
}

impl Frame {
    /// The IP packet, when it is a whole one.
    pub fn read(&self) -> Option<packet::Read> {
        packet::read(&self.bytes[ETHERNET..])
    }
}

impl Wire {
    pub fn open(namespace: &Namespace, interface: &str) -> Self {
        let open = || {
            Ok(Wire {
                socket: open(interface)?,
            })
        };
        namespace.enter(open).unwrap()
    }

    /// Sends a frame, whatever is in it.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the pointer and length are those of a slice.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    /// The next received frame that is a whole packet as wanted; others are passed over.
    ///
    /// # Panics
    /// When none comes.
    pub fn receive(&self, what: &str, wanted: impl Fn(&packet::Read) -> bool) -> (Frame, packet::Read) {
        let until = Instant::now() + PATIENCE;
        while let Some(frame) = self.next(until) {
            if let Some(read) = frame.read().filter(&wanted) {
                return (frame, read);
            }
        }
        panic!("{what} did not come");
    }

    /// All frames received until now, and for as long as asked.
    pub fn drain(&self, patience: Duration) -> Vec<Frame> {
        let until = Instant::now() + patience;
        std::iter::from_fn(|| self.next(until)).collect()
    }

    /// The same of the frames that were sent.
    pub fn drain_sent(&self, patience: Duration) -> Vec<Frame> {
        let until = Instant::now() + patience;
        std::iter::from_fn(|| self.next_that(until, false)).collect()
    }

    fn next(&self, until: Instant) -> Option<Frame> {
        self.next_that(until, true)
    }

    fn next_that(&self, until: Instant, came_in: bool) -> Option<Frame> {
        loop {
            let (frame, incoming) = receive(&self.socket, until.saturating_duration_since(Instant::now()))?;
            if incoming == came_in {
                return Some(frame);
            }
        }
    }
}

fn open(interface: &str) -> io::Result<OwnedFd> {
    let every = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: no pointers; the descriptor returned is ours.
    let socket = unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(socket)
    };
    set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20)?;
    let name = CString::new(interface)?;
    // SAFETY: an all-zero sockaddr_ll is valid; the name is a C string, and bind reads an address of its size.
    let bound = unsafe {
        let mut address: libc::sockaddr_ll = zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = every;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    };
    if bound == 0 {
        Ok(socket)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets an integer option of a socket.
pub fn set(socket: &impl AsRawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    set_bytes(socket, level, option, &value.to_ne_bytes())
}

/// Sets an option of a socket.
pub fn set_bytes(socket: &impl AsRawFd, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and length are those of a slice.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            value.len() as u32,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// One frame and whether it came in; `None` when the time is over.
fn receive(socket: &OwnedFd, patience: Duration) -> Option<(Frame, bool)> {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd.
    if unsafe { libc::poll(&raw mut poll, 1, patience.as_millis() as i32) } <= 0 {
        return None;
    }
    let mut bytes = vec![0_u8; LONGEST];
    let mut control = [0_u64; 16];
    // SAFETY: all-zero structures of these types are valid. Every pointer is to memory that outlives the call, with
    // its true length; control messages are read by the macros that the interface has for it.
    unsafe {
        let mut from: libc::sockaddr_ll = zeroed();
        let mut vector = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let mut message: libc::msghdr = zeroed();
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let length = libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT);
        bytes.truncate(usize::try_from(length).ok()?);
        let mut is_partial = false;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null() && (*header).cmsg_type == libc::PACKET_AUXDATA {
            let data: libc::tpacket_auxdata = libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned();
            is_partial = data.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0;
        }
        Some((Frame { bytes, is_partial }, from.sll_pkttype != libc::PACKET_OUTGOING))
    }
}
