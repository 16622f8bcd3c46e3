//! The stage's loop: probes, judges, moves, and tells.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::config::{Config, FILE};
use super::group::{self, Working, announce};
use super::judge::{Measure, Settings};
use super::listen::Listener;
use super::load::LoadMeter;
use super::lookout::Lookout;
use super::orders::{self, Order};
use super::pin::Pins;
use super::punctual::Punctuality;
use super::rates::Rates;
use super::snapshot::{self, Snapshot};
use super::tcp::TcpMeter;
use super::uplink::Uplink;
use super::{STAGE, adopt, filters, networks};
use crate::nexthop::NEXTHOP_GROUP;
use tarn_base::output::{Priority, log, log_at};
use tarn_base::runtime::{Stop, readable};
use tarn_frame::Running;
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_kernel::netlink::Netlink;
use tarn_kernel::{links, route};

/// Multicast groups that tell of addresses: a gateway can be reached only once its network's address is there.
const ADDRESS_GROUPS: u32 = (libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Those that tell of routes: where gateways are somebody else's to find out. Only default routes tell any, and the kernel has to
/// go through all routes to list those: who has the whole Internet's gets messages of others all the time.
const ROUTE_GROUPS: u32 = (libc::RTMGRP_IPV4_ROUTE | libc::RTMGRP_IPV6_ROUTE) as u32;
/// Devices, groups and routes are looked at this often even when no message came: messages can be lost.
const SWEEP: Duration = Duration::from_secs(5);
/// Messages that come within this time are acted on together: containers come and go by the hundred.
const TOGETHER: Duration = Duration::from_millis(20);
/// How often loads are read.
const METER: Duration = Duration::from_millis(100);
/// How often figures are written down for `tarn status`.
const WRITE: Duration = Duration::from_secs(1);

/// The pause after each round of a flood of answers.
const PAUSE: Duration = Duration::from_millis(1);

/// What the loop goes by.
pub struct Watch {
    state: StateDirectory,
    config: Config,
    groups: Vec<Working>,
    pins: Option<Pins>,
    netlink: Netlink,
    began: Instant,
    /// Whether the loop itself is in time.
    punctuality: Punctuality,
    /// Whether traffic is answered; none before the loop runs.
    listener: Option<Listener>,
    /// Whether more comes than is taken in a round.
    is_flooded: bool,
    /// The devices whose filter was looked at.
    loosened: HashSet<u32>,
    /// Notices that addresses are translated by now.
    lookout: Lookout,
    /// What was last complained of.
    complaint: Option<String>,
    meter: Option<LoadMeter>,
    /// When loads were read.
    metered: Duration,
    /// What devices send, for `tarn status`,
    rates: Rates,
    /// what TCP connections see by them,
    tcp: Option<TcpMeter>,
    /// and what was written down last.
    written: Option<Snapshot>,
}

impl Watch {
    /// Groups that are set.
    pub fn new(
        state: StateDirectory,
        config: Config,
        groups: Vec<Working>,
        pins: Option<Pins>,
        netlink: Netlink,
        meter: Option<LoadMeter>,
        tcp: Option<TcpMeter>,
    ) -> Self {
        orders::open();
        Self {
            // What an earlier agent has written goes on from there; without it, or with a damaged file, it begins anew.
            written: state.read_json(snapshot::FILE).ok().flatten(),
            state,
            config,
            groups,
            pins,
            netlink,
            began: Instant::now(),
            punctuality: Punctuality::default(),
            listener: None,
            is_flooded: false,
            loosened: HashSet::new(),
            lookout: Lookout::default(),
            complaint: None,
            meter,
            metered: Duration::ZERO,
            rates: Rates::default(),
            tcp,
        }
    }

    /// Writes the figures down.
    ///
    /// # Errors
    /// A full disk; round trips that cannot be measured, of which the others' figures are independent.
    pub fn write_figures(&mut self) -> Result<()> {
        let now = self.began.elapsed();
        let devices = self.devices();
        self.rates.update(devices.iter().copied(), now, &mut self.netlink)?;
        let followed = self.tcp.as_mut().map_or(Ok(()), |tcp| tcp.follow(&devices, now));
        let policy = self.config.settings.policy;
        let mut snapshot = Snapshot::of(policy, &self.groups, &self.rates, self.tcp.as_ref(), now);
        self.written.iter().for_each(|before| snapshot.go_on_from(before));
        let saved = self.state.write_json(snapshot::FILE, &snapshot);
        self.written = Some(snapshot);
        saved.and(followed)
    }

    /// Changes to what `tarn paths set` says, and keeps it for whoever comes next; or goes on as before. What can fail comes before
    /// the answer begins: whoever withdraws in time is sure that nothing changes, and whoever does not that it does.
    fn set(&mut self, Order { config, beginning }: Order) -> Result<()> {
        let (before, settings) = (self.config.settings, config.settings);
        let is_other_load = (settings.measure, settings.gain) != (before.measure, before.gain);
        let other_meter = is_other_load.then(|| meter(&settings)).transpose()?;
        let begin = || beginning.map_or(Ok(()), |begin| begin());
        self.state.write_json_if(FILE, &config, begin)?;
        if let Some(meter) = other_meter {
            self.meter = meter;
        }
        for (group, config) in self.groups.iter_mut().zip(&config.groups) {
            group.notice_buckets(settings.policy);
            let costs = config.uplinks.iter().map(|uplink| uplink.cost);
            group.judge.set(settings, costs);
        }
        self.config = config;
        log(STAGE, "the settings were changed by command");
        if let Err(error) = self.write_figures() {
            self.complain(&error);
        }
        Ok(())
    }

    fn uplinks(&self) -> impl Iterator<Item = &Uplink> {
        self.groups.iter().flat_map(|group| &group.judge.uplinks)
    }

    /// The indices of the devices that can send.
    fn devices(&self) -> Vec<u32> {
        self.uplinks().filter_map(|uplink| uplink.link.device).collect()
    }

    /// Reads what the devices send, where uplinks are compared by that.
    fn meter(&mut self, now: Duration) -> Result<()> {
        if now < self.metered + METER {
            return Ok(());
        }
        self.metered = now;
        let devices = self.devices();
        let Some(meter) = &mut self.meter else { return Ok(()) };
        meter.follow(&devices)?;
        let mut uplinks = self.groups.iter_mut().flat_map(|group| &mut group.judge.uplinks);
        uplinks.try_for_each(|uplink| uplink.take_load(meter))
    }

    /// Follows devices, groups and routes. What fails is told once, and tried again with the next sweep.
    fn follow(&mut self) {
        let now = self.began.elapsed();
        let carrying = match links::carrying() {
            Ok(carrying) => carrying,
            Err(error) => return self.complain(&error),
        };
        for index in 0..self.groups.len() {
            if let Err(error) = self.groups[index].follow(&carrying, now, &mut self.netlink) {
                self.complain(&error);
            }
        }
        let networks = networks::follow(&mut self.config, &mut self.groups, &self.state, &mut self.netlink);
        let arranged = group::arrange_rules(&mut self.groups, &mut self.netlink);
        let uplinks = self.groups.iter().flat_map(|group| &group.judge.uplinks);
        let ways = uplinks.map(|uplink| &uplink.link.way);
        let pinned = self.pins.as_mut().map_or(Ok(()), |pins| pins.follow(ways));
        let loosened = self.loosen(&carrying).and_then(|()| self.forget_originals());
        let failed = [networks, arranged, pinned, loosened]
            .into_iter()
            .filter_map(Result::err);
        failed.for_each(|error| self.complain(&error));
        self.lookout.follow(&self.config.groups);
    }

    /// A route that somebody has put in the place of the one that was taken over, or has removed, is not to be overruled by
    /// `tarn down`, whatever becomes of ours until then.
    fn forget_originals(&mut self) -> Result<()> {
        let is_theirs = |group: &&mut Working| group.has_lost_route && group.layout.original.is_some();
        for group in self.groups.iter_mut().filter(is_theirs) {
            let Some(_lock) = self.state.try_lock("forget a route")? else {
                return Ok(()); // with the next look
            };
            adopt::forget_original(&group.layout.route, &mut Journal::open(&self.state)?)?;
            group.has_lost_route = false;
        }
        Ok(())
    }

    /// A device that is new begins with the strict filter again. Nothing is done while somebody else holds the lock, who may be
    /// waiting for this very agent to end.
    fn loosen(&mut self, carrying: &HashMap<String, u32>) -> Result<()> {
        let device = |uplink: &Uplink| carrying.get(&uplink.link.way.device).copied();
        let devices: HashSet<u32> = self.uplinks().filter_map(device).collect();
        // What an administrator has set on one that was there is left alone.
        if devices.is_subset(&self.loosened) {
            return Ok(());
        }
        let Some(_lock) = self.state.try_lock("follow devices")? else {
            return Ok(());
        };
        filters::loosen(&self.config, &mut Journal::open(&self.state)?)?;
        self.loosened.extend(devices);
        Ok(())
    }

    /// Says what is wrong, unless it was said last.
    fn complain(&mut self, error: &anyhow::Error) {
        let text = format!("{error:#}");
        if self.complaint.as_ref() != Some(&text) {
            log_at(Priority::Warning, STAGE, &text);
        }
        self.complaint = Some(text);
    }

    /// Takes answers, moves traffic where it has to, and sends probes. Returns when there will be something to do again.
    fn work(&mut self) -> Duration {
        let now = self.began.elapsed();
        let late = self.punctuality.begin(now);
        self.is_flooded = false;
        let mut next = now + if self.meter.is_some() { METER } else { WRITE };
        let mut failed = self.meter(now).err();
        for group in &mut self.groups {
            for uplink in &mut group.judge.uplinks {
                self.is_flooded |= uplink.receive(now, late);
            }
        }
        match self.listen(now) {
            Ok(due) => next = next.min(due.unwrap_or(next)),
            Err(error) => failed = Some(error),
        }
        for group in &mut self.groups {
            let main = group.judge.main_name();
            match group.decide(now, &mut self.netlink) {
                Ok(None) => {}
                Ok(Some(decision)) => announce(&self.state, group, main, decision),
                // A device may go in this moment; the message about it brings us here again.
                Err(error) => failed = Some(error),
            }
            if let Err(error) = group.let_go(now) {
                failed = Some(error);
            }
            // Moving may have taken its time.
            next = next.min(group.send(self.began.elapsed()));
        }
        failed = self.give_up(now).err().or(failed);
        if let Some(error) = failed {
            self.complain(&error);
        }
        let end = self.began.elapsed();
        self.punctuality.end(next);
        next.saturating_sub(end)
    }

    /// Looks whether traffic is answered, where uplinks are not asked all the time. Returns when to look again.
    fn listen(&mut self, now: Duration) -> Result<Option<Duration>> {
        let is_wanted = self.config.settings.rate.is_none();
        let Some(listener) = self.listener.as_mut().filter(|_| is_wanted) else {
            return Ok(None);
        };
        let uplinks = self.groups.iter_mut().flat_map(|group| &mut group.judge.uplinks);
        listener.listen(uplinks, now).map(Some)
    }

    /// Has those TCP connections reset that have waited for their uplink long enough.
    fn give_up(&mut self, now: Duration) -> Result<()> {
        let Some(pins) = &mut self.pins else { return Ok(()) };
        let working = self.groups.iter().filter(|group| group.released.is_none());
        let uplinks = working.flat_map(|group| group.judge.given_up(now));
        let marks: Vec<u32> = uplinks.map(|uplink| uplink.link.way.rule.mark).collect();
        pins.give_up(&marks)
    }

    fn wait(&self, stop: &Stop, monitor: &Netlink, limit: Duration) -> bool {
        let probers = self.uplinks().flat_map(|uplink| uplink.link.descriptors());
        let all: Vec<BorrowedFd<'_>> = [stop.as_fd(), monitor.as_fd()].into_iter().chain(probers).collect();
        readable(&all, limit).get(1) == Some(&true)
    }
}

/// What measures loads, where that is wanted.
///
/// # Errors
/// A kernel that refuses it.
pub fn meter(settings: &Settings) -> Result<Option<LoadMeter>> {
    let is_wanted = settings.measure == Measure::Load;
    is_wanted.then(|| LoadMeter::attach(settings.gain)).transpose()
}

impl Running for Watch {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        let routes = if self.uplinks().any(|uplink| uplink.link.way.is_auto) {
            ROUTE_GROUPS
        } else {
            0
        };
        let mut monitor = links::monitor(ADDRESS_GROUPS | NEXTHOP_GROUP | routes)?;
        let (mut followed, mut written) = (Instant::now(), Instant::now());
        let mut is_changed = false;
        self.punctuality = Punctuality::of_this_thread();
        self.listener = Some(Listener::new()?);
        self.follow();
        while !stop.fired() {
            let mut rest = self.work();
            if written.elapsed() >= WRITE {
                written = Instant::now();
                if let Err(error) = self.write_figures() {
                    self.complain(&error);
                }
            }
            if self.is_flooded {
                // Whoever goes before ordinary programs must leave them some time.
                std::thread::sleep(PAUSE);
            }
            orders::carry_out(|order| self.set(order));
            if is_changed {
                rest = rest.min(TOGETHER);
            }
            if self.wait(&stop, &monitor, rest) {
                let messages = monitor.receive()?;
                // Without any, some were lost.
                is_changed |= messages.is_empty() || !messages.iter().all(route::is_of_another_than_default);
            }
            if is_changed && followed.elapsed() >= TOGETHER || followed.elapsed() >= SWEEP {
                followed = Instant::now();
                is_changed = false;
                self.follow();
            }
        }
        Ok(())
    }
}
