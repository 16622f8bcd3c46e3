//! UDP one way: what arrives, when, in which order.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{Shutdown, shutdown};

use super::engine::Law;
use super::udp::{pattern, read_sequence, receive, write_sequence};
use super::{Flow, socket};
use crate::lab::busy::monotonic_ns;
use crate::lab::topology::{Namespace, join};

/// A sender of numbered datagrams that expects no answer.
#[derive(Debug, Clone)]
pub struct UdpStream {
    /// Between which addresses.
    pub flow: Flow,
    /// Number of datagrams.
    pub count: u32,
    /// Bytes of payload, 4..=65,507.
    pub size: usize,
    /// When they are sent.
    pub law: Law,
}

impl UdpStream {
    /// Sends all from the calling thread's namespace; returns when each was sent (CLOCK_MONOTONIC, ns), `None` for one
    /// that the network refused.
    pub fn run(&self) -> Result<Vec<Option<u64>>> {
        socket::exact_timers()?;
        let socket = socket::udp_client(&self.flow)?;
        let mut message = pattern(self.size.max(4));
        let schedule = self.law.schedule(self.count);
        let start = monotonic_ns();
        let mut sent = Vec::with_capacity(schedule.len());
        for (sequence, due) in (0..).zip(schedule) {
            sleep_until(start + due);
            write_sequence(&mut message, sequence);
            let now = monotonic_ns();
            sent.push(socket.send_to(&message, self.flow.target).is_ok().then_some(now));
        }
        Ok(sent)
    }
}

fn sleep_until(time_ns: u64) {
    let now = monotonic_ns();
    if time_ns > now {
        thread::sleep(Duration::from_nanos(time_ns - now));
    }
}

/// A datagram that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its number.
    pub sequence: u32,
    /// When it was received (CLOCK_MONOTONIC, ns).
    pub received_ns: u64,
    /// Bytes of payload.
    pub length: usize,
    /// Where it came from.
    pub from: SocketAddr,
}

/// A server that notes every datagram and answers none.
pub struct UdpSink {
    socket: Arc<UdpSocket>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Arrival>>>>,
}

impl UdpSink {
    /// Starts it in the namespace.
    pub fn start(namespace: &Namespace, address: SocketAddr) -> Result<Self> {
        let socket = Arc::new(namespace.enter(|| socket::udp_server(address))?);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (socket, stop) = (socket.clone(), stop.clone());
            namespace.spawn("udp-sink", move || take(&socket, &stop))?
        };
        Ok(Self {
            socket,
            stop,
            thread: Some(thread),
        })
    }

    /// Ends it; what arrived, in the order it did.
    pub fn stop(mut self) -> Result<Vec<Arrival>> {
        self.end().unwrap_or(Ok(Vec::new()))
    }

    fn end(&mut self) -> Option<Result<Vec<Arrival>>> {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the receiver. The socket is not connected, hence the error, which means nothing.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        self.thread.take().map(|thread| join(thread.join()))
    }
}

impl Drop for UdpSink {
    fn drop(&mut self) {
        self.end();
    }
}

fn take(socket: &UdpSocket, stop: &AtomicBool) -> Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    let mut buffer = vec![0; 65_536];
    while !stop.load(Ordering::SeqCst) {
        let received = receive(socket, &mut buffer).context("the UDP sink cannot receive")?;
        let received_ns = monotonic_ns();
        let Some((length, from)) = received else { continue };
        if let Some(sequence) = read_sequence(&buffer[..length], u32::MAX) {
            arrivals.push(Arrival {
                sequence,
                received_ns,
                length,
                from,
            });
        }
    }
    Ok(arrivals)
}

/// What became of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OneWay {
    /// Datagrams that the sender's kernel took.
    pub sent: u64,
    /// Different datagrams that arrived.
    pub received: u64,
    /// Sent and never arrived.
    pub lost: u64,
    /// Arrivals of a datagram that had arrived before.
    pub duplicates: u64,
    /// Arrivals with a lower number than one before them: reordered by RFC 4737, section 3.3.
    pub reordered: u64,
    /// From sending to the first arrival, in ns, in the order of arrival.
    pub delays_ns: Vec<u64>,
}

impl OneWay {
    /// Compares what was sent with what arrived.
    pub fn new(sent: &[Option<u64>], arrivals: &[Arrival]) -> Self {
        let mut first = BTreeMap::new();
        let mut result = Self {
            sent: sent.iter().flatten().count() as u64,
            ..Self::default()
        };
        let mut highest = None;
        for arrival in arrivals {
            let Some(Some(sent_ns)) = sent.get(arrival.sequence as usize) else {
                continue;
            };
            if first.insert(arrival.sequence, ()).is_some() {
                result.duplicates += 1;
                continue;
            }
            result.reordered += u64::from(highest.is_some_and(|highest| arrival.sequence < highest));
            highest = highest.max(Some(arrival.sequence));
            result.delays_ns.push(arrival.received_ns - sent_ns);
        }
        result.received = first.len() as u64;
        result.lost = result.sent - result.received;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(sequence: u32, received_ns: u64) -> Arrival {
        Arrival {
            sequence,
            received_ns,
            length: 4,
            from: SocketAddr::from(([10, 0, 0, 1], 1)),
        }
    }

    #[test]
    fn loss_duplicates_and_reordering_are_told_apart() {
        let sent: Vec<_> = (0..6).map(|index| Some(index * 10)).collect();
        // 1 comes after 2 (reordered), 3 twice, 4 never.
        let arrivals = [(0, 100), (2, 101), (1, 102), (3, 103), (3, 104), (5, 105)].map(|(s, t)| arrival(s, t));
        let result = OneWay::new(&sent, &arrivals);
        let expected = OneWay {
            sent: 6,
            received: 5,
            lost: 1,
            duplicates: 1,
            reordered: 1,
            delays_ns: vec![100, 81, 92, 73, 55],
        };
        assert_eq!(result, expected);
    }

    #[test]
    fn what_the_sender_could_not_send_is_not_lost_on_the_way() {
        let result = OneWay::new(&[Some(1), None, Some(3)], &[arrival(0, 5), arrival(2, 6)]);
        assert_eq!((result.sent, result.received, result.lost), (2, 2, 0));
    }

    #[test]
    fn a_number_that_was_never_sent_is_a_stranger() {
        assert_eq!(OneWay::new(&[Some(1)], &[arrival(0, 5), arrival(9, 6)]).received, 1);
    }
}
