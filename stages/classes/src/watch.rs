//! What the agent does while the kernel schedules: it logs when somebody else has ended that.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::STAGE;
use super::config::{Config, Service};
use super::haproxy::steer::TURN;
use super::haproxy::steering::Steering;
use super::known::Known;
use super::module::{MODULE, Module, Protocol};
use tarn_base::output::{Priority, log, log_at};
use tarn_base::runtime::Stop;
use tarn_frame::Running;
use tarn_frame::state::StateDirectory;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// The stage, as the agent runs it. The kernel does all of the work.
pub struct Watch {
    state: StateDirectory,
    /// Whether some requests wait in HAProxy, whose turn comes more often.
    has_proxied: bool,
    /// Why nothing is scheduled, as it was logged.
    trouble: Option<String>,
    /// Services at which connections were seen that are requests as a whole, as it was logged.
    connections: HashSet<String>,
}

impl Watch {
    /// That has not looked yet. `has_proxied`: some requests wait in HAProxy.
    pub fn new(state: &StateDirectory, has_proxied: bool) -> Self {
        Self {
            state: state.clone(),
            has_proxied,
            trouble: None,
            connections: HashSet::new(),
        }
    }

    /// Looks once. Returns why nothing is scheduled, unless somebody has asked tarn for that.
    ///
    /// # Errors
    /// The kernel's, or a file that is damaged.
    pub fn look(&self) -> Result<Option<String>> {
        // Nothing is up any more in the middle of a `tarn down`.
        let Some(known) = Known::load(&self.state)?.filter(|known| !known.stopped) else {
            return Ok(None);
        };
        if known.config.services.is_empty() {
            return Ok(None);
        }
        let name = MODULE.name;
        let Some(mut module) = Module::find()? else {
            let text = format!(
                "the module {name} was taken out by someone else: all requests pass; `tarn classes start` begins again, `tarn up` if the file names clients"
            );
            return Ok(Some(text));
        };
        let stopped = first_stopped(&mut module, &known.config)?;
        Ok(stopped.map(|service| {
            let of = &service.name;
            format!("{name} was stopped for {of} by someone else: its requests pass; `tarn classes start` begins again")
        }))
    }

    /// For each service of which that was not said yet: what it promises is another thing than its administrator may think.
    ///
    /// # Errors
    /// The kernel's, or a file that is damaged.
    pub fn connections_seen(&mut self) -> Result<Vec<String>> {
        let (Some(known), Some(mut module)) = (Known::load(&self.state)?, Module::find()?) else {
            return Ok(Vec::new());
        };
        let mut lines = Vec::new();
        for (number, service) in known.config.services.iter().enumerate() {
            let state = module.service(number).state()?;
            let mut counts = state.iter().flat_map(|state| &state.counts);
            let is_told = service.protocol == Protocol::Connection || self.connections.contains(&service.name);
            if !is_told && counts.any(|counts| counts.connections > 0) {
                lines.push(format!(
                    "{}: connections by TLS or HTTP/2 are scheduled as a whole, once each; to have their requests \
                     scheduled, end TLS in a proxy on this host, and name the port behind it, or use through = \"haproxy\"",
                    service.name
                ));
                self.connections.insert(service.name.clone());
            }
        }
        Ok(lines)
    }

    /// Logs a trouble once, and that it is over.
    fn tell(&mut self, trouble: Option<String>) {
        if trouble == self.trouble {
            return;
        }
        match &trouble {
            Some(text) => log_at(Priority::Warning, STAGE, text),
            None => log(STAGE, "requests are scheduled again"),
        }
        self.trouble = trouble;
    }
}

/// A service that should run, and does not.
///
/// # Errors
/// The kernel's.
pub fn first_stopped<'a>(module: &mut Module, config: &'a Config) -> Result<Option<&'a Service>> {
    for (number, service) in config.services.iter().enumerate() {
        if module.service(number).state()?.is_none() {
            return Ok(Some(service));
        }
    }
    Ok(None)
}

impl Running for Watch {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        let mut steering = self.has_proxied.then(|| Steering::new(&self.state));
        let mut looked = Instant::now();
        while !stop.wait(if self.has_proxied { TURN } else { INTERVAL }) {
            let steered = steering.as_mut().map_or(Ok(()), Steering::turn);
            if looked.elapsed() < INTERVAL {
                continue;
            }
            looked = Instant::now();
            let trouble = steered.context("nobody steers HAProxy").and_then(|()| self.look());
            self.tell(trouble.unwrap_or_else(|error| Some(format!("nobody sees whether requests wait: {error:#}"))));
            // What keeps it from looking is a trouble already.
            for line in self.connections_seen().unwrap_or_default() {
                log(STAGE, line);
            }
        }
        Ok(())
    }
}
