//! The figures of TCP's round trips, for `status` and the metrics.

use crate::snapshot::{Snapshot, UplinkNow};
use crate::tcp::RoundTrips;
use tarn_base::described;
use tarn_base::figures::{FigureTable, Value, rounded};

described! {
    /// Round trips of connections by a device.
    struct Connections {
        uplink: Label "" "The device that they went by, to wherever and over IPv4 and IPv6",
        samples: Gauge "" "Round trips in the last minute, of connections that began since the agent did",
        mean: Gauge "ms" "Their mean",
        min: Gauge "ms" "The shortest: it took at most that, and at most a sixteenth less, as all that follow",
        median: Gauge "ms" "Half of them took no longer",
        p95: Gauge "ms" "95 % of them took no longer",
        p99: Gauge "ms" "99 % of them took no longer",
        max: Gauge "ms" "The longest; 16777.216 stands for everything that took longer",
    }
}

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
        key: 1,
        plot: None,
        fields: Connections::FIELDS,
        rows,
    })
}

fn row(uplink: &UplinkNow, found: &RoundTrips) -> Vec<Value> {
    let ms = |us: f64| Value::from((found.samples > 0).then(|| rounded(us / 1e3, 3)));
    Connections {
        uplink: Value::from(uplink.name.as_str()),
        samples: Value::from(found.samples),
        mean: ms(found.mean_us),
        min: ms(found.min_us as f64),
        median: ms(found.median_us as f64),
        p95: ms(found.p95_us as f64),
        p99: ms(found.p99_us as f64),
        max: ms(found.max_us as f64),
    }
    .values()
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
        assert!(table.rows.iter().all(|row| row.len() == Connections::FIELDS.len()));
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
        assert!(table.rows[0][2..].iter().all(|value| value.is_null()));
    }
}
