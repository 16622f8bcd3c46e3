//! One uplink at work: what it is in the kernel, who probes it, and what the judgement knows of it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result};

use super::STAGE;
use super::gateways::{self, Gateway};
use super::judge::{self, Estimate, Pace, Whom};
use super::layout::Way;
use super::load::{Load, LoadMeter};
use super::prefixes;
use super::prober::Prober;
use super::punctual::Lateness;
use super::target::Target;
use super::useless;
use crate::nexthop;
use tarn_base::output::{Priority, log_at};
use tarn_kernel::links::Packets;
use tarn_kernel::netlink::Netlink;

/// A look at a load counts so many times less than all looks before: at ten a second, what was seen is forgotten within seconds.
/// By itself an average with K = 512 knows no more than the last 10 ms, and every pause between two packets would count.
const SMOOTHING: f64 = 10.0;
/// After which something that the kernel has refused is tried again.
pub const RETRY: Duration = Duration::from_secs(5);

/// All that is known of an uplink.
pub type Uplink = judge::Uplink<Link>;

/// What it is in the kernel, and who probes it.
pub struct Link {
    /// A gateway that others find out is as it was seen last.
    pub way: Way,
    /// Who is asked by it.
    pub targets: Vec<Target>,
    /// The device's index, while it can send.
    pub device: Option<u32>,
    /// One a target.
    probers: Vec<Prober>,
    last_sent: Option<Duration>,
    /// Whose turn it is, where targets are asked one after the other.
    turn: usize,
    /// How many probes were sent and answered by it.
    pub probes: Packets,
    /// Since when nobody tells its gateway.
    unknown_since: Option<Duration>,
    /// Whether rules of its prefixes were added, and are to be arranged.
    pub has_new_rules: bool,
    /// What was last said of a gateway that is one of its targets.
    useless: Option<String>,
    /// What was last said of why it cannot be used, in order not to say it again.
    trouble: Option<String>,
    /// It is not tried again before this moment.
    retry_at: Duration,
}

impl Link {
    /// One that is not set up yet.
    pub fn new(way: Way, targets: Vec<Target>) -> Self {
        Self {
            way,
            targets,
            device: None,
            probers: Vec::new(),
            last_sent: None,
            turn: 0,
            probes: Packets::default(),
            unknown_since: None,
            // An agent before this one may have ended in between.
            has_new_rules: true,
            useless: None,
            trouble: None,
            retry_at: Duration::ZERO,
        }
    }

    /// The descriptors that become readable when an answer has come.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.probers.iter().map(AsFd::as_fd)
    }

    /// The device, while it can send and its gateway is known; and whether that is another one than before.
    fn gateway(
        &mut self,
        carrying: &HashMap<String, u32>,
        now: Duration,
        netlink: &mut Netlink,
    ) -> Result<(Option<u32>, bool)> {
        let Some(device) = carrying.get(&self.way.device).copied() else {
            return Ok((None, false));
        };
        let gateway = gateways::follow(&mut self.way, device, netlink)?;
        if gateway != Gateway::Unknown {
            self.unknown_since = None;
            self.warn_of_gateway();
            return Ok((Some(device), gateway == Gateway::Changed));
        }
        let since = *self.unknown_since.get_or_insert(now);
        if self.way.is_known && now.saturating_sub(since) < gateways::GRACE {
            return Ok((Some(device), false));
        }
        self.complain(gateways::absence(&self.way.device));
        Ok((None, false))
    }

    /// Says when the gateway that was found is one of its targets. It stays in use: better by what may be dead than not at all.
    fn warn_of_gateway(&mut self) {
        let complaint = useless::complaint(&self.way.device, self.way.gateway, &self.targets);
        if let Some(text) = complaint.as_ref().filter(|_| self.useless != complaint) {
            log_at(Priority::Warning, STAGE, text);
        }
        self.useless = complaint;
    }

    /// Makes its nexthop and its own table, and opens its probers.
    fn set_up(&mut self, device: u32, netlink: &mut Netlink) -> Result<Vec<Prober>> {
        let way = &self.way;
        nexthop::set(netlink, &way.nexthop(device)).context("the kernel refuses the nexthop")?;
        way.route
            .set(netlink)
            .with_context(|| format!("cannot set a route in table {}", way.route.table))?;
        way.rule
            .set(netlink)
            .with_context(|| format!("cannot set rule {}", way.rule.priority))?;
        for pair in &way.from {
            self.has_new_rules |= prefixes::set(pair, netlink).context("cannot set the rules of its prefixes")?;
        }
        let open = |target: &Target| Prober::open(&way.device, way.rule.mark, *target);
        self.targets.iter().map(open).collect()
    }

    /// Sets again what somebody has flushed of its own table and rule: without them its probes do not come through.
    fn mend(&mut self, netlink: &mut Netlink) -> Result<()> {
        let way = &self.way;
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
        for pair in &way.from {
            if prefixes::set(pair, netlink)? {
                self.has_new_rules = true;
                let text = format!("{}: somebody has removed rules of its prefixes: set again", way.device);
                log_at(Priority::Notice, STAGE, text);
            }
        }
        Ok(())
    }

    /// Says why it cannot be used, unless that was said last.
    fn complain(&mut self, trouble: String) {
        if self.trouble.as_ref() != Some(&trouble) {
            log_at(Priority::Notice, STAGE, &trouble);
        }
        self.trouble = Some(trouble);
    }
}

impl Uplink {
    /// Follows its device: when that can send, the uplink gets its nexthop, table and probers. Returns whether its nexthop is not
    /// in the kernel when it is looked at.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn follow(&mut self, carrying: &HashMap<String, u32>, now: Duration, netlink: &mut Netlink) -> Result<bool> {
        let (device, has_other_gateway) = self.link.gateway(carrying, now, netlink)?;
        let is_lost = nexthop::find(netlink, self.link.way.id)?.is_none();
        let is_set_up = device.is_some() && device == self.link.device && !is_lost;
        self.is_there = match device {
            None => {
                self.rest();
                false
            }
            Some(_) if is_set_up && !has_other_gateway => self.link.mend(netlink).map(|()| true)?,
            Some(_) if !is_set_up && self.link.trouble.is_some() && now < self.link.retry_at => false,
            Some(device) => self.bring_up(device, now, netlink),
        };
        Ok(is_lost)
    }

    /// Sets it up. Returns whether it can be used.
    fn bring_up(&mut self, device: u32, now: Duration, netlink: &mut Netlink) -> bool {
        let outcome = self.link.set_up(device, netlink);
        let load = self.load.filter(|_| self.link.device == Some(device));
        self.rest();
        match outcome {
            Ok(probers) => {
                self.load = load;
                self.link.device = Some(device);
                self.link.probers = probers;
                self.link.unknown_since = None;
                self.link.trouble = None;
                self.estimates.iter_mut().for_each(Estimate::set_up);
                true
            }
            Err(error) => {
                let text = format!("{} cannot be used: {error:#}", self.link.way.device);
                self.link.complain(text);
                self.link.retry_at = now + RETRY;
                false
            }
        }
    }

    /// Without a device, nobody is asked by it.
    fn rest(&mut self) {
        self.load = None;
        self.link.device = None;
        self.link.probers.clear();
        self.link.last_sent = None;
        self.link.retry_at = Duration::ZERO;
    }

    /// Takes what has been answered since. What the agent itself was late for is no measure of an uplink.
    /// Returns whether there is a flood of answers.
    pub fn receive(&mut self, now: Duration, late: Lateness) -> bool {
        let mut is_flood = false;
        for (prober, estimate) in self.link.probers.iter().zip(&mut self.estimates) {
            if let Some(since) = late.sent_since {
                estimate.distrust(since);
            }
            let (answered, is_more) = prober.receive();
            is_flood |= is_more;
            for sequence in answered {
                self.link.probes.received += 1;
                match late.reads {
                    true => estimate.answered_sometime(sequence, now),
                    false => estimate.answered(sequence, now),
                }
            }
        }
        is_flood
    }

    /// Sends probes, if it is time for the next ones. Returns when there is something to do again; `None` when there
    /// is nobody to ask.
    pub fn send(&mut self, Pace { interval, whom }: Pace, now: Duration) -> Option<Duration> {
        let best = self.best_index(now);
        let link = &mut self.link;
        if link.probers.is_empty() {
            return None;
        }
        let mut last = link.last_sent.unwrap_or(now);
        if link.last_sent.is_none() || now.saturating_sub(last) >= interval {
            last = now;
            link.last_sent = Some(now);
            link.turn = (link.turn + 1) % link.probers.len();
            let turn = link.turn;
            let is_asked = |index: usize| match whom {
                Whom::All => true,
                Whom::InTurn => index == turn,
                Whom::Best => best.is_none_or(|best| index == best),
            };
            let all = link.probers.iter_mut().zip(&mut self.estimates).enumerate();
            let mut asked = all.filter(|(index, _)| is_asked(*index));
            let sent = &mut link.probes.sent;
            if asked.any(|(_, (prober, estimate))| {
                *sent += 1;
                prober.send(estimate.sent(now)).is_err()
            }) {
                // Another device has this name by now, or soon: look at it anew.
                self.rest();
                return None;
            }
        }
        let deadlines = self.estimates.iter().filter_map(|estimate| estimate.deadline(now));
        deadlines.chain([last + interval]).min()
    }

    /// Takes what a meter says of its device; to be called ten times a second.
    ///
    /// # Errors
    /// A kernel that does not tell.
    pub fn take_load(&mut self, meter: &LoadMeter) -> Result<()> {
        let load = self.link.device.map(|device| meter.read(device)).transpose()?.flatten();
        let smoothed = |load: Load| self.load.map_or(load, |before| before.towards(load, 1.0 / SMOOTHING));
        self.load = load.map(smoothed);
        Ok(())
    }
}
