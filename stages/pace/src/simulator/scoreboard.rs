//! What a sender knows of its segments: which are on the way, delivered or lost, and what each says of the rate.
//!
//! The path keeps the order, so an acknowledgement of a transmission means that the earlier ones still missing are lost. That is what
//! RACK (RFC 8985) concludes without its allowance for reordering. Each transmission is looked at once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A transmission of a segment that has reached the receiver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivered {
    pub(super) sequence: u64,
    pub(super) transmission: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    OnTheWay,
    Arrived,
    Lost,
}

/// A segment, and the state of the connection when it was sent last (as the kernel's `struct tcp_skb_cb`). Times in ns.
#[derive(Debug, Clone, Copy)]
struct Segment {
    place: Place,
    transmission: u64,
    sent: u64,
    /// Packets delivered until then, when the last was, and when the phase of sending had begun that ended then.
    delivered: u32,
    delivered_at: u64,
    first_sent: u64,
    app_limited: bool,
    retransmitted: bool,
    /// A timeout has declared it lost, and it was not sent since.
    timed_out: bool,
}

/// What an acknowledgement tells. Times in ns.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Segments delivered, and found lost.
    pub(super) acked: u32,
    pub(super) losses: u32,
    /// A retransmission was lost.
    pub(super) lost_again: bool,
    /// A segment has arrived that a timeout had declared lost.
    pub(super) timeout_was_early: bool,
    /// Round trips of the first and the last segment that it acknowledges, unless they were retransmitted.
    pub(super) first_round_trip: Option<u64>,
    pub(super) last_round_trip: Option<u64>,
    pub(super) rate: Option<RateSample>,
}

/// The latest sent of the segments acknowledged: what was when it was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateSample {
    pub(super) prior_delivered: u32,
    /// When the last packet before it was delivered, ns.
    pub(super) prior_at: u64,
    /// How long the packets of the sample took to be sent, ns.
    pub(super) send_phase: u64,
    pub(super) app_limited: bool,
}

#[derive(Debug)]
pub(super) struct Scoreboard {
    /// From the first that has not been acknowledged in order.
    segments: VecDeque<Segment>,
    first: u64,
    /// The segments of the transmissions that nothing is known of yet, in the order of sending.
    transmissions: VecDeque<u64>,
    first_transmission: u64,
    /// Lost, the first of all first; some have arrived since.
    lost_first: BinaryHeap<Reverse<u64>>,
    lost_now: u32,
    on_the_way: u32,
    /// Segments delivered and lost since the beginning; both wrap, as the kernel's do.
    pub(super) delivered: u32,
    pub(super) lost: u32,
    delivered_at: u64,
    first_sent: u64,
    /// What is sent is little for want of data until so much is delivered.
    app_limited_until: Option<u32>,
}

impl Scoreboard {
    /// That of a new connection. As in the kernel, the handshake counts as one delivery.
    pub(super) fn new() -> Self {
        Self {
            segments: VecDeque::new(),
            first: 0,
            transmissions: VecDeque::new(),
            first_transmission: 0,
            lost_first: BinaryHeap::new(),
            lost_now: 0,
            on_the_way: 0,
            delivered: 1,
            lost: 0,
            delivered_at: 0,
            first_sent: 0,
            app_limited_until: None,
        }
    }

    /// Segments sent and neither delivered nor lost.
    pub(super) fn in_flight(&self) -> u32 {
        self.on_the_way
    }

    /// The first segment that is not acknowledged in order.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The next new segment.
    pub(super) fn next(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// Whether segments wait to be sent again.
    pub(super) fn has_lost(&self) -> bool {
        self.lost_now > 0
    }

    /// There is nothing to send although there would be room.
    pub(super) fn is_short_of_data(&mut self) {
        self.app_limited_until = Some(self.delivered.wrapping_add(self.on_the_way));
    }

    pub(super) fn app_limited(&self) -> bool {
        self.app_limited_until.is_some()
    }

    /// Sends a new segment; returns it and its transmission.
    pub(super) fn send_new(&mut self, now: u64) -> Delivered {
        if self.segments.is_empty() {
            self.first_sent = now;
            self.delivered_at = now;
        }
        let sequence = self.next();
        let segment = self.sent(now, false);
        self.segments.push_back(segment);
        self.transmitted(sequence)
    }

    /// Sends the first lost segment again.
    pub(super) fn send_lost(&mut self, now: u64) -> Option<Delivered> {
        while let Some(Reverse(sequence)) = self.lost_first.pop() {
            let Some(index) = self.index(sequence) else { continue };
            if self.segments[index].place == Place::Lost {
                self.segments[index] = self.sent(now, true);
                self.lost_now -= 1;
                return Some(self.transmitted(sequence));
            }
        }
        None
    }

    /// A segment that is sent now.
    fn sent(&self, now: u64, retransmitted: bool) -> Segment {
        Segment {
            place: Place::OnTheWay,
            transmission: self.first_transmission + self.transmissions.len() as u64,
            sent: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            app_limited: self.app_limited(),
            retransmitted,
            timed_out: false,
        }
    }

    fn transmitted(&mut self, sequence: u64) -> Delivered {
        self.on_the_way += 1;
        self.transmissions.push_back(sequence);
        let transmission = self.first_transmission + self.transmissions.len() as u64 - 1;
        Delivered { sequence, transmission }
    }

    fn index(&self, sequence: u64) -> Option<usize> {
        let index = sequence.checked_sub(self.first)? as usize;
        (index < self.segments.len()).then_some(index)
    }

    /// Takes an acknowledgement of these transmissions into account, in the order in which they arrived.
    pub(super) fn acknowledge(&mut self, now: u64, arrived: impl Iterator<Item = Delivered>) -> News {
        let mut news = News::default();
        let mut latest = None;
        for delivered in arrived {
            self.find_lost(delivered.transmission, &mut news);
            self.arrives(now, delivered, &mut latest, &mut news);
        }
        while self
            .segments
            .front()
            .is_some_and(|segment| segment.place == Place::Arrived)
        {
            self.segments.pop_front();
            self.first += 1;
        }
        if self
            .app_limited_until
            .is_some_and(|until| self.delivered.wrapping_sub(until) as i32 > 0)
        {
            self.app_limited_until = None;
        }
        if news.acked > 0 {
            self.delivered_at = now;
        }
        news
    }

    /// What was sent before this transmission, and has not arrived, is lost.
    fn find_lost(&mut self, transmission: u64, news: &mut News) {
        while self.first_transmission <= transmission {
            let Some(sequence) = self.transmissions.pop_front() else {
                return;
            };
            let number = self.first_transmission;
            self.first_transmission += 1;
            let Some(index) = self.index(sequence).filter(|_| number < transmission) else {
                continue;
            };
            let segment = &mut self.segments[index];
            if segment.place == Place::OnTheWay && segment.transmission == number {
                segment.place = Place::Lost;
                news.lost_again |= segment.retransmitted;
                news.losses += 1;
                self.lost_first.push(Reverse(sequence));
                self.lost_now += 1;
                self.on_the_way -= 1;
                self.lost = self.lost.wrapping_add(1);
            }
        }
    }

    fn arrives(&mut self, now: u64, delivered: Delivered, latest: &mut Option<(u64, u64)>, news: &mut News) {
        let Some(index) = self.index(delivered.sequence) else {
            return;
        };
        let segment = self.segments[index];
        match segment.place {
            Place::Arrived => return,
            Place::OnTheWay => self.on_the_way -= 1,
            Place::Lost => self.lost_now -= 1,
        }
        self.segments[index].place = Place::Arrived;
        self.delivered = self.delivered.wrapping_add(1);
        news.acked += 1;
        // An earlier transmission than the last: what was sent last was not needed.
        news.timeout_was_early |= segment.timed_out || segment.transmission != delivered.transmission;
        if !segment.retransmitted {
            let round_trip = now - segment.sent;
            news.first_round_trip.get_or_insert(round_trip);
            news.last_round_trip = Some(round_trip);
        }
        if latest.is_none_or(|latest| (segment.sent, delivered.sequence) > latest) {
            *latest = Some((segment.sent, delivered.sequence));
            self.first_sent = segment.sent;
            news.rate = Some(RateSample {
                prior_delivered: segment.delivered,
                prior_at: segment.delivered_at,
                send_phase: segment.sent - segment.first_sent,
                app_limited: segment.app_limited,
            });
        }
    }

    /// The timer has expired: all that is on the way counts as lost. Returns how many these are.
    pub(super) fn time_out(&mut self) -> u32 {
        let before = self.lost_now;
        for (segment, sequence) in self.segments.iter_mut().zip(self.first..) {
            if segment.place == Place::OnTheWay {
                segment.place = Place::Lost;
                segment.timed_out = true;
                self.lost_first.push(Reverse(sequence));
                self.lost_now += 1;
            }
        }
        self.on_the_way = 0;
        let losses = self.lost_now - before;
        self.lost = self.lost.wrapping_add(losses);
        losses
    }

    /// The timer had expired too early: what it declared lost, and was not sent again, is on the way.
    pub(super) fn undo_timeout(&mut self) {
        for segment in &mut self.segments {
            if segment.timed_out && segment.place == Place::Lost && segment.transmission >= self.first_transmission {
                segment.place = Place::OnTheWay;
                segment.timed_out = false;
                self.lost_now -= 1;
                self.on_the_way += 1;
            }
        }
    }
}
