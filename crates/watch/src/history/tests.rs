//! What was, as a sequence of values with gaps.

use crate::record::Record;
use crate::testing::{Host, QueueNow, UplinkNow, record};

use super::*;

/// The headline of a stage, oldest first.
fn headline(record: &Record, stage: &str) -> Vec<Option<f64>> {
    record.history(stage).unwrap().headline().latest(usize::MAX).collect()
}

/// What one row of a stage's first table was, oldest first.
fn row(record: &Record, place: usize, row: usize) -> Vec<Option<f64>> {
    let stage = &record.sample.as_ref().unwrap().stages[place];
    let table = &stage.figures.as_ref().unwrap().as_ref().unwrap().tables[0];
    let track = record.history(stage.name).unwrap();
    let track = track.of(table, &table.rows[row], table.plot.unwrap().field).unwrap();
    track.latest(usize::MAX).collect()
}

fn queues(second: f64, queues: &[QueueNow]) -> Result<Host, String> {
    Ok(Host {
        second,
        poll: (queues.to_vec(), 0),
        ..Host::default()
    })
}

fn uplinks(second: f64, uplinks: &[UplinkNow]) -> Result<Host, String> {
    Ok(Host {
        second,
        paths: Ok(uplinks.to_vec()),
        ..Host::default()
    })
}

/// A reading that comes late would look like a burst.
#[test]
fn rates_are_by_the_time_that_has_passed() {
    let record = record([
        queues(0.0, &[("eth0", "none", 0)]),
        queues(1.0, &[("eth0", "none", 100)]),
        queues(5.0, &[("eth0", "none", 500)]),
    ]);
    assert_eq!(headline(&record, "poll"), [None, Some(100.0), Some(100.0)]);
}

/// A device that was unplugged takes its part of a sum away, and one that was plugged in again counts from 0: neither is a flood.
#[test]
fn what_a_counter_that_falls_has_counted_is_not_known() {
    let record = record([
        queues(0.0, &[("eth0", "none", 1_000)]),
        queues(1.0, &[("eth0", "none", 50)]),
        queues(2.0, &[("eth0", "none", 150)]),
        queues(3.0, &[("eth0", "none", 140)]),
    ]);
    assert_eq!(headline(&record, "poll"), [None, None, Some(100.0), None]);
}

/// A round trip time of before would be read as that of now.
#[test]
fn what_is_not_known_is_a_gap() {
    let record = record([
        uplinks(0.0, &[("wan0", "used", 100.0, Some(12.0))]),
        uplinks(1.0, &[("wan0", "silent", 0.0, None)]),
        Ok(Host {
            second: 2.0,
            paths: Err("damaged"),
            ..Host::default()
        }),
        uplinks(3.0, &[("wan0", "used", 100.0, Some(14.0))]),
    ]);
    assert_eq!(headline(&record, "paths"), [Some(12.0), None, None, Some(14.0)]);
    assert_eq!(row(&record, 2, 0), [Some(12.0), None, None, Some(14.0)]);
}

/// The moment that somebody opens this screen for is that in which a state changes, or an uplink goes and comes back.
#[test]
fn a_row_keeps_its_history_when_its_labels_change_or_it_was_away() {
    let record = record([
        uplinks(
            0.0,
            &[
                ("wan0", "used", 100.0, Some(12.0)),
                ("wan1", "standby", 0.0, Some(30.0)),
            ],
        ),
        uplinks(
            1.0,
            &[
                ("wan0", "late", 100.0, Some(50.0)),
                ("wan1", "standby", 0.0, Some(31.0)),
            ],
        ),
        uplinks(2.0, &[("wan1", "used", 100.0, Some(32.0))]),
        uplinks(
            3.0,
            &[
                ("wan0", "returning", 0.0, Some(13.0)),
                ("wan1", "used", 100.0, Some(33.0)),
            ],
        ),
    ]);
    assert_eq!(row(&record, 2, 0), [Some(12.0), Some(50.0), None, Some(13.0)]);
    assert_eq!(row(&record, 2, 1), [30.0, 31.0, 32.0, 33.0].map(Some));
    // That of the uplinks that are used.
    assert_eq!(headline(&record, "paths"), [12.0, 50.0, 32.0, 33.0].map(Some));
}

/// Rules are replaced by as many others: the new ones are what packets go by.
#[test]
fn rows_that_are_there_take_the_room_of_those_that_are_gone() {
    let names: Vec<&'static str> = (0..2 * SERIES_MOST)
        .map(|number| &*format!("eth{number}").leak())
        .collect();
    let (old, new) = names.split_at(SERIES_MOST);
    let at = |second: f64, names: &[&'static str]| {
        let rows: Vec<QueueNow> = names.iter().map(|name| (*name, "none", second as u64)).collect();
        queues(second, &rows)
    };
    let record = record([at(0.0, old), at(1.0, old), at(2.0, new), at(3.0, new), at(4.0, new)]);
    let last = *headline(&record, "poll").last().unwrap();
    assert_eq!(last, Some(SERIES_MOST as f64));
}

/// Rows that come and go for months must not fill the memory.
#[test]
fn a_row_that_stays_away_is_forgotten() {
    let mut hosts = vec![queues(0.0, &[("usb0", "none", 1), ("eth0", "none", 1)])];
    hosts.extend((1..=REMEMBERED).map(|second| queues(second as f64, &[("eth0", "none", 1)])));
    let record = record(hosts);
    let history = record.history("poll").unwrap();
    let rows: Vec<&str> = history.series.keys().map(|name| name.row.as_str()).collect();
    assert!(rows.contains(&"eth0") && !rows.contains(&"usb0"), "{rows:?}");
    assert_eq!(headline(&record, "poll").len(), REMEMBERED);
    let many: Vec<(String, u64)> = (0..5_000).map(|number| (format!("d{number}"), 1)).collect();
    let senders: Vec<(&str, u64)> = many.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    let mut record = Record::default();
    record.add(Ok(Host::default().sample_with_senders(&senders)));
    assert_eq!(record.history("poll").unwrap().series.len(), SERIES_MOST);
}

#[test]
fn a_stage_that_was_down_begins_anew() {
    let host = |second: f64, classes: Option<f64>| {
        Ok(Host {
            second,
            classes: classes.map(|share| vec![("gold", Some(share))]),
            ..Host::default()
        })
    };
    let record = record([host(0.0, Some(99.0)), host(1.0, None), host(2.0, Some(97.0))]);
    assert_eq!(headline(&record, "classes"), [Some(-2.0)]);
}

/// The worst class counts, and one without a request is not the worst.
#[test]
fn a_headline_may_be_by_a_target_and_an_alarm_is_above_zero() {
    let host = |second: f64, dropped| {
        Ok(Host {
            second,
            poll: (vec![("eth0", "none", 0)], dropped),
            classes: Some(vec![("gold", Some(99.5)), ("silver", Some(97.0)), ("others", None)]),
            ..Host::default()
        })
    };
    let record = record([host(0.0, 5), host(1.0, 12)]);
    assert_eq!(headline(&record, "classes"), [Some(-2.0), Some(-2.0)]);
    assert_eq!(record.history("poll").unwrap().alarms(), [(7.0, "dropped/s")]);
}

#[test]
fn quantiles_are_of_what_is_known() {
    let mut track = Track::default();
    assert_eq!(track.quantile(0.95), None);
    (1..=100).for_each(|value| track.push(Some(f64::from(value))));
    track.push(None);
    assert_eq!(
        (track.quantile(0.95), track.quantile(1.0), track.now()),
        (Some(95.0), Some(100.0), None)
    );
}
