//! Figures that look like a stage's.

use super::*;

described! {
    /// A label, a gauge, a time and a counter.
    struct Steering {
        carrier: Label "" "What carries the rules out",
        rules: Gauge "" "Rules in the table",
        uptime_ns: Gauge "ns" "Time since the stage came up",
        packets: Counter "packets" "Packets steered",
    }
}

described! {
    /// Two labels and a counter.
    struct Steered {
        id: Label "" "The rule's number",
        note: Label "" "The rule's note",
        bytes: Counter "bytes" "Bytes steered",
    }
}

fn row(id: &str, note: Value, bytes: u64) -> Vec<Value> {
    Steered {
        id: id.into(),
        note,
        bytes: bytes.into(),
    }
    .values()
}

/// Figures with two rows; the second one's note is `note`.
pub fn figures(note: &str) -> Figures {
    let values = Steering {
        carrier: "bpf".into(),
        rules: 2u64.into(),
        uptime_ns: 1_500_000_000u64.into(),
        packets: 30u64.into(),
    };
    Figures {
        fields: Steering::FIELDS,
        values: values.values(),
        tables: vec![FigureTable {
            name: "rules_in_use",
            about: "The rules",
            key: 1,
            plot: None,
            fields: Steered::FIELDS,
            rows: vec![row("1", Value::Null, 10), row("2", note.into(), 20)],
        }],
        headline: None,
        alarms: &[],
    }
}

/// Asserts that every value has its description, and that what is to be shown of the figures is among them: a name that is mistyped
/// shows nothing.
pub fn assert_whole(figures: &Figures) {
    assert_eq!(figures.values.len(), figures.fields.len());
    for table in &figures.tables {
        let name = table.name;
        assert!(table.rows.iter().all(|row| row.len() == table.fields.len()), "{name}");
        assert!((1..=table.fields.len()).contains(&table.key), "{name}");
        let shown = table.plot.into_iter().flat_map(|plot| [Some(plot.field), plot.target]);
        assert!(shown.flatten().all(|field| table.position(field).is_some()), "{name}");
    }
    for headline in figures.headline.iter().chain(figures.alarms) {
        let weight = match headline.combine {
            Combine::Mean(weight) => Some(weight),
            _ => None,
        };
        let table = figures.tables.iter().find(|table| table.name == headline.table);
        let fields = table.map_or(figures.fields, |table| table.fields);
        let is_there = |name: &str| fields.iter().any(|field| field.name == name);
        assert!(table.is_some() || headline.table.is_empty(), "{headline:?}");
        let named = [Some(headline.field), headline.less, weight];
        assert!(named.into_iter().flatten().all(is_there), "{headline:?}");
    }
}
