//! What a case came to.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use crate::lab::load::{Exchange, Exchanges};
use crate::lab::stats::{Sample, Summary};

/// What came of the flows of a case.
pub struct Figures {
    /// The game's round trips, in milliseconds, in the order sent.
    pub game_ms: Vec<f64>,
    /// When each of them was sent, in seconds after the first request was due.
    pub game_s: Vec<f64>,
    game: Summary,
    call: Summary,
    ping: Summary,
    /// Requests of the game that were not answered.
    pub lost: u64,
    reordered: u64,
    sent: u64,
    /// Changes of the uplink: see [`super::scene::Scene::changes`].
    pub path_changes: u64,
    bulk_mbit_s: f64,
    /// How long nothing of the game came through after its uplink had died.
    pub leave: Option<Duration>,
}

/// The flows as they were run.
pub struct Flows {
    /// 60 requests a second.
    pub game: Exchanges,
    /// 50 a second.
    pub call: Exchanges,
    /// 10 a second.
    pub ping: Exchanges,
    /// What TCP brought to the server, in Mbit/s.
    pub bulk_mbit_s: f64,
}

impl Figures {
    /// Counts and summarises. `death` is when an uplink died, by the monotonic clock.
    pub fn of(flows: &Flows, path_changes: u64, death: Option<u64>) -> Result<Self> {
        let ms = |exchanges: &Exchanges| {
            exchanges
                .round_trips_us()
                .into_iter()
                .map(|us| us / 1e3)
                .collect::<Vec<f64>>()
        };
        let summary = |exchanges: &Exchanges| Sample::new(ms(exchanges)).map(|sample| sample.summary());
        let game_ms = ms(&flows.game);
        Ok(Self {
            game: summary(&flows.game)?,
            call: summary(&flows.call)?,
            ping: summary(&flows.ping)?,
            game_ms,
            game_s: sent_s(flows.game.list()),
            lost: flows.game.sent_count() - flows.game.answered_count(),
            reordered: reordered(flows.game.list()),
            sent: flows.game.sent_count(),
            path_changes,
            bulk_mbit_s: flows.bulk_mbit_s,
            leave: death.and_then(|death| silence(flows.game.list(), death)),
        })
    }

    /// The standard deviation of the game's round trips, in milliseconds.
    pub fn deviation(&self) -> f64 {
        self.game.standard_deviation
    }

    /// Their 99.9th percentile.
    pub fn p999(&self) -> f64 {
        self.game.p999
    }

    /// The share of the game's answers that others overtook.
    pub fn reordered_share(&self) -> f64 {
        self.reordered as f64 / self.sent.max(1) as f64
    }

    /// The row of the table.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let mut metrics = vec![
            ("game_min_ms", self.game.min),
            ("game_mean_ms", self.game.mean),
            ("game_median_ms", self.game.median),
            ("game_p95_ms", self.game.p95),
            ("game_p99_ms", self.game.p99),
            ("game_p999_ms", self.game.p999),
            ("game_max_ms", self.game.max),
            ("game_stdev_ms", self.game.standard_deviation),
            ("game_lost", self.lost as f64),
            ("call_stdev_ms", self.call.standard_deviation),
            ("call_p99_ms", self.call.p99),
            ("ping_stdev_ms", self.ping.standard_deviation),
            ("reordered", self.reordered as f64),
            ("reordered_share", self.reordered_share()),
            ("path_changes", self.path_changes as f64),
            ("bulk_mbit_s", self.bulk_mbit_s),
        ];
        metrics.extend(
            self.leave
                .map(|leave| ("leave_dead_path_ms", leave.as_secs_f64() * 1e3)),
        );
        metrics
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// When the requests that were answered were sent, in seconds after the first one was due, to the millisecond.
fn sent_s(exchanges: &[Exchange]) -> Vec<f64> {
    let first = exchanges.first().map_or(0, |exchange| exchange.due_ns);
    exchanges
        .iter()
        .filter(|exchange| exchange.answer.is_some())
        .map(|exchange| (exchange.sent_ns.saturating_sub(first) as f64 / 1e6).round() / 1e3)
        .collect()
}

/// How many answers came after one to a later request.
fn reordered(exchanges: &[Exchange]) -> u64 {
    let mut latest = 0;
    let mut count = 0;
    for received in exchanges
        .iter()
        .filter_map(|exchange| exchange.answer)
        .map(|answer| answer.received_ns)
    {
        count += u64::from(received < latest);
        latest = latest.max(received);
    }
    count
}

/// From `death` to the sending of the first request that is answered, of those behind the first one that is lost.
fn silence(exchanges: &[Exchange], death: u64) -> Option<Duration> {
    let mut lost = exchanges
        .iter()
        .skip_while(|exchange| exchange.sent_ns < death || exchange.answer.is_some());
    let again = lost.find(|exchange| exchange.answer.is_some())?;
    Some(Duration::from_nanos(again.sent_ns - death))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::load::Answer;

    fn exchange(sent_ns: u64, received_ns: Option<u64>) -> Exchange {
        Exchange {
            sequence: 0,
            due_ns: sent_ns,
            sent_ns,
            refused: 0,
            answer: received_ns.map(|received_ns| Answer {
                received_ns,
                from: ([10, 0, 0, 1], 1).into(),
                intact: true,
            }),
        }
    }

    #[test]
    fn an_answer_that_is_overtaken_counts_once() {
        let list = [(0, Some(100)), (1, Some(20)), (2, None), (3, Some(50)), (4, Some(120))];
        assert_eq!(reordered(&list.map(|(sent, received)| exchange(sent, received))), 2);
    }

    /// Without it the silence of a dead uplink could not be seen in the course.
    #[test]
    fn an_answer_stands_where_its_request_was_sent() {
        let list = [(5_000_000, Some(9)), (6_000_000, None), (2_505_400_000, Some(9))]
            .map(|(sent, received)| exchange(sent, received));
        assert_eq!(sent_s(&list), [0.0, 2.5]);
        assert!(sent_s(&[]).is_empty());
    }

    #[test]
    fn silence_lasts_until_a_request_is_answered_again() {
        let list = [(90, Some(95)), (100, None), (110, None), (120, Some(130))]
            .map(|(sent, received)| exchange(sent, received));
        assert_eq!(silence(&list, 98), Some(Duration::from_nanos(22)));
        assert_eq!(silence(&list[..3], 98), None);
    }
}
