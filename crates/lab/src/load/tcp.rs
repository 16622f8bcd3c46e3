//! TCP request and response on kept connections.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::engine::Arrivals;
use super::exchange::{Answer, Exchanges};
use super::udp::{ServerReport, pattern, read_sequence, write_sequence};
use super::{Flow, socket};
use crate::busy::monotonic_ns;
use crate::topology::{Namespace, join};

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
        let connections = (0..self.connections).map(connect).collect::<Result<Vec<_>>>()?;
        let mut run = Run {
            plan: self,
            connections,
            exchanges: Exchanges::new(self.count as usize, self.timeout),
            open: 0,
        };
        match &self.arrivals {
            Arrivals::WhenAnswered => run.closed(),
            Arrivals::Open(law) => run.open(&law.schedule(self.count)),
        }
        .with_context(|| format!("TCP requests to {}", self.flow.target))?;
        Ok(run.exchanges)
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
        let stream = socket::tcp_client(&plan.flow, index, |_| Ok(()))?;
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
    exchanges: Exchanges,
    /// Requests under way on all connections.
    open: usize,
}

impl Run<'_> {
    fn closed(&mut self) -> Result<()> {
        let mut next = 0;
        while next < self.plan.count || self.open > 0 {
            for index in 0..self.connections.len() {
                if self.connections[index].under_way.is_empty() && next < self.plan.count {
                    self.send(index, next, monotonic_ns())?;
                    next += 1;
                }
            }
            if !self.take_answers(monotonic_ns() + self.plan.timeout.as_nanos() as u64)? {
                break;
            }
        }
        Ok(())
    }

    fn open(&mut self, schedule: &[u64]) -> Result<()> {
        let start = monotonic_ns();
        for (sequence, due) in (0..).zip(schedule) {
            while self.take_answers(start + due)? {}
            self.send(sequence as usize % self.connections.len(), sequence, start + due)?;
        }
        let end = monotonic_ns() + self.plan.timeout.as_nanos() as u64;
        while self.open > 0 && self.take_answers(end)? {}
        Ok(())
    }

    fn send(&mut self, connection: usize, sequence: u32, due_ns: u64) -> Result<()> {
        let sent = monotonic_ns();
        self.exchanges.sent(due_ns.min(sent), sent, 0);
        self.connections[connection]
            .send(sequence)
            .context("cannot send a request")?;
        self.open += 1;
        Ok(())
    }

    /// Waits until something can be done, and does it; false when the time came first.
    fn take_answers(&mut self, until: u64) -> Result<bool> {
        let now = monotonic_ns();
        if now >= until {
            return Ok(false);
        }
        let rest = TimeSpec::from_duration(Duration::from_nanos(until - now));
        let events = |connection: &Connection| match connection.unsent.is_empty() {
            true => PollFlags::POLLIN,
            false => PollFlags::POLLIN | PollFlags::POLLOUT,
        };
        let mut watched: Vec<_> = self
            .connections
            .iter()
            .map(|connection| PollFd::new(connection.stream.as_fd(), events(connection)))
            .collect();
        match ppoll(&mut watched, Some(rest), None) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for answers"),
        }
        let ready: Vec<_> = watched.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        for (connection, _) in self.connections.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            connection.flush().context("cannot send a request")?;
            self.open -= connection
                .receive(&mut self.exchanges)
                .context("cannot receive an answer")?;
        }
        Ok(true)
    }
}

/// A server that answers every request of a fixed size with an answer of a fixed size, a thread a connection.
pub struct TcpAnswerer {
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<Result<ServerReport>>>,
}

impl TcpAnswerer {
    /// Starts it in the namespace. Sizes in bytes, at least 4: an answer begins with its request's number.
    pub fn start(namespace: &Namespace, address: SocketAddr, request: usize, answer: usize) -> Result<Self> {
        let listener = Arc::new(namespace.enter(|| socket::tcp_server(address))?);
        let serve = move |stream: TcpStream| answer_all(stream, request.max(4), answer.max(4));
        let thread = {
            let listener = listener.clone();
            namespace.spawn("tcp-answerer", move || {
                let reports = accept_all(&listener, "tcp-answer", serve)?;
                Ok(reports.into_iter().fold(ServerReport::default(), add))
            })?
        };
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }

    /// Ends it with all its connections, and says what it has seen.
    pub fn stop(mut self) -> Result<ServerReport> {
        self.end().unwrap_or(Ok(ServerReport::default()))
    }

    fn end(&mut self) -> Option<Result<ServerReport>> {
        stop_listening(&self.listener);
        self.thread.take().map(|thread| join(thread.join()))
    }
}

impl Drop for TcpAnswerer {
    fn drop(&mut self) {
        self.end();
    }
}

fn add(total: ServerReport, one: ServerReport) -> ServerReport {
    ServerReport {
        requests: total.requests + one.requests,
        bytes: total.bytes + one.bytes,
        last_peer: one.last_peer.or(total.last_peer),
    }
}

fn answer_all(mut stream: TcpStream, request: usize, answer: usize) -> ServerReport {
    let mut report = ServerReport {
        last_peer: stream.peer_addr().ok(),
        ..ServerReport::default()
    };
    let (mut request, mut answer) = (vec![0; request], pattern(answer));
    // An error is the client's end, or ours.
    while stream.read_exact(&mut request).is_ok() {
        report.requests += 1;
        report.bytes += request.len() as u64;
        answer[..4].copy_from_slice(&request[..4]);
        if stream.write_all(&answer).is_err() {
            break;
        }
    }
    report
}

/// Makes [`accept_all`] end, with all its connections.
pub(super) fn stop_listening(listener: &TcpListener) {
    // The only error is that it is not listening any more.
    let _ = nix::sys::socket::shutdown(listener.as_raw_fd(), nix::sys::socket::Shutdown::Both);
}

/// Serves every connection on a thread of its own until the listener is shut down; what each thread returned, in the
/// order of their connections.
pub(super) fn accept_all<T: Send>(
    listener: &TcpListener,
    thread_name: &str,
    serve: impl Fn(TcpStream) -> T + Send + Sync,
) -> Result<Vec<T>> {
    let streams = Mutex::new(Vec::new());
    let serve = &serve;
    thread::scope(|scope| {
        let mut threads = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            stream
                .set_nodelay(true)
                .context("cannot switch Nagle's algorithm off")?;
            let handle = stream.try_clone().context("cannot use a connection twice")?;
            streams.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
            let builder = thread::Builder::new().name(thread_name.to_owned());
            threads.push(
                builder
                    .spawn_scoped(scope, move || serve(stream))
                    .context("cannot start a thread")?,
            );
        }
        for stream in streams.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // One that the client has closed is not connected any more, and that is as good.
            let _ = stream.shutdown(Shutdown::Both);
        }
        Ok(threads.into_iter().map(|thread| join(thread.join())).collect())
    })
}
