//! What a steady path yields.

use proptest::prelude::*;

use super::cases;
use super::generated::networks;
use crate::simulator::network::{Buffer, Course, Network, PACKET_BYTES};
use crate::simulator::simulate;

/// One flow alone on a path that keeps its rate and loses nothing.
///
/// The path holds the smallest window, four packets: on a smaller one, with a buffer of so few packets, a flow may take its own queue
/// for a drop.
fn alone_and_steady(mut network: Network) -> Network {
    network.rate = network.rate.max(rate_of(&network, 4));
    network.course = Course::Steady;
    network.loss = 0.0;
    network.flows.truncate(1);
    network
}

/// The rate of so many packets a round trip, bit/s.
fn rate_of(network: &Network, packets: u64) -> u64 {
    packets * PACKET_BYTES * 8 * 1_000_000 / network.round_trip_us
}

proptest! {
    #![proptest_config(cases(32))]

    /// A user would pay for bandwidth that is not used, or wait behind a queue of his own: with a buffer of a product or more.
    #[test]
    fn one_flow_uses_a_steady_path_and_keeps_its_queue_short(network in networks(), buffer in 1.0..4.0) {
        let mut network = alone_and_steady(network);
        // With more packets a round trip, start-up takes longer than the twenty round trips that figures leave out.
        network.rate = network.rate.min(rate_of(&network, 500));
        network.buffer = Buffer::Products(buffer);
        network.duration_ms = network.duration_ms.max(2 * network.startup() / 1_000_000);
        let outcome = simulate(&network);
        prop_assert!(outcome.goodput >= 0.85 * outcome.capacity, "{outcome}");
        let packet_ms = (PACKET_BYTES * 8) as f64 * 1e3 / network.rate as f64;
        prop_assert!(outcome.mean_rtt <= 1.25 * network.round_trip_us as f64 / 1e3 + 8.0 * packet_ms + 2.0, "{outcome}");
    }

    /// A response would be a mistake that costs bandwidth.
    #[test]
    fn one_flow_on_a_steady_path_never_responds(network in networks()) {
        prop_assert_eq!(simulate(&alone_and_steady(network)).responses, 0);
    }

    /// On Wi-Fi, cable or LTE, which hand acknowledgements over in lumps, a download would crawl. Here up to an eighth of a round trip
    /// apart, in each of which an epoch can end.
    #[test]
    fn acknowledgements_in_lumps_cost_nothing(network in networks(), share in 0.0..0.125) {
        let mut network = alone_and_steady(network);
        network.buffer = Buffer::Products(2.0);
        network.duration_ms = network.duration_ms.max(2 * network.startup() / 1_000_000);
        network.acknowledged_every_ms = (network.round_trip_us as f64 * share / 1e3) as u64;
        let outcome = simulate(&network);
        prop_assert!(outcome.goodput >= 0.85 * outcome.capacity, "{outcome}");
    }

    /// The same for radios that gather acknowledgements for up to half a round trip: some bandwidth is lost, and no more.
    #[test]
    fn acknowledgements_in_great_lumps_cost_little(network in networks(), share in 0.125..0.5) {
        let mut network = alone_and_steady(network);
        network.buffer = Buffer::Products(2.0);
        network.duration_ms = network.duration_ms.max(2 * network.startup() / 1_000_000);
        network.acknowledged_every_ms = (network.round_trip_us as f64 * share / 1e3) as u64;
        let outcome = simulate(&network);
        prop_assert!(outcome.goodput >= 0.75 * outcome.capacity, "{outcome}");
    }
}
