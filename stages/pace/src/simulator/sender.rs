//! A sender: what Linux's TCP does between the congestion control and the path, as far as it matters to either.

use crate::skeleton::core::{pace_sample, pace_socket};

use super::View;
use super::classic::Growth;
use super::control::{Acknowledgement, Controller, Limits};
use super::core::CaState;
use super::network::{Control, SECOND, SEGMENT_BYTES, Source};
use super::scoreboard::{Delivered, News, Scoreboard};
use super::timer::Timer;

const INITIAL_WINDOW: u32 = 10;
/// So many segments are sent before pacing begins (Linux: tcp_update_skb_after_send()).
const UNPACED: u64 = 10;

#[derive(Debug)]
pub(super) struct Sender {
    controller: Controller,
    /// The receiver's clock when it sent the last acknowledgement.
    peer_clock: u32,
    limits: Limits,
    board: Scoreboard,
    timer: Timer,
    state: CaState,
    /// The state ends when all before this segment is acknowledged.
    state_ends: u64,
    /// When the pace allows the next segment, ns.
    next_send: u64,
    /// A tail loss probe is to be sent, whatever the window.
    probes: bool,
    /// Segments that the application has written so far.
    written: u64,
    pub(super) sent: u64,
    pub(super) retransmitted: u64,
    pub(super) acked: u64,
}

impl Sender {
    /// A connection whose handshake has just ended, after a round trip of so many ns.
    pub(super) fn new(control: Control, source: Source, now: u64, round_trip: u64) -> Self {
        let mut timer = Timer::new();
        timer.measured(round_trip);
        timer.smallest = round_trip;
        let board = Scoreboard::new();
        let limits = Limits {
            window: INITIAL_WINDOW,
            pacing: Some(0),
        };
        let (controller, limits) = Controller::begin(control, &socket(now, &board, &timer, limits));
        Self {
            peer_clock: 0,
            controller,
            limits,
            board,
            timer,
            state: CaState::Open,
            state_ends: 0,
            next_send: 0,
            probes: false,
            written: if matches!(source, Source::Endless) { u64::MAX } else { 0 },
            sent: 0,
            retransmitted: 0,
            acked: 0,
        }
    }

    /// The application writes more.
    pub(super) fn writes(&mut self, segments: u64) {
        self.written = self.written.saturating_add(segments);
    }

    /// Sends what window and pace allow, each segment by `transmit`. Returns when the pace allows more, ns, if that is what it waits for.
    pub(super) fn send(&mut self, now: u64, mut transmit: impl FnMut(Delivered)) -> Option<u64> {
        loop {
            let room = self
                .limits
                .window
                .saturating_sub(self.board.in_flight())
                .max(u32::from(self.probes));
            if room == 0 {
                return None;
            }
            if !self.board.has_lost() && self.board.next() >= self.written {
                self.board.is_short_of_data();
                return None;
            }
            if self.limits.pacing.is_some() && self.sent >= UNPACED && now < self.next_send {
                return Some(self.next_send);
            }
            if self.board.next() == self.board.first() {
                self.starts(now);
            }
            let burst = self.controller.burst(&self.socket(now)).min(room);
            let sent = self.send_burst(now, burst, &mut transmit);
            self.probes = false;
            self.paces(now, sent);
        }
    }

    /// Nothing is on the way, and it sends.
    fn starts(&mut self, now: u64) {
        self.timer.restart(now);
        if self.board.app_limited()
            && let Some(pacing) = self.controller.restarts(&self.socket(now))
        {
            self.limits.pacing = Some(pacing);
        }
    }

    fn send_burst(&mut self, now: u64, most: u32, transmit: &mut impl FnMut(Delivered)) -> u64 {
        let mut sent = 0;
        for _ in 0..most {
            let segment = match self.board.send_lost(now) {
                Some(segment) => {
                    self.retransmitted += 1;
                    segment
                }
                None if self.board.next() < self.written => self.board.send_new(now),
                None => break,
            };
            transmit(segment);
            self.controller.sent();
            sent += 1;
        }
        self.sent += sent;
        sent
    }

    /// When the next burst may go. A timer that was late is made up for, up to half of the pause (tcp_update_skb_after_send()).
    fn paces(&mut self, now: u64, sent: u64) {
        let Some(pacing) = self.limits.pacing.filter(|pacing| *pacing > 0 && self.sent >= UNPACED) else {
            return;
        };
        let pause = (u128::from(sent * SEGMENT_BYTES * SECOND) / u128::from(pacing)) as u64;
        let late = now.saturating_sub(self.next_send);
        self.next_send = self.next_send.max(now) + pause - late.min(pause / 2);
    }

    /// An acknowledgement of these transmissions.
    pub(super) fn acknowledged(&mut self, now: u64, peer_clock: u32, arrived: impl Iterator<Item = Delivered>) -> u32 {
        self.peer_clock = peer_clock;
        let prior_in_flight = self.board.in_flight();
        let was_first = self.board.first();
        let news = self.board.acknowledge(now, arrived);
        self.acked += u64::from(news.acked);
        self.measures(&news, self.board.first() > was_first);
        self.changes_state(now, &news);
        self.restarts_timer(now, &news);
        let sample = self.sample(now, &news, prior_in_flight);
        let growth = Growth {
            now,
            acked: news.acked,
            round_trip: news.last_round_trip,
            min_round_trip: self.timer.smallest,
            first: self.board.first(),
            next: self.board.next(),
        };
        let ack = Acknowledgement {
            socket: self.socket(now),
            sample,
            growth,
            state: self.state,
        };
        self.limits = self.controller.acknowledged(&ack);
        news.acked
    }

    fn measures(&mut self, news: &News, advances: bool) {
        if let Some(round_trip) = news.first_round_trip {
            self.timer.measured(round_trip);
        }
        if let Some(round_trip) = news.last_round_trip {
            self.timer.smallest = self.timer.smallest.min(round_trip);
        }
        if advances {
            self.timer.delivered();
        }
    }

    fn restarts_timer(&mut self, now: u64, news: &News) {
        if self.board.first() == self.board.next() {
            self.timer.due = None;
        } else if news.acked > 0 && self.state == CaState::Open {
            self.timer.restart_with_probe(now, self.board.in_flight());
        } else if news.acked > 0 {
            self.timer.restart(now);
        }
    }

    fn changes_state(&mut self, now: u64, news: &News) {
        if self.state == CaState::Loss && news.timeout_was_early {
            self.board.undo_timeout();
            self.controller.undoes();
            self.enters(now, CaState::Open);
        }
        if self.state != CaState::Open && self.board.first() >= self.state_ends {
            self.enters(now, CaState::Open);
        }
        let begins = match self.state {
            CaState::Open => self.board.has_lost(),
            CaState::Loss => news.lost_again,
            CaState::Recovery => false,
        };
        if begins {
            self.enters(now, CaState::Recovery);
        }
    }

    fn enters(&mut self, now: u64, state: CaState) {
        let from = std::mem::replace(&mut self.state, state);
        if state != CaState::Open {
            self.state_ends = self.board.next();
        }
        if let Some(window) = self.controller.enters(from, state, &self.socket(now)) {
            self.limits.window = window;
        }
    }

    /// As tcp_rate_gen() of the kernel computes it.
    fn sample(&self, now: u64, news: &News, prior_in_flight: u32) -> pace_sample {
        let mut sample = pace_sample {
            delivered: -1,
            interval_us: -1,
            rtt_us: news.last_round_trip.map_or(-1, |round_trip| (round_trip / 1000) as i64),
            prior_in_flight,
            losses: news.losses as i32,
            acked: news.acked,
            ..pace_sample::default()
        };
        if let Some(rate) = news.rate {
            sample.prior_delivered = rate.prior_delivered;
            sample.app_limited = u8::from(rate.app_limited);
            sample.delivered = self.board.delivered.wrapping_sub(rate.prior_delivered) as i32;
            let interval = rate.send_phase.max(now - rate.prior_at);
            // In less than a round trip nothing can have been sent and acknowledged: the sample is void.
            sample.interval_us = if interval < self.timer.smallest {
                -1
            } else {
                (interval / 1000) as i64
            };
            // A single segment, all that was in flight: the receiver may have waited for a second one.
            sample.ack_delayed = u8::from(news.acked == 1 && sample.delivered == 1 && news.losses == 0);
        }
        sample
    }

    /// When the timer expires, ns, if it runs.
    pub(super) fn timeout_due(&self) -> Option<u64> {
        self.timer.due
    }

    /// The timer has expired.
    pub(super) fn times_out(&mut self, now: u64) {
        if self.timer.probes {
            self.probes = true;
            self.timer.restart(now);
            return;
        }
        self.probes = false;
        self.board.time_out();
        self.timer.expired();
        self.timer.restart(now);
        self.enters(now, CaState::Loss);
    }

    fn socket(&self, now: u64) -> pace_socket {
        pace_socket {
            peer_ms: self.peer_clock,
            ..socket(now, &self.board, &self.timer, self.limits)
        }
    }

    /// How it stands, for who watches.
    pub(super) fn view(&self) -> View<'_> {
        View {
            connection: self.controller.connection(),
            window: self.limits.window,
            pacing: self.limits.pacing.unwrap_or(0),
        }
    }
}

/// What the kernel's socket would say of itself.
fn socket(now: u64, board: &Scoreboard, timer: &Timer, limits: Limits) -> pace_socket {
    pace_socket {
        now_us: now / 1000,
        in_flight: board.in_flight(),
        window: limits.window,
        window_most: u32::MAX,
        delivered: board.delivered,
        lost: board.lost,
        srtt_us: timer.smoothed_us(),
        mss: SEGMENT_BYTES as u32,
        pacing: limits.pacing.unwrap_or(0),
        pacing_most: u64::MAX,
        ..pace_socket::default()
    }
}
