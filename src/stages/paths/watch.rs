//! The stage's loop: probes, judges, moves, and tells.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::STAGE;
use super::config::Config;
use super::group::{Working, announce};
use super::snapshot::Snapshot;
use crate::journal::Journal;
use crate::kernel::links;
use crate::kernel::netlink::Netlink;
use crate::kernel::nexthop::NEXTHOP_GROUP;
use crate::output::{Priority, log_at};
use crate::runtime::{Stop, readable};
use crate::stages::Running;
use crate::state::StateDirectory;

/// Multicast groups that tell of addresses: a gateway can be reached only once its network's address is there.
const ADDRESS_GROUPS: u32 = (libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Devices, groups and routes are looked at this often even when no message came: messages can be lost.
const SWEEP: Duration = Duration::from_secs(5);
/// How often figures are written down for `tarn status`.
const TELL: Duration = Duration::from_secs(1);

/// What the loop goes by.
pub struct Watch {
    state: StateDirectory,
    config: Config,
    groups: Vec<Working>,
    netlink: Netlink,
    began: Instant,
}

impl Watch {
    /// Groups that are set.
    pub fn new(state: StateDirectory, config: Config, groups: Vec<Working>, netlink: Netlink) -> Self {
        Self {
            state,
            config,
            groups,
            netlink,
            began: Instant::now(),
        }
    }

    /// Writes the figures down.
    ///
    /// # Errors
    /// A full disk.
    pub fn tell(&self) -> Result<()> {
        Snapshot::of(&self.groups, self.began.elapsed()).save(&self.state)
    }

    fn follow(&mut self) -> Result<()> {
        let carrying = links::carrying()?;
        for (group, config) in self.groups.iter_mut().zip(&self.config.groups) {
            group.follow(config, &carrying, &mut self.netlink)?;
        }
        self.loosen()
    }

    /// A device that is new begins with the strict filter again. Nothing is done while somebody else holds the lock, who may be
    /// waiting for this very agent to end.
    fn loosen(&self) -> Result<()> {
        if super::service::loosened(&self.config)?.is_empty() {
            return Ok(());
        }
        let Some(_lock) = self.state.try_lock("follow devices")? else {
            return Ok(());
        };
        super::service::loosen(&self.config, &mut Journal::open(&self.state)?)
    }

    /// Takes answers, moves traffic where it has to, and sends probes. Returns when there will be something to do again.
    fn work(&mut self) -> Duration {
        let now = self.began.elapsed();
        let mut next = now + TELL;
        for group in &mut self.groups {
            group.receive(now);
            let main = group.judge.main_name();
            match group.decide(now, &mut self.netlink) {
                Ok(None) => {}
                Ok(Some(decision)) => announce(&self.state, group, main, decision),
                // A device may go in this moment; the message about it brings us here again.
                Err(error) => log_at(Priority::Warning, STAGE, format!("{error:#}")),
            }
            next = next.min(group.send(now));
        }
        next.saturating_sub(self.began.elapsed())
    }

    fn wait(&self, stop: &Stop, monitor: &Netlink, limit: Duration) -> bool {
        let probers = self.groups.iter().flat_map(Working::descriptors);
        let all: Vec<BorrowedFd<'_>> = [stop.as_fd(), monitor.as_fd()].into_iter().chain(probers).collect();
        readable(&all, limit).get(1) == Some(&true)
    }
}

impl Running for Watch {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        let mut monitor = links::monitor(ADDRESS_GROUPS | NEXTHOP_GROUP)?;
        let (mut swept, mut told) = (Instant::now(), Instant::now());
        self.follow()?;
        while !stop.fired() {
            let rest = self.work();
            if told.elapsed() >= TELL {
                told = Instant::now();
                self.tell()?;
            }
            let changed = self.wait(&stop, &monitor, rest);
            if changed {
                monitor.receive()?;
            }
            if changed || swept.elapsed() >= SWEEP {
                swept = Instant::now();
                self.follow()?;
            }
        }
        Ok(())
    }
}
