//! Pings to one target by one uplink: bound to its device, and marked so that its own table routes them, whatever the main
//! table says.
//!
//! Times are taken by the agent, not by the kernel: as soon as one socket asks for the kernel's receive timestamps, the kernel
//! takes them of every packet of the host.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{MsgFlags, SockaddrStorage, recvfrom, sendto, setsockopt, sockopt};

use crate::kernel::icmp;

/// Bytes behind the header: a number that nobody else knows, so that no answer can be made up.
const TOKEN: usize = 8;
/// The longest message looked at; what is longer is not an answer to ours.
const BUFFER: usize = 256;
/// Datagrams taken at a time: a flood of them must not keep the agent.
const BURST: usize = 64;

/// A socket for pings to one target by one uplink.
pub struct Prober {
    socket: OwnedFd,
    target: IpAddr,
    identifier: u16,
    request: Vec<u8>,
}

impl AsFd for Prober {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Prober {
    /// A prober by this device, whose probes bear this mark. Needs CAP_NET_RAW and CAP_NET_ADMIN.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn open(device: &str, mark: u32, target: IpAddr) -> Result<Self> {
        let socket = icmp::echo_socket(target)?;
        setsockopt(&socket, sockopt::BindToDevice, &device.into())
            .with_context(|| format!("cannot send probes by {device}"))?;
        setsockopt(&socket, sockopt::Mark, &mark).context("cannot mark probes")?;
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("cannot use a socket without waiting")?;
        let token = RandomState::new().hash_one(target).to_ne_bytes();
        let identifier = u16::from_ne_bytes([token[0], token[1]]);
        let mut request = vec![0; icmp::HEADER];
        request.extend_from_slice(&token[..TOKEN]);
        Ok(Self {
            socket,
            target,
            identifier,
            request,
        })
    }

    /// Sends the probe of this number. What cannot be sent is not answered, and needs no further attention, unless the device is
    /// another one by now.
    ///
    /// # Errors
    /// The device that the socket is bound to is gone.
    pub fn send(&mut self, sequence: u16) -> io::Result<()> {
        icmp::write_request(&mut self.request, self.target, self.identifier, sequence);
        let target = SockaddrStorage::from(SocketAddr::new(self.target, 0));
        match sendto(self.socket.as_raw_fd(), &self.request, &target, MsgFlags::MSG_DONTWAIT) {
            Err(error @ (Errno::ENODEV | Errno::ENXIO)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The numbers of the probes that were answered since.
    pub fn receive(&self) -> Vec<u16> {
        let mut answered = Vec::new();
        let mut buffer = [0; BUFFER];
        for _ in 0..BURST {
            match recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), &mut buffer) {
                Ok((length, from)) if self.is_target(from.as_ref()) => answered.extend(self.read(&buffer[..length])),
                Ok(_) => {}
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        answered
    }

    /// Whether the sender is who was asked.
    fn is_target(&self, from: Option<&SockaddrStorage>) -> bool {
        let v4 = |from: &SockaddrStorage| from.as_sockaddr_in().map(|from| IpAddr::V4(from.ip()));
        let v6 = |from: &SockaddrStorage| from.as_sockaddr_in6().map(|from| IpAddr::V6(from.ip()));
        from.and_then(|from| v4(from).or_else(|| v6(from))) == Some(self.target)
    }

    /// The number that an answer to a probe of ours bears.
    fn read(&self, packet: &[u8]) -> Option<u16> {
        let message = icmp::message(packet, self.target)?;
        let (identifier, sequence) = icmp::read_reply(message, self.target)?;
        let is_ours = identifier == self.identifier && message.get(icmp::HEADER..) == self.request.get(icmp::HEADER..);
        is_ours.then_some(sequence)
    }
}
