//! `tarn classes start|stop|reset|status|set-target|set-deadline|set-hold|add|delete|find|list|import`.

use anyhow::Result;
use clap::ArgMatches;
use serde_json::json;

use super::STAGE;
use super::clients::Store;
use super::config::{Config, Proxied};
use super::haproxy::snippet;
use super::known::Known;
use super::module::{Module, Settings};
use tarn_base::error::Usage;
use tarn_base::output::Output;
use tarn_frame::state::{Lock, StateDirectory};
use tarn_frame::up;

mod clients;
mod command;
mod import;
mod schedule;

pub use command::command;

/// Carries out a verb.
///
/// # Errors
/// What failed, and what to do about it.
pub fn execute(verb: &str, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    match verb {
        "start" => schedule::start(output),
        "stop" => schedule::stop(output),
        "reset" => schedule::reset(matches, output),
        "status" => schedule::status(output),
        "set-target" => schedule::set_target(matches, output),
        "set-deadline" => schedule::set_deadline(matches, output),
        "set-hold" => schedule::set_hold(matches, output),
        "add" => clients::add(matches, output),
        "delete" => clients::delete(matches, output),
        "find" => clients::find(matches, output),
        "list" => clients::list(output),
        "import" => import::import(matches, output),
        "haproxy" => haproxy(matches, output),
        other => Err(Usage(format!("there is no verb {other}: `tarn classes --help` lists them")).into()),
    }
}

/// Prints what HAProxy's configuration needs for a service.
fn haproxy(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let up = Up::find("haproxy")?;
    let proxied = &up.known.config.proxied;
    let name = matches.get_one::<String>("SERVICE");
    let is_meant = |service: &&Proxied| name.is_none_or(|name| service.name == *name);
    let mut found = proxied.iter().filter(is_meant);
    let (Some(service), None) = (found.next(), found.next()) else {
        let names: Vec<&str> = proxied.iter().map(|service| service.name.as_str()).collect();
        let text = match names[..] {
            [] => "no service is configured with through = \"haproxy\"".to_owned(),
            _ => format!("name one of the services that go through HAProxy: {}", names.join(", ")),
        };
        return Err(Usage(text).into());
    };
    let text = snippet::text(service);
    let json = json!({
        "service": service.name,
        "counters": snippet::counters(service),
        "rules": snippet::rules(service),
    });
    output.answer(&json, format_args!("{}", text.trim_end()))
}

/// What is up.
struct Up {
    state: StateDirectory,
    known: Known,
}

impl Up {
    fn find(verb: &str) -> Result<Self> {
        let (state, known) = up::find(STAGE, verb, Known::load)?;
        Ok(Self { state, known })
    }

    fn lock(verb: &str) -> Result<(Self, Lock)> {
        let (state, known, lock) = up::lock(STAGE, verb, Known::load)?;
        Ok((Self { state, known }, lock))
    }

    fn class(&self, matches: &ArgMatches) -> Result<Option<usize>> {
        let Some(text) = matches.get_one::<String>("CLASS") else {
            return Ok(None);
        };
        let names = || {
            self.known
                .config
                .classes
                .iter()
                .map(|class| class.name.as_str())
                .collect::<Vec<_>>()
        };
        let unknown = || Usage(format!("there is no class '{text}'; there are {}", names().join(", ")));
        Ok(Some(self.known.config.class(text).ok_or_else(unknown)?))
    }

    /// Where it is kept of which class clients are.
    fn clients(&self) -> Result<Store> {
        Store::of(&self.known.config, &self.state)
    }

    /// The service that is named, of any kind.
    fn service(&self, matches: &ArgMatches) -> Result<Option<String>> {
        let Some(name) = matches.get_one::<String>("service") else {
            return Ok(None);
        };
        let names: Vec<&str> = self.known.config.service_names().collect();
        if !names.contains(&name.as_str()) {
            return Err(Usage(format!("there is no service '{name}'; there are {}", names.join(", "))).into());
        }
        Ok(Some(name.clone()))
    }

    /// Changes a setting in the kernel, of the services that run, and for the next `start`.
    fn change(&mut self, change: impl FnOnce(&mut Config), settings: impl Fn(Settings) -> Settings) -> Result<()> {
        change(&mut self.known.config);
        if let Some(mut module) = Module::find()? {
            self.each_running(&mut module, |module, settings_of| module.set(&settings(settings_of)))?;
        }
        self.known.save(&self.state)
    }

    /// Does something to each service that runs, given its settings as they should be.
    fn each_running(
        &self,
        module: &mut Module,
        mut act: impl FnMut(&mut Module, Settings) -> Result<()>,
    ) -> Result<()> {
        let config = &self.known.config;
        for (number, service) in config.services.iter().enumerate() {
            if module.service(number).state()?.is_some() {
                act(module, config.settings(service))?;
            }
        }
        Ok(())
    }

    /// Remembers who has ended it, should it not run.
    fn set_stopped(&mut self, stopped: bool) -> Result<()> {
        if self.known.stopped == stopped {
            return Ok(());
        }
        self.known.stopped = stopped;
        self.known.save(&self.state)
    }
}
