//! Which uplink an answer came by. Nothing on the way writes that down; the round trip tells it.

use super::scenario::{Event, Quality};

/// How far a round trip may lie from an uplink's own, in milliseconds. It varies by [`super::scenario::JITTER`] on each of both ways,
/// 0.5 ms together, and queues behind a packet of TCP and waits for a CPU now and then; the uplinks of a scenario are 5 ms apart at
/// least.
const NEAR_MS: f64 = 2.5;

/// The index of the uplink that an answer came by, where the uplinks differ in their round trips: the one whose own is nearest. A round
/// trip that is near none is that of the uplink with spikes or a long one, where there is one: besides [`super::scenario::SPIKE_MS`] it
/// has every one in between, when a spike begins or ends between the two ways of a packet, and just after it, because packets do not
/// overtake.
///
/// It is told wrong where such a round trip happens to be another uplink's own, and where there are spikes, where an answer by another
/// uplink was held up by more than [`NEAR_MS`].
pub fn of(round_trip_ms: f64, uplinks: &[Quality]) -> usize {
    let (nearest, _) = nearest(round_trip_ms, uplinks);
    let is_slow_at_times = |uplink: &Quality| matches!(uplink.event, Event::Spikes | Event::Worsens);
    let with_spikes = uplinks.iter().position(is_slow_at_times);
    match with_spikes {
        Some(with_spikes) if is_held_up(round_trip_ms, uplinks) => with_spikes,
        _ => nearest,
    }
}

/// Whether a round trip is near none of the uplinks' own.
pub fn is_held_up(round_trip_ms: f64, uplinks: &[Quality]) -> bool {
    nearest(round_trip_ms, uplinks).1 > NEAR_MS
}

/// The index of the uplink whose own round trip is nearest, and how far it is, in milliseconds.
fn nearest(round_trip_ms: f64, uplinks: &[Quality]) -> (usize, f64) {
    let distances = uplinks
        .iter()
        .map(|uplink| (round_trip_ms - uplink.round_trip_ms as f64).abs());
    let nearest = distances
        .enumerate()
        .min_by(|(_, one), (_, other)| one.total_cmp(other));
    nearest.unwrap_or_default()
}

/// Whether the uplinks differ in their round trips, so that [`of`] can tell them apart.
#[cfg(test)]
pub fn can_be_told(uplinks: &[Quality]) -> bool {
    let same = |(index, uplink): (usize, &Quality)| {
        uplinks[..index]
            .iter()
            .any(|other| other.round_trip_ms == uplink.round_trip_ms)
    };
    !uplinks.iter().enumerate().any(same)
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{JITTER, SCENARIOS, SPIKE_MS};
    use super::*;

    fn uplinks(suffix: &str) -> &'static [Quality] {
        SCENARIOS
            .iter()
            .find(|scenario| scenario.suffix == suffix)
            .unwrap()
            .uplinks
    }

    /// In every scenario where an answer's uplink is told at all, its own round trip tells it, however much that varies.
    #[test]
    fn the_own_round_trip_tells_the_uplink() {
        let varies = JITTER.as_secs_f64() * 2e3;
        for scenario in SCENARIOS.iter().filter(|scenario| can_be_told(scenario.uplinks)) {
            for (index, uplink) in scenario.uplinks.iter().enumerate() {
                for by in [-varies, 0.0, varies] {
                    let round_trip = uplink.round_trip_ms as f64 + by;
                    assert_eq!(
                        of(round_trip, scenario.uplinks),
                        index,
                        "{} {round_trip}",
                        scenario.suffix
                    );
                }
            }
        }
    }

    /// 110 ms is nearer to 30 than to 200, and yet it is half a spike.
    #[test]
    fn a_spike_and_what_is_left_of_it_is_of_the_uplink_with_spikes() {
        for scenario in ["spikes", "worsens", "three"].map(uplinks) {
            for round_trip in [SPIKE_MS as f64, 110.0, 60.0, 36.0] {
                assert_eq!(of(round_trip, scenario), 0, "{round_trip}");
            }
        }
        assert_eq!(of(47.0, uplinks("dies")), 1);
    }

    #[test]
    fn equal_uplinks_are_not_told_apart() {
        let told = SCENARIOS.each_ref().map(|scenario| can_be_told(scenario.uplinks));
        assert_eq!(told, [true, true, true, true, false, true]);
    }
}
