//! What the agent knows of the uplinks, in the state directory: `tarn status` reads it there.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::group::Working;
use super::judge::{Distribution, Estimate, Life, Measure, Policy, STANDBY};
use super::load::Load;
use super::rates::Rates;
use super::target::Target;
use super::tcp::{RoundTrips, TcpMeter};
use super::uplink::Uplink;
use tarn_base::runtime;

/// The file in the state directory with the last [`Snapshot`]; there is none when the stage is down.
pub const FILE: &str = "paths-now.json";

/// All groups at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When: seconds since 1970, UTC.
    pub at: u64,
    /// How flows are given to uplinks.
    #[serde(default)]
    pub policy: Policy,
    /// The groups, in the configuration's order.
    pub groups: Vec<GroupNow>,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupNow {
    /// What it leads to.
    pub to: String,
    /// The metric of its route: several groups may lead to the same.
    #[serde(default)]
    pub metric: u32,
    /// Why it is left alone, if it is.
    pub released: Option<String>,
    /// Why the kernel does not take what was decided, if it does not.
    #[serde(default)]
    pub trouble: Option<String>,
    /// What its uplinks are compared by.
    #[serde(default)]
    pub measure: Measure,
    /// Its uplinks.
    pub uplinks: Vec<UplinkNow>,
}

/// One uplink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UplinkNow {
    /// Its device's name.
    pub name: String,
    /// What it does.
    pub state: String,
    /// Since when: seconds since 1970, UTC.
    #[serde(default)]
    pub since: u64,
    /// Its weight in the group.
    pub weight: u32,
    /// The share of new flows that it gets, 0.0 to 1.0.
    pub share: f64,
    /// What its device sends, in bytes a second; none while it is gone.
    #[serde(default)]
    pub sends: Option<f64>,
    /// How busy its device is, where that is measured.
    #[serde(default)]
    pub load: Option<Load>,
    /// What uplinks are compared by, cost included: microseconds, or bytes a second where the load is measured.
    #[serde(default)]
    pub score: Option<f64>,
    /// What its best target tells; none before anything is known.
    pub figures: Option<ProbeFigures>,
    /// Round trips, by target.
    #[serde(default)]
    pub targets: Vec<TargetNow>,
    /// What TCP connections see by its device; none where that is not measured.
    #[serde(default)]
    pub tcp: Option<RoundTrips>,
}

/// One target of an uplink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetNow {
    /// As it is written.
    pub target: String,
    /// How the last round trips are distributed; none before there was one.
    pub distribution: Option<Distribution>,
}

/// The results of probes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeFigures {
    /// The smoothed round trip time, in microseconds.
    pub rtt_us: f64,
    /// Its standard deviation over the memory.
    pub deviation_us: f64,
    /// The share of probes lost over the memory.
    pub loss: f64,
}

impl Snapshot {
    /// The groups as they are now.
    pub fn of(policy: Policy, groups: &[Working], rates: &Rates, tcp: Option<&TcpMeter>, now: Duration) -> Self {
        Self {
            at: runtime::now(),
            policy,
            groups: groups
                .iter()
                .map(|group| GroupNow::of(group, rates, tcp, now))
                .collect(),
        }
    }

    /// An uplink that is in the state that it was in before has been there since then.
    pub fn go_on_from(&mut self, before: &Self) {
        for group in &mut self.groups {
            let is_same = |before: &&GroupNow| (&before.to, before.metric) == (&group.to, group.metric);
            let before = before.groups.iter().find(is_same);
            let uplinks = before.map_or(&[][..], |before| &before.uplinks);
            for uplink in &mut group.uplinks {
                let is_unchanged = |before: &&UplinkNow| before.name == uplink.name && before.state == uplink.state;
                if let Some(before) = uplinks.iter().find(is_unchanged) {
                    uplink.since = before.since;
                }
            }
        }
    }

    /// Removes what was measured, because it is not true any more: the states, shares and weights stay.
    pub fn forget_measures(&mut self) {
        for uplink in self.groups.iter_mut().flat_map(|group| &mut group.uplinks) {
            (uplink.figures, uplink.score, uplink.sends, uplink.load) = (None, None, None, None);
            uplink.tcp = uplink.tcp.map(|_| RoundTrips::default());
        }
    }

    /// Has groups that lead to the same tell their metrics, too: nothing else tells their rows apart.
    pub fn tell_apart(&mut self) {
        let all: Vec<String> = self.groups.iter().map(|group| group.to.clone()).collect();
        let is_double = |to: &String| all.iter().filter(|other| *other == to).count() > 1;
        for group in self.groups.iter_mut().filter(|group| is_double(&group.to)) {
            group.to = format!("{} metric {}", group.to, group.metric);
        }
    }
}

impl GroupNow {
    fn of(group: &Working, rates: &Rates, tcp: Option<&TcpMeter>, now: Duration) -> Self {
        let all = &group.judge.uplinks;
        // A standby's weight is there for the kernel, and gives it no flow.
        let has_used = all.iter().any(|uplink| uplink.weight > STANDBY);
        let counted = |uplink: &Uplink| match uplink.weight {
            STANDBY if has_used => 0,
            weight => weight,
        };
        let sum: u32 = all.iter().map(counted).sum();
        let share = |uplink: &Uplink| f64::from(counted(uplink)) / f64::from(sum.max(1));
        let uplinks = all
            .iter()
            .map(|uplink| UplinkNow::of(uplink, share(uplink), rates, tcp, now));
        Self {
            to: group.layout.route.to.to_string(),
            metric: group.layout.route.metric,
            released: group.released.clone(),
            trouble: group.trouble.clone(),
            measure: group.judge.measure(),
            uplinks: uplinks.collect(),
        }
    }
}

impl UplinkNow {
    fn of(uplink: &Uplink, share: f64, rates: &Rates, tcp: Option<&TcpMeter>, now: Duration) -> Self {
        let device = uplink.link.device;
        let targets = uplink.link.targets.iter().zip(&uplink.estimates);
        let target = |(target, estimate): (&Target, &Estimate)| TargetNow {
            target: target.to_string(),
            distribution: estimate.round_trips.distribution(),
        };
        Self {
            name: uplink.name.clone(),
            state: state(uplink, share, now).to_owned(),
            since: runtime::now(),
            weight: uplink.weight,
            share,
            sends: device.and_then(|device| rates.of(device)),
            load: uplink.load,
            score: uplink.score(now),
            figures: figures(uplink, now),
            targets: targets.map(target).collect(),
            tcp: tcp.map(|tcp| device.and_then(|device| tcp.read(device)).unwrap_or_default()),
        }
    }
}

fn state(uplink: &Uplink, share: f64, now: Duration) -> &'static str {
    match uplink.life {
        _ if !uplink.is_there => "gone",
        Life::Silent => "silent",
        Life::Overdue(_) => "late",
        Life::Returning(_) => "returning",
        Life::Well if share > 0.0 => "used",
        Life::Well if now < uplink.avoided_until => "avoided",
        // It is not in the group before it has answered some probes.
        Life::Well if uplink.weight == 0 && !uplink.is_known() => "returning",
        Life::Well => "standby",
    }
}

fn figures(uplink: &Uplink, now: Duration) -> Option<ProbeFigures> {
    let best = uplink.best(now)?;
    Some(ProbeFigures {
        rtt_us: best.smoothed_us?,
        deviation_us: best.deviation_us(),
        loss: best.loss(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An uplink, its state, and since when.
    type Row = (&'static str, &'static str, u64);

    /// Groups by what they lead to, with their uplinks.
    pub fn snapshot(groups: &[(&str, &[Row])]) -> Snapshot {
        let uplink = |&(name, state, since): &Row| UplinkNow {
            name: name.into(),
            state: state.into(),
            since,
            weight: 0,
            share: 0.0,
            sends: None,
            load: None,
            score: None,
            figures: None,
            targets: Vec::new(),
            tcp: None,
        };
        let group = |&(to, uplinks): &(&str, &[Row])| GroupNow {
            to: to.into(),
            metric: 0,
            released: None,
            trouble: None,
            measure: Measure::default(),
            uplinks: uplinks.iter().map(uplink).collect(),
        };
        Snapshot {
            at: 0,
            policy: Policy::default(),
            groups: groups.iter().map(group).collect(),
        }
    }

    /// An agent that comes after another one knows no more than what that one told; the file may have another order by then.
    #[test]
    fn a_state_lasts_from_one_agent_to_the_next() {
        let before = snapshot(&[
            ("default", &[("wan1", "used", 10), ("wan2", "standby", 20)]),
            ("::/0", &[("wan1", "silent", 30)]),
        ]);
        let mut now = snapshot(&[
            ("::/0", &[("wan1", "silent", 99)]),
            (
                "default",
                &[("wan2", "used", 99), ("wan1", "used", 99), ("wan3", "used", 99)],
            ),
        ]);
        now.go_on_from(&before);
        let since: Vec<u64> = now
            .groups
            .iter()
            .flat_map(|group| &group.uplinks)
            .map(|uplink| uplink.since)
            .collect();
        assert_eq!(since, [30, 99, 10, 99]);
    }

    /// A default route, and another one for when it has gone: each has figures of its own.
    #[test]
    fn groups_to_the_same_place_are_told_apart() {
        let mut before = snapshot(&[
            ("default", &[("wan1", "used", 10)]),
            ("default", &[("wan1", "standby", 20)]),
            ("::/0", &[("wan1", "used", 30)]),
        ]);
        before.groups[1].metric = 7;
        let mut now = before.clone();
        for uplink in now.groups.iter_mut().flat_map(|group| &mut group.uplinks) {
            uplink.since = 99;
        }
        now.go_on_from(&before);
        assert_eq!(now, before);
        now.tell_apart();
        let names: Vec<&str> = now.groups.iter().map(|group| group.to.as_str()).collect();
        assert_eq!(names, ["default metric 0", "default metric 7", "::/0"]);
    }
}
