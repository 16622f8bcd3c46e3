//! Generated networks: equally many of each order of magnitude.

use proptest::prelude::*;

use crate::parameters::defaults;
use crate::simulator::network::{Buffer, Control, Course, Network, PACKET_BYTES};

/// Packets that a case may take.
const MOST_PACKETS: u64 = 400_000;

/// A number between two, each order of magnitude as likely.
pub(super) fn magnitude(least: f64, most: f64) -> impl Strategy<Value = f64> {
    (least.ln()..=most.ln()).prop_map(f64::exp)
}

/// How the rate changes, given the first rate.
fn course() -> impl Strategy<Value = (u8, f64, u64)> {
    (0..4_u8, 0.1..0.9, 500..5000_u64)
}

prop_compose! {
    /// Up to four of our flows, 1 Mbit/s to 1 Gbit/s, 1 to 300 ms, buffers of 0.1 to 4 products, half of them with up to 2 % loss;
    /// 3 s and 30 round trips.
    pub(super) fn networks()(
        rate in magnitude(1e6, 1e9),
        round_trip_us in magnitude(1e3, 300e3),
        buffer in 0.1..4.0,
        loss in prop_oneof![Just(0.0), 0.0..0.02],
        flows in 1..5_u64,
        (course, low, period_ms) in course(),
        seed in any::<u64>(),
    ) -> Network {
        let mut network = Network::new(rate as u64, round_trip_us as u64, Control::Pace(defaults()), flows);
        let low = (rate * low) as u64;
        network.buffer = Buffer::Products(buffer);
        network.loss = loss;
        network.course = match course {
            0 => Course::Steady,
            1 => Course::Step { low, period_ms },
            2 => Course::Walk { low },
            _ => Course::Fading { low },
        };
        network.seed = seed;
        network.duration_ms = duration_ms(&network, 3000 + network.round_trip_us * 30 / 1000);
        network
    }
}

/// So long, or as long as the packets of a case last.
fn duration_ms(network: &Network, wanted: u64) -> u64 {
    wanted.min(MOST_PACKETS * PACKET_BYTES * 8 * 1000 / network.rate)
}

prop_compose! {
    /// One flow without loss and a buffer of 0.5 to 4 products, whose rate drops to 0.2 to 0.8 and after 20 round trips is whole again.
    /// With it, when that is, ms.
    pub(super) fn rising()(
        rate in magnitude(2e6, 300e6),
        round_trip_us in magnitude(5e3, 200e3),
        buffer in 0.5..4.0,
        low in 0.2..0.8,
        seed in any::<u64>(),
    ) -> (Network, u64) {
        let mut network = Network::new(rate as u64, round_trip_us as u64, Control::Pace(defaults()), 1);
        let round_trips = |count: u64| count * network.round_trip_us / 1000 + 1;
        let drops = 1000 + round_trips(30);
        let rises = drops + 500 + round_trips(20);
        network.buffer = Buffer::Products(buffer);
        network.course = Course::Script(vec![(drops, (rate * low) as u64), (rises, rate as u64)]);
        network.duration_ms = rises + 2000 + round_trips(125);
        network.seed = seed;
        (network, rises)
    }
}
