//! All services behind HAProxy, as the agent steers them.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::time::{ClockId, clock_gettime};

use super::report::Report;
use super::rule::Shares;
use super::runtime::Away;
use super::steer::{Classified, Steered};
use crate::STAGE;
use crate::clients::Store;
use crate::config::{Config, Proxied};
use crate::known::Known;
use crate::module::Entry;
use crate::network::Network;
use tarn_base::output::{Priority, log, log_at};
use tarn_frame::state::StateDirectory;

/// How often it looks whether something else is wanted, and writes down how the services do.
const LOOK: Duration = Duration::from_secs(1);
/// More prefixes would take minutes to read, and more memory than HAProxy itself.
const PREFIXES_MOST: usize = 131_072;
/// Part of the time in which clients may be read: many take long.
const READS: u32 = 10;

/// The services, and what they are to be told.
pub struct Steering {
    state: StateDirectory,
    /// What they follow; `None` when nothing is up, or it was stopped.
    config: Option<Config>,
    /// How often counting was to begin anew.
    resets: u32,
    steered: Vec<Steered>,
    clients: Clients,
    looked: Option<Instant>,
    /// By service, or for the report: what was logged.
    troubles: HashMap<String, String>,
}

/// Who has a class.
#[derive(Default)]
struct Clients {
    /// `None` before it was read for the first time.
    all: Option<Rc<Classified>>,
    /// Of the clients, when they were read.
    generation: Option<u64>,
    /// When the first of them loses its class.
    until: Option<Instant>,
    /// Not before.
    next: Option<Instant>,
    /// There are more than HAProxy is given.
    is_too_many: bool,
    /// Why they could not be read.
    trouble: Option<String>,
}

impl Clients {
    /// Reads them where they have changed; those that were read before stay where that fails.
    fn look(&mut self, config: &Config, state: &StateDirectory) {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let read = Store::of(config, state)
            .and_then(|mut store| self.read(&mut store))
            .and_then(|()| match self.is_too_many {
                true => bail!("more than {PREFIXES_MOST} prefixes of clients have a class"),
                false => Ok(()),
            });
        self.trouble = read
            .err()
            .map(|error| format!("clients keep the classes that they had in HAProxy: {error:#}"));
    }

    fn read(&mut self, store: &mut Store) -> Result<()> {
        let now = Instant::now();
        let generation = store.generation()?;
        let is_over = self.until.is_some_and(|until| now >= until);
        if self.generation == Some(generation) && !is_over {
            return Ok(());
        }
        self.next = Some(now + LOOK * READS);
        let entries = store.all()?;
        self.is_too_many = entries.len() > PREFIXES_MOST;
        let first = entries.iter().filter_map(|entry| entry.timeout).min();
        self.until = first.map(|left| now + left + LOOK);
        self.next = Some(now + now.elapsed() * READS);
        self.generation = Some(generation);
        if self.is_too_many {
            return Ok(());
        }
        let class = |entry: &Entry| Some((Network::from(entry.prefix).to_string(), usize::from(entry.class?)));
        self.all = Some(Rc::new(entries.iter().filter_map(class).collect()));
        Ok(())
    }
}

impl Steering {
    /// That has not steered yet.
    pub fn new(state: &StateDirectory) -> Self {
        Self {
            state: state.clone(),
            config: None,
            resets: 0,
            steered: Vec::new(),
            clients: Clients::default(),
            looked: None,
            troubles: HashMap::new(),
        }
    }

    /// One turn of every service.
    ///
    /// # Errors
    /// A damaged file. What HAProxy refuses is logged, and that clients cannot be read.
    pub fn turn(&mut self) -> Result<()> {
        let looks = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if looks {
            self.looked = Some(Instant::now());
            self.follow(wanted(&self.state)?)?;
            if let Some(config) = &self.config {
                self.clients.look(config, &self.state);
            }
        }
        for one in &mut self.steered {
            // After `stop`, HAProxy's maps are empty because they are to be.
            let is_wanted = || Ok(wanted(&self.state)?.is_some());
            let turned = one.turn(self.clients.all.as_ref(), monotonic()?, is_wanted);
            let trouble = turned.err().map(|error| format!("{error:#}"));
            let trouble = trouble.or_else(|| self.clients.trouble.clone());
            let trouble = trouble.map(|text| format!("{}: {text}", one.name()));
            tell(&mut self.troubles, one.name(), trouble, "HAProxy is steered again");
        }
        if looks && self.config.is_some() {
            let failed = self.report()?.save(&self.state).err();
            let failed = failed.map(|error| format!("nobody sees how the services behind HAProxy do: {error:#}"));
            tell(
                &mut self.troubles,
                "",
                failed,
                "how the services behind HAProxy do can be seen again",
            );
        }
        Ok(())
    }

    fn report(&self) -> Result<Report> {
        let trouble = |one: &Steered| self.troubles.get(one.name()).cloned();
        let steered = self.steered.iter();
        let shares = steered.map(|one| (one.name().to_owned(), (one.shares().clone(), trouble(one))));
        Ok(Report {
            at: monotonic()?,
            services: shares.collect(),
        })
    }

    /// Begins anew where another thing is configured; shares go on. What is not to be steered any more serves all alike.
    fn follow(&mut self, known: Option<Known>) -> Result<()> {
        let resets = known.as_ref().map_or(self.resets, |known| known.resets);
        let config = known.map(|known| known.config);
        let wanted = |config: &Config| (config.proxied.clone(), config.classes.clone(), config.window);
        if resets == self.resets && config.as_ref().map(wanted) == self.config.as_ref().map(wanted) {
            return Ok(());
        }
        let now = monotonic()?;
        let mut former = match resets == self.resets || self.config.is_none() {
            true => self.former(),
            false => HashMap::new(),
        };
        let mut steered = Vec::new();
        for service in config.iter().flat_map(|config| &config.proxied) {
            let Some(config) = &config else { continue };
            let mut one = Steered::new(config, service, now);
            if let Some((shares, _)) = former.remove(&service.name) {
                one.resume(shares);
            }
            steered.push(one);
        }
        if let Some(before) = &self.config {
            end_others(before, config.as_ref());
        }
        (self.steered, self.config, self.resets) = (steered, config, resets);
        self.troubles.clear();
        Ok(())
    }

    /// The shares so far, of this agent or the one before. A report that is damaged is none.
    fn former(&self) -> HashMap<String, (Shares, Option<String>)> {
        let report = Report::load(&self.state).ok().flatten();
        let mut former = report.unwrap_or_default().services;
        for one in &self.steered {
            former.insert(one.name().to_owned(), (one.shares().clone(), None));
        }
        former
    }
}

/// What is up, unless it was stopped.
fn wanted(state: &StateDirectory) -> Result<Option<Known>> {
    Ok(Known::load(state)?.filter(|known| !known.stopped))
}

/// Time since the host was started: the same for every process.
///
/// # Errors
/// A kernel without that clock.
pub fn monotonic() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}

/// Has HAProxy serve all alike where it was steered, and is not to be any more. One that is not there has nothing of tarn's; one that
/// refuses, or hangs, goes on by the order that it had, and the log says so.
pub fn end_others(before: &Config, after: Option<&Config>) {
    let is_same = |one: &Proxied, other: &Proxied| {
        (&one.name, &one.socket, &one.maps) == (&other.name, &other.socket, &other.maps)
    };
    for service in &before.proxied {
        let mut others = after.iter().flat_map(|config| &config.proxied);
        if others.any(|other| is_same(service, other)) {
            continue;
        }
        let ended = Steered::new(before, service, Duration::ZERO).end();
        if let Err(error) = ended.or_else(unless_away) {
            let text = "it serves by the order that it has, until it is reloaded";
            log_at(Priority::Warning, STAGE, format!("{}: {error:#}; {text}", service.name));
        }
    }
}

/// Has the HAProxies of a configuration count anew, as far as they are there.
///
/// # Errors
/// What the first of them refuses.
pub fn reset(config: &Config) -> Result<()> {
    let reset = |service| Steered::new(config, service, Duration::ZERO).reset();
    let all: Vec<Result<()>> = config.proxied.iter().map(reset).collect();
    all.into_iter().try_for_each(|reset| reset.or_else(unless_away))
}

fn unless_away(error: anyhow::Error) -> Result<()> {
    match error.is::<Away>() {
        true => Ok(()),
        false => Err(error),
    }
}

/// Logs a trouble once, and that it is over.
fn tell(troubles: &mut HashMap<String, String>, of: &str, trouble: Option<String>, over: &str) {
    match trouble {
        Some(text) if troubles.get(of) != Some(&text) => {
            log_at(Priority::Warning, STAGE, &text);
            troubles.insert(of.to_owned(), text);
        }
        Some(_) => {}
        None => {
            if troubles.remove(of).is_some() {
                let name = if of.is_empty() {
                    String::new()
                } else {
                    format!("{of}: ")
                };
                log(STAGE, format!("{name}{over}"));
            }
        }
    }
}
