//! Single connections.

use std::cmp::Reverse;

use tarn_base::described;
use tarn_base::figures::{FigureTable, Plot, Value, rounded};
use tarn_base::output::{Align, Table};

use super::sums::{mbit_s, mean_depth_percent, mean_drained_ms, ms, short, short_or_dash};
use crate::connections::{local, peer};
use crate::skeleton::connections::types::{pace_connection, pace_limit};

described! {
    /// A connection.
    struct Connection {
        local: Label "" "Address and port of this end",
        peer: Label "" "Address and port of the other end",
        state: Label "" "startup, drain, probe, response or probe-rtt",
        competing: Label "" "Whether others keep the queue full" => "",
        bounded: Label "" "Whether loss limits the packets in flight" => "",
        limited_by: Label "" "What keeps it from sending more: pace, window, receiver or app (nothing to send)" => "LIMIT",
        acked_mb: Gauge "MB" "Data acknowledged" => "MB",
        rate_mbit_s: Gauge "Mbit/s" "Bandwidth estimate" => "MBIT/S",
        pacing_mbit_s: Gauge "Mbit/s" "Pacing rate" => "",
        min_rtt_ms: Gauge "ms" "Minimum round trip time of the last seconds" => "",
        rtt_ms: Gauge "ms" "Smoothed round trip time" => "RTT MS",
        in_flight: Gauge "packets" "Packets sent, and neither acknowledged nor lost" => "",
        window: Gauge "packets" "Congestion window" => "",
        retransmitted: Gauge "packets" "Packets sent again" => "RESENT",
        responses: Gauge "drops" "Drops of the bandwidth answered" => "",
        depth_percent: Gauge "%" "How far the estimate fell at the last drop" => "",
        drained_ms: Gauge "ms" "Mean time until the queue was gone after a drop" => "",
    }
}

impl Connection {
    fn of(connection: &pace_connection) -> Self {
        Self {
            local: Value::from(local(connection).to_string()),
            peer: Value::from(peer(connection).to_string()),
            state: Value::from(state(connection)),
            competing: Value::from(connection.competing != 0),
            bounded: Value::from(connection.bounded != 0),
            limited_by: Value::from(limit(connection)),
            acked_mb: Value::from(rounded(connection.acked as f64 / 1e6, 2)),
            rate_mbit_s: Value::from(mbit_s(connection.rate)),
            pacing_mbit_s: Value::from(mbit_s(connection.pacing)),
            min_rtt_ms: Value::from(ms(connection.min_rtt_us)),
            rtt_ms: Value::from(ms(connection.rtt_us)),
            in_flight: Value::from(connection.in_flight),
            window: Value::from(connection.window),
            retransmitted: Value::from(connection.retransmitted),
            responses: Value::from(connection.history.responses),
            depth_percent: mean_depth_percent([connection]),
            drained_ms: mean_drained_ms([connection]),
        }
    }
}

/// A connection's state, as the core calls it (enum pace_state).
pub fn state(connection: &pace_connection) -> &'static str {
    const NAMES: [&str; 5] = ["startup", "drain", "probe", "response", "probe-rtt"];
    NAMES.get(connection.state as usize).copied().unwrap_or("unknown")
}

fn limit(connection: &pace_connection) -> &'static str {
    match connection.limit {
        pace_limit::LIMIT_WINDOW => "window",
        pace_limit::LIMIT_RECEIVER => "receiver",
        pace_limit::LIMIT_APPLICATION => "app",
        _ => "pace",
    }
}

/// The state with what else holds: `probe, competing`.
fn state_in_words(connection: &pace_connection) -> String {
    let mut words = vec![state(connection)];
    words.extend((connection.competing != 0).then_some("competing"));
    words.extend((connection.bounded != 0).then_some("bounded"));
    words.join(", ")
}

/// The connections that have sent the most, at most so many, the busiest first.
pub fn busiest(mut connections: Vec<pace_connection>, most: usize) -> Vec<pace_connection> {
    connections.sort_by_key(|connection| Reverse(connection.acked));
    connections.truncate(most);
    connections
}

/// Everything about connections, for programs.
pub fn table(connections: &[pace_connection]) -> FigureTable {
    FigureTable {
        name: "connections",
        about: "The connections that have sent the most",
        key: 2,
        plot: Plot::of("rate_mbit_s"),
        fields: Connection::FIELDS,
        rows: connections
            .iter()
            .map(|connection| Connection::of(connection).values())
            .collect(),
    }
}

/// The same for people: what fits a terminal.
pub fn short_table(connections: &[pace_connection]) -> Table {
    let figures = ["MBIT/S", "MIN MS", "RTT MS", "RESENT", "MB"].map(|title| (title, Align::Right));
    let words = [("STATE", Align::Left), ("LIMIT", Align::Left)];
    let mut table = Table::new(&[&[("LOCAL PEER", Align::Left)], &figures[..], &words].concat());
    for connection in connections {
        table.row([
            // A narrow terminal has them below each other.
            format!("{} {}", local(connection), peer(connection)),
            short(mbit_s(connection.rate)),
            short_or_dash(ms(connection.min_rtt_us)),
            short_or_dash(ms(connection.rtt_us)),
            connection.retransmitted.to_string(),
            short(connection.acked as f64 / 1e6),
            state_in_words(connection),
            limit(connection).to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// A connection of 192.0.2.1 in the middle of its life.
    fn connection(port: u16, acked: u64) -> pace_connection {
        let address = |last| Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped().octets();
        pace_connection {
            local: address(1),
            peer: address(200),
            port,
            peer_port: 443,
            state: 2,
            bounded: 1,
            min_rtt_us: 40_120,
            rtt_us: 52_300,
            rate: 625_000,
            pacing: 781_250,
            window: 40,
            in_flight: 32,
            retransmitted: 7,
            acked,
            ..pace_connection::default()
        }
    }

    /// As large as figures become.
    fn large() -> pace_connection {
        pace_connection {
            local: [0xfd; 16],
            peer: [0xfe; 16],
            peer_port: 65_535,
            port: 65_535,
            state: 4,
            competing: 1,
            rate: 50_000_000_000,
            min_rtt_us: 1_234_560,
            rtt_us: 61_234_560,
            retransmitted: u32::MAX,
            limit: pace_limit::LIMIT_RECEIVER,
            acked: 90_000_000_000_000,
            ..connection(1, 1)
        }
    }

    #[test]
    fn the_busiest_come_first_and_no_more_than_asked_for() {
        let connections = vec![connection(1, 10), connection(2, 30), connection(3, 20)];
        let ports: Vec<u16> = busiest(connections.clone(), 2).iter().map(|one| one.port).collect();
        assert_eq!(ports, [2, 3]);
        assert_eq!(busiest(connections, 10).len(), 3);
    }

    #[test]
    fn a_program_gets_every_figure_of_a_connection() {
        let mut connection = connection(5001, 12_340_000);
        (connection.history.responses, connection.history.depth) = (1, 64);
        connection.history.drained_us = 81_000;
        let table = table(&[connection]);
        let values: serde_json::Map<String, Value> = table
            .fields
            .iter()
            .map(|field| field.name.to_owned())
            .zip(table.rows[0].clone())
            .collect();
        let expected = serde_json::json!({
            "local": "192.0.2.1:5001", "peer": "192.0.2.200:443", "state": "probe", "competing": false, "bounded": true,
            "limited_by": "pace", "acked_mb": 12.34, "rate_mbit_s": 5.0, "pacing_mbit_s": 6.25, "min_rtt_ms": 40.12,
            "rtt_ms": 52.3, "in_flight": 32, "window": 40, "retransmitted": 7, "responses": 1, "depth_percent": 25.0,
            "drained_ms": 81.0,
        });
        assert_eq!(Value::Object(values), expected);
    }

    #[test]
    fn an_ipv4_connection_takes_two_lines_of_a_terminal() {
        let text = short_table(&[connection(51_234, 12_340_000)]).render(Some(80));
        let expected = "\
LOCAL PEER          MBIT/S  MIN MS  RTT MS  RESENT     MB  STATE           LIMIT
192.0.2.1:51234       5.00   40.12   52.30       7  12.34  probe, bounded  pace
192.0.2.200:443
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_largest_figures_fit_a_terminal() {
        let text = short_table(&[large(), connection(1, 1)]).render(Some(80));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(text.matches("MBIT/S").count(), 1, "{text}");
    }
}
