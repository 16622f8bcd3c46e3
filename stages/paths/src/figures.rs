//! The stage's figures, for `status` and the metrics.

use anyhow::Result;

use super::history::{self, Entry};
use super::judge::{self, Distribution, Measure};
use super::load::Load;
use super::snapshot::{GroupNow, ProbeFigures, Snapshot, UplinkNow};
use tarn_base::figures::{Field, FigureTable, Figures, Kind, Value};
use tarn_base::runtime;
use tarn_frame::state::StateDirectory;

mod tcp;

/// A figure's description.
const fn field(name: &'static str, unit: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        name,
        unit,
        kind,
        about,
    }
}

static FIELDS: &[Field] = &[
    field("groups", "", Kind::Gauge, "Destinations that have several uplinks"),
    field("policy", "", Kind::Label, "How flows are given to uplinks"),
    field("measure", "", Kind::Label, "What uplinks are compared by"),
    field(
        "changes",
        "",
        Kind::Gauge,
        "Changes that are remembered; `tarn paths history` shows them",
    ),
    field("last_change", "s", Kind::Gauge, "Time since the last change"),
    field("last_reason", "", Kind::Note, "Why traffic moved the last time"),
    field(
        "age",
        "s",
        Kind::Gauge,
        "Age of these figures: the agent writes them down every second",
    ),
];

static UPLINK_FIELDS: &[Field] = &[
    field("to", "", Kind::Label, "What the group leads to"),
    field("uplink", "", Kind::Label, "The uplink's device"),
    field(
        "state",
        "",
        Kind::Label,
        "used, standby, avoided (it was slow), silent, returning or gone",
    ),
    field("share", "%", Kind::Gauge, "Share of new flows that it gets"),
    field("rtt", "ms", Kind::Gauge, "Smoothed round trip time of its probes"),
    field(
        "jitter",
        "ms",
        Kind::Gauge,
        "Standard deviation of the round trip time over the memory",
    ),
    field("loss", "%", Kind::Gauge, "Share of probes lost over the memory"),
    field(
        "score",
        "",
        Kind::Gauge,
        "What uplinks are compared by, cost included, in ms, or in kB/s where measure = \"load\": the least is the best",
    ),
];

static TRAFFIC_FIELDS: &[Field] = &[
    field("to", "", Kind::Label, "What the group leads to"),
    field("uplink", "", Kind::Label, "The uplink's device"),
    field("since", "s", Kind::Gauge, "For how long it has been in its state"),
    field("weight", "", Kind::Gauge, "Its weight in the group"),
    field(
        "sends",
        "kB/s",
        Kind::Gauge,
        "What its device has sent in the last second",
    ),
    field(
        "carries",
        "%",
        Kind::Gauge,
        "Share of it in what all devices of the group have sent",
    ),
    field(
        "load",
        "kB/s",
        Kind::Gauge,
        "How busy its device is, where measure = \"load\"",
    ),
    field(
        "uneven",
        "kB/s",
        Kind::Gauge,
        "How far that is from its average at any moment",
    ),
];

static DESTINATION_FIELDS: &[Field] = &[
    field("to", "", Kind::Label, "What the group leads to"),
    field("changes", "", Kind::Gauge, "Its changes that are remembered"),
    field("last_change", "s", Kind::Gauge, "Time since its last change"),
    field("why", "", Kind::Note, "Why that was made"),
];

static TARGET_FIELDS: &[Field] = &[
    field("to", "", Kind::Label, "What the group leads to"),
    field("uplink", "", Kind::Label, "The uplink's device"),
    field("target", "", Kind::Label, "Who is asked"),
    field(
        "median",
        "ms",
        Kind::Gauge,
        "Half of the last 512 round trips took at most so long",
    ),
    field("p95", "ms", Kind::Gauge, "95 of 100 took at most so long"),
    field("p99", "ms", Kind::Gauge, "99 of 100 took at most so long"),
    field("max", "ms", Kind::Gauge, "All took at most so long"),
];

/// Figures that were not written down anew for so many seconds tell nothing of now.
const STALE_S: u64 = 5;

/// The figures; `None` when the stage is down.
///
/// # Errors
/// A file that cannot be read.
pub fn read(state: &StateDirectory) -> Result<Option<Figures>> {
    let Some(mut snapshot) = Snapshot::load(state)? else {
        return Ok(None);
    };
    let history = history::load(state)?;
    let of_group = |group: &GroupNow| -> Vec<&Entry> {
        let is_its = |entry: &&Entry| (&entry.group, entry.metric) == (&group.to, group.metric);
        history.iter().filter(is_its).collect()
    };
    let changes: Vec<Vec<&Entry>> = snapshot.groups.iter().map(of_group).collect();
    snapshot.tell_apart();
    let (now, last) = (runtime::now(), history.last());
    let values = vec![
        Value::from(snapshot.groups.len() as u64),
        Value::from(judge::name(snapshot.policy)),
        Value::from(snapshot.groups.first().map(|group| judge::name(group.measure))),
        Value::from(history.len() as u64),
        Value::from(last.map(|entry| now.saturating_sub(entry.at))),
        Value::from(last.map(|entry| entry.reason.to_string())),
        Value::from(now.saturating_sub(snapshot.at)),
    ];
    let is_stale = now.saturating_sub(snapshot.at) > STALE_S;
    let row = |group: &GroupNow, uplink: &UplinkNow| row(group, uplink, is_stale);
    let uplinks = || {
        let groups = snapshot.groups.iter();
        groups.flat_map(|group| group.uplinks.iter().map(move |uplink| (group, uplink)))
    };
    let tables = [
        FigureTable {
            name: "uplinks",
            about: "The uplinks",
            fields: UPLINK_FIELDS,
            rows: uplinks().map(|(group, uplink)| row(group, uplink)).collect(),
        },
        FigureTable {
            name: "destinations",
            about: "What was changed last, by destination",
            fields: DESTINATION_FIELDS,
            rows: snapshot
                .groups
                .iter()
                .zip(&changes)
                .map(|(group, changes)| destination(group, changes, now))
                .collect(),
        },
        FigureTable {
            name: "traffic",
            about: "What goes by them",
            fields: TRAFFIC_FIELDS,
            rows: uplinks().map(|(group, uplink)| traffic(group, uplink)).collect(),
        },
        FigureTable {
            name: "round_trips",
            about: "Round trips of the last probes",
            fields: TARGET_FIELDS,
            rows: uplinks()
                .flat_map(|(group, uplink)| round_trips(group, uplink))
                .collect(),
        },
    ];
    Ok(Some(Figures {
        fields: FIELDS,
        values,
        tables: tables.into_iter().chain(tcp::table(&snapshot)).collect(),
    }))
}

fn destination(group: &GroupNow, changes: &[&Entry], now: u64) -> Vec<Value> {
    let last = changes.last();
    vec![
        Value::from(group.to.as_str()),
        Value::from(changes.len() as u64),
        Value::from(last.map(|entry| now.saturating_sub(entry.at))),
        Value::from(last.map(|entry| entry.reason.to_string())),
    ]
}

fn traffic(group: &GroupNow, uplink: &UplinkNow) -> Vec<Value> {
    let sum: f64 = group.uplinks.iter().filter_map(|uplink| uplink.sends).sum();
    let carries = uplink.sends.filter(|_| sum > 0.0).map(|sends| sends / sum * 100.0);
    let load = |of: fn(&Load) -> f64| Value::from(uplink.load.as_ref().map(|load| rounded(of(load) / 1e3, 1)));
    vec![
        Value::from(group.to.as_str()),
        Value::from(uplink.name.as_str()),
        Value::from(runtime::now().saturating_sub(uplink.since)),
        Value::from(u64::from(uplink.weight)),
        Value::from(uplink.sends.map(|bytes| rounded(bytes / 1e3, 1))),
        Value::from(carries.map(|percent| rounded(percent, 1))),
        load(|load| load.busy),
        load(|load| load.uneven),
    ]
}

fn round_trips<'a>(group: &'a GroupNow, uplink: &'a UplinkNow) -> impl Iterator<Item = Vec<Value>> + 'a {
    uplink.targets.iter().map(|target| {
        let ms = |us: fn(&Distribution) -> u32| {
            Value::from(
                target
                    .distribution
                    .as_ref()
                    .map(|found| rounded(f64::from(us(found)) / 1e3, 3)),
            )
        };
        vec![
            Value::from(group.to.as_str()),
            Value::from(uplink.name.as_str()),
            Value::from(target.target.as_str()),
            ms(|found| found.median_us),
            ms(|found| found.p95_us),
            ms(|found| found.p99_us),
            ms(|found| found.max_us),
        ]
    })
}

fn row(group: &GroupNow, uplink: &UplinkNow, is_stale: bool) -> Vec<Value> {
    let figures = uplink.figures.as_ref();
    let ms = |us: fn(&ProbeFigures) -> f64| Value::from(figures.map(|figures| rounded(us(figures) / 1e3, 3)));
    let score_decimals = match group.measure {
        Measure::Delay => 3,
        Measure::Load => 1,
    };
    let state = match &group.released {
        _ if is_stale => "unknown: no agent".to_owned(),
        Some(why) => format!("left alone: {why}"),
        None if group.trouble.is_some() => "not in force: see the log".to_owned(),
        None => uplink.state.clone(),
    };
    vec![
        Value::from(group.to.as_str()),
        Value::from(uplink.name.as_str()),
        Value::from(state),
        // By what others have made of the group; its probes go on.
        Value::from(group.released.is_none().then(|| rounded(uplink.share * 100.0, 1))),
        ms(|figures| figures.rtt_us),
        ms(|figures| figures.deviation_us),
        Value::from(figures.map(|figures| rounded(figures.loss * 100.0, 2))),
        Value::from(uplink.score.map(|score| rounded(score / 1e3, score_decimals))),
    ]
}

/// A value with so many decimals.
fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}
