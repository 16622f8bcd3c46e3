//! How soon a flow leaves an uplink that dies or worsens, and what it suffers besides.

use std::ops::Range;
use std::time::Duration;

use anyhow::Result;

use super::flow;
use super::path;
use super::scenario::{Event, Quality, SPIKE_MS, Scenario, TROUBLE};
use tarn_lab::load::Exchange;
use tarn_lab::stats::Sample;

/// What happens once to one of the uplinks.
pub struct Trouble {
    uplinks: &'static [Quality],
    /// When, by the monotonic clock, in nanoseconds.
    at: u64,
}

/// How a flow got away.
#[derive(Debug, Clone, PartialEq)]
pub struct Left {
    /// From the beginning of the trouble to the sending of the first request behind the last one that suffered.
    pub after: Duration,
    /// The 99.9th percentile of the round trips of all requests from that one on, in milliseconds.
    pub p999_ms: f64,
    /// When what was under way on the uplink that was left had been sent: from just before the trouble to the leaving.
    under_way: Range<u64>,
}

impl Left {
    /// Answers of a flow that were overtaken though their requests had not been sent while the uplink that was left was in use.
    pub fn overtaken_elsewhere(&self, exchanges: &[Exchange]) -> usize {
        let is_elsewhere = |exchange: &&Exchange| !self.under_way.contains(&exchange.sent_ns);
        flow::overtaken(exchanges).filter(is_elsewhere).count()
    }
}

impl Trouble {
    /// Of a scenario whose flows began at a time, if it has any.
    pub fn of(scenario: &Scenario, began: u64) -> Option<Self> {
        let is_any = scenario.uplinks.iter().any(|uplink| uplink.event.is_once());
        is_any.then(|| Self {
            uplinks: scenario.uplinks,
            at: began + nanoseconds(TROUBLE.0),
        })
    }

    /// How a flow got away from it; `None` when nothing of it suffered, or nothing came after what did.
    ///
    /// # Errors
    /// A round trip that is no number.
    pub fn left(&self, exchanges: &[Exchange]) -> Result<Option<Left>> {
        let until = self.at + nanoseconds(TROUBLE.1);
        let suffered = |exchange: &Exchange| (self.at..until).contains(&exchange.sent_ns) && self.is_held_up(exchange);
        let Some(last) = exchanges.iter().rposition(suffered) else {
            return Ok(None);
        };
        let behind = &exchanges[last + 1..];
        let Some(first) = behind.first() else { return Ok(None) };
        let round_trips: Vec<f64> = behind.iter().filter_map(milliseconds).collect();
        if round_trips.is_empty() {
            return Ok(None);
        }
        Ok(Some(Left {
            after: Duration::from_nanos(first.sent_ns - self.at),
            p999_ms: Sample::new(round_trips)?.summary().p999,
            // What was on its way back when the trouble began suffers, too.
            under_way: self.at - SPIKE_MS * 1_000_000..first.sent_ns,
        }))
    }

    /// Whether a request was lost, or took longer than any uplink takes by itself.
    fn is_held_up(&self, exchange: &Exchange) -> bool {
        milliseconds(exchange).is_none_or(|round_trip| path::is_held_up(round_trip, self.uplinks))
    }
}

/// The name of the figure that tells how soon an uplink is left.
pub fn metric(scenario: &Scenario) -> &'static str {
    match scenario.with(Event::Worsens) {
        Some(_) => "leave_bad_path_ms",
        None => "leave_dead_path_ms",
    }
}

fn milliseconds(exchange: &Exchange) -> Option<f64> {
    exchange.round_trip_ns().map(|round_trip| round_trip as f64 / 1e6)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::exchange;
    use super::super::scenario::SCENARIOS;
    use super::*;

    const MS: u64 = 1_000_000;
    /// When the flows begin.
    const BEGAN: u64 = 1_000 * MS;

    /// Requests sent so many milliseconds after the trouble began, with their round trips.
    fn left(suffix: &str, requests: &[(i64, Option<u64>)]) -> Option<Left> {
        left_of(suffix, requests).0
    }

    /// The same, and the requests.
    fn left_of(suffix: &str, requests: &[(i64, Option<u64>)]) -> (Option<Left>, Vec<Exchange>) {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.suffix == suffix).unwrap();
        let trouble = Trouble::of(scenario, BEGAN).unwrap();
        let of = |&(after, round_trip): &(i64, Option<u64>)| {
            let sent = trouble.at.saturating_add_signed(after * MS as i64);
            exchange(sent, round_trip.map(|round_trip| sent + round_trip * MS))
        };
        let exchanges: Vec<Exchange> = requests.iter().map(of).collect();
        (trouble.left(&exchanges).unwrap(), exchanges)
    }

    #[test]
    fn a_dead_uplink_is_left_with_the_first_request_behind_what_is_lost() {
        let requests = [(-8, Some(20)), (2, None), (12, None), (22, Some(35)), (32, Some(36))];
        let found = left("dies", &requests).unwrap();
        assert_eq!((found.after, found.p999_ms), (Duration::from_millis(22), 36.0));
        assert_eq!(left("dies", &requests[..3]), None, "never");
        assert_eq!(
            left("dies", &[(-8, None), (2, Some(20)), (9000, None)]),
            None,
            "another reason"
        );
    }

    /// Who goes back to it has not left it; who stays, leaves it when it is well again.
    #[test]
    fn a_bad_uplink_is_left_for_good() {
        let stays = [(-5, Some(110)), (100, Some(200)), (4900, Some(200)), (5010, Some(20))];
        let returns = [(0, Some(200)), (20, Some(30)), (40, Some(200)), (60, Some(30))];
        assert_eq!(left("worsens", &stays).unwrap().after, Duration::from_millis(5010));
        assert_eq!(left("worsens", &returns).unwrap().after, Duration::from_millis(60));
        assert_eq!(
            left("worsens", &[(0, Some(30)), (20, Some(30))]),
            None,
            "nothing suffered"
        );
    }

    #[test]
    fn only_what_was_under_way_on_it_may_be_overtaken() {
        let requests = [
            (-300, Some(20)),
            (0, Some(200)),
            (20, Some(30)),
            (40, Some(32)),
            (41, Some(30)),
        ];
        let (left, exchanges) = left_of("worsens", &requests);
        assert_eq!(left.unwrap().overtaken_elsewhere(&exchanges), 1);
    }
}
