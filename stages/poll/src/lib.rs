//! The stage `poll`: keeps receiving from starving a host.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use anyhow::{Result, bail};
use clap::{ArgMatches, Command};
use serde_json::Value;

mod awake;
mod buffers;
mod calm;
mod change;
mod config;
mod cpus;
mod device;
mod figures;
mod follow;
mod guard;
mod handover;
mod keeper;
mod lost;
mod module;
mod prepare;
mod probe;
mod programs;
#[cfg(feature = "proof")]
pub mod proof;
mod propose;
mod service;
mod skeleton;
mod stand_in;
mod standing;
#[cfg(test)]
mod tests;
mod threads;
mod verbs;
mod watch;
mod watched;
mod weights;

use change::PollChange;
use tarn_base::config::{ConfigError, Section};
use tarn_base::figures::{FigureTable, Figures};
use tarn_base::output::Output;
use tarn_frame::journal::OwnChange;
use tarn_frame::state::StateDirectory;
use tarn_frame::survey::{Proposal, Survey};
use tarn_frame::{Ability, Configured, Stage};
use tarn_kernel::features::require_root;

#[cfg(feature = "proof")]
pub use proof::PROOF;

/// The stage's name, in the journal and in log lines too.
pub const STAGE: &str = "poll";

/// The stage.
pub struct Poll;

impl Stage for Poll {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn about(&self) -> &'static str {
        "keeps the network usable in a flood of packets"
    }

    fn command(&self) -> Command {
        verbs::command()
    }

    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()> {
        match matches.subcommand() {
            Some(("status", _)) => verbs::status(output),
            Some(("top", matches)) => verbs::top(matches, output),
            Some(("watch", matches)) => follow::watch(matches, output),
            Some((keeper::VERB, matches)) => keeper::keep(matches),
            _ => bail!("`tarn poll` needs a verb: `tarn poll --help` lists them"),
        }
    }

    fn takes_calls(&self, verb: &str) -> bool {
        !["watch", keeper::VERB].contains(&verb)
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

    fn own_change(&self, recorded: &Value) -> Result<Box<dyn OwnChange>> {
        Ok(Box::new(PollChange::read(recorded)?))
    }

    fn status(&self, state: &StateDirectory) -> Result<Option<Figures>> {
        require_root("status")?;
        figures::read(state)
    }

    fn detail(&self, state: &StateDirectory, rows: usize) -> Result<Vec<FigureTable>> {
        require_root("top")?;
        figures::detail(state, rows)
    }

    fn clean_up(&self, state: &StateDirectory) -> Result<()> {
        state.remove_files(&[standing::FILE])
    }
}
