//! The parts of the simulator: a figure would mean nothing if one of them were wrong.

use crate::parameters::defaults;
use crate::simulator::bottleneck::{Bottleneck, Fate, Load, Packet};
use crate::simulator::network::{Buffer, Control, Course, MS, Network, PACKET_BYTES, SECOND};
use crate::simulator::receiver::{Answer, Receiver};
use crate::simulator::report;
use crate::simulator::scoreboard::{Delivered, Scoreboard};

fn network() -> Network {
    Network::new(12_112_000, 20_000, Control::Pace(defaults()), 1)
}

fn packet(now: u64) -> Packet {
    Packet {
        load: Load::Ping,
        bytes: PACKET_BYTES,
        came: now,
    }
}

#[test]
fn a_queue_holds_as_many_packets_as_it_has_room_for() {
    let network = Network {
        buffer: Buffer::Packets(3),
        ..network()
    };
    let mut bottleneck = Bottleneck::new(&network);
    let fates: Vec<Fate> = (0..4).map(|_| bottleneck.take(0, network.rate, packet(0))).collect();
    assert_eq!(fates, [Fate::Queued, Fate::Queued, Fate::Queued, Fate::Dropped]);
    assert_eq!(bottleneck.sends_first_in(network.rate), Some(MS));
    assert!(bottleneck.depart().is_some());
    assert_eq!(bottleneck.take(0, network.rate, packet(0)), Fate::Queued);
}

#[test]
fn a_policer_lets_its_rate_through_and_a_bucket_besides() {
    let network = Network {
        buffer: Buffer::Packets(3),
        polices: true,
        ..network()
    };
    let mut policer = Bottleneck::new(&network);
    let mut passes = |now, count: usize| {
        (0..count)
            .filter(|_| policer.take(now, network.rate, packet(now)) == Fate::Passed)
            .count()
    };
    assert_eq!(passes(0, 10), 3);
    assert_eq!(passes(2 * MS, 10), 2);
    assert_eq!(passes(SECOND, 10), 3);
}

#[test]
fn a_receiver_acknowledges_every_second_segment_and_disorder_at_once() {
    let mut receiver = Receiver::default();
    assert!((0..16).all(|sequence| receiver.receive(0, sequence) == Answer::Now(1)));
    assert_eq!(receiver.receive(0, 16), Answer::At(40 * MS));
    assert_eq!(receiver.receive(MS, 17), Answer::Now(2));
    assert_eq!(receiver.receive(2 * MS, 19), Answer::Now(1), "18 is missing");
    assert_eq!(receiver.receive(3 * MS, 18), Answer::Now(1), "it fills the gap");
    assert_eq!(receiver.receive(4 * MS, 20), Answer::Nothing, "the timer runs");
    assert_eq!(receiver.expires(40 * MS), Answer::At(44 * MS));
    assert_eq!(receiver.expires(44 * MS), Answer::Now(1));
}

#[test]
fn what_was_sent_before_and_did_not_arrive_is_lost_and_sent_again() {
    let mut board = Scoreboard::new();
    let sent: Vec<Delivered> = (0..4).map(|number| board.send_new(number * MS)).collect();
    let news = board.acknowledge(20 * MS, [sent[2]].into_iter());
    assert_eq!((news.acked, news.losses, board.in_flight()), (1, 2, 1));
    assert_eq!(news.last_round_trip, Some(18 * MS));
    let again = board.send_lost(20 * MS).unwrap();
    assert_eq!(again.sequence, 0);
    let news = board.acknowledge(40 * MS, [sent[3], again].into_iter());
    assert_eq!((news.acked, news.losses, news.last_round_trip), (2, 0, Some(37 * MS)));
    assert_eq!((board.first(), board.in_flight()), (1, 0));
}

#[test]
fn a_timeout_that_was_too_early_is_undone() {
    let mut board = Scoreboard::new();
    let sent: Vec<Delivered> = (0..3).map(|_| board.send_new(0)).collect();
    assert_eq!(board.time_out(), 3);
    assert!(board.send_lost(SECOND).is_some());
    let news = board.acknowledge(SECOND + MS, [sent[0]].into_iter());
    assert!(news.timeout_was_early);
    board.undo_timeout();
    assert_eq!(board.in_flight(), 2);
    assert_eq!(board.acknowledge(SECOND + MS, sent[1..].iter().copied()).losses, 0);
    assert_eq!(board.first(), 3);
}

#[test]
fn the_figures_of_a_drop_are_those_of_the_network() {
    let mut network = Network::new(40_000_000, 50_000, Control::Pace(defaults()), 1);
    network.course = Course::Script(vec![(5000, 20_000_000)]);
    network.duration_ms = 8000;
    network.buffer = Buffer::Products(4.0);
    let outcome = report("40 to 20 Mbit/s", &network);
    // Measured from the second to the eighth second: half at 40, half at 20, 1448 of 1514 bytes of it payload.
    assert!((outcome.capacity - 30.0 * 1448.0 / 1514.0).abs() < 0.01);
    assert!(outcome.goodput > 0.9 * outcome.capacity && outcome.goodput < 1.01 * outcome.capacity);
    assert_eq!(outcome.max_rtt_floor, 100.0);
    assert!((90.0..140.0).contains(&outcome.max_rtt));
    assert!(outcome.responses >= 1);
    assert_eq!(outcome.shares, [1.0]);
}
