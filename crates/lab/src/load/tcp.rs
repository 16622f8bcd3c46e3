//! TCP request and response on kept connections.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags};

use super::engine::{self, Arrivals, Connections};
use super::exchange::{Answer, Exchanges};
use super::server::{Server, accept_all};
use super::udp::{pattern, read_sequence, write_sequence};
use super::{Flow, socket};
use crate::busy::monotonic_ns;
use crate::topology::Namespace;

/// A generator of TCP requests. Connecting is done before, and not part of any time.
#[derive(Debug, Clone)]
pub struct TcpRequests {
    /// Between which addresses. With several connections each takes the next source port.
    pub flow: Flow,
    /// Number of connections, kept for all requests.
    pub connections: u16,
    /// Number of requests over all connections, given to them in turn.
    pub count: u32,
    /// Bytes of a request, at least 4: it begins with its number.
    pub request: usize,
    /// Bytes of an answer, at least 4; the server must have been told the same.
    pub answer: usize,
    /// When they are sent. In a closed loop each connection has one request under way; in an open loop a request may
    /// follow another on its connection before that is answered.
    pub arrivals: Arrivals,
    /// How long answers are waited for.
    pub timeout: Duration,
    /// How long the connections are idle before the first request.
    pub idle: Duration,
}

impl TcpRequests {
    /// A closed loop on one connection, of 64-byte requests and answers that are given five seconds each.
    pub fn new(flow: Flow, count: u32) -> Self {
        let arrivals = Arrivals::WhenAnswered;
        Self {
            flow,
            connections: 1,
            count,
            request: 64,
            answer: 64,
            arrivals,
            timeout: Duration::from_secs(5),
            idle: Duration::ZERO,
        }
    }

    /// Connects from the calling thread's namespace, sends all requests and takes the answers.
    ///
    /// # Errors
    /// When a connection cannot be made or breaks. Answers that do not come in time are none.
    pub fn run(&self) -> Result<Exchanges> {
        if self.connections == 0 || self.request < 4 || self.answer < 4 {
            bail!("TCP requests need a connection, and 4 bytes for their number in request and answer");
        }
        socket::exact_timers()?;
        let connect = |index| Connection::open(self, index);
        let mut run = Run {
            plan: self,
            connections: (0..self.connections).map(connect).collect::<Result<_>>()?,
            under_way: 0,
        };
        thread::sleep(self.idle);
        engine::run_over(&mut run, self.count, &self.arrivals, self.timeout)
            .with_context(|| format!("TCP requests to {}", self.flow.target))
    }
}

/// A kept connection with its requests under way.
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    request: Vec<u8>,
    /// Bytes that the kernel has not taken yet.
    unsent: VecDeque<u8>,
    /// Numbers of the requests under way, oldest first: answers come in this order.
    under_way: VecDeque<u32>,
    answer: Vec<u8>,
    /// How much of the answer has come.
    filled: usize,
}

impl Connection {
    fn open(plan: &TcpRequests, index: u16) -> Result<Self> {
        let stream = socket::tcp_client(&plan.flow, index)?;
        stream
            .set_nonblocking(true)
            .context("cannot make a connection non-blocking")?;
        Ok(Self {
            peer: stream.peer_addr().context("a connection has no peer")?,
            stream,
            request: pattern(plan.request),
            unsent: VecDeque::new(),
            under_way: VecDeque::new(),
            answer: vec![0; plan.answer],
            filled: 0,
        })
    }

    fn send(&mut self, sequence: u32) -> io::Result<()> {
        write_sequence(&mut self.request, sequence);
        self.under_way.push_back(sequence);
        if self.unsent.is_empty() {
            let taken = none_if_full(self.stream.write(&self.request))?.unwrap_or(0);
            self.unsent.extend(&self.request[taken..]);
            return Ok(());
        }
        self.unsent.extend(&self.request);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match none_if_full(self.stream.write(self.unsent.as_slices().0))? {
                Some(taken) => drop(self.unsent.drain(..taken)),
                None => break,
            }
        }
        Ok(())
    }

    /// Reads until nothing is left; every whole answer is noted. Returns how many.
    fn receive(&mut self, exchanges: &mut Exchanges) -> io::Result<usize> {
        let mut answers = 0;
        while let Some(length) = none_if_full(self.stream.read(&mut self.answer[self.filled..]))? {
            if length == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the server closed the connection",
                ));
            }
            self.filled += length;
            if self.filled < self.answer.len() {
                continue;
            }
            self.filled = 0;
            answers += 1;
            let Some(sequence) = self.under_way.pop_front() else {
                continue;
            };
            let intact = read_sequence(&self.answer, u32::MAX) == Some(sequence) && has_pattern(&self.answer);
            exchanges.answered(
                sequence,
                Answer {
                    received_ns: monotonic_ns(),
                    from: self.peer,
                    intact,
                },
            );
            // With nothing under way another read would only say that nothing is there.
            if self.under_way.is_empty() {
                break;
            }
        }
        Ok(answers)
    }
}

/// Whether everything behind the number is what [`pattern`] made.
fn has_pattern(message: &[u8]) -> bool {
    message
        .iter()
        .enumerate()
        .skip(4)
        .all(|(index, &byte)| byte == (index % 251) as u8)
}

/// `None` instead of an error when the kernel cannot take or give bytes now.
fn none_if_full(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(length) => Ok(Some(length)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A run under way.
struct Run<'a> {
    plan: &'a TcpRequests,
    connections: Vec<Connection>,
    /// Requests under way on all connections.
    under_way: usize,
}

impl Connections for Run<'_> {
    fn most(&self) -> usize {
        self.connections.len()
    }

    fn under_way(&self) -> usize {
        self.under_way
    }

    fn send(&mut self, sequence: u32) -> Result<()> {
        let in_turn = sequence as usize % self.connections.len();
        let is_idle = |connection: &Connection| connection.under_way.is_empty();
        let index = match self.plan.arrivals {
            Arrivals::WhenAnswered => self.connections.iter().position(is_idle).unwrap_or(in_turn),
            Arrivals::Open(_) => in_turn,
        };
        self.connections[index]
            .send(sequence)
            .context("cannot send a request")?;
        self.under_way += 1;
        Ok(())
    }

    fn take_answers(&mut self, until: u64, exchanges: &mut Exchanges) -> Result<bool> {
        let events = |connection: &Connection| match connection.unsent.is_empty() {
            true => PollFlags::POLLIN,
            false => PollFlags::POLLIN | PollFlags::POLLOUT,
        };
        let mut watched: Vec<_> = self
            .connections
            .iter()
            .map(|connection| PollFd::new(connection.stream.as_fd(), events(connection)))
            .collect();
        if !engine::wait(&mut watched, until)? {
            return Ok(false);
        }
        let ready: Vec<_> = watched.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        for (connection, _) in self.connections.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            connection.flush().context("cannot send a request")?;
            self.under_way -= connection.receive(exchanges).context("cannot receive an answer")?;
        }
        Ok(true)
    }
}

/// A server that answers every request of a fixed size with an answer of a fixed size, a thread a connection, and
/// reports how many they were.
pub type TcpAnswerer = Server<TcpListener, u64>;

impl TcpAnswerer {
    /// Starts it in the namespace. Sizes in bytes, at least 4: an answer begins with its request's number.
    pub fn start(namespace: &Namespace, address: SocketAddr, request: usize, answer: usize) -> Result<Self> {
        let open = || socket::tcp_server(address);
        let serve = move |stream: TcpStream| Ok(answer_all(stream, request.max(4), answer.max(4)));
        Self::serving(namespace, "tcp-answerer", open, move |listener| {
            Ok(accept_all(listener, "tcp-answer", serve)?.into_iter().sum())
        })
    }
}

fn answer_all(mut stream: TcpStream, request: usize, answer: usize) -> u64 {
    let mut requests = 0;
    let (mut request, mut answer) = (vec![0; request], pattern(answer));
    // An error is the client's end, or ours.
    while stream.read_exact(&mut request).is_ok() {
        requests += 1;
        answer[..4].copy_from_slice(&request[..4]);
        if stream.write_all(&answer).is_err() {
            break;
        }
    }
    requests
}
