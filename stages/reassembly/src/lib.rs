//! The stage `reassembly`: fragmented datagrams are rebuilt at the same cost for any order, and under attack. See README.md
//! beside this file.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use anyhow::{Result, bail};
use clap::{ArgMatches, Command};

pub mod attack;
pub mod config;
pub mod defaults;
pub mod figures;
pub mod known;
pub mod module;
mod probe;
#[cfg(feature = "proof")]
mod proof;
mod propose;
pub mod service;
#[cfg(test)]
mod tests;
pub mod top;
mod verbs;
mod watch;

use tarn_base::config::{ConfigError, Section};
use tarn_base::figures::{FigureTable, Figures};
use tarn_base::output::Output;
use tarn_frame::state::StateDirectory;
use tarn_frame::survey::{Proposal, Survey};
use tarn_frame::{Ability, Configured, Stage};
use tarn_kernel::features::require_root;

#[cfg(feature = "proof")]
pub use proof::PROOF;

/// The stage's name, in the journal and in log lines too.
pub const STAGE: &str = "reassembly";

/// The stage.
pub struct Reassembly;

impl Stage for Reassembly {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn about(&self) -> &'static str {
        "rebuilds fragmented datagrams, in any order and under attack"
    }

    fn command(&self) -> Command {
        verbs::command()
    }

    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()> {
        match matches.subcommand() {
            Some((verb, matches)) => verbs::execute(verb, matches, output),
            None => bail!("`tarn reassembly` needs a verb: `tarn reassembly --help` lists them"),
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

    fn detail(&self, state: &StateDirectory, rows: usize) -> Result<Vec<FigureTable>> {
        require_root("top")?;
        top::detail(state, rows)
    }

    fn clean_up(&self, state: &StateDirectory) -> Result<()> {
        state.remove_files(&[known::FILE])
    }
}
