//! Sockets made the way that generators and servers need them.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage};
use nix::sys::socket::{bind, connect, listen, setsockopt, socket, sockopt};

use super::Flow;

/// Bytes that a generator's or server's socket holds: so many that what is lost was lost by the network.
const BUFFER: usize = 8 << 20;

/// A socket of the flow's family, bound to its source.
fn bound(flow: &Flow, kind: SockType, port_offset: u16) -> Result<OwnedFd> {
    let socket = socket(family(flow.target), kind, SockFlag::SOCK_CLOEXEC, None).context("cannot make a socket")?;
    if let Some(mut source) = flow.source {
        if source.port() != 0 {
            source.set_port(source.port() + port_offset);
        }
        setsockopt(&socket, sockopt::ReuseAddr, &true).context("cannot reuse addresses")?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(source)).with_context(|| format!("cannot bind to {source}"))?;
    }
    Ok(socket)
}

/// A UDP socket for a generator, on which receiving gives up after this time.
pub fn udp_client(flow: &Flow, timeout: Duration) -> Result<UdpSocket> {
    let socket = bound(flow, SockType::Datagram, 0)?;
    enlarge_buffers(&socket)?;
    let socket = UdpSocket::from(socket);
    socket
        .set_read_timeout(Some(timeout))
        .context("cannot set the receive timeout: it must not be 0")?;
    Ok(socket)
}

/// A TCP connection; its options are those of an interactive client.
pub fn tcp_client(flow: &Flow, index: u16) -> Result<TcpStream> {
    prepared_tcp_client(flow, index, |_| Ok(()))
}

/// A TCP connection that has been prepared before it connects; its options are those of an interactive client.
pub fn prepared_tcp_client(flow: &Flow, index: u16, prepare: impl FnOnce(&OwnedFd) -> Result<()>) -> Result<TcpStream> {
    let socket = bound(flow, SockType::Stream, index)?;
    prepare(&socket)?;
    connect(socket.as_raw_fd(), &SockaddrStorage::from(flow.target))
        .with_context(|| format!("cannot connect to {}", flow.target))?;
    let stream = TcpStream::from(socket);
    stream
        .set_nodelay(true)
        .context("cannot switch Nagle's algorithm off")?;
    Ok(stream)
}

/// A UDP socket for a server.
pub fn udp_server(address: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind to UDP {address}"))?;
    enlarge_buffers(&socket)?;
    Ok(socket)
}

/// A listening TCP socket.
pub fn tcp_server(address: SocketAddr) -> Result<TcpListener> {
    let socket =
        socket(family(address), SockType::Stream, SockFlag::SOCK_CLOEXEC, None).context("cannot make a socket")?;
    setsockopt(&socket, sockopt::ReuseAddr, &true).context("cannot reuse addresses")?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))
        .with_context(|| format!("cannot bind to TCP {address}"))?;
    listen(&socket, Backlog::MAXALLOWABLE).context("cannot listen")?;
    Ok(socket.into())
}

/// The calling thread's timers fire when they are due, not up to 50 us later as is the default for ordinary threads.
pub fn exact_timers() -> Result<()> {
    nix::sys::prctl::set_timerslack(1).context("cannot set the timer slack")
}

/// Room for many packets, beyond the system's limit where we may.
pub fn enlarge_buffers(socket: &impl AsFd) -> Result<()> {
    let forced =
        setsockopt(socket, sockopt::RcvBufForce, &BUFFER).and(setsockopt(socket, sockopt::SndBufForce, &BUFFER));
    forced
        .or_else(|_| setsockopt(socket, sockopt::RcvBuf, &BUFFER))
        .context("cannot enlarge a socket's buffers")
}

/// An address as the kernel gives it; `None` when it gave none.
pub fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|address| SocketAddr::V4((*address).into()));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|address| SocketAddr::V6((*address).into()))
    })
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv6() {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    }
}
