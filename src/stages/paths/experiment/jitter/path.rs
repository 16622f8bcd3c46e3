//! Which uplink an answer came by. Nothing on the way writes that down; the round trip tells it.

use super::scenario::{Event, Quality};

/// How far a round trip may lie from an uplink's own, in milliseconds. It varies by [`super::scenario::JITTER`] on each of both ways,
/// 0.5 ms together, and queues behind a packet of TCP and waits for a CPU now and then; the uplinks of a scenario are 5 ms apart at
/// least.
const NEAR_MS: f64 = 2.5;

/// The index of the uplink that an answer came by, where the uplinks differ in their round trips: the one whose own is nearest. A round
/// trip that is near none is that of the uplink with spikes, where there is one: besides [`super::scenario::SPIKE_MS`] it has every one
/// in between, when a spike begins or ends between the two ways of a packet, and just after it, because packets do not overtake.
///
/// It is told wrong where such a round trip happens to be another uplink's own, and where there are spikes, where an answer by another
/// uplink was held up by more than [`NEAR_MS`].
pub fn of(round_trip_ms: f64, uplinks: &[Quality]) -> usize {
    let distance = |index: usize| (round_trip_ms - uplinks[index].round_trip_ms as f64).abs();
    let nearest = (0..uplinks.len())
        .min_by(|&a, &b| distance(a).total_cmp(&distance(b)))
        .unwrap_or_default();
    let with_spikes = uplinks.iter().position(|uplink| uplink.event == Event::Spikes);
    match with_spikes {
        Some(with_spikes) if distance(nearest) > NEAR_MS => with_spikes,
        _ => nearest,
    }
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
        for scenario in ["spikes", "three"].map(uplinks) {
            for round_trip in [SPIKE_MS as f64, 110.0, 60.0, 36.0] {
                assert_eq!(of(round_trip, scenario), 0, "{round_trip}");
            }
        }
        assert_eq!(of(47.0, uplinks("dies")), 1);
    }

    #[test]
    fn equal_uplinks_are_not_told_apart() {
        let told = SCENARIOS.each_ref().map(|scenario| can_be_told(scenario.uplinks));
        assert_eq!(told, [true, true, true, false, true]);
    }
}
