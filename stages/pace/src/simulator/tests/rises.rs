//! The rate rises again.

use proptest::prelude::*;

use super::cases;
use super::generated::rising;
use crate::simulator::network::{Course, MS, Network, PACKET_BYTES, SECOND};

use crate::simulator::{Observer, View, watch};

/// Segments delivered in each round trip after a time.
struct AfterRise {
    rises: u64,
    round_trip: u64,
    delivered: Vec<u32>,
}

impl Observer for AfterRise {
    fn acknowledged(&mut self, now: u64, _: usize, segments: u32, _: View<'_>) {
        let Some(since) = now.checked_sub(self.rises) else {
            return;
        };
        let index = (since / self.round_trip) as usize;
        if self.delivered.len() <= index {
            self.delivered.resize(index + 1, 0);
        }
        self.delivered[index] += segments;
    }
}

impl AfterRise {
    /// The round trip from which on four together bring 85 % of a rate in bit/s.
    fn whole_after(&self, rate: u64) -> usize {
        let four = 0.85 * rate as f64 * (4 * self.round_trip) as f64 / (SECOND * PACKET_BYTES * 8) as f64;
        let whole = self
            .delivered
            .windows(4)
            .position(|four_round_trips| f64::from(four_round_trips.iter().sum::<u32>()) >= four);
        whole.unwrap_or(usize::MAX)
    }
}

/// The round trip, with four packets at the lower rate, ns: on a path that carries less than a packet in its delay, a round trip
/// is what these take.
fn round_trip(network: &Network) -> u64 {
    let Course::Script(script) = &network.course else {
        return 1;
    };
    let lowest = script.iter().map(|(_, rate)| *rate).min().unwrap_or(1);
    network.round_trip_us * 1000 + 4 * PACKET_BYTES * 8 * SECOND / lowest
}

/// Round trips until the whole rate is used again. Half of all cases take 4, 99 of 100 take 12. It can be up to 74 where the drop
/// overran a buffer of little more than half a product: the bound that loss has set is forgotten only slowly.
const WITHIN: usize = 120;

proptest! {
    #![proptest_config(cases(32))]

    /// After a moment of bad radio the rest of a download would be slow.
    #[test]
    fn the_whole_rate_is_used_again((network, rises) in rising()) {
        let round_trip = round_trip(&network);
        let mut after = AfterRise { rises: rises * MS, round_trip, delivered: Vec::new() };
        watch(&network, &mut after);
        let whole = after.whole_after(network.rate);
        prop_assert!(whole <= WITHIN, "{whole} round trips");
    }
}
