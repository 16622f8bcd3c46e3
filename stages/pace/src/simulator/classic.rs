//! CUBIC (RFC 9438) and Reno (RFC 5681): the controls that most others on the Internet use.
//!
//! With proportional rate reduction in recovery (RFC 6937). CUBIC leaves slow start by HyStart's delay condition (RFC 9406, 4.2,
//! with Linux's bounds of 4 and 16 ms); its condition on trains of acknowledgements, which pacing and offloads defeat, is left out.

use super::network::{MS, SECOND};

/// RFC 9438, 4.1.3 and 4.6.
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
const RENO_BETA: f64 = 0.5;
/// HyStart looks at the smallest of so many round trips at the beginning of a round, from that window on.
const HYSTART_SAMPLES: u32 = 8;
const HYSTART_WINDOW: f64 = 16.0;

/// An acknowledgement while nothing is lost, or after a timeout. Times in ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    pub(super) now: u64,
    pub(super) acked: u32,
    pub(super) round_trip: Option<u64>,
    pub(super) min_round_trip: u64,
    /// The first segment not acknowledged, and the next new one.
    pub(super) first: u64,
    pub(super) next: u64,
}

#[derive(Debug)]
pub(super) struct Classic {
    is_cubic: bool,
    /// Segments.
    window: f64,
    threshold: f64,
    cubic: Cubic,
    hystart: HyStart,
    reduction: Reduction,
}

/// Of RFC 9438: the window before the last reduction, the time from a reduction to it, and what Reno would have. Segments, seconds.
#[derive(Debug, Default)]
struct Cubic {
    before: f64,
    begun: Option<u64>,
    back_after: f64,
    reno: f64,
}

/// The smallest round trip of this round's first, ns, and the segment that ends the round.
#[derive(Debug, Default)]
struct HyStart {
    round_end: u64,
    samples: u32,
    smallest: u64,
}

/// Proportional rate reduction: segments delivered and sent in this recovery, and what was in flight when it began.
#[derive(Debug, Default)]
struct Reduction {
    delivered: u32,
    sent: u32,
    in_flight: u32,
}

impl Classic {
    pub(super) fn new(is_cubic: bool, window: u32) -> Self {
        Self {
            is_cubic,
            window: f64::from(window),
            threshold: f64::INFINITY,
            cubic: Cubic::default(),
            hystart: HyStart::default(),
            reduction: Reduction::default(),
        }
    }

    /// Nothing is lost: the window grows. Returns it.
    pub(super) fn grows(&mut self, ack: Growth) -> u32 {
        if self.window < self.threshold {
            self.window += f64::from(ack.acked);
            if self.is_cubic && self.hystart.has_enough(&ack, self.window) {
                self.threshold = self.window;
            }
        } else if self.is_cubic {
            self.window += self.cubic.growth(self.window, &ack);
        } else {
            self.window += f64::from(ack.acked) / self.window;
        }
        self.window as u32
    }

    /// Segments are lost, and recovery begins.
    pub(super) fn reduces(&mut self, in_flight: u32) {
        let beta = if self.is_cubic { CUBIC_BETA } else { RENO_BETA };
        // Fast convergence (RFC 9438, 4.7): a window that did not come back leaves more to others.
        let shrinks = self.window < self.cubic.before;
        self.cubic.before = if shrinks {
            self.window * (1.0 + CUBIC_BETA) / 2.0
        } else {
            self.window
        };
        self.cubic.begun = None;
        self.threshold = (self.window * beta).max(2.0);
        self.reduction = Reduction {
            in_flight: in_flight.max(1),
            ..Reduction::default()
        };
    }

    /// An acknowledgement in recovery. Returns the window.
    pub(super) fn recovers(&mut self, acked: u32, in_flight: u32) -> u32 {
        let threshold = self.threshold as u32;
        self.reduction.delivered += acked;
        let room = if in_flight > threshold {
            let share = f64::from(self.reduction.delivered) * self.threshold / f64::from(self.reduction.in_flight);
            (share.ceil() as u32).saturating_sub(self.reduction.sent)
        } else {
            let delivered = self.reduction.delivered.saturating_sub(self.reduction.sent);
            (threshold - in_flight).min(delivered.max(acked) + 1)
        };
        in_flight + room.max(u32::from(self.reduction.sent == 0))
    }

    /// A segment was sent.
    pub(super) fn sent(&mut self) {
        self.reduction.sent += 1;
    }

    /// Recovery is over. Returns the window.
    pub(super) fn recovered(&mut self) -> u32 {
        self.window = self.threshold;
        self.window as u32
    }

    /// The timer has expired. Returns the window.
    pub(super) fn times_out(&mut self) -> u32 {
        self.window = 1.0;
        1
    }
}

impl Cubic {
    /// How much the window grows in congestion avoidance, segments.
    fn growth(&mut self, window: f64, ack: &Growth) -> f64 {
        let acked = f64::from(ack.acked);
        let begun = *self.begun.get_or_insert_with(|| {
            self.back_after = ((self.before - window).max(0.0) / CUBIC_C).cbrt();
            self.before = self.before.max(window);
            self.reno = window;
            ack.now
        });
        let elapsed = (ack.now - begun + ack.min_round_trip) as f64 / SECOND as f64;
        let aim = (self.before + CUBIC_C * (elapsed - self.back_after).powi(3)).clamp(window, 1.5 * window);
        // What Reno with the same reduction would have grown to (4.3).
        self.reno += acked * 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA) / window;
        (acked * (aim - window).max(0.01) / window).max(self.reno - window)
    }
}

impl HyStart {
    /// Whether the round trip has grown so much in this round that the queue has begun to fill.
    fn has_enough(&mut self, ack: &Growth, window: f64) -> bool {
        if ack.first >= self.round_end {
            *self = Self {
                round_end: ack.next,
                samples: 0,
                smallest: u64::MAX,
            };
        }
        let Some(round_trip) = ack.round_trip.filter(|_| window >= HYSTART_WINDOW) else {
            return false;
        };
        if self.samples < HYSTART_SAMPLES {
            self.samples += 1;
            self.smallest = self.smallest.min(round_trip);
            return false;
        }
        self.smallest > ack.min_round_trip + (ack.min_round_trip / 8).clamp(4 * MS, 16 * MS)
    }
}
