//! One group at work: what it is in the kernel, what is known of its uplinks, and who probes them.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::STAGE;
use super::config::{Config, Group};
use super::gateways::{self, Gateway};
use super::history::{self, Entry};
use super::judge::{Decision, Estimate, Judge, Policy, Uplink};
use super::layout::{GroupLayout, Way};
use super::load::{Load, LoadMeter};
use super::pin;
use super::prober::Prober;
use super::target::Target;
use crate::nexthop;
use tarn_base::output::{Priority, log, log_at};
use tarn_base::runtime;
use tarn_frame::state::StateDirectory;
use tarn_kernel::netlink::Netlink;
use tarn_kernel::route::OWNER;

/// A look at a load counts so many times less than all looks before: at ten a second, what was seen is forgotten within seconds.
/// By itself an average with K = 512 knows no more than the last 10 ms, and every pause between two packets would count.
const SMOOTHING: f64 = 10.0;
/// After which something that the kernel has refused is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// One group at work.
pub struct Working {
    /// What it is in the kernel; gateways that others find out are as they were seen last.
    pub layout: GroupLayout,
    /// What is known of its uplinks.
    pub judge: Judge,
    /// Who is asked by each uplink.
    pub targets: Vec<Vec<Target>>,
    /// Why it is left alone: somebody else has changed it.
    pub released: Option<String>,
    /// Whether somebody else has put another route in the place of ours, or removed it, since: what ours stood for is theirs now.
    pub has_lost_route: bool,
    uplinks: Vec<Probed>,
    /// What was set last, as the kernel shows it; none before the first time, and when it has to be set anew.
    set: Option<Vec<nexthop::Member>>,
    /// What could not be set is not tried again before this moment: the kernel tells of every try, which wakes the loop.
    retry_at: Duration,
    /// What was last said of why it could not.
    pub trouble: Option<String>,
}

/// An uplink's probes.
#[derive(Default)]
struct Probed {
    /// The device's index, while it can send.
    device: Option<u32>,
    /// One a target.
    probers: Vec<Prober>,
    last_sent: Option<Duration>,
    /// How busy the device is, smoothed, while that is measured.
    load: Option<Load>,
    /// Since when nobody tells its gateway.
    unknown_since: Option<Duration>,
    /// What was last said of why it cannot be used, in order not to say it again.
    trouble: Option<String>,
    /// It is not tried again before this moment.
    retry_at: Duration,
}

impl Working {
    /// A group as it is found: with the weights in force, if an earlier agent has set any.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn adopt(
        config: &Config,
        group: &Group,
        mut layout: GroupLayout,
        carrying: &HashMap<String, u32>,
        netlink: &mut Netlink,
    ) -> Result<Self> {
        let found = nexthop::find(netlink, layout.id)?.filter(nexthop::Found::is_ours);
        let mut members = Vec::new();
        // By their devices: the uplinks of the file may have another order by now.
        for member in found.iter().flat_map(|found| &found.members) {
            let device = nexthop::find(netlink, member.id)?.and_then(|found| found.device);
            let is_it = |way: &&Way| device.is_some() && carrying.get(&way.device).copied() == device;
            members.extend(layout.ways.iter().find(is_it).map(|way| nexthop::Member {
                id: way.id,
                ..member.weighed(layout.weight_most)
            }));
        }
        let weights = layout.weights(&members);
        // Their number is fixed as long as the group exists.
        if let Some(buckets) = found.and_then(|found| found.buckets) {
            layout.buckets = buckets;
            notice_buckets(&layout, config.settings.policy);
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
            judge: Judge::new(config.settings, uplinks, weights).pinned(layout.is_pinned),
            uplinks: layout.ways.iter().map(|_| Probed::default()).collect(),
            targets: group.uplinks.iter().map(|uplink| uplink.targets.clone()).collect(),
            layout,
            released: None,
            has_lost_route: false,
            set: None,
            retry_at: Duration::ZERO,
            trouble: None,
        })
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
        for index in 0..self.layout.ways.len() {
            let (device, is_other) = self.gateway(index, carrying, now, netlink)?;
            let way = self.layout.ways[index].clone();
            if nexthop::find(netlink, way.id)?.is_none() {
                lost.push(way.id);
            }
            let is_lost = lost.contains(&way.id);
            let is_there = match self.uplinks[index].is_as_before(device, is_lost, now) {
                Some(true) if !is_other => mend(&way, netlink).map(|()| true)?,
                Some(true) => self.bring_up(index, &way, device, now, netlink),
                Some(false) => false,
                None => self.bring_up(index, &way, device, now, netlink),
            };
            if let Some(uplink) = self.judge.uplink(index) {
                uplink.is_there = is_there;
            }
        }
        self.look(&lost, netlink)
    }

    /// The device of an uplink, while it can send and its gateway is known; and whether that is another one than before.
    fn gateway(
        &mut self,
        index: usize,
        carrying: &HashMap<String, u32>,
        now: Duration,
        netlink: &mut Netlink,
    ) -> Result<(Option<u32>, bool)> {
        let way = &mut self.layout.ways[index];
        let Some(device) = carrying.get(&way.device).copied() else {
            return Ok((None, false));
        };
        let gateway = gateways::follow(way, device, netlink)?;
        let probed = &mut self.uplinks[index];
        if gateway != Gateway::Unknown {
            probed.unknown_since = None;
            return Ok((Some(device), gateway == Gateway::Changed));
        }
        let since = *probed.unknown_since.get_or_insert(now);
        if way.is_known && now.saturating_sub(since) < gateways::GRACE {
            return Ok((Some(device), false));
        }
        probed.complain(gateways::absence(&way.device));
        Ok((None, false))
    }

    /// Sets an uplink up whose device has come, or has come back. Returns whether it can be used.
    fn bring_up(&mut self, index: usize, way: &Way, device: Option<u32>, now: Duration, netlink: &mut Netlink) -> bool {
        let Some(device) = device else { return false };
        let probed = &mut self.uplinks[index];
        let outcome = way_up(&self.layout, way, device, netlink).and_then(|()| {
            let open = |target| Prober::open(&way.device, way.rule.mark, target);
            self.targets[index]
                .iter()
                .copied()
                .map(open)
                .collect::<Result<Vec<Prober>>>()
        });
        match outcome {
            Ok(probers) => {
                *probed = Probed {
                    device: Some(device),
                    load: probed.load.filter(|_| probed.device == Some(device)),
                    probers,
                    ..Probed::default()
                };
                let estimates = self.judge.uplink(index).map(|uplink| uplink.estimates.iter_mut());
                estimates.into_iter().flatten().for_each(Estimate::set_up);
                true
            }
            Err(error) => {
                probed.complain(format!("{} cannot be used: {error:#}", way.device));
                *probed = Probed {
                    trouble: probed.trouble.take(),
                    retry_at: now + RETRY,
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

    /// Takes what has been answered since. When the agent itself has come late, that is no measure of an uplink.
    pub fn receive(&mut self, now: Duration, is_late: bool) {
        for (index, probed) in self.uplinks.iter().enumerate() {
            let Some(uplink) = self.judge.uplink(index) else {
                continue;
            };
            for (prober, estimate) in probed.probers.iter().zip(&mut uplink.estimates) {
                for sequence in prober.receive() {
                    match is_late {
                        true => estimate.answered_sometime(sequence, now),
                        false => estimate.answered(sequence, now),
                    }
                }
            }
        }
    }

    /// The index of each uplink's device, if it can send.
    pub fn devices(&self) -> impl Iterator<Item = Option<u32>> {
        self.uplinks.iter().map(|probed| probed.device)
    }

    /// The same of one uplink.
    pub fn device(&self, index: usize) -> Option<u32> {
        self.uplinks.get(index)?.device
    }

    /// How busy an uplink's device is, smoothed; `None` where that is not measured.
    pub fn load(&self, index: usize) -> Option<Load> {
        self.uplinks.get(index)?.load
    }

    /// Nobody measures them any more.
    pub fn forget_loads(&mut self) {
        self.uplinks.iter_mut().for_each(|probed| probed.load = None);
    }

    /// Takes what a meter says of each uplink's device; to be called ten times a second.
    ///
    /// # Errors
    /// A kernel that does not tell.
    pub fn take_loads(&mut self, meter: &LoadMeter) -> Result<()> {
        for (index, probed) in self.uplinks.iter_mut().enumerate() {
            let load = probed.device.map(|device| meter.read(device)).transpose()?.flatten();
            probed.load = load.map(|load| match probed.load {
                Some(before) => before.towards(load, 1.0 / SMOOTHING),
                None => load,
            });
            if let Some(uplink) = self.judge.uplink(index) {
                uplink.load = probed.load.map(Load::weight);
            }
        }
        Ok(())
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
        if decision.is_none() && (self.set.is_some() || now < self.retry_at) {
            return Ok(None);
        }
        // What somebody else has done since the last look is not undone by the way.
        self.look(&[], netlink)?;
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
        let there = self.judge.uplinks().iter().zip(self.judge.weights());
        let weights: Vec<u32> = there
            .map(|(uplink, weight)| if uplink.is_there { *weight } else { 0 })
            .collect();
        let Some(group) = self.layout.group(&weights) else {
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

    /// Lets connections go from uplinks that are dead, as soon as another one takes them.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn let_go(&mut self, now: Duration) -> Result<()> {
        // As long as the weights are not in force, what is let go would come back.
        if self.set.is_none() || self.released.is_some() {
            return Ok(());
        }
        for index in self.judge.lost(now) {
            pin::let_go(&self.layout.ways[index])?;
            self.judge.has_let_go(index);
        }
        Ok(())
    }

    /// The descriptors that become readable when an answer has come.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.uplinks
            .iter()
            .flat_map(|probed| probed.probers.iter().map(AsFd::as_fd))
    }
}

impl Probed {
    /// Says why it cannot be used, unless that was said last.
    fn complain(&mut self, trouble: String) {
        if self.trouble.as_ref() != Some(&trouble) {
            log_at(Priority::Notice, STAGE, &trouble);
        }
        self.trouble = Some(trouble);
    }

    /// Whether it is used as it has been, or left unused as it has been; `None` when it has to be set up.
    fn is_as_before(&mut self, device: Option<u32>, is_lost: bool, now: Duration) -> Option<bool> {
        match device {
            None => {
                *self = Self {
                    trouble: self.trouble.take(),
                    unknown_since: self.unknown_since,
                    ..Self::default()
                };
                Some(false)
            }
            Some(_) if device == self.device && !is_lost => Some(true),
            Some(_) if self.trouble.is_some() && now < self.retry_at => Some(false),
            Some(_) => None,
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
            "a route to {to} with metric {metric} is there already: give that one a higher metric where it comes from (the least \
             metric wins, so that tarn's route has to have a lower one), or remove it"
        );
    }
    Ok(())
}

/// Sets again what somebody has flushed of an uplink's own table and rule: without them its probes do not come through.
fn mend(way: &Way, netlink: &mut Netlink) -> Result<()> {
    let has_route = way.route.stands(netlink)?;
    if !has_route {
        way.route.set(netlink)?;
    }
    if way.rule.set(netlink)? || !has_route {
        let text = format!(
            "somebody has removed rule {} or table {}: set again",
            way.rule.priority, way.route.table
        );
        log_at(Priority::Notice, STAGE, text);
    }
    Ok(())
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
        .map(drop)
}

/// Says when a group has another number of buckets than it would be made with by this policy: it is fixed.
pub fn notice_buckets(layout: &GroupLayout, policy: Policy) {
    let wanted = layout.wanted_buckets(policy);
    if layout.buckets != wanted {
        let (to, buckets) = (layout.route.to, layout.buckets);
        let text = format!("{to}: its group keeps {buckets} buckets until `tarn down`, instead of {wanted}");
        log_at(Priority::Notice, STAGE, text);
    }
}

fn same(found: &[nexthop::Member], set: &[nexthop::Member], weight_most: u32) -> bool {
    let is_set = |member: &nexthop::Member| set.contains(&member.weighed(weight_most));
    found.len() == set.len() && found.iter().all(is_set)
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
