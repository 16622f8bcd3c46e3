//! One group at work: what it is in the kernel, and its uplinks.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::STAGE;
use super::config::{self, Config, Group};
use super::history::{self, Entry};
use super::judge::{Decision, Judge, Policy, Reason};
use super::layout::{self, GroupLayout, Layout, Way};
use super::pin;
use super::prefixes;
use super::uplink::{Link, RETRY, Uplink};
use crate::nexthop;
use tarn_base::output::{Priority, log, log_at};
use tarn_base::runtime;
use tarn_frame::state::StateDirectory;
use tarn_kernel::netlink::Netlink;
use tarn_kernel::route::OWNER;

/// One group at work.
pub struct Working {
    /// What it is in the kernel.
    pub layout: GroupLayout,
    /// Its uplinks, and what is known of them.
    pub judge: Judge<Link>,
    /// Why it is left alone: somebody else has changed it.
    pub released: Option<String>,
    /// Whether somebody else has put another route in the place of ours, or removed it, since: what ours stood for is theirs now.
    pub has_lost_route: bool,
    /// What was set last, as the kernel shows it; none before the first time, and when it has to be set anew.
    set: Option<Vec<nexthop::Member>>,
    /// What could not be set is not tried again before this moment: the kernel tells of every try, which wakes the loop.
    retry_at: Duration,
    /// What was last said of why it could not.
    pub trouble: Option<String>,
}

impl Working {
    /// A group as it is found: with the weights in force, if an earlier agent has set any.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn adopt(
        config: &Config,
        group: &Group,
        mut layout: Layout,
        carrying: &HashMap<String, u32>,
        netlink: &mut Netlink,
    ) -> Result<Self> {
        let found = nexthop::find(netlink, layout.group.id)?.filter(nexthop::Found::is_ours);
        let mut members = Vec::new();
        // By their devices: the uplinks of the file may have another order by now.
        for member in found.iter().flat_map(|found| &found.members) {
            let device = nexthop::find(netlink, member.id)?.and_then(|found| found.device);
            let is_by_it = |way: &&Way| device.is_some() && carrying.get(&way.device).copied() == device;
            members.extend(layout.ways.iter().find(is_by_it).map(|way| nexthop::Member {
                id: way.id,
                ..member.weighed(layout.group.weight_most)
            }));
        }
        let weights = layout.weights(&members);
        // Their number is fixed as long as the group exists.
        if let Some(buckets) = found.and_then(|found| found.buckets) {
            layout.group.buckets = buckets;
        }
        let uplink = |(way, configured): (Way, &config::Uplink)| {
            let (name, targets) = (way.device.clone(), configured.targets.clone());
            let count = targets.len();
            let uplink = Uplink::new(Link::new(way, targets), name, configured.cost, count, &config.settings);
            uplink.metered(configured.is_metered, &config.settings)
        };
        let uplinks = layout.ways.into_iter().zip(&group.uplinks).map(uplink).collect();
        let working = Self {
            judge: Judge::new(config.settings, uplinks, &weights).pinned(layout.group.is_pinned),
            layout: layout.group,
            released: None,
            has_lost_route: false,
            set: None,
            retry_at: Duration::ZERO,
            trouble: None,
        };
        working.notice_buckets(config.settings.policy);
        Ok(working)
    }

    /// Follows the devices: those that can send now get their nexthop, table and probers. Then looks whether anybody else has
    /// changed the group or its route.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn follow(&mut self, carrying: &HashMap<String, u32>, now: Duration, netlink: &mut Netlink) -> Result<()> {
        if self.released.is_some() {
            return Ok(());
        }
        let mut lost = Vec::new();
        for uplink in &mut self.judge.uplinks {
            if uplink.follow(carrying, now, netlink)? {
                lost.push(uplink.link.way.id);
            }
        }
        self.follow_group(&lost, netlink)
    }

    /// Finds out whether the group and its route are as they were set. What the kernel took out with a device (`lost`) is set
    /// again; what somebody else has changed is left alone from now on.
    fn follow_group(&mut self, lost: &[u32], netlink: &mut Netlink) -> Result<()> {
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
            Some(found) if !same(&found.members, &remaining, self.layout.weight_most) => {
                Some("its nexthop group has other members or weights")
            }
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
            self.has_lost_route = !self.layout.route.stands(netlink)?;
        } else if why.is_some() || remaining.len() < set.len() {
            self.set = None;
        }
        Ok(())
    }

    /// Whether no device has gone since they were looked at: the kernel takes its nexthop out of the group, as somebody else might.
    fn all_ways_stand(&self, netlink: &mut Netlink) -> Result<bool> {
        for uplink in &self.judge.uplinks {
            if uplink.link.device.is_some() && nexthop::find(netlink, uplink.link.way.id)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends the probes that are due. Returns when the next ones are.
    pub fn send(&mut self, now: Duration) -> Duration {
        let mut next = now + Duration::from_secs(1);
        for index in 0..self.judge.uplinks.len() {
            let pace = self.judge.pace(index, now);
            let due = self.judge.uplinks[index].send(pace, now);
            next = due.map_or(next, |due| due.min(next));
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
        for uplink in &mut self.judge.uplinks {
            if std::mem::take(&mut uplink.has_died) {
                let reason = Reason::Silent(uplink.name.clone());
                log(STAGE, format!("{}: {reason}", self.layout.route.to));
            }
        }
        if decision.is_none() && (self.set.is_some() || now < self.retry_at) {
            return Ok(None);
        }
        // What somebody else has done since the last look is not undone by the way.
        self.follow_group(&[], netlink)?;
        if self.released.is_some() {
            return Ok(None);
        }
        self.set = None;
        match self.apply(netlink) {
            Ok(()) => self.trouble = None,
            Err(error) => {
                self.retry_at = now + RETRY;
                let trouble = format!("{error:#}");
                if self.trouble.replace(trouble.clone()) != Some(trouble) {
                    return Err(error);
                }
            }
        }
        Ok(decision)
    }

    /// Sets the weights in force, and the route where it is missing.
    fn apply(&mut self, netlink: &mut Netlink) -> Result<()> {
        let member = |uplink: &Uplink| (uplink.link.way.id, if uplink.is_there { uplink.weight } else { 0 });
        let Some(group) = self.layout.weighed(self.judge.uplinks.iter().map(member)) else {
            return Ok(()); // no device can send: the group comes back with the first that can
        };
        let has_route = self.layout.route.stands(netlink)?;
        if !has_route {
            refuse_foreign_route(&self.layout, netlink)?;
        }
        nexthop::set_group(netlink, &group).context("the kernel refuses the nexthop group")?;
        if !has_route {
            let (route, to) = (&self.layout.route, self.layout.route.to);
            match &self.layout.original {
                Some(original) => original.lead_by(route, netlink),
                None => route.set(netlink),
            }
            .with_context(|| format!("cannot route {to}"))?;
        }
        self.set = Some(group.members);
        Ok(())
    }

    /// Lets connections go from uplinks that are dead, as soon as another one takes them; those of TCP are not.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn let_go(&mut self, now: Duration) -> Result<()> {
        // As long as the weights are not in force, what is let go would come back.
        if self.set.is_none() || self.released.is_some() {
            return Ok(());
        }
        for index in self.judge.lost(now) {
            pin::let_go(&self.judge.uplinks[index].link.way)?;
            self.judge.has_let_go(index);
        }
        Ok(())
    }

    /// Says when it has another number of buckets than it would be made with by this policy: it is fixed.
    pub fn notice_buckets(&self, policy: Policy) {
        let (to, buckets) = (self.layout.route.to, self.layout.buckets);
        let wanted = layout::buckets(policy, self.judge.uplinks.len(), self.layout.weight_most);
        if buckets != wanted {
            let text = format!("{to}: its group keeps {buckets} buckets until `tarn down`, instead of {wanted}");
            log_at(Priority::Notice, STAGE, text);
        }
    }
}

/// A route to the same destination with the same metric stands in the way of ours.
///
/// # Errors
/// It does, and what to do about it; or a kernel that does not answer.
pub fn refuse_foreign_route(layout: &GroupLayout, netlink: &mut Netlink) -> Result<()> {
    let (to, metric) = (layout.route.to, layout.route.metric);
    let found = layout.route.find(netlink)?;
    if found.is_some_and(|found| found.protocol != OWNER) {
        match &layout.original {
            Some(original) if original.stands(netlink)? => return Ok(()),
            Some(_) => bail!("the route to {to} that was to be taken over has changed: `tarn up` once more"),
            None => {}
        }
        bail!(
            "a route to {to} with metric {metric} is there already: give that one a higher metric where it comes from (for udhcpc, \
             `metric 100` in its script; the least metric wins, so that tarn's route has to have a lower one), or remove it"
        );
    }
    Ok(())
}

fn same(found: &[nexthop::Member], set: &[nexthop::Member], weight_most: u32) -> bool {
    let is_set = |member: &nexthop::Member| set.contains(&member.weighed(weight_most));
    found.len() == set.len() && found.iter().all(is_set)
}

/// Puts a decision into the log and into the history. `from` is who had the most new flows before.
pub fn announce(state: &StateDirectory, group: &Working, from: Option<String>, decision: Decision) {
    let to = group.layout.route.to.to_string();
    let chosen = group.judge.main_name().unwrap_or_default();
    let has_moved = from.as_ref().is_some_and(|from| *from != chosen);
    let priority = if has_moved {
        Priority::Notice
    } else {
        Priority::Information
    };
    log_at(priority, STAGE, format!("{to} uses {chosen}: {}", decision.reason));
    let names = group.judge.uplinks.iter().map(|uplink| uplink.name.clone());
    let entry = Entry {
        at: runtime::now(),
        group: to,
        metric: group.layout.route.metric,
        from,
        to: chosen,
        weights: names.zip(decision.weights).collect(),
        reason: decision.reason,
    };
    if let Err(error) = history::add(state, entry) {
        log_at(Priority::Warning, STAGE, format!("{error:#}"));
    }
}

/// Has the kernel ask the rules of prefixes in their order, where the uplinks' last look has added any.
///
/// # Errors
/// What the kernel refuses.
pub fn arrange_rules(groups: &mut [Working], netlink: &mut Netlink) -> Result<()> {
    let uplinks = groups.iter_mut().flat_map(|group| &mut group.judge.uplinks);
    let mut links: Vec<&mut Link> = uplinks.map(|uplink| &mut uplink.link).collect();
    if links.iter().any(|link| link.has_new_rules) {
        prefixes::arrange(links.iter().flat_map(|link| &link.way.from), netlink)?;
        links.iter_mut().for_each(|link| link.has_new_rules = false);
    }
    Ok(())
}
