//! A sender's congestion control: ours or a classic one.

use crate::skeleton::core::{pace_sample, pace_socket};

use super::classic::{Classic, Growth};
use super::core::{CaState, Connection, burst};
use super::network::Control;

/// The state of a flow's congestion control.
#[derive(Debug)]
pub(super) enum Controller {
    Pace(Connection),
    Classic(Classic),
}

/// What a congestion control sets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Segments in flight.
    pub(super) window: u32,
    /// Bytes a second; `None`: it does not pace.
    pub(super) pacing: Option<u64>,
}

/// An acknowledgement, for either kind of control.
#[derive(Debug)]
pub(super) struct Acknowledgement {
    pub(super) socket: pace_socket,
    pub(super) sample: pace_sample,
    pub(super) growth: Growth,
    pub(super) state: CaState,
}

impl Controller {
    /// The connection begins, with the first window in `socket`.
    pub(super) fn begin(control: Control, socket: &pace_socket) -> (Self, Limits) {
        match control {
            Control::Pace(parameters) => {
                let (connection, decision) = Connection::begin(parameters, socket);
                (
                    Self::Pace(connection),
                    Limits {
                        window: decision.window,
                        pacing: Some(decision.pacing),
                    },
                )
            }
            Control::Cubic | Control::Reno => {
                let classic = Classic::new(matches!(control, Control::Cubic), socket.window);
                (
                    Self::Classic(classic),
                    Limits {
                        window: socket.window,
                        pacing: None,
                    },
                )
            }
        }
    }

    pub(super) fn acknowledged(&mut self, ack: &Acknowledgement) -> Limits {
        match self {
            Self::Pace(connection) => {
                let decision = connection.acknowledged(&ack.socket, &ack.sample);
                Limits {
                    window: decision.window,
                    pacing: Some(decision.pacing),
                }
            }
            Self::Classic(classic) => {
                let window = match ack.state {
                    CaState::Recovery => classic.recovers(ack.sample.acked, ack.socket.in_flight),
                    CaState::Open | CaState::Loss => classic.grows(ack.growth),
                };
                Limits { window, pacing: None }
            }
        }
    }

    /// The kernel's state changes. Returns the window if that changes it.
    pub(super) fn enters(&mut self, from: CaState, to: CaState, socket: &pace_socket) -> Option<u32> {
        match self {
            Self::Pace(connection) => {
                if to != CaState::Open && from != to {
                    connection.recovers(socket);
                }
                connection.enters(to);
                // The kernel's own: all is lost, and one segment tries again (tcp_enter_loss()).
                (to == CaState::Loss).then_some(socket.in_flight + 1)
            }
            Self::Classic(classic) => match (from, to) {
                (CaState::Recovery, CaState::Open) => Some(classic.recovered()),
                (_, CaState::Open) => None,
                (_, CaState::Recovery) => {
                    classic.reduces(socket.in_flight);
                    None
                }
                (_, CaState::Loss) => {
                    if from == CaState::Open {
                        classic.reduces(socket.in_flight);
                    }
                    Some(classic.times_out())
                }
            },
        }
    }

    /// A timeout was too early.
    pub(super) fn undoes(&mut self) {
        if let Self::Pace(connection) = self {
            connection.undoes();
        }
    }

    /// It sends again after a pause for want of data. Returns the pace if that changes it.
    pub(super) fn restarts(&mut self, socket: &pace_socket) -> Option<u64> {
        match self {
            Self::Pace(connection) => connection.restarts(socket),
            Self::Classic(_) => None,
        }
    }

    /// Segments that are sent at once.
    pub(super) fn burst(&self, socket: &pace_socket) -> u32 {
        match self {
            Self::Pace(_) => burst(socket, socket.pacing),
            Self::Classic(_) => 1,
        }
    }

    /// A segment was sent.
    pub(super) fn sent(&mut self) {
        if let Self::Classic(classic) = self {
            classic.sent();
        }
    }

    /// Ours.
    pub(super) fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Pace(connection) => Some(connection),
            Self::Classic(_) => None,
        }
    }
}
