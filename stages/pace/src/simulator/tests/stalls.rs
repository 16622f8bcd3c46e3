//! Connections go on.

use proptest::prelude::*;

use super::cases;
use super::generated::{magnitude, networks};
use crate::parameters::defaults;
use crate::simulator::network::{Control, Course, MS, Network, SECOND, Source};

use crate::simulator::{Observer, View, watch};

/// When each flow had deliveries, ns.
#[derive(Default)]
struct Deliveries(Vec<Vec<u64>>);

impl Observer for Deliveries {
    fn acknowledged(&mut self, now: u64, flow: usize, segments: u32, _: View<'_>) {
        if self.0.len() <= flow {
            self.0.resize(flow + 1, Vec::new());
        }
        if segments > 0 {
            self.0[flow].push(now);
        }
    }
}

/// The longest time without a delivery from one time to another, ns.
fn longest_pause(deliveries: &[u64], from: u64, to: u64) -> u64 {
    let inside = deliveries.iter().copied().filter(|time| (from..to).contains(time));
    let times: Vec<u64> = std::iter::once(from).chain(inside).chain(std::iter::once(to)).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

/// The round trip through a full buffer at the lowest rate, ns.
fn longest_round_trip(network: &Network) -> u64 {
    let lowest = match network.course {
        Course::Step { low, .. } | Course::Walk { low } | Course::Fading { low } => low,
        _ => network.rate,
    };
    network.round_trip_us * 1000 + network.buffer_bytes() * 8 * SECOND / lowest
}

/// So long after a path is back the retransmission timer may still run that was set while it was down: as long as it was down, and
/// half a second besides.
fn timeout_after(outage: u64) -> u64 {
    outage + SECOND / 2
}

proptest! {
    #![proptest_config(cases(48))]

    /// A download would stand still although the path is up. Nothing arrives for at most half a second and one of the longest round
    /// trips, those through a full buffer at the lowest rate.
    #[test]
    fn something_is_delivered_all_the_time(network in networks()) {
        let mut deliveries = Deliveries::default();
        watch(&network, &mut deliveries);
        let mut all: Vec<u64> = deliveries.0.concat();
        all.sort_unstable();
        let pause = longest_pause(&all, 100 * MS, network.duration_ms * MS);
        let longest = longest_round_trip(&network);
        prop_assert!(pause < SECOND / 2 + longest, "nothing for {} ms", pause / MS);
    }
}

proptest! {
    #![proptest_config(cases(24))]

    /// A connection would not survive a tunnel, or a cable pulled out and put back.
    #[test]
    fn a_flow_goes_on_after_ten_seconds_without_a_path(
        rate in magnitude(1e6, 100e6), round_trip_us in magnitude(1e3, 300e3), seed in any::<u64>(),
    ) {
        let mut network = Network::new(rate as u64, round_trip_us as u64, Control::Pace(defaults()), 1);
        let back = 13_000 * MS;
        network.outage_ms = Some((3000, 13_000));
        network.duration_ms = 30_000;
        network.seed = seed;
        let mut deliveries = Deliveries::default();
        watch(&network, &mut deliveries);
        let first = deliveries.0[0].iter().copied().find(|time| *time > back).unwrap_or(u64::MAX);
        prop_assert!(first < back + timeout_after(10 * SECOND), "the first {} ms after", (first - back) / MS);
        // From then on: no second timeout, and in forty round trips as much as before.
        let pause = longest_pause(&deliveries.0[0], first, network.duration_ms * MS);
        prop_assert!(pause < SECOND / 2 + 2000 * network.round_trip_us, "then nothing for {} ms", pause / MS);
    }

    /// A video call or a server that has little to send would be slowed down: each portion arrives before the next is there.
    #[test]
    fn a_flow_with_little_to_send_is_not_held_up(
        rate in magnitude(5e6, 200e6), round_trip_us in magnitude(1e3, 100e3), share in 0.02..0.4, seed in any::<u64>(),
    ) {
        let mut network = Network::new(rate as u64, round_trip_us as u64, Control::Pace(defaults()), 1);
        let every_ms = 100;
        let segments = ((rate * share / 8.0 * 0.1 / 1514.0) as u64).max(1);
        network.flows[0].source = Source::Portions { segments, every_ms };
        network.duration_ms = 16_000;
        network.seed = seed;
        let outcome = crate::simulator::simulate(&network);
        let offered = (segments * 1448 * 8) as f64 / 1e6 * 10.0;
        prop_assert!(outcome.goodput > 0.97 * offered, "{} of {offered} Mbit/s", outcome.goodput);
    }
}

/// What a flow delivers from one time to another, of what the path could, in parts of 1.
fn share_delivered(network: &Network, from_ms: u64, to_ms: u64) -> f64 {
    let mut network = network.clone();
    network.measured_from_ms = Some(from_ms);
    network.duration_ms = to_ms;
    let goodput = crate::simulator::simulate(&network).goodput;
    goodput * 1e6 * 1514.0 / 1448.0 / network.rate as f64
}

proptest! {
    #![proptest_config(cases(48))]

    /// A phone that saves power, or a Wi-Fi that scans, answers late and then all at once. Its path is as fast as before.
    #[test]
    fn a_silence_is_no_drop(
        rate in magnitude(10e6, 200e6), round_trip_us in magnitude(10e3, 100e3), buffer in 1.0..4.0, silence in 50..300_u64,
        gathered in 0.0..0.5, flows in 1..3_u64, seed in any::<u64>(),
    ) {
        let mut network = Network::new(rate as u64, round_trip_us as u64, Control::Pace(defaults()), flows);
        network.buffer = crate::simulator::network::Buffer::Products(buffer);
        network.acknowledged_every_ms = (round_trip_us * gathered / 1e3) as u64;
        network.seed = seed;
        let began = 5000 + seed % 1000;
        network.silence_ms = Some((began, began + silence));
        let settled = began + silence + 500 + 20 * network.round_trip_us / 1000;
        let share = share_delivered(&network, settled, settled + 2000);
        prop_assert!(share > 0.75, "{share}");
    }

    /// After a change of the route the path is longer. A window for the old one would hold the flow back for ever.
    #[test]
    fn a_longer_path_is_learnt_within_twelve_seconds(
        rate in magnitude(5e6, 100e6), round_trip_us in magnitude(10e3, 80e3), times in 1.1..4.0, seed in any::<u64>(),
    ) {
        let mut network = Network::new(rate as u64, round_trip_us as u64, Control::Pace(defaults()), 1);
        network.seed = seed;
        network.detour = Some((5000, (round_trip_us * (times - 1.0)) as u64));
        let share = share_delivered(&network, 17_000, 20_000);
        prop_assert!(share > 0.85, "{share}");
    }
}
