//! When requests are sent, and the loop that sends them and takes the answers: the same for every kind of probe.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::exchange::{Answer, Exchanges};
use super::socket::exact_timers;
use crate::busy::monotonic_ns;
use crate::random::Random;

/// When requests are sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// A closed loop: the next request when the last one's answer is there, or has timed out.
    WhenAnswered,
    /// An open loop: at their own times, whether answers come or not.
    Open(Law),
}

/// The gaps between the requests of an open loop.
#[derive(Debug, Clone, PartialEq)]
pub enum Law {
    /// All the same.
    Every(Duration),
    /// Exponentially distributed with this mean (a Poisson process), from the stream `arrivals` of the seed.
    Poisson {
        /// The mean gap.
        mean: Duration,
        /// The seed of the gaps.
        seed: u64,
    },
}

impl Law {
    /// When each of `count` requests is due, in ns after the start.
    pub fn schedule(&self, count: u32) -> Vec<u64> {
        match self {
            Self::Every(gap) => (0..u64::from(count))
                .map(|index| index * gap.as_nanos() as u64)
                .collect(),
            Self::Poisson { mean, seed } => {
                let (mut random, mut due) = (Random::new(*seed, "arrivals"), 0.0);
                let mut next = || {
                    due += random.exponential(mean.as_nanos() as f64);
                    due as u64
                };
                (0..count).map(|_| next()).collect()
            }
        }
    }
}

/// What asks and is answered: a socket with a message format.
pub(super) trait Probe: AsFd {
    /// Sends request `sequence`.
    fn send(&mut self, sequence: u32) -> io::Result<()>;

    /// Takes one answer; `sequences` is how many requests there have been. `None` is something that is no answer.
    /// Waits as long as the socket's receive timeout.
    fn receive(&mut self, sequences: u32) -> io::Result<Option<Received>>;
}

/// An answer as a [`Probe`] read it.
pub(super) struct Received {
    pub sequence: u32,
    pub from: SocketAddr,
    pub intact: bool,
}

/// Sends so many requests and takes the answers, each of which is waited for so long.
pub(super) fn run(probe: &mut impl Probe, count: u32, arrivals: &Arrivals, timeout: Duration) -> Result<Exchanges> {
    match arrivals {
        Arrivals::WhenAnswered => closed(probe, count, timeout),
        Arrivals::Open(law) => open(probe, &law.schedule(count), timeout),
    }
}

fn closed(probe: &mut impl Probe, count: u32, timeout: Duration) -> Result<Exchanges> {
    let mut exchanges = Exchanges::new(count as usize, timeout);
    for sequence in 0..count {
        let sent = monotonic_ns();
        let refused = refusal(probe.send(sequence))?;
        exchanges.sent(sent, sent, refused);
        if refused != 0 {
            // Nothing was sent, so nothing will come; the next request may fare better.
            continue;
        }
        let deadline = sent + timeout.as_nanos() as u64;
        while let Some(received) = next_answer(probe, sequence + 1)? {
            let now = monotonic_ns();
            let is_the_last = received.as_ref().is_some_and(|received| received.sequence == sequence);
            note(&mut exchanges, received, now);
            if is_the_last || now >= deadline {
                break;
            }
        }
    }
    Ok(exchanges)
}

fn open(probe: &mut impl Probe, due: &[u64], timeout: Duration) -> Result<Exchanges> {
    exact_timers()?;
    let mut exchanges = Exchanges::new(due.len(), timeout);
    let start = monotonic_ns();
    for (sequence, due) in (0..).zip(due) {
        let due = start + due;
        take_answers_until(probe, &mut exchanges, due)?;
        let sent = monotonic_ns();
        let refused = refusal(probe.send(sequence))?;
        exchanges.sent(due, sent, refused);
    }
    take_answers_until(probe, &mut exchanges, monotonic_ns() + timeout.as_nanos() as u64)?;
    Ok(exchanges)
}

/// Takes answers until the given time; when all have come and no more requests follow, the wait is still as long, so
/// that duplicates are seen.
fn take_answers_until(probe: &mut impl Probe, exchanges: &mut Exchanges, until: u64) -> Result<()> {
    let sequences = exchanges.list().len() as u32;
    while wait(&mut [PollFd::new(probe.as_fd(), PollFlags::POLLIN)], until)? {
        if let Some(received) = next_answer(probe, sequences)? {
            note(exchanges, received, monotonic_ns());
        }
    }
    Ok(())
}

/// Waits until one of these is ready, to the nanosecond; false when the time came first.
pub(super) fn wait(watched: &mut [PollFd<'_>], until: u64) -> Result<bool> {
    loop {
        let now = monotonic_ns();
        if now >= until {
            return Ok(false);
        }
        let rest = TimeSpec::from_duration(Duration::from_nanos(until - now));
        match ppoll(watched, Some(rest), None) {
            Err(Errno::EINTR) => {}
            ready => return Ok(ready.context("cannot wait for answers")? > 0),
        }
    }
}

fn note(exchanges: &mut Exchanges, received: Option<Received>, received_ns: u64) {
    if let Some(Received { sequence, from, intact }) = received {
        exchanges.answered(
            sequence,
            Answer {
                received_ns,
                from,
                intact,
            },
        );
    }
}

/// The next datagram (`Some(None)` for one that is no answer), or `None` when the wait is over.
fn next_answer(probe: &mut impl Probe, sequences: u32) -> Result<Option<Option<Received>>> {
    match probe.receive(sequences) {
        Ok(received) => Ok(Some(received)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(None)),
        Err(error) => Err(error).context("cannot receive an answer"),
    }
}

/// The error number of a send that the network refused; other errors are the generator's own.
fn refusal(outcome: io::Result<()>) -> Result<i32> {
    const NETWORK: [i32; 7] = [
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::ENETDOWN,
        libc::ENOBUFS,
        libc::EPERM,
        libc::EACCES,
        libc::ECONNREFUSED,
    ];
    match outcome {
        Ok(()) => Ok(0),
        Err(error) => match error.raw_os_error() {
            Some(number) if NETWORK.contains(&number) => Ok(number),
            _ => Err(error).context("cannot send a request"),
        },
    }
}

/// Kept connections, with requests under way on them.
pub(super) trait Connections {
    /// How many requests are under way at most in a closed loop.
    fn most(&self) -> usize;

    /// How many requests are under way.
    fn under_way(&self) -> usize;

    /// Sends request `sequence`.
    fn send(&mut self, sequence: u32) -> Result<()>;

    /// Waits until something can be done, and does it; false when the time came first.
    fn take_answers(&mut self, until: u64, exchanges: &mut Exchanges) -> Result<bool>;
}

/// As [`run`], over connections.
pub(super) fn run_over<C: Connections>(
    connections: &mut C,
    count: u32,
    arrivals: &Arrivals,
    timeout: Duration,
) -> Result<Exchanges> {
    let mut exchanges = Exchanges::new(count as usize, timeout);
    let timeout = timeout.as_nanos() as u64;
    match arrivals {
        Arrivals::WhenAnswered => {
            let mut next = 0;
            while next < count || connections.under_way() > 0 {
                while next < count && connections.under_way() < connections.most() {
                    let sent = monotonic_ns();
                    exchanges.sent(sent, sent, 0);
                    connections.send(next)?;
                    next += 1;
                }
                if !connections.take_answers(monotonic_ns() + timeout, &mut exchanges)? {
                    break;
                }
            }
        }
        Arrivals::Open(law) => {
            let schedule = law.schedule(count);
            let start = monotonic_ns();
            for (sequence, due) in (0..).zip(schedule) {
                let due = start + due;
                while connections.take_answers(due, &mut exchanges)? {}
                let sent = monotonic_ns();
                exchanges.sent(due.min(sent), sent, 0);
                connections.send(sequence)?;
            }
            let end = monotonic_ns() + timeout;
            while connections.under_way() > 0 && connections.take_answers(end, &mut exchanges)? {}
        }
    }
    Ok(exchanges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_law_has_even_gaps() {
        let law = Law::Every(Duration::from_micros(5));
        assert_eq!(law.schedule(4), [0, 5_000, 10_000, 15_000]);
    }

    #[test]
    fn a_poisson_law_has_its_mean_and_repeats_by_its_seed() {
        let law = |seed| Law::Poisson {
            mean: Duration::from_millis(1),
            seed,
        };
        let due = law(1).schedule(10_000);
        assert!(due.is_sorted());
        assert!((due[9_999] as f64 / 1e10 - 1.0).abs() < 0.05);
        assert_eq!(due, law(1).schedule(10_000));
        assert_ne!(due, law(2).schedule(10_000));
    }
}
