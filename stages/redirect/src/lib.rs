//! The stage `redirect`: steers an address and port to another, and the answers back. See README.md beside this file.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use anyhow::{Result, bail};
use clap::{ArgMatches, Command};

pub mod bpf;
pub mod carrier;
pub mod choice;
pub mod config;
pub mod devices;
pub mod figures;
pub mod firewall;
pub mod forwarding;
mod handover;
mod ipsec;
mod listeners;
pub mod lookup;
pub mod nft;
pub mod overlap;
pub mod parse;
#[cfg(feature = "proof")]
mod proof;
mod propose;
pub mod rule;
pub mod service;
pub mod store;
#[cfg(test)]
mod tests;
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
        verbs::command()
    }

    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()> {
        match matches.subcommand() {
            Some(("add", matches)) => verbs::add(matches, output),
            Some(("del", matches)) => verbs::del(matches, output),
            Some(("list", matches)) => verbs::list(matches, output),
            Some(("status", _)) => verbs::status(output),
            _ => bail!("`tarn redirect` needs a verb: `tarn redirect --help` lists them"),
        }
    }

    fn probe(&self) -> Vec<Ability> {
        let mut abilities = bpf::probe::abilities();
        abilities.extend(nft::abilities());
        abilities.push(choice::summary(&abilities));
        abilities.push(firewall::ability());
        abilities
    }

    fn propose(&self, survey: &Survey) -> Proposal {
        propose::propose(survey)
    }

    fn configure(&self, section: Section<'_>) -> Result<Box<dyn Configured>, Vec<ConfigError>> {
        Ok(Box::new(service::Prepared::new(config::read(&section)?)))
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
        service::clean_up(state)
    }
}
