//! How long a queue lasts that a drop of the bandwidth has filled.

use std::ops::Range;
use std::time::Duration;

use super::floor::Change;

/// A round trip that began then, since the beginning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrip {
    /// When it began.
    pub at: Duration,
    /// How long it took.
    pub took: Duration,
}

/// The time from a drop until, after the longest round trip, one is within a half of that without a queue: the mean of all drops in
/// the measured time. One that the whole time at the lower rate does not suffice for counts as that. `None` without a drop.
pub fn drained(
    changes: &[Change],
    round_trips: &[RoundTrip],
    round_trip: Duration,
    measured: &Range<Duration>,
) -> Option<Duration> {
    let ends = changes.iter().skip(2).map(|change| change.at).chain([measured.end]);
    let drops = changes.windows(2).zip(ends).filter_map(|(pair, end)| {
        let is_drop = pair[1].rate < pair[0].rate && measured.contains(&pair[1].at);
        is_drop.then_some(pair[1].at..end)
    });
    let times: Vec<Duration> = drops
        .map(|low| after_drop(&low, round_trips, round_trip * 3 / 2))
        .collect();
    (!times.is_empty()).then(|| times.iter().sum::<Duration>() / times.len() as u32)
}

fn after_drop(low: &Range<Duration>, round_trips: &[RoundTrip], short: Duration) -> Duration {
    let inside = || round_trips.iter().filter(|one| low.contains(&one.at));
    let longest = inside().max_by_key(|one| one.took).map_or(low.start, |one| one.at);
    let first = inside().find(|one| one.at >= longest && one.took <= short);
    first.map_or(low.end, |one| one.at) - low.start
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// What is called drained while the queue is full would flatter whoever fills it.
    #[test]
    fn a_queue_has_gone_when_round_trips_are_short_after_the_longest() {
        let change = |at, rate| Change { at: ms(at), rate };
        let changes = [change(0, 20), change(1000, 8), change(2000, 20)];
        // Short until the queue has grown, and again 400 ms after the drop.
        let took = |at| if (1100..1400).contains(&at) { 90 } else { 40 };
        let round_trips: Vec<RoundTrip> = (0..300)
            .map(|number| 10 * number)
            .map(|at| RoundTrip {
                at: ms(at),
                took: ms(took(at)),
            })
            .collect();
        let of = |changes: &[Change]| drained(changes, &round_trips, ms(40), &(ms(0)..ms(3000)));
        assert_eq!(of(&changes), Some(ms(400)));
        let never = [change(0, 20), change(1050, 8), change(1350, 20)];
        assert_eq!(of(&never), Some(ms(300)));
        assert_eq!(of(&changes[..1]), None);
    }
}
