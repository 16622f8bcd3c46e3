//! Frames put onto an interface and taken from it, by packet sockets.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use tarn_lab::topology::Namespace;

/// Longer than any frame.
const LONGEST: usize = 70_000;

/// An interface, from now on.
pub struct Wire {
    socket: OwnedFd,
}

impl Wire {
    /// `protocol`: frames of this Ethernet type are kept to be received.
    pub fn open(namespace: &Namespace, interface: &str, protocol: i32) -> Self {
        let socket = namespace.enter(|| Ok(open(interface, protocol)?)).unwrap();
        Self { socket }
    }

    /// Sends a frame, whatever is in it.
    pub fn send(&self, frame: &[u8]) {
        assert!(self.try_send(frame), "{}", io::Error::last_os_error());
    }

    /// The same where the interface may be gone.
    pub fn try_send(&self, frame: &[u8]) -> bool {
        // SAFETY: the pointer and length are those of a slice.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        sent == frame.len() as isize
    }

    /// All frames received, until none has come for as long as asked.
    pub fn drain(&self, patience: Duration) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.next_that(Instant::now() + patience)).collect()
    }

    /// The next received frame as wanted; others are passed over.
    pub fn next(&self, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let until = Instant::now() + patience;
        std::iter::from_fn(|| self.next_that(until)).find(|frame| wanted(frame))
    }

    fn next_that(&self, until: Instant) -> Option<Vec<u8>> {
        loop {
            let (frame, incoming) = receive(&self.socket, until.saturating_duration_since(Instant::now()))?;
            if incoming {
                return Some(frame);
            }
        }
    }
}

fn open(interface: &str, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor returned is ours.
    let socket = unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(socket)
    };
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 8 << 20)?;
    let name = CString::new(interface)?;
    // SAFETY: an all-zero sockaddr_ll is valid; the name is a C string, and bind reads an address of its size.
    let bound = unsafe {
        let mut address: libc::sockaddr_ll = zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (protocol as u16).to_be();
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
    // SAFETY: the pointer and length are those of the value.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as u32,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// One frame and whether it came in; `None` when the time is over.
fn receive(socket: &OwnedFd, patience: Duration) -> Option<(Vec<u8>, bool)> {
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
    // SAFETY: an all-zero sockaddr_ll is valid; every pointer is to memory that outlives the call, with its true length.
    unsafe {
        let mut from: libc::sockaddr_ll = zeroed();
        let mut size = size_of::<libc::sockaddr_ll>() as u32;
        let length = libc::recvfrom(
            socket.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT,
            (&raw mut from).cast(),
            &raw mut size,
        );
        bytes.truncate(usize::try_from(length).ok()?);
        Some((bytes, from.sll_pkttype != libc::PACKET_OUTGOING))
    }
}
