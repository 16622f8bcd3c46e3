//! What a case came to.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::flow::{self, FlowFigures};
use crate::lab::load::{Exchange, Exchanges};

/// What came of the flows of a case.
pub struct Figures {
    /// The game's round trips, in milliseconds, in the order sent.
    pub game_ms: Vec<f64>,
    /// When each of them was sent, in seconds after the first request was due.
    pub game_s: Vec<f64>,
    game: FlowFigures,
    call: FlowFigures,
    ping: FlowFigures,
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
        Ok(Self {
            game: FlowFigures::of(&flows.game)?,
            call: FlowFigures::of(&flows.call)?,
            ping: FlowFigures::of(&flows.ping)?,
            game_ms: flow::round_trips_ms(&flows.game),
            game_s: sent_s(flows.game.list()),
            path_changes,
            bulk_mbit_s: flows.bulk_mbit_s,
            leave: death.and_then(|death| silence(flows.game.list(), death)),
        })
    }

    /// The standard deviation of the game's round trips, in milliseconds.
    pub fn deviation(&self) -> f64 {
        self.game.summary.standard_deviation
    }

    /// Their 99.9th percentile.
    pub fn p999(&self) -> f64 {
        self.game.summary.p999
    }

    /// Requests of the game that were not answered.
    pub fn lost(&self) -> u64 {
        self.game.lost
    }

    /// The share of the game's answers that others overtook.
    pub fn reordered_share(&self) -> f64 {
        self.game.reordered as f64 / self.game.sent.max(1) as f64
    }

    /// The row of the table.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let mut metrics = vec![
            ("reordered", self.game.reordered as f64),
            ("reordered_share", self.reordered_share()),
            ("path_changes", self.path_changes as f64),
            ("bulk_mbit_s", self.bulk_mbit_s),
        ];
        metrics.extend(
            self.leave
                .map(|leave| ("leave_dead_path_ms", leave.as_secs_f64() * 1e3)),
        );
        let flows = [("game", &self.game), ("call", &self.call), ("ping", &self.ping)];
        let of_flows = flows.into_iter().flat_map(|(name, flow)| flow.metrics(name));
        let others = metrics.into_iter().map(|(name, value)| (name.to_owned(), value));
        of_flows.chain(others).collect()
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

/// From `death` to the sending of the first request that is answered, of those behind the first one that is lost.
fn silence(exchanges: &[Exchange], death: u64) -> Option<Duration> {
    let mut lost = exchanges
        .iter()
        .skip_while(|exchange| exchange.sent_ns < death || exchange.answer.is_some());
    let again = lost.find(|exchange| exchange.answer.is_some())?;
    Some(Duration::from_nanos(again.sent_ns - death))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::lab::load::Answer;

    /// A request that was sent at a time, and its answer.
    pub fn exchange(sent_ns: u64, received_ns: Option<u64>) -> Exchange {
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
    fn silence_lasts_until_a_request_is_answered_again() {
        let list = [(90, Some(95)), (100, None), (110, None), (120, Some(130))]
            .map(|(sent, received)| exchange(sent, received));
        assert_eq!(silence(&list, 98), Some(Duration::from_nanos(22)));
        assert_eq!(silence(&list[..3], 98), None);
    }
}
