//! What one flow of requests and answers came to: the figures of the published table, and what else is lost by a bad path.

use anyhow::Result;

use tarn_lab::load::{Exchange, Exchanges};
use tarn_lab::stats::{Sample, Summary};

/// Round trips of at least so many milliseconds are counted.
const THRESHOLDS_MS: [u32; 3] = [50, 100, 150];

/// The figures of a flow.
pub struct FlowFigures {
    /// Of the round trips, in milliseconds.
    pub summary: Summary,
    /// Requests.
    pub sent: u64,
    /// Requests that were not answered.
    pub lost: u64,
    /// Answers that others overtook.
    pub reordered: usize,
    /// Round trips at or above each threshold.
    above: [usize; THRESHOLDS_MS.len()],
}

impl FlowFigures {
    /// Counts and summarises.
    ///
    /// # Errors
    /// When nothing was answered.
    pub fn of(exchanges: &Exchanges) -> Result<Self> {
        let sample = Sample::new(round_trips_ms(exchanges))?;
        Ok(Self {
            summary: sample.summary(),
            sent: exchanges.sent_count(),
            lost: exchanges.sent_count() - exchanges.answered_count(),
            reordered: overtaken(exchanges.list()).count(),
            above: THRESHOLDS_MS.map(|threshold| sample.at_least(threshold.into())),
        })
    }

    /// All of them, with their names, which begin with the flow's.
    pub fn metrics(&self, flow: &str) -> Vec<(String, f64)> {
        let summary = &self.summary;
        let figures = [
            ("min_ms", summary.min),
            ("mean_ms", summary.mean),
            ("median_ms", summary.median),
            ("p95_ms", summary.p95),
            ("p99_ms", summary.p99),
            ("p999_ms", summary.p999),
            ("max_ms", summary.max),
            ("stdev_ms", summary.standard_deviation),
            ("lost", self.lost as f64),
            ("reordered", self.reordered as f64),
        ];
        let named = figures
            .into_iter()
            .map(|(name, value)| (format!("{flow}_{name}"), value));
        let counted = THRESHOLDS_MS.iter().zip(self.above);
        named
            .chain(counted.map(|(threshold, count)| (format!("{flow}_from_{threshold}_ms"), count as f64)))
            .collect()
    }
}

/// The round trips, in milliseconds, in the order sent.
pub fn round_trips_ms(exchanges: &Exchanges) -> Vec<f64> {
    exchanges.round_trips_us().into_iter().map(|us| us / 1e3).collect()
}

/// The requests whose answers came after one to a later request: those are the reordered ones (RFC 4737, section 3).
pub fn overtaken(exchanges: &[Exchange]) -> impl Iterator<Item = &Exchange> {
    let answered = exchanges
        .iter()
        .rev()
        .filter_map(|exchange| Some((exchange, exchange.answer?.received_ns)));
    answered
        .scan(u64::MAX, |earliest, (exchange, received)| {
            let is_overtaken = received > *earliest;
            *earliest = received.min(*earliest);
            Some(is_overtaken.then_some(exchange))
        })
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::exchange;
    use super::*;

    #[test]
    fn an_answer_that_is_overtaken_counts_once_and_who_overtakes_does_not() {
        let list = [
            (0, Some(100)),
            (1, Some(20)),
            (2, None),
            (3, Some(50)),
            (4, Some(45)),
            (5, Some(120)),
        ];
        let list = list.map(|(sent, received)| exchange(sent, received));
        let found: Vec<u64> = overtaken(&list).map(|exchange| exchange.sent_ns).collect();
        assert_eq!(found, [3, 0]);
    }

    #[test]
    fn every_flow_has_the_figures_of_the_published_table() {
        let round_trips = [20.0, 50.0, 49.9, 200.0];
        let sample = Sample::new(round_trips).unwrap();
        let figures = FlowFigures {
            summary: sample.summary(),
            sent: 5,
            lost: 1,
            reordered: 0,
            above: THRESHOLDS_MS.map(|threshold| sample.at_least(threshold.into())),
        };
        let metrics = figures.metrics("call");
        let of = |name: &str| metrics.iter().find(|(found, _)| found == name).unwrap().1;
        assert_eq!(
            (of("call_min_ms"), of("call_max_ms"), of("call_lost")),
            (20.0, 200.0, 1.0)
        );
        assert_eq!(
            ["call_from_50_ms", "call_from_100_ms", "call_from_150_ms"].map(of),
            [2.0, 1.0, 1.0]
        );
    }
}
