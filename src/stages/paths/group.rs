//! One group at work: what it is in the kernel, what is known of its uplinks, and who probes them.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result};

use super::STAGE;
use super::config::{Config, Group};
use super::history::{self, Entry};
use super::judge::{Decision, Judge, Uplink};
use super::layout::{GroupLayout, Way};
use super::prober::Prober;
use crate::kernel::netlink::Netlink;
use crate::kernel::nexthop;
use crate::output::{Priority, log, log_at};
use crate::runtime;
use crate::state::StateDirectory;

/// One group at work.
pub struct Working {
    /// What it is in the kernel.
    pub layout: GroupLayout,
    /// What is known of its uplinks.
    pub judge: Judge,
    /// Why it is left alone: somebody else has changed it.
    pub released: Option<String>,
    uplinks: Vec<Probed>,
    /// What was set last, as the kernel shows it; none before the first time, and when it has to be set anew.
    set: Option<Vec<nexthop::Member>>,
}

/// An uplink's probes.
#[derive(Default)]
struct Probed {
    /// The device's index, while it can send.
    device: Option<u32>,
    /// One a target.
    probers: Vec<Prober>,
    last_sent: Option<Duration>,
    /// What was last said of why it cannot be used, in order not to say it again.
    trouble: Option<String>,
}

impl Working {
    /// A group as it is found: with the weights in force, if an earlier agent has set any.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn adopt(config: &Config, group: &Group, mut layout: GroupLayout, netlink: &mut Netlink) -> Result<Self> {
        let found = nexthop::find(netlink, layout.id)?.filter(nexthop::Found::is_ours);
        let weights = match &found {
            Some(found) => layout.weights(&found.members),
            None => vec![0; layout.ways.len()],
        };
        // Their number is fixed as long as the group exists.
        if let Some(buckets) = found.and_then(|found| found.buckets) {
            layout.buckets = buckets;
        }
        let uplink = |uplink: &super::config::Uplink| {
            Uplink::new(
                uplink.device.clone(),
                uplink.cost,
                uplink.targets.len(),
                &config.settings,
            )
        };
        let uplinks = group.uplinks.iter().map(uplink).collect();
        Ok(Self {
            judge: Judge::new(config.settings, uplinks, weights),
            uplinks: layout.ways.iter().map(|_| Probed::default()).collect(),
            layout,
            released: None,
            set: None,
        })
    }

    /// Follows the devices: those that can send now get their nexthop, table and probers. Then looks whether anybody else has
    /// changed the group or its route.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn follow(&mut self, config: &Group, carrying: &HashMap<String, u32>, netlink: &mut Netlink) -> Result<()> {
        if self.released.is_some() {
            return Ok(());
        }
        let mut lost = Vec::new();
        for index in 0..self.layout.ways.len() {
            let way = self.layout.ways[index].clone();
            if nexthop::find(netlink, way.id)?.is_none() {
                lost.push(way.id);
            }
            let device = carrying.get(&way.device).copied();
            let is_there = self.follow_one(
                index,
                &way,
                device,
                &config.uplinks[index].targets,
                netlink,
                lost.contains(&way.id),
            );
            if let Some(uplink) = self.judge.uplink(index) {
                uplink.is_there = is_there;
            }
        }
        self.look(&lost, netlink)
    }

    /// Returns whether the uplink can be used.
    fn follow_one(
        &mut self,
        index: usize,
        way: &Way,
        device: Option<u32>,
        targets: &[std::net::IpAddr],
        netlink: &mut Netlink,
        is_lost: bool,
    ) -> bool {
        let probed = &mut self.uplinks[index];
        let Some(device) = device else {
            *probed = Probed {
                trouble: probed.trouble.take(),
                ..Probed::default()
            };
            return false;
        };
        if probed.device == Some(device) && !is_lost {
            return true;
        }
        let outcome = way_up(&self.layout, way, device, netlink).and_then(|()| {
            let open = |target| Prober::open(&way.device, way.rule.mark, target);
            targets.iter().copied().map(open).collect::<Result<Vec<Prober>>>()
        });
        match outcome {
            Ok(probers) => {
                *probed = Probed {
                    device: Some(device),
                    probers,
                    ..Probed::default()
                };
                true
            }
            Err(error) => {
                let trouble = format!("{} cannot be used: {error:#}", way.device);
                if probed.trouble.as_ref() != Some(&trouble) {
                    log_at(Priority::Notice, STAGE, &trouble);
                }
                *probed = Probed {
                    trouble: Some(trouble),
                    ..Probed::default()
                };
                false
            }
        }
    }

    /// Whether the group and its route are as they were set. What the kernel took out with a device (`lost`) is set again; what
    /// somebody else has changed is left alone from now on.
    fn look(&mut self, lost: &[u32], netlink: &mut Netlink) -> Result<()> {
        let Some(set) = &self.set else { return Ok(()) };
        let remaining: Vec<nexthop::Member> = set
            .iter()
            .filter(|member| !lost.contains(&member.id))
            .copied()
            .collect();
        let found = nexthop::find(netlink, self.layout.id)?;
        let why = match found {
            _ if remaining.is_empty() => None, // the kernel has taken the group away with its last member
            None => Some("its nexthop group was removed"),
            Some(found) if !found.is_ours() => Some("its nexthop group was made anew"),
            Some(found) if !same(&found.members, &remaining) => Some("its nexthop group has other members or weights"),
            Some(_) if !self.layout.route.stands(netlink)? => Some("its route was removed or replaced"),
            Some(_) => None,
        };
        if let (Some(why), true) = (why, self.all_ways_stand(netlink)?) {
            let text = format!(
                "{}: {why} by somebody else: left alone until the next `tarn up`",
                self.layout.route.to
            );
            log_at(Priority::Notice, STAGE, &text);
            self.released = Some(why.to_owned());
        } else if why.is_some() || remaining.len() < set.len() {
            self.set = None;
        }
        Ok(())
    }

    /// Whether no device has gone since they were looked at: the kernel takes its nexthop out of the group, as somebody else might.
    fn all_ways_stand(&self, netlink: &mut Netlink) -> Result<bool> {
        let ways = self
            .layout
            .ways
            .iter()
            .zip(&self.uplinks)
            .filter(|(_, probed)| probed.device.is_some());
        for (way, _) in ways {
            if nexthop::find(netlink, way.id)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes what has been answered since.
    pub fn receive(&mut self, now: Duration) {
        for (index, probed) in self.uplinks.iter().enumerate() {
            let Some(uplink) = self.judge.uplink(index) else {
                continue;
            };
            for (prober, estimate) in probed.probers.iter().zip(&mut uplink.estimates) {
                prober
                    .receive()
                    .into_iter()
                    .for_each(|sequence| estimate.answered(sequence, now));
            }
        }
    }

    /// Sends the probes that are due. Returns when the next ones are.
    pub fn send(&mut self, now: Duration) -> Duration {
        let mut next = now + Duration::from_secs(1);
        for index in 0..self.uplinks.len() {
            let interval = self.judge.interval(index, now);
            let (probed, Some(uplink)) = (&mut self.uplinks[index], self.judge.uplink(index)) else {
                continue;
            };
            if probed.probers.is_empty() {
                continue;
            }
            if probed.last_sent.is_none_or(|last| now.saturating_sub(last) >= interval) {
                probed.last_sent = Some(now);
                let each = probed.probers.iter_mut().zip(&mut uplink.estimates);
                let gone = each
                    .map(|(prober, estimate)| prober.send(estimate.sent(now)))
                    .any(|sent| sent.is_err());
                if gone {
                    // Another device has this name by now, or soon: look at it anew.
                    *probed = Probed::default();
                    continue;
                }
            }
            let due = probed.last_sent.map_or(now, |last| last + interval);
            let deadlines = uplink.estimates.iter().filter_map(|estimate| estimate.deadline(now));
            next = deadlines.chain([due, next]).min().unwrap_or(next);
        }
        next
    }

    /// What is to change now. It is done already when this returns, if it could be.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn decide(&mut self, now: Duration, netlink: &mut Netlink) -> Result<Option<Decision>> {
        if self.released.is_some() {
            return Ok(None);
        }
        let decision = self.judge.decide(now);
        if decision.is_some() || self.set.is_none() {
            self.apply(netlink)?;
        }
        Ok(decision)
    }

    /// Sets the weights in force, and the route where it is missing.
    fn apply(&mut self, netlink: &mut Netlink) -> Result<()> {
        let there = self.judge.uplinks().iter().zip(self.judge.weights());
        let weights: Vec<u32> = there
            .map(|(uplink, weight)| if uplink.is_there { *weight } else { 0 })
            .collect();
        let Some(group) = self.layout.group(&weights) else {
            return Ok(()); // no device can send: the group comes back with the first that can
        };
        nexthop::set_group(netlink, &group).context("the kernel refuses the nexthop group")?;
        if !self.layout.route.stands(netlink)? {
            let to = self.layout.route.to;
            let remedy =
                "another route to the same destination with the same metric is there: give the group another metric";
            self.layout
                .route
                .set(netlink)
                .with_context(|| format!("cannot route {to}: {remedy}"))?;
        }
        self.set = Some(group.members);
        Ok(())
    }

    /// The descriptors that become readable when an answer has come.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.uplinks
            .iter()
            .flat_map(|probed| probed.probers.iter().map(AsFd::as_fd))
    }
}

/// Makes an uplink's nexthop, and its own table.
fn way_up(layout: &GroupLayout, way: &Way, device: u32, netlink: &mut Netlink) -> Result<()> {
    nexthop::set(netlink, &layout.nexthop(way, device)).context("the kernel refuses the nexthop")?;
    way.route
        .set(netlink)
        .with_context(|| format!("cannot set a route in table {}", way.route.table))?;
    way.rule
        .set(netlink)
        .with_context(|| format!("cannot set rule {}", way.rule.priority))
}

fn same(one: &[nexthop::Member], other: &[nexthop::Member]) -> bool {
    one.len() == other.len() && one.iter().all(|member| other.contains(member))
}

/// Puts a decision into the log and into the history. `from` is who had the most new flows before.
pub fn announce(state: &StateDirectory, group: &Working, from: Option<String>, decision: Decision) {
    let to = group.layout.route.to.to_string();
    let chosen = group.judge.main_name().unwrap_or_default();
    log(STAGE, format!("{to} goes by {chosen}: {}", decision.reason));
    let names = group.judge.uplinks().iter().map(|uplink| uplink.name.clone());
    let entry = Entry {
        at: runtime::now(),
        group: to,
        from,
        to: chosen,
        weights: names.zip(decision.weights).collect(),
        reason: decision.reason,
    };
    if let Err(error) = history::add(state, entry) {
        log_at(Priority::Warning, STAGE, format!("{error:#}"));
    }
}
