//! Connections by the destination in `tarn.toml` that they go to.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use tarn_base::described;
use tarn_base::figures::{FigureTable, Plot, Value};
use tarn_base::network::{Family, Prefix};

use super::connection::state;
use super::sums::{mbit_s, mean_depth_percent, mean_drained_ms, mean_rtt_ms, min_rtt_ms};
use crate::connections::peer;
use crate::skeleton::connections::types::{pace_connection, pace_limit};

/// The most destinations that have a row, and series in the metrics: the first ones of the file, so that they stay the same.
const SHOWN: usize = 32;

described! {
    /// The connections to a destination in the file, or to all others, of this network namespace.
    struct Destination {
        destination: Label "" "Prefix in tarn.toml, or `other`",
        connections: Gauge "connections" "Open connections that use tarn_pace" => "CONNS",
        rate_mbit_s: Gauge "Mbit/s" "Sum of their bandwidth estimates" => "MBIT/S",
        pacing_mbit_s: Gauge "Mbit/s" "Sum of their pacing rates" => "",
        min_rtt_ms: Gauge "ms" "Smallest of their minimum round trip times" => "MIN MS",
        rtt_ms: Gauge "ms" "Mean of their smoothed round trip times" => "RTT MS",
        retransmitted: Gauge "packets" "Packets they have sent again" => "RESENT",
        responses: Gauge "drops" "Drops of the bandwidth they have answered" => "DROPS",
        depth_percent: Gauge "%" "Mean of how far the estimate fell at the last drop" => "",
        drained_ms: Gauge "ms" "Mean time until the queue was gone after a drop" => "",
        starting: Gauge "connections" "Connections that are still looking for the full bandwidth" => "",
        responding: Gauge "connections" "Connections that are answering a drop" => "",
        competing: Gauge "connections" "Connections in a queue that others keep full" => "",
        bounded: Gauge "connections" "Connections whose packets in flight are limited because of loss" => "",
        idle: Gauge "connections" "Connections whose application has nothing to send" => "",
        receiver_limited: Gauge "connections" "Connections whose receiver has no room for more" => "",
        states: Note "" "Those of the counts above that are not 0, in words" => "STATES",
    }
}

impl Destination {
    /// `connections` may be empty.
    fn of(name: &str, connections: &[&pace_connection]) -> Self {
        let all = || connections.iter().copied();
        let count = |is: fn(&pace_connection) -> bool| all().filter(|connection| is(connection)).count();
        let sum = |of: fn(&pace_connection) -> u64| all().map(of).sum::<u64>();
        let starting = count(|connection| matches!(state(connection), "startup" | "drain"));
        let responding = count(|connection| state(connection) == "response");
        let competing = count(|connection| connection.competing != 0);
        let bounded = count(|connection| connection.bounded != 0);
        let idle = count(|connection| connection.limit == pace_limit::LIMIT_APPLICATION);
        let receiver_limited = count(|connection| connection.limit == pace_limit::LIMIT_RECEIVER);
        Self {
            destination: Value::from(name),
            connections: Value::from(connections.len()),
            rate_mbit_s: Value::from(mbit_s(sum(|connection| connection.rate))),
            pacing_mbit_s: Value::from(mbit_s(sum(|connection| connection.pacing))),
            min_rtt_ms: Value::from(min_rtt_ms(all())),
            rtt_ms: Value::from(mean_rtt_ms(all())),
            retransmitted: Value::from(sum(|connection| connection.retransmitted.into())),
            responses: Value::from(sum(|connection| connection.history.responses.into())),
            depth_percent: mean_depth_percent(all()),
            drained_ms: mean_drained_ms(all()),
            starting: Value::from(starting),
            responding: Value::from(responding),
            competing: Value::from(competing),
            bounded: Value::from(bounded),
            idle: Value::from(idle),
            receiver_limited: Value::from(receiver_limited),
            states: Value::from(in_words(&[
                (starting, "starting"),
                (responding, "answering"),
                (competing, "competing"),
                (bounded, "bounded"),
                (idle, "idle"),
                (receiver_limited, "receiver"),
            ])),
        }
    }
}

/// `2 starting, 1 idle`.
fn in_words(counts: &[(usize, &str)]) -> String {
    let there = counts.iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> = there.map(|(count, word)| format!("{count} {word}")).collect();
    words.join(", ")
}

/// The longest of some prefixes that an address lies in.
struct Longest<'a> {
    prefixes: BTreeSet<&'a Prefix>,
    /// The lengths there are, the longest first.
    lengths: Vec<u8>,
}

impl<'a> Longest<'a> {
    fn of(prefixes: &'a [Prefix]) -> Self {
        let lengths: BTreeSet<u8> = prefixes.iter().map(|prefix| prefix.length).collect();
        Self {
            prefixes: prefixes.iter().collect(),
            lengths: lengths.into_iter().rev().collect(),
        }
    }

    fn holding(&self, address: IpAddr) -> Option<Prefix> {
        let fitting = self
            .lengths
            .iter()
            .filter(|length| **length <= Family::of(address).bits());
        let mut found = fitting.map(|length| Prefix::of(address, *length));
        found.find(|prefix| self.prefixes.contains(prefix))
    }
}

/// A row for each of the first [`SHOWN`] destinations in the file, and one for all other connections, those to the rest of the
/// file among them. A connection counts once, for the longest prefix.
pub fn table(named: &[Prefix], connections: &[pace_connection]) -> FigureTable {
    let longest = Longest::of(named);
    let mut by_prefix: HashMap<Option<Prefix>, Vec<&pace_connection>> = HashMap::new();
    for connection in connections {
        by_prefix
            .entry(longest.holding(peer(connection).ip()))
            .or_default()
            .push(connection);
    }
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for prefix in named.iter().take(SHOWN) {
        let own = by_prefix.remove(&Some(*prefix)).unwrap_or_default();
        rows.push(Destination::of(&prefix.to_string(), &own).values());
    }
    let others: Vec<&pace_connection> = by_prefix.into_values().flatten().collect();
    rows.push(Destination::of("other", &others).values());
    FigureTable {
        name: "destinations",
        about: "The connections that use tarn_pace, in this network namespace",
        key: 1,
        plot: Plot::of("rate_mbit_s"),
        fields: Destination::FIELDS,
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(last: u8) -> pace_connection {
        let address = std::net::Ipv4Addr::new(10, 0, last, 1).to_ipv6_mapped();
        pace_connection {
            peer: address.octets(),
            ..pace_connection::default()
        }
    }

    fn column(table: &FigureTable, name: &str) -> Vec<Value> {
        let index = table.fields.iter().position(|field| field.name == name).unwrap();
        table.rows.iter().map(|row| row[index].clone()).collect()
    }

    /// An operator with a prefix within a prefix sees each connection once, at the narrower one.
    #[test]
    fn a_connection_counts_for_the_longest_prefix() {
        let named = ["10.0.0.0/8", "10.0.7.0/24"].map(|text| text.parse().unwrap());
        let table = table(&named, &[connection(7), connection(7), connection(8)]);
        assert_eq!(column(&table, "connections"), [1, 2, 0].map(Value::from));
    }

    /// Metrics would have a series for each of 65,536 destinations; and were they the busiest, others each time.
    #[test]
    fn of_many_destinations_the_first_of_the_file_have_a_row() {
        let named: Vec<Prefix> = (0..200)
            .map(|third| format!("10.0.{third}.0/24").parse().unwrap())
            .collect();
        let connections: Vec<pace_connection> = (30..200).map(connection).collect();
        let table = table(&named, &connections);
        let names = column(&table, "destination");
        assert_eq!(
            (names.len(), &names[0], &names[31]),
            (33, &"10.0.0.0/24".into(), &"10.0.31.0/24".into())
        );
        let counts = column(&table, "connections");
        assert_eq!(
            (&names[32], &counts[30..]),
            (&"other".into(), &[1, 1, 168].map(Value::from)[..])
        );
    }

    #[test]
    fn an_ipv4_destination_takes_a_line_of_a_terminal() {
        let mut one = connection(7);
        (one.rate, one.min_rtt_us, one.rtt_us) = (625_000, 40_120, 52_300);
        (one.limit, one.retransmitted, one.history.responses) = (pace_limit::LIMIT_APPLICATION, 7, 2);
        let text = table(&["10.0.7.0/24".parse().unwrap()], &[one])
            .table()
            .render(Some(80));
        let expected = "\
DESTINATION  CONNS  MBIT/S  MIN MS  RTT MS  RESENT  DROPS  STATES
10.0.7.0/24      1       5   40.12    52.3       7      2  1 starting, 1 idle
other            0       0       -       -       0      0
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_largest_figures_fit_a_terminal() {
        let large = pace_connection {
            peer: [0xfd; 16],
            state: 3,
            competing: 1,
            bounded: 1,
            rate: 4_000_000_000,
            min_rtt_us: 1_234_560,
            rtt_us: 61_234_560,
            retransmitted: 100_000,
            ..pace_connection::default()
        };
        let prefix = Prefix::of(IpAddr::from([0xfd; 16]), 128);
        let table = table(&[prefix], &vec![large; 10_000]);
        assert_eq!(column(&table, "connections")[0], 10_000);
        let text = table.table().render(Some(80));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(text.matches("RESENT").count(), 1, "{text}");
    }
}
