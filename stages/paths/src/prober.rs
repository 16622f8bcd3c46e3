//! Probes to one target by one uplink: bound to its device, and marked so that its own table routes them, whatever the main table
//! says.
//!
//! Times are taken by the agent, not by the kernel: as soon as one socket asks for the kernel's receive timestamps, the kernel
//! takes them of every packet of the host.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, recvfrom, sendto, setsockopt, socket, sockopt,
};

use super::target::Target;
use tarn_kernel::icmp;

mod question;

use question::Question;

/// The longest message looked at; what is longer is not an answer to ours.
const BUFFER: usize = 256;
/// Datagrams taken at a time: a flood of them must not keep the agent.
const BURST: usize = 64;

/// A socket for probes to one target by one uplink.
pub struct Prober {
    socket: OwnedFd,
    target: Target,
    question: Question,
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
    pub fn open(device: &str, mark: u32, target: Target) -> Result<Self> {
        let socket = match target {
            Target::Echo(address) => icmp::echo_socket(address)?,
            Target::Udp(address) => datagram_socket(address)?,
        };
        setsockopt(&socket, sockopt::BindToDevice, &device.into())
            .with_context(|| format!("cannot send probes by {device}"))?;
        setsockopt(&socket, sockopt::Mark, &mark).context("cannot mark probes")?;
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("cannot use a socket without waiting")?;
        Ok(Self {
            socket,
            target,
            question: Question::new(target),
        })
    }

    /// Sends the probe of this number. What cannot be sent is not answered, and needs no further attention, unless the device is
    /// another one by now.
    ///
    /// # Errors
    /// The device that the socket is bound to is gone.
    pub fn send(&mut self, sequence: u16) -> io::Result<()> {
        let target = SockaddrStorage::from(self.address());
        let question = self.question.ask(sequence);
        match sendto(self.socket.as_raw_fd(), question, &target, MsgFlags::MSG_DONTWAIT) {
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
                Ok((length, from)) if self.is_target(from.as_ref()) => {
                    answered.extend(self.question.answered(&buffer[..length]));
                }
                Ok(_) => {}
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        answered
    }

    /// Whom packets are sent to; the port of pings is 0.
    fn address(&self) -> SocketAddr {
        match self.target {
            Target::Echo(address) => SocketAddr::new(address, 0),
            Target::Udp(address) => address,
        }
    }

    /// Whether the sender is who was asked. One of IPv6's raw sockets has the protocol in the place of a port.
    fn is_target(&self, from: Option<&SockaddrStorage>) -> bool {
        let v4 = |from: &SockaddrStorage| from.as_sockaddr_in().map(|from| (IpAddr::V4(from.ip()), from.port()));
        let v6 = |from: &SockaddrStorage| from.as_sockaddr_in6().map(|from| (IpAddr::V6(from.ip()), from.port()));
        let Some((address, port)) = from.and_then(|from| v4(from).or_else(|| v6(from))) else {
            return false;
        };
        match self.target {
            Target::Echo(target) => address == target,
            Target::Udp(target) => (address, port) == (target.ip(), target.port()),
        }
    }
}

fn datagram_socket(target: SocketAddr) -> Result<OwnedFd> {
    let family = if target.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).context("cannot make a socket for probes")
}
