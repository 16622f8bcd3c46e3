//! Bounds of window and pace.

use proptest::prelude::*;

use super::cases;
use super::generated::networks;
use crate::simulator::core::{Connection, State, burst};
use crate::simulator::network::{PACKET_BYTES, SEGMENT_BYTES};
use crate::skeleton::core::pace_socket;

use crate::simulator::{Observer, View, watch};

/// The largest gains of core/, parts of 256: of the window while probing and draining, and of the pace once start-up is over.
const PROBE_WINDOW: u32 = 512;
const DRAIN_WINDOW: u32 = 739;
const PACE: f64 = 448.0;
/// A burst, an even number, and two for a probe.
const BESIDES: u32 = 0x7f + 1 + 2;
const WINDOW_MIN: u32 = 4;
const WINDOW_CROWDED: u32 = 2;

/// What the window may be.
fn most(connection: &Connection) -> u32 {
    let product = match connection.state() {
        State::Startup => return u32::MAX,
        State::Drain => connection.product(DRAIN_WINDOW) + BESIDES,
        State::Probe => connection.product(PROBE_WINDOW) + BESIDES,
        State::Response => connection.product(256),
        State::ProbeRtt => connection.product(128),
    };
    product.max(WINDOW_MIN)
}

/// Remembers what was out of bounds.
#[derive(Default)]
struct Bounds {
    small: Vec<String>,
    large: Vec<String>,
    fast: Vec<String>,
    overestimated: Vec<String>,
    /// Of the bottleneck, bytes of payload a second.
    largest_rate: f64,
}

impl Observer for Bounds {
    fn acknowledged(&mut self, now: u64, flow: usize, segments: u32, view: View<'_>) {
        let Some(connection) = view.connection.filter(|_| segments > 0) else {
            return;
        };
        let say = || format!("{now} ns, flow {flow}: {view:?}");
        if view.window < WINDOW_CROWDED && !connection.conserves() {
            self.small.push(say());
        }
        if !connection.is_full() {
            return;
        }
        if view.window > most(connection) {
            self.large.push(say());
        }
        // As bytes of payload a second. Two percent: acknowledgements of two segments, and the delay of one.
        let rate = connection.estimate() * SEGMENT_BYTES as f64;
        if connection.rounds() > 20 && rate > 1.02 * self.largest_rate {
            self.overestimated.push(say());
        }
        if connection.rounds() > 20 && view.pacing as f64 > self.largest_rate * PACE / 256.0 {
            self.fast.push(say());
        }
    }
}

proptest! {
    #![proptest_config(cases(48))]

    /// With a smaller window a delayed acknowledgement would stop the flow each time; a larger one or a faster pace than the model says
    /// fills the queue that all others wait in.
    #[test]
    fn window_and_pace_stay_within_what_the_model_says(network in networks()) {
        let largest_rate = network.rate as f64 / 8.0 * SEGMENT_BYTES as f64 / PACKET_BYTES as f64;
        let mut bounds = Bounds { largest_rate, ..Bounds::default() };
        watch(&network, &mut bounds);
        prop_assert!(bounds.small.is_empty(), "below four: {}", bounds.small[0]);
        prop_assert!(bounds.large.is_empty(), "above the model: {}", bounds.large[0]);
        prop_assert!(bounds.overestimated.is_empty(), "estimated too high: {}", bounds.overestimated[0]);
        prop_assert!(bounds.fast.is_empty(), "faster than the path: {}", bounds.fast[0]);
    }
}

/// The packets of a burst, by the kernel's rule: what a pace (bytes a second) sends in 1/1024 s, in whole packets; at least two, below
/// 1.2 Mbit/s one (tcp_tso_autosize(), bbr_tso_segs_goal() of net/ipv4/tcp_bbr.c).
fn packets_of_a_burst(mss: u32, pacing: u64) -> u32 {
    let packets = (pacing >> 10).min(65_536 - 1 - 320) / u64::from(mss);
    packets.clamp(if pacing < 150_000 { 1 } else { 2 }, 0x7f) as u32
}

/// The window would differ from the documented one, where the BPF program leaves the division out.
#[test]
fn a_burst_without_a_division_is_that_of_the_kernels_rule() {
    for mss in 48..65_536_u32 {
        let socket = pace_socket {
            mss,
            ..pace_socket::default()
        };
        // Where the rule changes: at 1.2 Mbit/s, and at one to four packets in 1/1024 s.
        let steps = (1..=4).map(|packets| (packets * u64::from(mss)) << 10);
        let edges = steps.chain([150_000, 65_215 << 10, u64::MAX - 1]);
        for pacing in edges.flat_map(|edge| [edge - 1, edge, edge + 1]) {
            let expected = packets_of_a_burst(mss, pacing);
            assert_eq!(burst(&socket, pacing), expected, "{mss} bytes, {pacing} bytes/s");
        }
    }
}
