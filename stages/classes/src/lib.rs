//! The stage `classes`: each class of clients gets its promised share of answers in time. See README.md beside this file.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use anyhow::{Result, bail};
use clap::{ArgMatches, Command};

pub mod clients;
pub mod config;
pub mod figures;
pub mod haproxy;
pub mod import;
pub mod known;
pub mod module;
pub mod network;
mod probe;
#[cfg(feature = "proof")]
mod proof;
mod propose;
pub mod service;
#[cfg(test)]
mod tests;
pub mod times;
mod verbs;
mod watch;

use tarn_base::config::{ConfigError, Section};
use tarn_base::figures::Figures;
use tarn_base::output::Output;
use tarn_frame::state::StateDirectory;
use tarn_frame::survey::{Proposal, Survey};
use tarn_frame::{Ability, Configured, Stage};
use tarn_kernel::features::require_root;

#[cfg(feature = "proof")]
pub use proof::PROOF;

/// The stage's name, in the journal and in log lines too.
pub const STAGE: &str = "classes";

/// The stage.
pub struct Classes;

impl Stage for Classes {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn about(&self) -> &'static str {
        "gives each class of clients its share of answers in time"
    }

    fn command(&self) -> Command {
        verbs::command()
    }

    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()> {
        match matches.subcommand() {
            Some((verb, matches)) => verbs::execute(verb, matches, output),
            None => bail!("`tarn classes` needs a verb: `tarn classes --help` lists them"),
        }
    }

    fn probe(&self) -> Vec<Ability> {
        probe::abilities()
    }

    fn propose(&self, survey: &Survey) -> Proposal {
        propose::propose(survey)
    }

    fn configure(&self, section: Section<'_>) -> Result<Box<dyn Configured>, Vec<ConfigError>> {
        Ok(Box::new(config::read(&section)?))
    }

    fn status(&self, state: &StateDirectory) -> Result<Option<Figures>> {
        require_root("status")?;
        figures::read(state)
    }

    fn clean_up(&self, state: &StateDirectory) -> Result<()> {
        if let Some(known) = known::Known::load(state)? {
            haproxy::steering::end_others(&known.config, None);
        }
        state.remove_files(&[known::FILE, haproxy::report::FILE, clients::FILE, clients::NEW_FILE])
    }
}
