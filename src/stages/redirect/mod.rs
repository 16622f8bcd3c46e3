//! The stage `redirect`: steers an address and port to another, and the answers back. See README.md beside this file.

use anyhow::{Result, bail};
use clap::{ArgMatches, Command};

pub mod bench;
pub mod bpf;
pub mod carrier;
pub mod choice;
pub mod config;
pub mod devices;
mod experiment;
pub mod figures;
pub mod forwarding;
pub mod lookup;
pub mod nft;
pub mod overlap;
pub mod parse;
pub mod rule;
pub mod service;
pub mod store;
#[cfg(test)]
mod tests;
mod verbs;

use crate::config::{ConfigError, Section};
use crate::figures::Figures;
use crate::kernel::features::require_root;
use crate::lab::experiment::Experiment;
use crate::output::Output;
use crate::stages::{Ability, Configured, Stage};
use crate::state::StateDirectory;

/// The stage's name, in the journal and in log lines too.
pub const STAGE: &str = "redirect";

/// The stage.
pub struct Redirect;

impl Stage for Redirect {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn about(&self) -> &'static str {
        "steers an address and port to another, and the answers back"
    }

    fn command(&self) -> Command {
        verbs::command().subcommand(bench::command())
    }

    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()> {
        match matches.subcommand() {
            Some(("add", matches)) => verbs::add(matches, output),
            Some(("del", matches)) => verbs::del(matches, output),
            Some(("list", matches)) => verbs::list(matches, output),
            Some(("bench", matches)) => bench::execute(matches, output),
            _ => bail!("`tarn redirect` needs a verb: `tarn redirect --help` lists them"),
        }
    }

    fn takes_calls(&self, verb: &str) -> bool {
        verb != "bench"
    }

    fn probe(&self) -> Vec<Ability> {
        let mut abilities = bpf::probe::abilities();
        abilities.extend(nft::abilities());
        abilities.push(choice::summary(&abilities));
        abilities
    }

    fn configure(&self, section: Section<'_>) -> Result<Box<dyn Configured>, Vec<ConfigError>> {
        Ok(Box::new(service::Service::new(config::read(&section)?)))
    }

    fn status(&self, state: &StateDirectory) -> Result<Option<Figures>> {
        require_root("status")?;
        figures::read(state)
    }

    fn clean_up(&self, state: &StateDirectory) -> Result<()> {
        service::clean_up(state)
    }

    fn experiments(&self) -> &'static [&'static dyn Experiment] {
        &[&experiment::RedirectExperiment]
    }
}
