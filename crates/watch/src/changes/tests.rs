//! Which differences are events.

use crate::record::Record;
use crate::testing::{Host, record};

fn texts(record: &Record) -> Vec<(&str, &str)> {
    let events = record.events();
    events
        .into_iter()
        .map(|event| (event.stage.as_str(), event.text.as_str()))
        .collect()
}

/// Who comes after the fault finds what came first.
#[test]
fn troubles_states_and_stages_that_come_and_go_are_events() {
    let before = Host::default();
    let flooded = Host {
        second: 1.0,
        poll: (vec![("eth0", "4711", 9), ("eth1", "none", 0)], 0),
        classes: Some(vec![("gold", None)]),
        troubles: vec!["paths: no uplink is alive"],
        ..Host::default()
    };
    let after = Host {
        second: 2.0,
        ..Host::default()
    };
    let record = record([Ok(before), Ok(flooded), Ok(after)]);
    assert_eq!(
        texts(&record),
        [
            ("classes", "down"),
            ("poll", "eth0: thread: 4711 -> none"),
            ("", "trouble is over: paths: no uplink is alive"),
            ("classes", "up"),
            ("poll", "eth0: thread: none -> 4711"),
            ("", "trouble: paths: no uplink is alive"),
            ("paths", "default uses wan0: wan0 is well again"),
        ]
    );
}

/// Counters that grow, and a table that somebody has opened, are none.
#[test]
fn what_always_changes_is_no_event() {
    let host = |second: f64, count| Host {
        second,
        poll: (vec![("eth0", "none", count)], count),
        ..Host::default()
    };
    let mut record = Record::default();
    record.add(Ok(host(0.0, 1).sample()));
    record.add(Ok(host(1.0, 2).sample_with_senders(&[("192.0.2.1", 7)])));
    assert_eq!(texts(&record).len(), 1, "{:?}", texts(&record));
}

/// A thousand of a stage's changes at once would drive out all that is known of the others.
#[test]
fn many_changes_at_once_are_summed_up() {
    let host = |second: f64, thread| Host {
        second,
        poll: (vec![("a", thread, 0); 40], 0),
        ..Host::default()
    };
    let record = record([Ok(host(0.0, "none")), Ok(host(1.0, "7"))]);
    let told = texts(&record);
    assert_eq!((told.len(), told[0]), (18, ("poll", "and 24 more changes")));
}
