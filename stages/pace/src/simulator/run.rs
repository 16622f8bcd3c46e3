//! The run of a network: takes one event after the other.

use std::collections::VecDeque;

use super::Observer;
use super::bottleneck::{Bottleneck, Fate, Load, Packet};
use super::core::{Connection, State};
use super::course::Rate;
use super::events::{Event, Events};
use super::network::{ACKNOWLEDGEMENT_BYTES, MS, Network, PACKET_BYTES, SECOND, Source};
use super::outcome::{Meter, Outcome, PING_BYTES, PING_EVERY};
use super::receiver::{Answer, Receiver};
use super::scoreboard::Delivered;
use super::sender::Sender;

/// A flow: its two ends and what is on the way back.
#[derive(Debug, Default)]
struct Flow {
    /// `None` until it begins.
    sender: Option<Sender>,
    receiver: Receiver,
    returning: VecDeque<Delivered>,
    /// Whether an event is to come for the pace, and when one for the timeout, ns.
    pace_pending: bool,
    timeout_pending: Option<u64>,
    responds: bool,
}

/// A network that runs.
pub(super) struct Run<'a, O> {
    network: &'a Network,
    observer: &'a mut O,
    now: u64,
    events: Events,
    rate: Rate,
    bottleneck: Bottleneck,
    /// When the way back has sent all that waits there, ns.
    back_free: u64,
    flows: Vec<Flow>,
    meter: Meter,
}

impl<'a, O: Observer> Run<'a, O> {
    pub(super) fn new(network: &'a Network, observer: &'a mut O) -> Self {
        let mut run = Self {
            network,
            observer,
            now: 0,
            events: Events::default(),
            rate: Rate::new(&network.course, network.rate, network.seed),
            bottleneck: Bottleneck::new(network),
            back_free: 0,
            flows: network.flows.iter().map(|_| Flow::default()).collect(),
            meter: Meter::new(network),
        };
        for (flow, described) in network.flows.iter().enumerate() {
            run.events.at(described.start_ms * MS, Event::Data { flow });
        }
        let last_start = network.flows.iter().map(|flow| flow.start_ms).max().unwrap_or(0);
        run.events.at(network.startup(), Event::Measure);
        let all_started = if network.measured_from_ms.is_some() {
            0
        } else {
            last_start
        };
        run.events
            .at(network.startup() + all_started * MS, Event::MeasureShares);
        run.events.at(PING_EVERY, Event::Ping);
        if let Some(change) = run.rate.next_change(0) {
            run.events.at(change, Event::Rate);
        }
        run
    }

    pub(super) fn finish(mut self) -> Outcome {
        let end = self.network.duration_ms * MS;
        while let Some((time, event)) = self.events.next().filter(|(time, _)| *time <= end) {
            self.now = time;
            self.happens(event);
        }
        self.meter.rate_was(end, self.rate.now);
        let retransmitted = self.retransmitted();
        self.meter.outcome(
            self.network,
            &self.flows.iter().map(Flow::acked).collect::<Vec<_>>(),
            retransmitted,
        )
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Departure => self.departs(),
            Event::Acknowledgement { flow, packets, sent } => self.is_acknowledged(flow, packets, sent),
            Event::DelayedAcknowledgement { flow } => {
                let answer = self.flows[flow].receiver.expires(self.now);
                self.answers(flow, answer);
            }
            Event::Pace { flow } => {
                self.flows[flow].pace_pending = false;
                self.send(flow);
            }
            Event::Timeout { flow } => self.may_time_out(flow),
            Event::Data { flow } => self.has_data(flow),
            Event::Rate => self.rate_changes(),
            Event::Ping => {
                self.enters_bottleneck(Load::Ping, PING_BYTES);
                self.events.at(self.now + PING_EVERY, Event::Ping);
            }
            Event::Measure => {
                self.meter.acked_before = self.flows.iter().map(Flow::acked).sum();
                self.meter.retransmitted_before = self.retransmitted();
            }
            Event::MeasureShares => self.meter.shares_before = self.flows.iter().map(Flow::acked).collect(),
        }
    }

    fn retransmitted(&self) -> u64 {
        self.flows
            .iter()
            .filter_map(|flow| flow.sender.as_ref())
            .map(|sender| sender.retransmitted)
            .sum()
    }

    fn has_data(&mut self, flow: usize) {
        let described = &self.network.flows[flow];
        let round_trip = self.network.round_trip_us * 1000;
        let begin = || Sender::new(described.control, described.source, self.now, round_trip);
        let sender = self.flows[flow].sender.get_or_insert_with(begin);
        if let Source::Portions { segments, every_ms } = described.source {
            sender.writes(segments);
            self.events.at(self.now + every_ms * MS, Event::Data { flow });
        }
        self.send(flow);
    }

    /// Lets a flow send what it may.
    fn send(&mut self, flow: usize) {
        let Some(mut sender) = self.flows[flow].sender.take() else {
            return;
        };
        let wake = sender.send(self.now, |sent| {
            let load = Load::Segment {
                flow,
                sequence: sent.sequence,
                transmission: sent.transmission,
            };
            self.enters_bottleneck(load, PACKET_BYTES);
        });
        let due = sender.timeout_due();
        let this = &mut self.flows[flow];
        this.sender = Some(sender);
        if let Some(wake) = wake.filter(|_| !this.pace_pending) {
            this.pace_pending = true;
            self.events.at(wake, Event::Pace { flow });
        }
        // A timer that is put off is not asked for again: at its old time it looks for the new one.
        if let Some(due) = due.filter(|due| this.timeout_pending.is_none_or(|pending| *due < pending)) {
            this.timeout_pending = Some(due);
            self.events.at(due, Event::Timeout { flow });
        }
    }

    fn may_time_out(&mut self, flow: usize) {
        let this = &mut self.flows[flow];
        // A later event than this one replaces it.
        if this.timeout_pending != Some(self.now) {
            return;
        }
        this.timeout_pending = None;
        let Some(sender) = this.sender.as_mut() else { return };
        if sender.timeout_due().is_some_and(|due| due <= self.now) {
            sender.times_out(self.now);
        }
        self.send(flow);
    }

    fn enters_bottleneck(&mut self, load: Load, bytes: u64) {
        let packet = Packet {
            load,
            bytes,
            came: self.now,
        };
        match self.bottleneck.take(self.now, self.rate.now, packet) {
            Fate::Queued if self.bottleneck.was_idle() => self.sends_first(),
            Fate::Queued | Fate::Lost => {}
            Fate::Passed => self.passes(packet),
            Fate::Dropped => self.meter.dropped += u64::from(self.meter.counts(self.now)),
        }
    }

    fn sends_first(&mut self) {
        if let Some(duration) = self.bottleneck.sends_first_in(self.rate.now) {
            self.events.at(self.now + duration, Event::Departure);
        }
    }

    fn departs(&mut self) {
        if let Some(packet) = self.bottleneck.depart() {
            self.sends_first();
            self.passes(packet);
        }
    }

    /// A packet leaves the bottleneck.
    fn passes(&mut self, packet: Packet) {
        match packet.load {
            Load::Ping if self.meter.counts(packet.came) => {
                self.meter
                    .pings
                    .push(self.back_free.max(self.now) - packet.came + self.network.round_trip_us * 1000);
            }
            Load::Ping => {}
            Load::Segment {
                flow,
                sequence,
                transmission,
            } => {
                let this = &mut self.flows[flow];
                this.returning.push_back(Delivered { sequence, transmission });
                let answer = this.receiver.receive(self.now, sequence);
                self.answers(flow, answer);
            }
        }
    }

    /// Does what a receiver wants.
    fn answers(&mut self, flow: usize, answer: Answer) {
        match answer {
            Answer::Now(packets) => {
                let sent = self.now;
                let arrives = self.network.arrival(self.goes_back());
                self.events.at(arrives, Event::Acknowledgement { flow, packets, sent });
            }
            Answer::At(time) => self.events.at(time, Event::DelayedAcknowledgement { flow }),
            Answer::Nothing => {}
        }
    }

    /// When an acknowledgement that is sent now has left the queue of the way back, ns.
    fn goes_back(&mut self) -> u64 {
        let bits = ACKNOWLEDGEMENT_BYTES * 8 * SECOND;
        self.back_free = self.back_free.max(self.now) + bits.checked_div(self.network.back_rate).unwrap_or(0);
        self.back_free
    }

    fn is_acknowledged(&mut self, flow: usize, packets: u32, sent: u64) {
        let Flow {
            sender: Some(sender),
            returning,
            responds,
            ..
        } = &mut self.flows[flow]
        else {
            return;
        };
        let peer_clock = self.network.peer_clock(sent);
        let segments = sender.acknowledged(self.now, peer_clock, returning.drain(..packets as usize));
        let view = sender.view();
        let did_respond = std::mem::replace(responds, view.connection.is_some_and(is_responding));
        let begins_to_respond = *responds && !did_respond && self.meter.counts(self.now);
        self.meter.responses += u64::from(begins_to_respond);
        if segments > 0 {
            self.meter.delivers(self.now, flow);
        }
        self.observer.acknowledged(self.now, flow, segments, view);
        self.send(flow);
    }

    fn rate_changes(&mut self) {
        let before = self.rate.now;
        self.rate.change();
        self.meter.rate_changes(self.now, before, self.rate.now);
        if let Some(change) = self.rate.next_change(self.now) {
            self.events.at(change, Event::Rate);
        }
    }
}

impl Flow {
    /// Segments delivered.
    fn acked(&self) -> u64 {
        self.sender.as_ref().map_or(0, |sender| sender.acked)
    }
}

fn is_responding(connection: &Connection) -> bool {
    connection.state() == State::Response
}
