//! What others on the path get.

use super::super::network::{Buffer, Control, Flow, Network, Source};
use super::super::outcome::Outcome;
use super::super::simulate;
use crate::parameters::defaults;
use crate::skeleton::types::pace_parameters;

const MEGABIT: u64 = 1_000_000;
/// Rates, Mbit/s, and round trips, ms, of accesses at home.
const PATHS: [(u64, u64); 6] = [(10, 30), (10, 80), (20, 20), (30, 60), (40, 30), (80, 20)];

/// One flow of ours, and then as many of CUBIC, on a path with a buffer of so many products.
fn beside_cubic(rate: u64, round_trip_ms: u64, buffer: f64, rivals: u64) -> Outcome {
    let mut network = Network::new(rate * MEGABIT, round_trip_ms * 1000, Control::Pace(defaults()), 1);
    network.buffer = Buffer::Products(buffer);
    network.flows.extend((1..=rivals).map(|number| Flow {
        control: Control::Cubic,
        start_ms: 1000 * number,
        source: Source::Endless,
    }));
    network.duration_ms = 40_000;
    simulate(&network)
}

/// The share of ours, the mean over all paths.
fn share_beside_cubic(buffer: f64, rivals: u64) -> f64 {
    let shares = PATHS.map(|(rate, round_trip)| beside_cubic(rate, round_trip, buffer, rivals).shares[0]);
    shares.iter().sum::<f64>() / shares.len() as f64
}

/// A neighbour's download would be left with a sixth of a path whose buffer is short, because he backs off at each loss.
#[test]
fn a_neighbour_with_cubic_keeps_a_third_of_a_path_with_a_short_buffer() {
    let share = share_beside_cubic(0.5, 1);
    assert!((0.4..0.72).contains(&share), "{share}");
}

/// Four neighbours would share what one of ours leaves.
#[test]
fn four_neighbours_with_cubic_are_left_their_shares() {
    for buffer in [0.5, 1.0, 2.0] {
        let share = share_beside_cubic(buffer, 4);
        assert!((0.12..0.35).contains(&share), "{share} with {buffer} products");
    }
}

/// An upload over Wi-Fi or LTE would crawl: such a link loses packets without a queue, and hands acknowledgements over in lumps, in
/// which round trips look as long as in a queue of somebody else's.
#[test]
fn losses_of_a_radio_link_are_not_taken_for_a_neighbour_s() {
    let goodput = |rate: u64, round_trip_ms: u64, lumps_ms, loss_share| {
        let parameters = pace_parameters {
            loss_share,
            ..defaults()
        };
        let mut network = Network::new(rate * MEGABIT, round_trip_ms * 1000, Control::Pace(parameters), 1);
        network.buffer = Buffer::Products(2.0);
        network.loss = 0.01;
        network.acknowledged_every_ms = lumps_ms;
        network.duration_ms = 30_000;
        simulate(&network).goodput
    };
    for (rate, round_trip) in PATHS {
        for lumps in [0, 10, 20] {
            let (heeded, not) = (
                goodput(rate, round_trip, lumps, defaults().loss_share),
                goodput(rate, round_trip, lumps, 0),
            );
            assert!(
                heeded > 0.93 * not,
                "{rate} Mbit/s, {round_trip} ms, lumps {lumps} ms: {heeded}, {not}"
            );
        }
    }
}
