//! The stage's figures, for `status` and the metrics.

use anyhow::Result;

use super::history::{self, Entry};
use super::judge::{self, Distribution, Measure};
use super::load::Load;
use super::snapshot::{self, GroupNow, ProbeFigures, Snapshot, UplinkNow};
use tarn_base::described;
use tarn_base::figures::{Combine, FigureTable, Figures, Headline, Plot, Value, rounded};
use tarn_base::runtime;
use tarn_frame::state::StateDirectory;

mod tcp;
#[cfg(test)]
mod tests;

described! {
    /// What holds for all groups.
    struct Paths {
        groups: Gauge "" "Destinations that have several uplinks",
        policy: Label "" "How flows are given to uplinks",
        measure: Label "" "What uplinks are compared by",
        trouble: Note "" "Why a group does not follow its uplinks, and what to do",
        changes: Gauge "" "Changes that are remembered; `tarn paths history` shows them",
        last_change: Gauge "s" "Time since the last change",
        last_reason: Note "" "Why traffic moved the last time",
        age: Gauge "s" "Age of these figures: the agent writes them down every second",
    }
}

described! {
    /// An uplink.
    struct UplinkRow {
        to: Label "" "What the group leads to",
        uplink: Label "" "The uplink's device",
        state: Label "" "used, standby, avoided (it was slow), silent, returning or gone",
        share: Gauge "%" "Share of new flows that it gets",
        rtt: Gauge "ms" "Smoothed round trip time of its probes",
        jitter: Gauge "ms" "Standard deviation of the round trip time over the memory",
        loss: Gauge "%" "Share of probes lost over the memory",
        score: Gauge "" "What uplinks are compared by, cost included, in ms, or in kB/s where measure = \"load\": the least is the best",
    }
}

described! {
    /// What goes by an uplink.
    struct Traffic {
        to: Label "" "What the group leads to",
        uplink: Label "" "The uplink's device",
        since: Gauge "s" "For how long it has been in its state",
        weight: Gauge "" "Its weight in the group",
        sends: Gauge "kB/s" "What its device has sent in the last second",
        carries: Gauge "%" "Share of it in what all devices of the group have sent",
        load: Gauge "kB/s" "How busy its device is, where measure = \"load\"",
        uneven: Gauge "kB/s" "How far that is from its average at any moment",
    }
}

described! {
    /// What was changed last of a group.
    struct Destination {
        to: Label "" "What the group leads to",
        changes: Gauge "" "Its changes that are remembered",
        last_change: Gauge "s" "Time since its last change",
        why: Note "" "Why that was made",
    }
}

described! {
    /// Round trips of the last probes to a target.
    struct RoundTripsRow {
        to: Label "" "What the group leads to",
        uplink: Label "" "The uplink's device",
        target: Label "" "Who is asked",
        median: Gauge "ms" "Half of the last 512 round trips took at most so long",
        p95: Gauge "ms" "95 of 100 took at most so long",
        p99: Gauge "ms" "99 of 100 took at most so long",
        max: Gauge "ms" "All took at most so long",
    }
}

/// Figures that were not written down anew for so many seconds tell nothing of now.
const STALE_S: u64 = 5;

/// The figures; `None` when the stage is down.
///
/// # Errors
/// A file that cannot be read.
pub fn read(state: &StateDirectory) -> Result<Option<Figures>> {
    let Some(mut snapshot) = state.read_json::<Snapshot>(snapshot::FILE)? else {
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
    let is_stale = now.saturating_sub(snapshot.at) > STALE_S;
    if is_stale {
        snapshot.forget_measures();
    }
    let values = Paths {
        groups: Value::from(snapshot.groups.len() as u64),
        policy: Value::from(judge::name(snapshot.policy)),
        trouble: Value::from(trouble(&snapshot)),
        measure: Value::from(snapshot.groups.first().map(|group| judge::name(group.measure))),
        changes: Value::from(history.len() as u64),
        last_change: Value::from(last.map(|entry| now.saturating_sub(entry.at))),
        last_reason: Value::from(last.map(|entry| entry.reason.to_string())),
        age: Value::from(now.saturating_sub(snapshot.at)),
    }
    .values();
    let row = |group: &GroupNow, uplink: &UplinkNow| row(group, uplink, is_stale);
    let uplinks = || {
        let groups = snapshot.groups.iter();
        groups.flat_map(|group| group.uplinks.iter().map(move |uplink| (group, uplink)))
    };
    let tables = [
        FigureTable {
            name: "uplinks",
            about: "The uplinks",
            key: 2,
            plot: Plot::of("rtt"),
            fields: UplinkRow::FIELDS,
            rows: uplinks().map(|(group, uplink)| row(group, uplink)).collect(),
        },
        FigureTable {
            name: "destinations",
            about: "What was changed last, by destination",
            key: 1,
            plot: None,
            fields: Destination::FIELDS,
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
            key: 2,
            plot: Plot::of("sends"),
            fields: Traffic::FIELDS,
            rows: uplinks().map(|(group, uplink)| traffic(group, uplink)).collect(),
        },
        FigureTable {
            name: "round_trips",
            about: "Round trips of the last probes",
            key: 3,
            plot: None,
            fields: RoundTripsRow::FIELDS,
            rows: uplinks()
                .flat_map(|(group, uplink)| round_trips(group, uplink))
                .collect(),
        },
    ];
    Ok(Some(Figures {
        fields: Paths::FIELDS,
        values,
        tables: tables.into_iter().chain(tcp::table(&snapshot)).collect(),
        headline: Some(Headline {
            table: "uplinks",
            field: "rtt",
            less: None,
            what: "ms RTT",
            combine: Combine::Mean("share"),
        }),
        alarms: &[],
    }))
}

fn destination(group: &GroupNow, changes: &[&Entry], now: u64) -> Vec<Value> {
    let last = changes.last();
    Destination {
        to: Value::from(group.to.as_str()),
        changes: Value::from(changes.len() as u64),
        last_change: Value::from(last.map(|entry| now.saturating_sub(entry.at))),
        why: Value::from(last.map(|entry| entry.reason.to_string())),
    }
    .values()
}

fn traffic(group: &GroupNow, uplink: &UplinkNow) -> Vec<Value> {
    let sum: f64 = group.uplinks.iter().filter_map(|uplink| uplink.sends).sum();
    let carries = uplink.sends.filter(|_| sum > 0.0).map(|sends| sends / sum * 100.0);
    let load = |of: fn(&Load) -> f64| Value::from(uplink.load.as_ref().map(|load| rounded(of(load) / 1e3, 1)));
    Traffic {
        to: Value::from(group.to.as_str()),
        uplink: Value::from(uplink.name.as_str()),
        since: Value::from(runtime::now().saturating_sub(uplink.since)),
        weight: Value::from(u64::from(uplink.weight)),
        sends: Value::from(uplink.sends.map(|bytes| rounded(bytes / 1e3, 1))),
        carries: Value::from(carries.map(|percent| rounded(percent, 1))),
        load: load(|load| load.busy),
        uneven: load(|load| load.uneven),
    }
    .values()
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
        RoundTripsRow {
            to: Value::from(group.to.as_str()),
            uplink: Value::from(uplink.name.as_str()),
            target: Value::from(target.target.as_str()),
            median: ms(|found| found.median_us),
            p95: ms(|found| found.p95_us),
            p99: ms(|found| found.p99_us),
            max: ms(|found| found.max_us),
        }
        .values()
    })
}

/// Which groups do not follow their uplinks, and why; `None` when all do.
fn trouble(snapshot: &Snapshot) -> Option<String> {
    let of_group = |group: &GroupNow| match (&group.released, &group.trouble) {
        (Some(why), _) => Some(format!(
            "{} is left alone: {why} by somebody else; `tarn up` takes it up again",
            group.to
        )),
        (None, Some(trouble)) => Some(format!("{} is not in force: {trouble}", group.to)),
        (None, None) => None,
    };
    let troubles: Vec<String> = snapshot.groups.iter().filter_map(of_group).collect();
    (!troubles.is_empty()).then(|| troubles.join("; "))
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
    UplinkRow {
        to: Value::from(group.to.as_str()),
        uplink: Value::from(uplink.name.as_str()),
        state: Value::from(state),
        // By what others have made of the group; its probes go on.
        share: Value::from(group.released.is_none().then(|| rounded(uplink.share * 100.0, 1))),
        rtt: ms(|figures| figures.rtt_us),
        jitter: ms(|figures| figures.deviation_us),
        loss: Value::from(figures.map(|figures| rounded(figures.loss * 100.0, 2))),
        score: Value::from(uplink.score.map(|score| rounded(score / 1e3, score_decimals))),
    }
    .values()
}
