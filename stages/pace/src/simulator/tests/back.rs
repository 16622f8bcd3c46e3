//! Acknowledgements wait in a queue of the other direction.

use crate::parameters::defaults;
use crate::simulator::core::Connection;
use crate::simulator::network::{Back, Buffer, Control, Course, Network, Source, Stamps};
use crate::simulator::outcome::Outcome;
use crate::simulator::simulate;
use crate::skeleton::core::{pace_sample, pace_socket};

/// Clocks that count no milliseconds: none at all, microseconds (Linux can), 10 ms and a second (RFC 7323 allows both).
const OTHER_TICKS_US: [u64; 4] = [0, 1, 10_000, 1_000_000];
/// Clocks that nearly do: by a tenth, a fortieth, a thousandth; and 2^20 ns.
const NEARLY_MS_US: [u64; 7] = [900, 977, 999, 1_001, 1_024, 1_049, 1_100];

/// An upload of 20 Mbit/s, 40 ms, with a queue of two products; a download keeps 40 to 90 ms in the other direction's.
fn upload(flows: u64, back: Option<Back>) -> Outcome {
    let mut network = Network::new(20_000_000, 40_000, Control::Pace(defaults()), flows);
    network.buffer = Buffer::Products(2.0);
    network.duration_ms = 20_000;
    network.back = back;
    simulate(&network)
}

/// Who uploads while something is downloaded would lose a third of the upload, or get a queue that nobody else makes.
#[test]
fn an_upload_keeps_its_rate_beside_a_download() {
    let download = Back {
        from_ms: 1_000,
        least_ms: 40,
        most_ms: 90,
        period_ms: 3_000,
    };
    for flows in [1, 4] {
        let (alone, beside) = (upload(flows, None), upload(flows, Some(download)));
        assert!(beside.goodput > 0.95 * alone.goodput, "{flows}:\n{alone}\n{beside}");
        assert!(beside.mean_rtt < 1.5 * alone.mean_rtt, "{flows}:\n{alone}\n{beside}");
    }
}

/// Each page that somebody loads would have the upload beside it answer a drop of the bandwidth that is none.
#[test]
fn a_download_that_begins_is_no_drop_of_the_bandwidth() {
    for (least_ms, period_ms) in [(100, 1_000), (0, 2_400)] {
        let download = Back {
            from_ms: 5_000,
            least_ms,
            most_ms: 100,
            period_ms,
        };
        let outcome = upload(1, Some(download));
        assert_eq!(outcome.responses, 0, "{least_ms}: {outcome}");
        assert!(outcome.goodput > 0.85 * outcome.capacity, "{least_ms}: {outcome}");
    }
}

/// The same for downloads that begin and end all the time, which no window follows as fast as they come.
#[test]
fn downloads_that_come_and_go_are_no_drops() {
    let downloads = Back {
        from_ms: 5_000,
        least_ms: 0,
        most_ms: 150,
        period_ms: 600,
    };
    let outcome = upload(1, Some(downloads));
    assert!(outcome.responses <= 5, "{outcome}");
    assert!(outcome.goodput > 0.5 * outcome.capacity, "{outcome}");
}

/// Beside a download an upload would fill its own queue when the bandwidth drops.
#[test]
fn a_drop_is_answered_beside_a_download() {
    let mut network = Network::new(20_000_000, 40_000, Control::Pace(defaults()), 1);
    network.buffer = Buffer::Products(4.0);
    network.course = Course::Step {
        low: 8_000_000,
        period_ms: 5_000,
    };
    network.duration_ms = 22_000;
    network.back = Some(Back {
        from_ms: 1_000,
        least_ms: 60,
        most_ms: 60,
        period_ms: 1_000,
    });
    let outcome = simulate(&network);
    assert!(outcome.responses >= 2, "{outcome}");
    assert!(
        outcome.mean_rtt < 100.0 && outcome.goodput > 0.9 * outcome.capacity,
        "{outcome}"
    );
}

/// Whoever pauses for longer than the clocks' difference can be told apart (half a minute) would be as slow afterwards as at the
/// beginning, or fill the queue: a photo is uploaded, another one 35 s later, beside a download or not.
#[test]
fn a_pause_of_more_than_half_a_minute_changes_nothing() {
    let download = Back {
        from_ms: 0,
        least_ms: 60,
        most_ms: 60,
        period_ms: 1_000,
    };
    for back in [None, Some(download)] {
        let outcome = |tick_us| {
            let mut network = Network::new(20_000_000, 40_000, Control::Pace(defaults()), 1);
            network.buffer = Buffer::Products(2.0);
            network.flows[0].source = Source::Portions {
                segments: 10_000,
                every_ms: 35_000,
            };
            network.measured_from_ms = Some(35_000);
            network.duration_ms = 70_000;
            network.back = back;
            network.tick_us = tick_us;
            simulate(&network)
        };
        let (without, with) = (outcome(0), outcome(1000));
        assert!(with.goodput >= 0.99 * without.goodput, "{without}\n{with}");
        assert!(with.mean_rtt <= 1.1 * without.mean_rtt, "{without}\n{with}");
        assert_eq!(with.responses, 0, "{with}");
    }
}

/// A receiver with another clock would have the sender take its own queue for somebody else's, and fill it.
#[test]
fn a_clock_that_counts_otherwise_is_not_believed() {
    let outcome = |tick_us, flows| {
        let mut network = Network::new(20_000_000, 40_000, Control::Pace(defaults()), flows);
        network.buffer = Buffer::Products(2.0);
        network.course = Course::Step {
            low: 8_000_000,
            period_ms: 2_500,
        };
        network.tick_us = tick_us;
        simulate(&network)
    };
    for flows in [1, 4] {
        let usual = outcome(1000, flows);
        let others = OTHER_TICKS_US.map(|tick| (tick, 1.1));
        for (tick, most) in others.into_iter().chain(NEARLY_MS_US.map(|tick| (tick, 1.2))) {
            let other = outcome(tick, flows);
            assert!(other.mean_rtt < most * usual.mean_rtt, "{tick} us:\n{usual}\n{other}");
            assert!(other.goodput > 0.95 * usual.goodput, "{tick} us:\n{usual}\n{other}");
        }
    }
}

/// The smallest round trip that is found where either the data wait for 75 ms or the acknowledgements do, in turns of four round trips,
/// and both for 5 ms besides. The path takes 30 ms.
fn min_rtt_us(tick_us: u64, acknowledgements_first: bool) -> u32 {
    let socket = |now_us: u64, delivered, waited_us: u64| pace_socket {
        now_us,
        in_flight: 40,
        window: 40,
        window_most: u32::MAX,
        delivered,
        srtt_us: 115_000,
        mss: 1448,
        peer_ms: (now_us - waited_us)
            .checked_div(tick_us)
            .map_or(0, |ticks| (ticks + 123_456) as u32),
        pacing_most: u64::MAX,
        ..pace_socket::default()
    };
    let mut now_us = 1_000_000;
    let (mut connection, _) = Connection::begin(defaults(), &socket(now_us, 0, 0));
    for round in 0..40 {
        let rtt_us = 30_000 + 75_000 + 2 * 5_000;
        now_us += rtt_us;
        let waited_us = if (round / 4 % 2 == 0) == acknowledgements_first {
            80_000
        } else {
            5_000
        };
        let sample = pace_sample {
            delivered: 40,
            interval_us: rtt_us as i64,
            rtt_us: rtt_us as i64,
            prior_delivered: round * 40,
            prior_in_flight: 40,
            acked: 40,
            ..pace_sample::default()
        };
        connection.acknowledged(&socket(now_us, (round + 1) * 40, waited_us), &sample);
    }
    connection.min_rtt_us().unwrap_or(u32::MAX)
}

/// Where uploads and downloads are both paced by this, both would take 60 to 120 ms for a path of 30 ms and keep a queue of the
/// difference, and a flow that knew better would starve.
#[test]
fn queues_that_are_never_empty_together_are_told_apart() {
    for acknowledgements_first in [false, true] {
        let found = min_rtt_us(1000, acknowledgements_first);
        assert!((36_000..=45_000).contains(&found), "{found} us");
        for tick in OTHER_TICKS_US {
            let raw = min_rtt_us(tick, acknowledgements_first);
            assert_eq!(raw, 115_000, "a clock of {tick} us is no clock");
        }
    }
}

/// A download of 20 Mbit/s, 20 ms away, from a server whose timestamps are off.
fn stamped(stamps: Stamps) -> Outcome {
    let mut network = Network::new(20_000_000, 20_000, Control::Pace(defaults()), 1);
    network.stamps = stamps;
    simulate(&network)
}

/// Clocks of systems that count 100 ticks a second, or 64, would look like queues that have emptied: a download had 8 of 20 Mbit/s.
#[test]
fn a_clock_that_steps_costs_nothing() {
    let exact = stamped(Stamps::Exact);
    for step_ms in [4, 10, 16] {
        let outcome = stamped(Stamps::Steps(step_ms));
        assert!(
            outcome.goodput > 0.97 * exact.goodput,
            "{step_ms} ms:\n{exact}\n{outcome}"
        );
        assert!(
            outcome.mean_rtt < 1.1 * exact.mean_rtt,
            "{step_ms} ms:\n{exact}\n{outcome}"
        );
    }
}

/// A server that sends slowly itself, by the same connection, stamps acknowledgements ahead of time: that must not halve what it gets.
#[test]
fn stamps_of_times_to_come_cost_little() {
    let exact = stamped(Stamps::Exact);
    for most_ms in [6, 12, 24] {
        let outcome = stamped(Stamps::Early(most_ms));
        assert!(
            outcome.goodput > 0.6 * exact.goodput,
            "{most_ms} ms:\n{exact}\n{outcome}"
        );
        assert!(
            outcome.mean_rtt < 1.1 * exact.mean_rtt,
            "{most_ms} ms:\n{exact}\n{outcome}"
        );
    }
}

/// A receiver that says that acknowledgements wait would fill a queue that it shares with others: a second at most, as it could by
/// many other means.
#[test]
fn a_receiver_that_lies_gets_a_second_of_queue_at_most() {
    let mut network = Network::new(20_000_000, 40_000, Control::Pace(defaults()), 1);
    network.buffer = Buffer::Products(60.0);
    network.stamps = Stamps::Lagging(60_000);
    network.duration_ms = 60_000;
    let outcome = simulate(&network);
    assert!(
        outcome.max_rtt < 1_150.0 && outcome.goodput > 0.9 * outcome.capacity,
        "{outcome}"
    );
}

/// Who downloads by a line of 50 to 1 would find an uplink that is full of acknowledgements, a second of them.
#[test]
fn acknowledgements_do_not_fill_a_thin_uplink() {
    for flows in [1, 2, 4] {
        let mut network = Network::new(50_000_000, 30_000, Control::Pace(defaults()), flows);
        network.back_rate = 1_000_000;
        network.duration_ms = 60_000;
        let outcome = simulate(&network);
        assert!(outcome.mean_rtt < 200.0, "{flows} flows: {outcome}");
        assert!(outcome.goodput > 0.85 * outcome.capacity, "{flows} flows: {outcome}");
    }
}
