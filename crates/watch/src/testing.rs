//! Recordings, for the tests of what shows them: a host with three stages, as samples: one that counts, one with targets, and one that measures.

use crate::report::StageView;
use tarn_base::described;
use tarn_base::figures::{Combine, FigureTable, Figures, Headline, Plot, Value};

use crate::record::Record;
use crate::sample::{Detail, Event, Sample};

mod session;

pub use session::session;

described! {
    struct Receiving {
        devices: Gauge "devices" "Devices that are watched",
        dropped: Counter "packets" "Packets dropped",
    }
}

described! {
    struct Queue {
        device: Label "" "The queue's device",
        thread: Label "" "The thread that polls it",
        work: Counter "packets" "Packets that it received",
    }
}

described! {
    struct Sender {
        source: Label "" "The address that the packets bear",
        packets: Counter "packets" "About how many were dropped",
    }
}

described! {
    struct Class {
        class: Label "" "The class's name",
        target: Gauge "%" "Share of answers that is to be in time",
        share: Gauge "%" "Share of answers in time",
    }
}

described! {
    struct Uplink {
        uplink: Label "" "The uplink's device",
        state: Label "" "What it does",
        share: Gauge "%" "Share of new flows that it gets",
        rtt: Gauge "ms" "Smoothed round trip time of its probes",
    }
}

/// A device's name, its thread, and what it has received.
pub type QueueNow = (&'static str, &'static str, u64);
/// An uplink's name, its state, its share in percent, and its round trip time in ms.
pub type UplinkNow = (&'static str, &'static str, f64, Option<f64>);

/// What was recorded of a host at one moment.
#[derive(Clone)]
pub struct Host {
    /// Seconds since the recording began.
    pub second: f64,
    /// The queues of `poll`, and what it has dropped.
    pub poll: (Vec<QueueNow>, u64),
    /// The classes' names and shares in percent, which are to be 99 %; `None` while the stage is down.
    pub classes: Option<Vec<(&'static str, Option<f64>)>>,
    /// The uplinks of `paths`, or why they cannot be read.
    pub paths: Result<Vec<UplinkNow>, &'static str>,
    /// What does not work.
    pub troubles: Vec<&'static str>,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            second: 0.0,
            poll: (vec![("eth0", "none", 0)], 0),
            classes: None,
            paths: Ok(vec![
                ("wan0", "used", 100.0, Some(12.0)),
                ("wan1", "standby", 0.0, Some(30.0)),
            ]),
            troubles: Vec::new(),
        }
    }
}

impl Host {
    /// What top gets to see of it.
    pub fn sample(&self) -> Sample {
        let at = 1_795_186_572 + self.second as u64;
        let stage = |name, figures: Result<Option<Figures>, String>| StageView {
            name,
            trouble: figures.as_ref().err().cloned(),
            figures,
        };
        Sample {
            at_ns: (self.second * 1e9) as u64 + 1_000_000_000,
            at,
            troubles: self.troubles.iter().map(|text| (*text).to_owned()).collect(),
            agent: "agent: process 7, up 2 h 5 min".to_owned(),
            stages: vec![
                stage("poll", Ok(Some(poll(&self.poll.0, self.poll.1)))),
                stage("classes", Ok(self.classes.as_deref().map(classes))),
                stage(
                    "paths",
                    self.paths
                        .as_deref()
                        .map(|uplinks| Some(paths(uplinks)))
                        .map_err(|it| (*it).to_owned()),
                ),
            ],
            logged: (self.second == 0.0).then(yesterday).into_iter().collect(),
            details: Vec::new(),
        }
    }

    /// The same while somebody looks at `poll`, with who sent how many packets that were dropped.
    pub fn sample_with_senders(&self, senders: &[(&str, u64)]) -> Sample {
        let row = |&(source, packets): &(&str, u64)| {
            Sender {
                source: source.into(),
                packets: packets.into(),
            }
            .values()
        };
        let table = FigureTable {
            name: "senders",
            about: "Who sent what was dropped",
            key: 1,
            plot: Plot::of("packets"),
            fields: Sender::FIELDS,
            rows: senders.iter().map(row).collect(),
        };
        Sample {
            details: vec![Detail {
                stage: 0,
                tables: Ok(vec![table]),
            }],
            ..self.sample()
        }
    }
}

/// What an agent has logged on the day before.
fn yesterday() -> Event {
    Event {
        at: 1_795_186_572 - 86_400,
        stage: "paths".to_owned(),
        text: "default uses wan0: wan0 is well again".to_owned(),
    }
}

fn poll(queues: &[QueueNow], dropped: u64) -> Figures {
    static DROPPED: [Headline; 1] = [Headline {
        table: "",
        field: "dropped",
        less: None,
        what: "dropped/s",
        combine: Combine::Sum,
    }];
    let row = |&(device, thread, work): &QueueNow| {
        Queue {
            device: device.into(),
            thread: thread.into(),
            work: work.into(),
        }
        .values()
    };
    let values = Receiving {
        devices: Value::from(queues.len()),
        dropped: dropped.into(),
    };
    Figures {
        fields: Receiving::FIELDS,
        values: values.values(),
        tables: vec![FigureTable {
            name: "queues",
            about: "Receive queues",
            key: 1,
            plot: Plot::of("work"),
            fields: Queue::FIELDS,
            rows: queues.iter().map(row).collect(),
        }],
        headline: Some(Headline {
            table: "queues",
            field: "work",
            less: None,
            what: "packets/s",
            combine: Combine::Sum,
        }),
        alarms: &DROPPED,
    }
}

fn classes(classes: &[(&'static str, Option<f64>)]) -> Figures {
    let row = |&(class, share): &(&'static str, Option<f64>)| {
        Class {
            class: class.into(),
            target: 99.into(),
            share: share.into(),
        }
        .values()
    };
    Figures {
        tables: vec![FigureTable {
            name: "classes",
            about: "How the classes do",
            key: 1,
            plot: Some(Plot {
                field: "share",
                target: Some("target"),
            }),
            fields: Class::FIELDS,
            rows: classes.iter().map(row).collect(),
        }],
        headline: Some(Headline {
            table: "classes",
            field: "share",
            less: Some("target"),
            what: "points margin",
            combine: Combine::Least,
        }),
        ..Figures::default()
    }
}

fn paths(uplinks: &[UplinkNow]) -> Figures {
    let row = |&(uplink, state, share, rtt): &UplinkNow| {
        Uplink {
            uplink: uplink.into(),
            state: state.into(),
            share: share.into(),
            rtt: rtt.into(),
        }
        .values()
    };
    Figures {
        tables: vec![FigureTable {
            name: "uplinks",
            about: "The uplinks",
            key: 1,
            plot: Plot::of("rtt"),
            fields: Uplink::FIELDS,
            rows: uplinks.iter().map(row).collect(),
        }],
        headline: Some(Headline {
            table: "uplinks",
            field: "rtt",
            less: None,
            what: "ms RTT",
            combine: Combine::Mean("share"),
        }),
        ..Figures::default()
    }
}

/// All that is known after these.
pub fn record(hosts: impl IntoIterator<Item = Result<Host, String>>) -> Record {
    let mut record = Record::default();
    for host in hosts {
        record.add(host.map(|host| host.sample()));
    }
    record
}
