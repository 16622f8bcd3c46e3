//! The stage `paths`: sends flows by the calmest of several uplinks. See README.md beside this file.

use anyhow::{Result, bail};
use clap::{ArgMatches, Command};

mod adopt;
pub mod config;
mod experiment;
pub mod figures;
mod gateways;
pub mod group;
pub mod history;
pub mod judge;
pub mod layout;
pub mod load;
mod numbers;
mod pin;
mod probe;
pub mod prober;
mod rates;
pub mod service;
mod skeleton;
mod slots;
pub mod snapshot;
pub mod target;
pub mod tcp;
#[cfg(test)]
mod tests;
mod verbs;
mod watch;

use crate::config::{ConfigError, Section};
use crate::figures::Figures;
use crate::kernel::features::require_root;
use crate::lab::experiment::Experiment;
use crate::output::Output;
use crate::stages::{Ability, Configured, Stage};
use crate::state::StateDirectory;

/// The stage's name, in the journal and in log lines too.
pub const STAGE: &str = "paths";

/// The stage.
pub struct Paths;

impl Stage for Paths {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn about(&self) -> &'static str {
        "sends flows by the calmest of several uplinks"
    }

    fn command(&self) -> Command {
        verbs::command()
    }

    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()> {
        match matches.subcommand() {
            Some((verb, matches)) => verbs::execute(verb, matches, output),
            None => bail!("`tarn paths` needs a verb: `tarn paths --help` lists them"),
        }
    }

    fn probe(&self) -> Vec<Ability> {
        let optional = Ability {
            name: "marks of connections (pin = true)".to_owned(),
            required: false,
            ..probe::pins()
        };
        let round_trips = Ability {
            required: false,
            ..probe::round_trips()
        };
        [probe::abilities(judge::Measure::default()), vec![optional, round_trips]].concat()
    }

    fn configure(&self, section: Section<'_>) -> Result<Box<dyn Configured>, Vec<ConfigError>> {
        Ok(Box::new(service::Service(config::read(&section)?)))
    }

    fn status(&self, state: &StateDirectory) -> Result<Option<Figures>> {
        require_root("status")?;
        figures::read(state)
    }

    fn clean_up(&self, state: &StateDirectory) -> Result<()> {
        service::clean_up(state)
    }

    fn experiments(&self) -> &'static [&'static dyn Experiment] {
        experiment::ALL
    }
}
