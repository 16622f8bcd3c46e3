//! The algorithm with inputs that no network gives. In a debug build undefined behaviour of the C code ends the test.

use proptest::prelude::*;

use super::cases;
use super::generated::magnitude;
use crate::parameters::defaults;
use crate::simulator::core::{Connection, burst};
use crate::skeleton::core::{pace_parameters, pace_sample, pace_socket};

/// Any number, the extreme ones often.
fn any_u32() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u32::MAX),
        Just(1 << 31),
        0..100_u32,
        any::<u32>()
    ]
}

fn any_i64() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        Just(-1),
        Just(i64::MIN),
        Just(i64::MAX),
        0..100_i64,
        0..100_000_000_i64,
        any::<i64>()
    ]
}

fn any_i32() -> impl Strategy<Value = i32> {
    prop_oneof![
        Just(0),
        Just(-1),
        Just(i32::MIN),
        Just(i32::MAX),
        0..100_i32,
        any::<i32>()
    ]
}

prop_compose! {
    /// A packet of up to 64 KiB, which is the most that IP allows; all else is anything.
    fn any_socket()(
        now_us in any::<u64>(), in_flight in any_u32(), window in any_u32(), window_most in any_u32(), delivered in any_u32(),
        lost in any_u32(), srtt_us in any_u32(), mss in prop_oneof![Just(0), Just(1448), 0..65536_u32], pacing in any::<u64>(),
        pacing_most in prop_oneof![Just(u64::MAX), any::<u64>()], peer_ms in any_u32(),
    ) -> pace_socket {
        pace_socket {
            now_us, in_flight, window, window_most, delivered, lost, srtt_us, mss, pacing, pacing_most, peer_ms
        }
    }
}

prop_compose! {
    fn any_sample()(
        delivered in any_i32(), interval_us in any_i64(), rtt_us in any_i64(), prior_delivered in any_u32(), prior_in_flight in any_u32(),
        losses in any_i32(), acked in any_u32(), app_limited in 0..2_u8, ack_delayed in 0..2_u8,
    ) -> pace_sample {
        pace_sample {
            delivered, interval_us, rtt_us, prior_delivered, prior_in_flight, losses, acked, app_limited, ack_delayed,
            ..pace_sample::default()
        }
    }
}

prop_compose! {
    /// Any within the ranges of pace.h.
    fn any_parameters()(
        response in 0..4_u32, drop_below in 128..=243_u32, queue_margin in 8..=256_u32, queue_rise in 0..=256_u32,
        drain_gain in 64..=250_u32, window_gain in 256..=768_u32, probe_window_gain in 256..=768_u32,
        competing_window_gain in 256..=1024_u32, competing_above in 300..=1024_u32, loss_share in prop_oneof![Just(0), 5..=1000_u32],
        probe_packets in 0..=64_u32, published in (0..=1024_u32, 0..=255_u32, 0..=256_u32),
    ) -> pace_parameters {
        pace_parameters {
            response, drop_below, queue_margin, queue_rise, drain_gain, window_gain, probe_window_gain, competing_window_gain,
            competing_above, loss_share, probe_packets, bw_delta_alpha: published.0, bw_delta_ceiling: published.1,
            bw_delta_floor: published.2, left: 0,
        }
    }
}

/// What happens to a connection.
#[derive(Debug, Clone)]
enum Step {
    Acknowledged(pace_socket, pace_sample),
    Recovers(pace_socket),
    Undoes,
    Enters(u32),
    Restarts(pace_socket),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any_socket(), any_sample()).prop_map(|(socket, sample)| Step::Acknowledged(socket, sample)),
        1 => any_socket().prop_map(Step::Recovers),
        1 => Just(Step::Undoes),
        1 => (0..5_u32).prop_map(Step::Enters),
        1 => any_socket().prop_map(Step::Restarts),
    ]
}

/// The largest rate (RATE_MAX, 64 packets a microsecond) times the largest gain, in bytes a second.
fn fastest(mss: u32) -> u64 {
    64_000_000 * u64::from(mss) * 739 / 256
}

proptest! {
    #![proptest_config(cases(256))]

    /// A peer that acknowledges nonsense, or a kernel with odd counters, would bring the connection to a halt or the machine's network down.
    #[test]
    fn nothing_that_it_is_told_makes_it_decide_nonsense(
        parameters in any_parameters(), first in any_socket(), steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let (mut connection, decision) = Connection::begin(parameters, &first);
        prop_assert!(decision.pacing <= fastest(first.mss));
        for step in steps {
            match step {
                Step::Acknowledged(socket, sample) => {
                    let mut other = connection.clone();
                    let decision = connection.acknowledged(&socket, &sample);
                    let whole = other.acknowledged_whole(&socket, &sample);
                    prop_assert!(connection.is_same(&other), "it depends on what the BPF program has not read");
                    prop_assert_eq!((decision.window, decision.pacing), (whole.window, whole.pacing));
                    prop_assert!(decision.window <= socket.window_most && decision.pacing <= socket.pacing_most);
                    prop_assert!(decision.pacing <= fastest(socket.mss).max(socket.pacing), "{decision:?}");
                    prop_assert!((1..=0x7f).contains(&burst(&socket, decision.pacing)));
                    prop_assert_ne!(connection.min_rtt_us(), Some(0));
                }
                Step::Recovers(socket) => connection.recovers(&socket),
                Step::Undoes => connection.undoes(),
                Step::Enters(state) => connection.enters_number(state),
                Step::Restarts(socket) => {
                    let pacing = connection.restarts(&socket);
                    prop_assert!(pacing.is_none_or(|pacing| pacing <= fastest(socket.mss)));
                }
            }
        }
    }
}

/// A path that brings an acknowledgement of `acked` packets every `every_us`, each a round trip after it was sent.
#[derive(Debug, Clone, Copy)]
struct Steady {
    acked: u32,
    every_us: u64,
    /// Acknowledgements in a round trip.
    acks: u64,
    /// Where the counters begin.
    now_us: u64,
    delivered: u32,
}

impl Steady {
    /// About such a rate, in packets a second: up to forty acknowledgements a round trip, and at least one.
    fn new(rate: f64, round_trip_us: u64, now_us: u64, delivered: u32) -> Self {
        let product = rate * round_trip_us as f64 / 1e6;
        let acks = (product as u64).clamp(1, 40).min(round_trip_us);
        let every_us = round_trip_us / acks;
        let acked = (rate * every_us as f64 / 1e6).round().max(1.0) as u32;
        Self {
            acked,
            every_us,
            acks,
            now_us,
            delivered,
        }
    }

    /// Packets in a round trip.
    fn product(self) -> u32 {
        self.acked * self.acks as u32
    }

    /// Bytes a second.
    fn rate(self) -> f64 {
        f64::from(self.acked) * 1448.0 * 1e6 / self.every_us as f64
    }

    /// The window and the pace that are decided, for so many round trips.
    fn decisions(self, round_trips: u64) -> Vec<(u32, u64)> {
        let round_trip_us = self.acks * self.every_us;
        let mut socket = pace_socket {
            now_us: self.now_us,
            delivered: self.delivered,
            window: 10,
            window_most: u32::MAX,
            pacing_most: u64::MAX,
            srtt_us: round_trip_us as u32,
            mss: 1448,
            ..pace_socket::default()
        };
        let (mut connection, begun) = Connection::begin(defaults(), &socket);
        socket.pacing = begun.pacing;
        let mut acknowledge = || {
            socket.now_us = socket.now_us.wrapping_add(self.every_us);
            socket.delivered = socket.delivered.wrapping_add(self.acked);
            socket.in_flight = self.product().min(socket.window);
            let sample = pace_sample {
                delivered: self.product() as i32,
                interval_us: round_trip_us as i64,
                rtt_us: round_trip_us as i64,
                prior_delivered: socket.delivered.wrapping_sub(self.product()),
                prior_in_flight: self.product(),
                acked: self.acked,
                ..pace_sample::default()
            };
            let decision = connection.acknowledged(&socket, &sample);
            socket.window = decision.window;
            socket.pacing = decision.pacing;
            (decision.window, decision.pacing)
        };
        (0..round_trips * self.acks).map(|_| acknowledge()).collect()
    }
}

proptest! {
    #![proptest_config(cases(128))]

    /// A connection on a very slow or a very fast path would stand still or flood it: 1 kbit/s to 400 Gbit/s, 10 us to 10 s.
    #[test]
    fn any_path_is_paced_at_its_rate(
        kbits in magnitude(1.0, 400e6), round_trip_us in magnitude(10.0, 10e6), now_us in any::<u64>(), delivered in any_u32(),
    ) {
        let path = Steady::new(kbits * 1e3 / 8.0 / 1448.0, round_trip_us as u64, now_us >> 8, delivered);
        let decisions = path.decisions(60);
        for (window, pacing) in &decisions[decisions.len() * 3 / 4..] {
            let most = 2.0 * f64::from(path.product()) + 130.0;
            prop_assert!(*window >= 2 && f64::from(*window) <= most, "window {window} of {}", path.product());
            // A rate is a whole number of 2^-24 packets a microsecond, 86 bytes a second.
            let (least, most) = (0.7 * (path.rate() - 86.3), 1.75 * path.rate());
            prop_assert!((least..=most).contains(&(*pacing as f64)), "{pacing} of {} bytes a second", path.rate());
        }
    }

    /// A long connection would change its behaviour when a counter of the kernel wraps, or begin wrongly in the middle of its life.
    #[test]
    fn it_does_not_matter_where_the_counters_are(
        rate in magnitude(100.0, 1e6), round_trip_us in 1000..200_000_u64, hours in 0..20_000_u64,
        delivered in 100..u32::MAX - (1 << 24),
    ) {
        let path = Steady::new(rate, round_trip_us, 1 << 20, 100);
        // Milliseconds are 1024 us here, and phases of equal connections differ by the last three bits of the time.
        let shifted = Steady { now_us: path.now_us + hours * (3600 << 20), delivered, ..path };
        // In the middle of what follows, after the first twenty packets at any rate, which begin slowly.
        let half = 30 * path.product();
        let wrapping = Steady { now_us: (1 << 42) - (1 << 22), delivered: u32::MAX - half, ..path };
        let expected = path.decisions(60);
        prop_assert_eq!(&shifted.decisions(60), &expected);
        prop_assert_eq!(&wrapping.decisions(60), &expected);
    }
}
