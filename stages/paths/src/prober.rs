//! Probes to one target by one uplink: bound to its device, and marked so that its own table routes them, whatever the main table
//! says.
//!
//! Times are taken by the agent, not by the kernel: as soon as one socket asks for the kernel's receive timestamps, the kernel
//! takes them of every packet of the host. `punctual.rs` says which of them are worth nothing.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};

use super::target::Target;
use tarn_kernel::icmp;

mod question;

use question::Question;

/// The longest message looked at; what is longer is not an answer to ours.
const BUFFER: usize = 256;
/// Datagrams taken at a time: a flood of them must not keep the agent.
const BURST: usize = 256;

/// A socket for probes to one target by one uplink.
pub struct Prober {
    /// A raw one for pings, which is sent to and received from by the same system calls.
    socket: UdpSocket,
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
            Target::Echo(address) => {
                let socket = icmp::echo_socket(address)?;
                icmp::only_from(&socket, address)?;
                socket.into()
            }
            Target::Udp(SocketAddr::V4(_)) => datagram_socket((Ipv4Addr::UNSPECIFIED, 0).into())?,
            Target::Udp(SocketAddr::V6(_)) => datagram_socket((Ipv6Addr::UNSPECIFIED, 0).into())?,
        };
        setsockopt(&socket, sockopt::BindToDevice, &device.into())
            .with_context(|| format!("cannot send probes by {device}"))?;
        setsockopt(&socket, sockopt::Mark, &mark).context("cannot mark probes")?;
        socket
            .set_nonblocking(true)
            .context("cannot use a socket without waiting")?;
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
        let target = self.address();
        match self.socket.send_to(self.question.ask(sequence), target) {
            Err(error) if [Some(libc::ENODEV), Some(libc::ENXIO)].contains(&error.raw_os_error()) => Err(error),
            _ => Ok(()),
        }
    }

    /// The numbers of the probes that were answered since, and whether there is more than is taken at a time: a flood.
    pub fn receive(&self) -> (Vec<u16>, bool) {
        let mut answered = Vec::new();
        let mut buffer = [0; BUFFER];
        for _ in 0..BURST {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) if self.is_target(from) => {
                    answered.extend(self.question.answered(&buffer[..length]));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (answered, false),
            }
        }
        (answered, true)
    }

    /// Whom packets are sent to; the port of pings is 0.
    fn address(&self) -> SocketAddr {
        match self.target {
            Target::Echo(address) => SocketAddr::new(address, 0),
            Target::Udp(address) => address,
        }
    }

    /// Whether the sender is who was asked. One of IPv6's raw sockets has the protocol in the place of a port.
    fn is_target(&self, from: SocketAddr) -> bool {
        match self.target {
            Target::Echo(target) => from.ip() == target,
            Target::Udp(target) => (from.ip(), from.port()) == (target.ip(), target.port()),
        }
    }
}

fn datagram_socket(from: SocketAddr) -> Result<UdpSocket> {
    UdpSocket::bind(from).context("cannot make a socket for probes")
}
