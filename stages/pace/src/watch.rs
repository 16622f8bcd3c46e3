//! `tarn pace watch`: the connections' figures, a line at each interval.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use clap::ArgMatches;
use serde_json::{Value, json};

use crate::STAGE;
use crate::figures::sums::{mbit_s, mean_rtt_ms, min_rtt_ms, short_or_dash};
use crate::figures::{self, connection};
use crate::skeleton::connections::types::pace_connection;
use crate::standing::config_of;
use tarn_base::figures::rounded;
use tarn_base::output::Output;
use tarn_base::runtime::{now, timestamp};
use tarn_frame::up;

/// Lines between two headings.
const HEADING_EVERY: u32 = 20;
const HEADING: [&str; 9] = [
    "time", "conns", "answer", "drops", "Mbit/s", "min ms", "rtt ms", "resent", "MB",
];

/// Counters of connections. Those of a connection end with it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Grown {
    responses: u64,
    retransmitted: u64,
    acked: u64,
}

/// What distinguishes a connection: the other end's address and port, and this end's.
type Ends = ([u8; 16], u16, u16);

/// The counters of each connection at the last line.
#[derive(Default)]
struct Watch {
    known: HashMap<Ends, Grown>,
}

impl Watch {
    /// The sum of what each counter has grown by since the last call.
    fn grown(&mut self, connections: &[pace_connection]) -> Grown {
        let mut sum = Grown::default();
        let mut known = HashMap::new();
        for connection in connections {
            let ends = (connection.peer, connection.peer_port, connection.port);
            let here = Grown {
                responses: connection.history.responses.into(),
                retransmitted: connection.retransmitted.into(),
                acked: connection.acked,
            };
            let before = self.known.get(&ends).copied().unwrap_or_default();
            // A new connection between the same ends starts at 0.
            sum.responses += here.responses.saturating_sub(before.responses);
            sum.retransmitted += here.retransmitted.saturating_sub(before.retransmitted);
            sum.acked += here.acked.saturating_sub(before.acked);
            known.insert(ends, here);
        }
        self.known = known;
        sum
    }

    fn line(&mut self, connections: &[pace_connection]) -> Value {
        let grown = self.grown(connections);
        let answering = connections
            .iter()
            .filter(|connection| connection::state(connection) == "response")
            .count();
        let rate: u64 = connections.iter().map(|connection| connection.rate).sum();
        json!({
            "time": timestamp(now()),
            "connections": connections.len(),
            "responding": answering,
            "responses": grown.responses,
            "rate_mbit_s": mbit_s(rate),
            "min_rtt_ms": min_rtt_ms(connections),
            "rtt_ms": mean_rtt_ms(connections),
            "retransmitted": grown.retransmitted,
            "acked_mb": rounded(grown.acked as f64 / 1e6, 2),
        })
    }
}

/// A line as people read it.
fn text(line: &Value) -> String {
    let count = |key: &str| line[key].as_u64().unwrap_or_default().to_string();
    let measure = |key: &str| short_or_dash(line[key].as_f64());
    let time = line["time"].as_str().unwrap_or_default();
    aligned([
        time.get(11..19).unwrap_or(time),
        &count("connections"),
        &count("responding"),
        &count("responses"),
        &measure("rate_mbit_s"),
        &measure("min_rtt_ms"),
        &measure("rtt_ms"),
        &count("retransmitted"),
        &measure("acked_mb"),
    ])
}

/// 80 columns, with room for 10,000s of connections at 100 Gbit/s.
fn aligned(cells: [&str; 9]) -> String {
    let [time, connections, answering, drops, rate, min_rtt, rtt, resent, acked] = cells;
    format!("{time:<8}{connections:>8}{answering:>8}{drops:>7}{rate:>10}{min_rtt:>9}{rtt:>9}{resent:>10}{acked:>11}")
}

/// Prints a line at each interval, until the reader is gone or there are as many as asked for.
///
/// # Errors
/// The stage is not up, or no longer; the kernel's.
pub fn watch(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let given = |name: &str| matches.get_one::<u32>(name).copied().unwrap_or_default();
    let (interval, count) = (given("interval"), given("count"));
    let mut watch = Watch::default();
    let (state, _) = up::find(STAGE, "watch", config_of)?;
    watch.grown(&figures::connections(&state)?);
    for line in 0.. {
        if count != 0 && line == count {
            break;
        }
        sleep(Duration::from_secs(interval.into()));
        // After `tarn down` this ends with an error.
        let (state, _) = up::find(STAGE, "watch", config_of)?;
        let measured = watch.line(&figures::connections(&state)?);
        if output.json {
            output.line(&measured);
        } else {
            if line % HEADING_EVERY == 0 {
                output.line(aligned(HEADING));
            }
            output.line(text(&measured));
        }
        if output.failed() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(port: u16, acked: u64) -> pace_connection {
        pace_connection {
            port,
            acked,
            ..pace_connection::default()
        }
    }

    /// A counter that falls because a connection has ended would show as 18 exabytes.
    #[test]
    fn a_connection_that_ends_or_begins_takes_nothing_off() {
        let mut watch = Watch::default();
        assert_eq!(watch.grown(&[connection(1, 100), connection(2, 50)]).acked, 150);
        assert_eq!(watch.grown(&[connection(1, 130)]).acked, 30);
        assert_eq!(watch.grown(&[connection(1, 10), connection(2, 5)]).acked, 5);
    }

    #[test]
    fn a_line_fits_a_terminal_and_its_heading() {
        let large = pace_connection {
            rate: 5_000_000,
            min_rtt_us: 1_234_560,
            rtt_us: 61_234_560,
            retransmitted: 5_000,
            state: 3,
            ..connection(0, 9_000_000_000)
        };
        for connections in [Vec::new(), vec![connection(1, 1)], vec![large; 10_000]] {
            let line = text(&Watch::default().line(&connections));
            assert_eq!(
                (line.len(), line.split_whitespace().count()),
                (80, HEADING.len()),
                "{line}"
            );
        }
        assert_eq!(aligned(HEADING).len(), 80);
    }
}
