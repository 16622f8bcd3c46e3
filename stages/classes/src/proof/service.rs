//! Services of one worker and known cost: what clients compete for.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use tarn_lab::busy::spin;
use tarn_lab::topology::Namespace;

/// How often a service looks whether it is to end, in ms.
const LOOK: u16 = 50;
/// What the listener is called among the connections.
const LISTENER: u64 = u64::MAX;
/// The answer over HTTP.
const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nserved";

/// What a request costs the service.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// It waits so long for something else, as for a database.
    Sleep(Duration),
    /// It executes so many instructions.
    Compute(u64),
}

impl Work {
    fn perform(self) {
        match self {
            Self::Sleep(time) => std::thread::sleep(time),
            Self::Compute(instructions) => spin(instructions),
        }
    }
}

/// A service that works on requests in the order in which they come; it ends when dropped.
#[derive(Default)]
pub struct Service {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Service {
    /// Returns every datagram, after its work, one at a time.
    ///
    /// # Errors
    /// An address that is taken.
    pub fn udp(namespace: &Namespace, address: SocketAddr, work: Work) -> Result<Self> {
        let socket = datagrams(namespace, address)?;
        Self::start(namespace, move |ended| {
            serve_datagrams(&socket, || work.perform(), ended)
        })
    }

    /// Returns every datagram, so many at a time, after it has slept for so many ns, which may change.
    ///
    /// # Errors
    /// An address that is taken.
    pub fn sleepers(namespace: &Namespace, address: SocketAddr, workers: usize, time: &Arc<AtomicU64>) -> Result<Self> {
        let socket = datagrams(namespace, address)?;
        let mut service = Self::default();
        for _ in 0..workers {
            let socket = socket.try_clone().context("cannot share a socket")?;
            let time = Arc::clone(time);
            let sleep = move || Work::Sleep(Duration::from_nanos(time.load(Ordering::Relaxed))).perform();
            service.add(namespace, move |ended| serve_datagrams(&socket, sleep, ended))?;
        }
        Ok(service)
    }

    /// Answers every HTTP request, after its work, one at a time.
    ///
    /// # Errors
    /// An address that is taken.
    pub fn http(namespace: &Namespace, address: SocketAddr, work: Work) -> Result<Self> {
        let listen = || TcpListener::bind(address).with_context(|| format!("cannot bind to {address}"));
        let listener = namespace.enter(listen)?;
        // The standard library lets 128 connections wait to be accepted; they all come while one request is served.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::MAXALLOWABLE).context("cannot listen")?;
        listener
            .set_nonblocking(true)
            .context("cannot make a listener non-blocking")?;
        Self::start(namespace, move |ended| Http::new(&listener)?.serve(work, ended))
    }

    fn start(namespace: &Namespace, serve: impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static) -> Result<Self> {
        let mut service = Self::default();
        service.add(namespace, serve)?;
        Ok(service)
    }

    /// One more thread.
    fn add(
        &mut self,
        namespace: &Namespace,
        serve: impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let told = Arc::clone(&self.ended);
        self.threads.push(namespace.spawn("service", move || {
            // The kernel may wake a sleeper 50 us late, to spare itself an interrupt; this one it wakes in time.
            nix::sys::prctl::set_timerslack(1).context("cannot set the timer slack")?;
            serve(&told)
        })?);
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if let Ok(Err(error)) = thread.join() {
                eprintln!("the service failed: {error:#}");
            }
        }
    }
}

fn datagrams(namespace: &Namespace, address: SocketAddr) -> Result<UdpSocket> {
    let socket = namespace.enter(|| UdpSocket::bind(address).with_context(|| format!("cannot bind to {address}")))?;
    socket
        .set_read_timeout(Some(Duration::from_millis(LOOK.into())))
        .context("cannot set a timeout")?;
    Ok(socket)
}

fn serve_datagrams(socket: &UdpSocket, work: impl Fn(), ended: &AtomicBool) -> Result<()> {
    let mut buffer = [0; 65_536];
    while !ended.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((length, client)) => {
                work();
                // A client that has gone is none of a service's business.
                let _ = socket.send_to(&buffer[..length], client);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {}
            Err(error) => return Err(error).context("cannot receive a request"),
        }
    }
    Ok(())
}

/// A server of one thread: epoll tells of one connection at a time, in the order in which their requests came.
struct Http<'a> {
    listener: &'a TcpListener,
    epoll: Epoll,
    connections: Vec<Option<(TcpStream, Vec<u8>)>>,
}

impl<'a> Http<'a> {
    fn new(listener: &'a TcpListener) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("cannot make an epoll instance")?;
        epoll
            .add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))
            .context("cannot watch the listener")?;
        Ok(Self {
            listener,
            epoll,
            connections: Vec::new(),
        })
    }

    fn serve(&mut self, work: Work, ended: &AtomicBool) -> Result<()> {
        while !ended.load(Ordering::Relaxed) {
            let mut events = [EpollEvent::empty()];
            match self.epoll.wait(&mut events, EpollTimeout::from(LOOK)) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) if events[0].data() == LISTENER => self.accept()?,
                Ok(_) => self.answer(events[0].data() as usize, work),
                Err(error) => return Err(error).context("cannot wait for requests"),
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream
                .set_nonblocking(true)
                .context("cannot make a connection non-blocking")?;
            stream
                .set_nodelay(true)
                .context("cannot switch Nagle's algorithm off")?;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, self.connections.len() as u64);
            self.epoll.add(&stream, event).context("cannot watch a connection")?;
            self.connections.push(Some((stream, Vec::new())));
        }
        Ok(())
    }

    /// Serves what has come by a connection. One that was closed, or fails, is forgotten, and so is epoll's entry.
    fn answer(&mut self, index: usize, work: Work) {
        let Some((stream, received)) = &mut self.connections[index] else {
            return;
        };
        let mut buffer = [0; 4096];
        let is_open = match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(length) => {
                received.extend_from_slice(&buffer[..length]);
                serve_whole(stream, received, work)
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        if !is_open {
            self.connections[index] = None;
        }
    }
}

/// Answers each request that is there with its end. Returns whether the client is.
fn serve_whole(stream: &mut TcpStream, received: &mut Vec<u8>, work: Work) -> bool {
    while let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
        received.drain(..end + 4);
        work.perform();
        if stream.write_all(PAGE).is_err() {
            return false;
        }
    }
    true
}
