//! HTTP/1.1 requests on kept connections, as browsers and benchmarks send them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::engine::{self, Arrivals, Connections};
use super::exchange::{Answer, Exchanges};
use super::{Flow, socket};
use crate::busy::monotonic_ns;

/// The longest head of an answer.
const HEAD_LIMIT: usize = 16 << 10;
/// Events taken at a time.
const EVENTS: usize = 64;

/// A generator of GET requests.
#[derive(Debug, Clone)]
pub struct HttpRequests {
    /// Between which addresses. The kernel chooses the source ports.
    pub flow: Flow,
    /// Number of requests over all connections.
    pub count: u32,
    /// What is asked for: `/index.html`.
    pub path: String,
    /// When requests are sent. In a closed loop each of `connections` has one under way. In an open loop a request takes a
    /// connection on which nothing is under way, or a new one: connecting is part of its time.
    pub arrivals: Arrivals,
    /// Connections, made before the first request.
    pub connections: u16,
    /// How long after its request an answer is one.
    pub timeout: Duration,
}

impl HttpRequests {
    /// A closed loop on one connection.
    pub fn new(flow: Flow, count: u32) -> Self {
        Self {
            flow,
            count,
            path: "/".into(),
            arrivals: Arrivals::WhenAnswered,
            connections: 1,
            timeout: Duration::from_secs(5),
        }
    }

    /// Connects from the calling thread's namespace, sends all requests and takes the answers. An answer is intact when its
    /// status is 200.
    ///
    /// # Errors
    /// When a connection cannot be made, or what comes is not HTTP.
    pub fn run(&self) -> Result<Exchanges> {
        socket::exact_timers()?;
        let mut run = Run {
            plan: self,
            request: format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", self.path, self.flow.target).into_bytes(),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("cannot make an epoll instance")?,
            connections: Vec::new(),
            idle: Vec::new(),
            under_way: 0,
        };
        for _ in 0..self.connections {
            let connection = run.connect()?;
            run.idle.push(connection);
        }
        engine::run_over(&mut run, self.count, &self.arrivals, self.timeout)
            .with_context(|| format!("HTTP requests to {}", self.flow.target))
    }
}

/// A connection, and what is under way on it.
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    sequence: Option<u32>,
    received: Vec<u8>,
}

/// A run under way. Connections are known by their index, which epoll reports.
struct Run<'a> {
    plan: &'a HttpRequests,
    request: Vec<u8>,
    epoll: Epoll,
    connections: Vec<Option<Connection>>,
    /// Those with nothing under way; the last one is used first.
    idle: Vec<usize>,
    under_way: usize,
}

impl Run<'_> {
    fn connect(&mut self) -> Result<usize> {
        let stream = socket::tcp_client(&self.plan.flow, 0)?;
        stream
            .set_nonblocking(true)
            .context("cannot make a connection non-blocking")?;
        let index = self.connections.len();
        self.epoll
            .add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))
            .context("cannot watch a connection")?;
        let peer = stream.peer_addr().context("a connection has no peer")?;
        self.connections.push(Some(Connection {
            stream,
            peer,
            sequence: None,
            received: Vec::new(),
        }));
        Ok(index)
    }

    fn receive(&mut self, index: usize, exchanges: &mut Exchanges) -> Result<()> {
        let Some(connection) = &mut self.connections[index] else {
            return Ok(());
        };
        let is_open = connection.read()?;
        if let Some((status, keeps)) = connection.answer()? {
            let answer = Answer {
                received_ns: monotonic_ns(),
                from: connection.peer,
                intact: status == 200,
            };
            if let Some(sequence) = connection.sequence.take() {
                exchanges.answered(sequence, answer);
                self.under_way -= 1;
            }
            if is_open && keeps {
                self.idle.push(index);
                return Ok(());
            }
        } else if is_open {
            return Ok(());
        }
        self.close(index)
    }

    fn close(&mut self, index: usize) -> Result<()> {
        if let Some(connection) = self.connections[index].take() {
            self.under_way -= usize::from(connection.sequence.is_some());
            self.epoll
                .delete(connection.stream.as_fd())
                .context("cannot watch a connection any longer")?;
        }
        Ok(())
    }
}

impl Connections for Run<'_> {
    fn most(&self) -> usize {
        self.plan.connections.into()
    }

    fn under_way(&self) -> usize {
        self.under_way
    }

    fn send(&mut self, sequence: u32) -> Result<()> {
        loop {
            let index = match self.idle.pop() {
                Some(index) => index,
                None => self.connect()?,
            };
            // One that the server has closed meanwhile is left.
            let Some(connection) = &mut self.connections[index] else {
                continue;
            };
            connection
                .stream
                .write_all(&self.request)
                .context("cannot send a request")?;
            connection.sequence = Some(sequence);
            self.under_way += 1;
            return Ok(());
        }
    }

    fn take_answers(&mut self, until: u64, exchanges: &mut Exchanges) -> Result<bool> {
        // epoll_wait(2) itself counts in milliseconds.
        if !engine::wait(&mut [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)], until)? {
            return Ok(false);
        }
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO);
        for event in &events[..count.context("cannot wait for answers")?] {
            self.receive(event.data() as usize, exchanges)?;
        }
        Ok(true)
    }
}

impl Connection {
    /// Reads what is there; false when the server has closed the connection.
    fn read(&mut self) -> Result<bool> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error).context("cannot receive an answer"),
            }
        }
    }

    /// Takes a whole answer: its status, and whether the connection is kept.
    fn answer(&mut self) -> Result<Option<(u16, bool)>> {
        let Some(head) = find(&self.received, b"\r\n\r\n") else {
            if self.received.len() > HEAD_LIMIT {
                bail!("an answer's head has no end");
            }
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&self.received[..head]).to_ascii_lowercase();
        let (status, length, keeps) =
            read_head(&text).with_context(|| format!("an answer that is not HTTP: {text}"))?;
        let end = head + 4 + length;
        if self.received.len() < end {
            return Ok(None);
        }
        self.received.drain(..end);
        Ok(Some((status, keeps)))
    }
}

/// Status, bytes of the body, and whether the connection is kept.
fn read_head(text: &str) -> Option<(u16, usize, bool)> {
    let mut lines = text.split("\r\n");
    let status = lines.next()?.strip_prefix("http/1.")?.split(' ').nth(1)?.parse().ok()?;
    let (mut length, mut keeps) = (0, true);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        match name {
            "content-length" => length = value.trim().parse().ok()?,
            "connection" => keeps = value.trim() != "close",
            _ => {}
        }
    }
    Some((status, length, keeps))
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers each request with the next of these, a byte at a time where it is the first.
    fn serve(answers: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut answers = answers.iter().enumerate();
            for stream in listener.incoming() {
                let (mut stream, mut buffer) = (stream.unwrap(), [0; 4096]);
                while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
                    let Some((index, answer)) = answers.next() else { return };
                    match index {
                        0 => answer.bytes().for_each(|byte| stream.write_all(&[byte]).unwrap()),
                        _ => stream.write_all(answer.as_bytes()).unwrap(),
                    }
                    if answer.contains("close") {
                        break;
                    }
                }
            }
        });
        address
    }

    /// An answer in pieces is one answer, an error is none that counts, and a connection that is closed is replaced.
    #[test]
    fn answers_are_read_as_http() {
        let target = serve(&[
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ]);
        let exchanges = HttpRequests::new(Flow::to(target), 3).run().unwrap();
        let intact: Vec<bool> = exchanges
            .list()
            .iter()
            .map(|exchange| exchange.answer.unwrap().intact)
            .collect();
        assert_eq!(intact, [true, false, true]);
    }

    #[test]
    fn heads_that_are_none_are_refused() {
        for text in [
            "",
            "http/1.1",
            "ftp/1.1 200",
            "http/1.1 200 ok\r\ncontent-length: x",
            "http/1.1 ok",
        ] {
            assert!(read_head(text).is_none(), "{text}");
        }
    }
}
