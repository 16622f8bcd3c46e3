//! What goes on while the programs run: devices and addresses that come and go.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::load::Loaded;
use super::locals::{self, Locals};
use super::{Bpf, ingress};
use crate::STAGE;
use crate::watch::{INTERVAL, Watch};
use tarn_base::output::{Priority, log_at};
use tarn_base::runtime::{Stop, readable};
use tarn_frame::Running;
use tarn_frame::journal::Journal;
use tarn_frame::state::Lock;
use tarn_kernel::links::{self, Link};
use tarn_kernel::netconf;

/// Devices are looked at this often even when no message came: messages can be lost.
const SWEEP: Duration = Duration::from_secs(30);
/// While somebody else holds the lock, it is tried this often.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// Brings the programs to devices that appear, and tells them the host's addresses.
pub struct Follower {
    bpf: Bpf,
    loaded: Loaded,
    links: Vec<Link>,
    locals: Locals,
    reverse_paths: HashMap<u32, u32>,
}

impl Running for Follower {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        let mut monitor = links::monitor(locals::ADDRESS_GROUPS | netconf::GROUP)?;
        let mut watch = Watch::new(self.bpf.state.clone());
        let mut due = Instant::now();
        while !stop.fired() {
            if Instant::now() >= due {
                self.follow(&stop)?;
                due = Instant::now() + SWEEP;
            }
            watch.look()?;
            let ready = readable(&[stop.as_fd(), monitor.as_fd()], INTERVAL);
            if ready.get(1) == Some(&true) {
                monitor.receive()?;
                due = Instant::now();
            }
        }
        Ok(())
    }
}

impl Follower {
    /// Over programs that were just started.
    pub fn new(bpf: Bpf, loaded: Loaded) -> Self {
        Self {
            bpf,
            loaded,
            links: Vec::new(),
            locals: Locals::new(),
            reverse_paths: HashMap::new(),
        }
    }

    /// Acts on what has changed among addresses, devices, and what is asked of packets that come in by those.
    fn follow(&mut self, stop: &Stop) -> Result<()> {
        let (locals, links) = (locals::all()?, links::all()?);
        let reverse_paths = netconf::reverse_paths()?;
        if locals == self.locals && links == self.links && reverse_paths == self.reverse_paths {
            return Ok(());
        }
        let Some(_lock) = self.lock(stop)? else { return Ok(()) };
        if locals != self.locals {
            locals::set(&self.loaded.maps, &locals)?;
            self.locals = locals;
        }
        if links != self.links || reverse_paths != self.reverse_paths {
            ingress::set(&self.loaded.maps, &links, &reverse_paths)?;
            self.reverse_paths = reverse_paths;
        }
        if links == self.links {
            return Ok(());
        }
        let mut journal = Journal::open(&self.bpf.state)?;
        if let Err(error) = self.bpf.follow(&links, &mut self.loaded, &mut journal) {
            // A device may go while it is looked at; the message about that brings us here again.
            log_at(Priority::Warning, STAGE, format!("{error:#}"));
            return Ok(());
        }
        self.links = links;
        Ok(())
    }

    /// The lock, or `None` when it is time to stop: who holds it may be waiting for this very agent to end.
    fn lock(&self, stop: &Stop) -> Result<Option<Lock>> {
        loop {
            if stop.fired() {
                return Ok(None);
            }
            if let Some(lock) = self.bpf.state.try_lock("follow devices")? {
                return Ok(Some(lock));
            }
            stop.wait(LOCK_INTERVAL);
        }
    }
}
