//! What a case came to.

use std::collections::BTreeMap;

use anyhow::Result;

use super::flow::{self, FlowFigures};
use super::leave::{self, Left, Trouble};
use super::scenario::Scenario;
use tarn_lab::load::{Exchange, Exchanges};

/// What came of the flows of a case.
pub struct Steadiness {
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
    /// How the game left an uplink that died or worsened.
    pub left: Option<Left>,
    /// Answers of any flow that were overtaken, though they had not been under way on the uplink that was left.
    pub overtaken_elsewhere: usize,
    /// Flows that began after all others had ended.
    pub new: usize,
    /// Their round trips, in milliseconds, of those that were answered.
    pub new_ms: Vec<f64>,
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
    /// A request each of flows that began after all others had ended.
    pub new: Vec<Exchanges>,
}

impl Steadiness {
    /// Counts and summarises.
    pub fn of(flows: &Flows, path_changes: u64, trouble: Option<&Trouble>) -> Result<Self> {
        let left = trouble.map(|trouble| trouble.left(flows.game.list())).transpose()?;
        let left = left.flatten();
        let elsewhere = |flow: &Exchanges| left.as_ref().map_or(0, |left| left.overtaken_elsewhere(flow.list()));
        Ok(Self {
            game: FlowFigures::of(&flows.game)?,
            call: FlowFigures::of(&flows.call)?,
            ping: FlowFigures::of(&flows.ping)?,
            game_ms: flow::round_trips_ms(&flows.game),
            game_s: sent_s(flows.game.list()),
            path_changes,
            bulk_mbit_s: flows.bulk_mbit_s,
            overtaken_elsewhere: [&flows.game, &flows.call, &flows.ping].map(elsewhere).iter().sum(),
            left,
            new: flows.new.len(),
            new_ms: flows.new.iter().flat_map(flow::round_trips_ms).collect(),
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

    /// Requests of the game.
    pub fn game_sent(&self) -> u64 {
        self.game.sent
    }

    /// Answers of the game, the call and the ping that others of theirs overtook.
    pub fn reordered(&self) -> usize {
        [&self.game, &self.call, &self.ping]
            .map(|flow| flow.reordered)
            .iter()
            .sum()
    }

    /// The same of the game alone.
    pub fn reordered_of_game(&self) -> usize {
        self.game.reordered
    }

    /// The share of the game's answers that others overtook.
    fn reordered_share(&self) -> f64 {
        self.game.reordered as f64 / self.game.sent.max(1) as f64
    }

    /// The row of the table.
    pub fn metrics(&self, scenario: &Scenario) -> BTreeMap<String, f64> {
        let mut metrics = vec![
            ("reordered", self.game.reordered as f64),
            ("reordered_share", self.reordered_share()),
            ("path_changes", self.path_changes as f64),
            ("bulk_mbit_s", self.bulk_mbit_s),
        ];
        metrics.extend(
            self.left
                .as_ref()
                .map(|left| (leave::metric(scenario), left.after.as_secs_f64() * 1e3)),
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

#[cfg(test)]
pub mod tests {
    use super::*;
    use tarn_lab::load::Answer;

    /// A request that was sent at a time, and its answer.
    pub fn exchange(sent_ns: u64, received_ns: Option<u64>) -> Exchange {
        Exchange {
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
}
