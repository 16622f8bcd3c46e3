//! The algorithm itself: the C files of `core/`, called from Rust.

use crate::skeleton::core::{pace, pace_decision, pace_parameters, pace_sample, pace_socket};

/// The bits behind the point of a rate.
const RATE_BITS: u32 = 24;

// SAFETY: core.c defines these. They use nothing but what the pointers point to, and keep no pointer.
unsafe extern "C" {
    safe fn tarn_pace_begin(
        pace: &mut pace,
        parameters: &pace_parameters,
        socket: &pace_socket,
        decision: &mut pace_decision,
    );
    safe fn tarn_pace_acknowledged(
        pace: &mut pace,
        parameters: &pace_parameters,
        socket: &pace_socket,
        sample: &pace_sample,
        decision: &mut pace_decision,
    );
    safe fn tarn_pace_acknowledged_whole(
        pace: &mut pace,
        parameters: &pace_parameters,
        socket: &pace_socket,
        sample: &pace_sample,
        decision: &mut pace_decision,
    );
    safe fn tarn_pace_is_same(one: &pace, other: &pace) -> i32;
    safe fn tarn_pace_recovers(pace: &mut pace, socket: &pace_socket);
    safe fn tarn_pace_undoes(pace: &mut pace);
    safe fn tarn_pace_enters(pace: &mut pace, ca_state: u32);
    safe fn tarn_pace_restarts(pace: &mut pace, socket: &pace_socket, decision: &mut pace_decision) -> i32;
    safe fn tarn_pace_burst(socket: &pace_socket, pacing: u64) -> u32;
    safe fn tarn_pace_state(pace: &pace) -> u32;
    safe fn tarn_pace_full(pace: &pace) -> u32;
    safe fn tarn_pace_conserves(pace: &pace) -> u32;
    safe fn tarn_pace_packets(pace: &pace, gain: u32) -> u32;
}

/// The kernel's states of a connection's congestion control (`enum tcp_ca_state`), as far as the simulator has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaState {
    Open = 0,
    Recovery = 3,
    Loss = 4,
}

/// Where a connection is (`enum pace_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Startup,
    Drain,
    Probe,
    Response,
    ProbeRtt,
}

/// A connection as the algorithm knows it.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pace: pace,
    parameters: pace_parameters,
}

impl Connection {
    /// The connection begins.
    pub(crate) fn begin(parameters: pace_parameters, socket: &pace_socket) -> (Self, pace_decision) {
        let mut connection = Self {
            pace: pace::default(),
            parameters,
        };
        let mut decision = pace_decision::default();
        tarn_pace_begin(&mut connection.pace, &parameters, socket, &mut decision);
        (connection, decision)
    }

    /// An acknowledgement.
    pub(crate) fn acknowledged(&mut self, socket: &pace_socket, sample: &pace_sample) -> pace_decision {
        let mut decision = pace_decision::default();
        tarn_pace_acknowledged(&mut self.pace, &self.parameters, socket, sample, &mut decision);
        decision
    }

    /// The same for who reads all of the socket each time.
    #[cfg(test)]
    pub(crate) fn acknowledged_whole(&mut self, socket: &pace_socket, sample: &pace_sample) -> pace_decision {
        let mut decision = pace_decision::default();
        tarn_pace_acknowledged_whole(&mut self.pace, &self.parameters, socket, sample, &mut decision);
        decision
    }

    /// Whether both know the same.
    #[cfg(test)]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        tarn_pace_is_same(&self.pace, &other.pace) != 0
    }

    /// Recovery, or the state after a timeout, is about to begin.
    pub(crate) fn recovers(&mut self, socket: &pace_socket) {
        tarn_pace_recovers(&mut self.pace, socket);
    }

    /// The losses were none.
    pub(crate) fn undoes(&mut self) {
        tarn_pace_undoes(&mut self.pace);
    }

    /// The kernel's state changes.
    pub(crate) fn enters(&mut self, state: CaState) {
        self.enters_number(state as u32);
    }

    /// The kernel's state changes, to any of its numbers.
    pub(crate) fn enters_number(&mut self, ca_state: u32) {
        tarn_pace_enters(&mut self.pace, ca_state);
    }

    /// The sender has something to send again. Returns the pace in bytes a second if it changes.
    pub(crate) fn restarts(&mut self, socket: &pace_socket) -> Option<u64> {
        let mut decision = pace_decision::default();
        (tarn_pace_restarts(&mut self.pace, socket, &mut decision) != 0).then_some(decision.pacing)
    }

    pub(crate) fn state(&self) -> State {
        match tarn_pace_state(&self.pace) {
            0 => State::Startup,
            1 => State::Drain,
            2 => State::Probe,
            3 => State::Response,
            _ => State::ProbeRtt,
        }
    }

    /// Whether it has found the whole bandwidth once.
    pub(crate) fn is_full(&self) -> bool {
        tarn_pace_full(&self.pace) != 0
    }

    /// Whether it sends as much as is delivered, in the first round trip of a recovery.
    pub(crate) fn conserves(&self) -> bool {
        tarn_pace_conserves(&self.pace) != 0
    }

    /// The estimated rate, packets a second.
    pub(crate) fn estimate(&self) -> f64 {
        f64::from(self.pace.best[0].rate) * 1e6 / f64::from(1_u32 << RATE_BITS)
    }

    /// The smallest round trip lately, us; `None` while none is known.
    pub(crate) fn min_rtt_us(&self) -> Option<u32> {
        (self.pace.min_rtt_us != u32::MAX).then_some(self.pace.min_rtt_us)
    }

    /// What the estimate and the smallest round trip keep on the way, times a gain in parts of 256: packets.
    pub(crate) fn product(&self, gain: u32) -> u32 {
        tarn_pace_packets(&self.pace, gain)
    }

    /// Round trips that have begun.
    pub(crate) fn rounds(&self) -> u32 {
        self.pace.rounds
    }
}

/// The packets that the kernel sends at once at a pace in bytes a second.
pub(crate) fn burst(socket: &pace_socket, pacing: u64) -> u32 {
    tarn_pace_burst(socket, pacing)
}
