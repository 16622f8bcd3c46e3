//! Services that say who they are, or send back what they are sent; and how TCP clients ask them.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, bind as bind_to, connect, socket};

use super::scene::{PATIENCE, WHO};
use super::wire::set;

/// How often a service looks whether it should end.
const TICK: Duration = Duration::from_millis(100);

pub fn bind(address: SocketAddr) -> (UdpSocket, TcpListener) {
    (UdpSocket::bind(address).unwrap(), TcpListener::bind(address).unwrap())
}

pub fn datagrams(socket: UdpSocket, name: String, ended: Arc<AtomicBool>) {
    socket.set_read_timeout(Some(TICK)).unwrap();
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while !ended.load(Ordering::Relaxed) {
            if let Ok((length, client)) = socket.recv_from(&mut buffer) {
                // A client that has gone is no reason to end.
                let _ = socket.send_to(reply(&buffer[..length], &name), client);
            }
        }
    });
}

fn reply<'a>(asked: &'a [u8], name: &'a str) -> &'a [u8] {
    if asked.starts_with(WHO) { name.as_bytes() } else { asked }
}

pub fn connections(listener: TcpListener, name: String, ended: Arc<AtomicBool>) {
    thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            let mut poll = libc::pollfd {
                fd: listener.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one pollfd.
            if unsafe { libc::poll(&raw mut poll, 1, TICK.as_millis() as i32) } <= 0 {
                continue;
            }
            if let Ok((stream, _)) = listener.accept() {
                let name = name.clone();
                thread::spawn(move || serve_connection(stream, &name));
            }
        }
    });
}

fn serve_connection(mut stream: TcpStream, name: &str) {
    let mut buffer = vec![0; 65_536];
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(reply(&buffer[..length], name)).is_err() {
            return;
        }
    }
}

/// A connection from an address and port of the caller's choice.
pub fn connect_from(from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if from.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let socket: OwnedFd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    // Also bounds connect().
    let timeout = [PATIENCE.as_secs() as i64, 0].map(i64::to_ne_bytes).concat();
    super::wire::set_bytes(&socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &timeout)?;
    match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            bind_to(socket.as_raw_fd(), &SockaddrIn::from(from))?;
            connect(socket.as_raw_fd(), &SockaddrIn::from(to))?;
        }
        (SocketAddr::V6(from), SocketAddr::V6(to)) => {
            bind_to(socket.as_raw_fd(), &SockaddrIn6::from(from))?;
            connect(socket.as_raw_fd(), &SockaddrIn6::from(to))?;
        }
        _ => return Err(Error::from(ErrorKind::InvalidInput)),
    }
    // SAFETY: the descriptor is a connected stream socket, and nobody else's from here on.
    let stream = unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) };
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// What a new connection is told.
pub fn ask_over_tcp(from: SocketAddr, to: SocketAddr, question: &[u8]) -> String {
    let asked = || {
        let mut stream = connect_from(from, to)?;
        stream.write_all(question)?;
        let mut buffer = vec![0; 256];
        let length = stream.read(&mut buffer)?;
        buffer.truncate(length);
        Ok(buffer)
    };
    asked().map_or_else(failure, text)
}

pub fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A refusal or silence, in brackets.
pub fn failure(error: Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "[refused]".to_owned(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "[silence]".to_owned(),
        _ if error.raw_os_error() == Some(libc::EINPROGRESS) => "[silence]".to_owned(),
        _ => format!("[{error}]"),
    }
}
