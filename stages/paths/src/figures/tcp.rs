//! The figures of TCP's round trips, for `status` and the metrics.

use super::{field, rounded};
use crate::snapshot::{Snapshot, UplinkNow};
use crate::tcp::RoundTrips;
use tarn_base::figures::{Field, FigureTable, Kind, Value};

static FIELDS: &[Field] = &[
    field(
        "uplink",
        "",
        Kind::Label,
        "The device that they went by, to wherever and over IPv4 and IPv6",
    ),
    field(
        "samples",
        "",
        Kind::Gauge,
        "Round trips in the last minute, of connections that began since the agent did",
    ),
    field("mean", "ms", Kind::Gauge, "Their mean"),
    field(
        "min",
        "ms",
        Kind::Gauge,
        "The shortest: it took at most that, and at most a sixteenth less, as all that follow",
    ),
    field("median", "ms", Kind::Gauge, "Half of them took no longer"),
    field("p95", "ms", Kind::Gauge, "95 % of them took no longer"),
    field("p99", "ms", Kind::Gauge, "99 % of them took no longer"),
    field(
        "max",
        "ms",
        Kind::Gauge,
        "The longest; 16777.216 stands for everything that took longer",
    ),
];

/// A row for each device, however many groups it is in; `None` where nothing is measured.
pub fn table(snapshot: &Snapshot) -> Option<FigureTable> {
    let mut devices: Vec<(&UplinkNow, &RoundTrips)> = Vec::new();
    for uplink in snapshot.groups.iter().flat_map(|group| &group.uplinks) {
        let Some(round_trips) = &uplink.tcp else { continue };
        if devices.iter().all(|(other, _)| other.name != uplink.name) {
            devices.push((uplink, round_trips));
        }
    }
    let rows: Vec<Vec<Value>> = devices.into_iter().map(|(uplink, found)| row(uplink, found)).collect();
    (!rows.is_empty()).then_some(FigureTable {
        name: "tcp",
        about: "Round trips of this host's TCP connections",
        fields: FIELDS,
        rows,
    })
}

fn row(uplink: &UplinkNow, found: &RoundTrips) -> Vec<Value> {
    let ms = |us: f64| Value::from((found.samples > 0).then(|| rounded(us / 1e3, 3)));
    let times = [found.min_us, found.median_us, found.p95_us, found.p99_us, found.max_us];
    let mut row = vec![
        Value::from(uplink.name.as_str()),
        Value::from(found.samples),
        ms(found.mean_us),
    ];
    row.extend(times.map(|us| ms(us as f64)));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    fn snapshot(tcp: Option<RoundTrips>) -> Snapshot {
        let uplinks: &[_] = &[("wan1", "used", 0), ("wan2", "used", 0)];
        let mut snapshot = snapshot::tests::snapshot(&[("default", uplinks), ("::/0", uplinks)]);
        for uplink in snapshot.groups.iter_mut().flat_map(|group| &mut group.uplinks) {
            uplink.tcp = tcp;
        }
        snapshot
    }

    #[test]
    fn a_device_of_two_groups_is_told_of_once_and_nothing_where_nothing_is_measured() {
        assert!(table(&snapshot(None)).is_none());
        let found = RoundTrips {
            samples: 2,
            mean_us: 30_000.0,
            median_us: 30_720,
            ..Default::default()
        };
        let table = table(&snapshot(Some(found))).unwrap();
        let uplinks: Vec<&Value> = table.rows.iter().map(|row| &row[0]).collect();
        assert_eq!(uplinks, [&Value::from("wan1"), &Value::from("wan2")]);
        assert!(table.rows.iter().all(|row| row.len() == FIELDS.len()));
        assert_eq!(
            (&table.rows[0][2], &table.rows[0][4]),
            (&Value::from(30.0), &Value::from(30.72))
        );
    }

    /// No round trip is none that took no time.
    #[test]
    fn where_none_was_seen_no_time_is_shown() {
        let table = table(&snapshot(Some(RoundTrips::default()))).unwrap();
        assert_eq!(table.rows[0][1], Value::from(0));
        assert!(table.rows[0][2..].iter().all(|value| *value == Value::None));
    }
}
