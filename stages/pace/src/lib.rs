//! The stage `pace`: TCP that backs off as soon as the bandwidth drops.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use anyhow::{Result, bail};
use clap::{ArgMatches, Command};
use serde_json::Value;

mod change;
mod config;
mod connections;
mod destinations;
mod elsewhere;
mod existing;
mod figures;
mod follow;
mod parameters;
mod probe;
#[cfg(feature = "proof")]
mod proof;
mod propose;
mod queues;
mod registration;
mod service;
// The tuner needs what comes of a run; what happens within one is for tests.
#[cfg(feature = "proof")]
#[cfg_attr(not(test), allow(dead_code))]
mod simulator;
mod skeleton;
mod standing;
mod steer;
#[cfg(test)]
mod tests;
mod verbs;
mod watch;

use change::PaceChange;
use tarn_base::config::{ConfigError, Section};
use tarn_base::figures::{FigureTable, Figures};
use tarn_base::output::Output;
use tarn_frame::journal::OwnChange;
use tarn_frame::state::StateDirectory;
use tarn_frame::survey::{Proposal, Survey};
use tarn_frame::{Ability, Configured, Stage};
use tarn_kernel::features::require_root;

#[cfg(feature = "proof")]
pub use proof::{PROOF, sharing, tuning};

/// The stage's name, in the journal and in log lines too.
pub const STAGE: &str = "pace";

/// The stage.
pub struct Pace;

impl Stage for Pace {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn about(&self) -> &'static str {
        "sends so that queues stay short when the bandwidth drops"
    }

    fn command(&self) -> Command {
        verbs::command()
    }

    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()> {
        match matches.subcommand() {
            Some(("status", _)) => verbs::status(output),
            Some(("top", matches)) => verbs::top(matches, output),
            Some(("watch", matches)) => watch::watch(matches, output),
            Some(("set", matches)) => verbs::set(matches, output),
            _ => bail!("`tarn pace` needs a verb: `tarn pace --help` lists them"),
        }
    }

    /// `watch` has no end.
    fn takes_calls(&self, verb: &str) -> bool {
        verb != "watch"
    }

    fn probe(&self) -> Vec<Ability> {
        let mut abilities = probe::abilities();
        abilities.push(probe::choice());
        abilities
    }

    fn propose(&self, survey: &Survey) -> Proposal {
        propose::propose(survey)
    }

    fn configure(&self, section: Section<'_>) -> Result<Box<dyn Configured>, Vec<ConfigError>> {
        Ok(Box::new(config::read(&section)?))
    }

    fn own_change(&self, recorded: &Value) -> Result<Box<dyn OwnChange>> {
        Ok(Box::new(PaceChange::read(recorded)?))
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
