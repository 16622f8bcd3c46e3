//! Brings the stage up, and keeps it up.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use super::bpf::Bpf;
use super::bpf::load::Loaded;
use super::carrier::Carrier;
use super::choice::Choice;
use super::config::Config;
use super::forwarding;
use super::nft::flows::forget_all;
use super::rule::{Prefix, Rule};
use super::store::{Reconciled, Store};
use super::{STAGE, bpf, choice, store};
use tarn_base::output::{Priority, log, log_at};
use tarn_base::runtime::{Stop, readable};
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_frame::{Ability, Configured, Running};
use tarn_kernel::links::{self, Link};

/// Devices are looked at this often even when no message came: messages can be lost.
const SWEEP: Duration = Duration::from_secs(30);
/// While somebody else holds the lock, it is tried this often.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// The stage with a valid configuration.
pub struct Service {
    config: Config,
    choice: Choice,
}

impl Service {
    /// Chooses the carrier.
    pub fn new(config: Config) -> Self {
        let choice = Choice::of(&config);
        Self { config, choice }
    }

    /// The rules that will stand: the configuration's, and those added by command to what runs.
    fn reconciled(&self, state: &StateDirectory) -> Result<Reconciled> {
        let reconciled = Store::open(state.path())?.reconciled(self.config.rules.clone(), self.config.max_rules)?;
        self.choice.carrier(state).room(&reconciled.rules)?;
        Ok(reconciled)
    }

    /// Where the tables of running programs are full, takes away first what goes and leaves its place to another rule:
    /// no packet of the one is to meet the other in its slot. Rules that are led elsewhere are not among them.
    fn make_room(&self, state: &StateDirectory, rules: &Reconciled) -> Result<()> {
        let Some(bpf) = self.choice.bpf(state) else {
            return Ok(());
        };
        // Held until the end: maps of programs that are on no device go with the agent that held them.
        let Some(maps) = bpf.running()? else {
            return Ok(());
        };
        let vanishes = |gone: &&Rule| !rules.added.iter().any(|new| new.id == gone.id && new.same_match(gone));
        let slots: HashSet<u32> = rules.added.iter().map(|rule| rule.id).collect();
        let reused = rules
            .removed
            .iter()
            .any(|gone| slots.contains(&gone.id) && vanishes(&gone));
        let both: Vec<Rule> = rules.rules.iter().chain(&rules.removed).cloned().collect();
        if !reused && bpf.room(&both).is_ok() {
            return Ok(());
        }
        let gone: Vec<Rule> = rules.removed.iter().filter(vanishes).cloned().collect();
        bpf::change(&maps, &[], &gone)
    }
}

impl Configured for Service {
    fn missing(&self) -> Vec<Ability> {
        self.choice.missing()
    }

    fn fits(&self, state: &StateDirectory) -> Result<()> {
        self.reconciled(state).map(drop)
    }

    fn plan(&self) -> Result<Vec<String>> {
        let state = StateDirectory::of_this_namespace()?;
        let rules = self.reconciled(&state)?.rules;
        let mut plan = forwarding::commands(&forwarding::settings(&rules)?);
        plan.extend(self.choice.carrier(&state).plan(&rules)?);
        let absent = self.choice.absent_devices()?;
        plan.extend(absent.iter().map(|name| format!("# {}", absence(name))));
        Ok(plan)
    }

    fn up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let before = Before::of(state)?;
        self.bring_up(state, journal)
            .map_err(|error| match before.carry_on(state, journal) {
                Ok(()) => error,
                Err(again) => {
                    let both = format!("{error:#}; and the rules of before are not what is carried out: {again:#}");
                    error.context(both)
                }
            })
    }
}

impl Service {
    fn bring_up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let reconciled = self.reconciled(state)?;
        let before = Choice::running(state)?;
        self.make_room(state, &reconciled)?;
        let rules = reconciled.rules;
        forwarding::apply(journal, STAGE, &forwarding::settings(&rules)?)?;
        Store::open(state.path())?.replace(&rules, self.config.max_rules)?;
        let running: Box<dyn Running> = match self.choice.bpf(state) {
            Some(bpf) => {
                bpf.count_anew(&reconciled.added)?;
                let loaded = bpf.start(journal, &rules)?;
                Box::new(Watch {
                    bpf,
                    loaded,
                    state: state.clone(),
                    links: Vec::new(),
                    locals: HashSet::new(),
                })
            }
            None => {
                self.choice.carrier(state).up(state, journal, &rules)?;
                Box::new(Idle)
            }
        };
        // In this order: a failure to write leaves the other carrier at work.
        self.choice.save(state)?;
        self.choice.undo_others(journal)?;
        let translated = matches!(before, Some(Choice::Nftables { .. }));
        if translated && !matches!(self.choice, Choice::Nftables { .. }) {
            let redirected: Vec<Rule> = rules.iter().chain(&reconciled.removed).cloned().collect();
            forget_all(&redirected);
        }
        let name = self.choice.carrier(state).name();
        let carried = match rules.len() {
            1 => "1 rule is".to_owned(),
            count => format!("{count} rules are"),
        };
        log(STAGE, format!("{carried} carried out by {name}"));
        for name in self.choice.absent_devices()? {
            log_at(Priority::Notice, STAGE, absence(&name));
        }
        Ok(running)
    }
}

fn absence(device: &str) -> String {
    format!("there is no device {device} now: packets from it will be redirected once there is; `ip link` shows all")
}

/// What an earlier `tarn up` had set up: it goes on when this one fails.
struct Before {
    choice: Option<Choice>,
    rules: Vec<Rule>,
    limit: u32,
}

impl Before {
    fn of(state: &StateDirectory) -> Result<Self> {
        let store = Store::open(state.path())?;
        Ok(Self {
            choice: Choice::running(state)?,
            rules: store.rules().cloned().collect(),
            limit: store.limit(),
        })
    }

    fn carry_on(&self, state: &StateDirectory, journal: &mut Journal) -> Result<()> {
        // Without one, all there is was recorded by the `up` that fails, and is put back from its journal.
        let Some(choice) = &self.choice else { return Ok(()) };
        Store::open(state.path())?.replace(&self.rules, self.limit)?;
        if Choice::running(state)?.as_ref() != Some(choice) {
            choice.save(state)?;
        }
        match choice.bpf(state) {
            Some(bpf) => bpf.carry_on(&self.rules),
            None => choice.carrier(state).up(state, journal, &self.rules),
        }
    }
}

/// Forgets the connections that the rules had redirected: the kernel would go on to redirect them, or to drop their
/// answers, as long as anything else tracks connections. Then the files that tell what is up.
pub fn clean_up(state: &StateDirectory) -> Result<()> {
    if matches!(Choice::running(state)?, Some(Choice::Nftables { .. })) {
        let rules: Vec<Rule> = Store::open(state.path())?.rules().cloned().collect();
        forget_all(&rules);
    }
    for file in [store::FILE, bpf::FILE, choice::FILE] {
        match std::fs::remove_file(state.path().join(file)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {file}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// nftables needs nobody to look after it.
struct Idle;

impl Running for Idle {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        while !stop.wait(SWEEP) {}
        Ok(())
    }
}

/// Brings the programs to devices that appear, and tells them the host's addresses.
struct Watch {
    bpf: Bpf,
    loaded: Loaded,
    state: StateDirectory,
    links: Vec<Link>,
    locals: HashSet<Prefix>,
}

impl Running for Watch {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        let mut monitor = links::monitor(bpf::locals::ADDRESS_GROUPS)?;
        while !stop.fired() {
            self.follow(&stop)?;
            let ready = readable(&[stop.as_fd(), monitor.as_fd()], SWEEP);
            if ready.get(1) == Some(&true) {
                monitor.receive()?;
            }
        }
        Ok(())
    }
}

impl Watch {
    /// Acts on what has changed among addresses and devices.
    fn follow(&mut self, stop: &Stop) -> Result<()> {
        let (locals, links) = (bpf::locals::all()?, links::all()?);
        if locals == self.locals && links == self.links {
            return Ok(());
        }
        let Some(_lock) = self.lock(stop)? else { return Ok(()) };
        if locals != self.locals {
            bpf::locals::set(&self.loaded.maps, &locals)?;
            self.locals = locals;
        }
        if links == self.links {
            return Ok(());
        }
        let mut journal = Journal::open(&self.state)?;
        if let Err(error) = self.bpf.follow(&links, &mut self.loaded, &mut journal) {
            // A device may go while it is looked at; the message about that brings us here again.
            log_at(Priority::Warning, STAGE, format!("{error:#}"));
            return Ok(());
        }
        self.links = links;
        Ok(())
    }

    /// The lock, or `None` when it is time to stop: who holds it may be waiting for this very agent to end.
    fn lock(&self, stop: &Stop) -> Result<Option<tarn_frame::state::Lock>> {
        loop {
            if stop.fired() {
                return Ok(None);
            }
            if let Some(lock) = self.state.try_lock("follow devices")? {
                return Ok(Some(lock));
            }
            stop.wait(LOCK_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests;
