//! The stage `paths`: sends flows by the calmest of several uplinks. See README.md beside this file.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use anyhow::{Result, bail};
use clap::{ArgMatches, Command};
use serde_json::Value;

mod adopt;
mod change;
mod config;
mod figures;
mod filters;
mod foreign;
mod gateways;
mod group;
mod history;
mod judge;
mod layout;
mod listen;
mod load;
mod lookout;
mod networkd;
mod networks;
mod nexthop;
mod numbers;
mod orders;
mod pin;
mod prefixes;
mod probe;
mod prober;
#[cfg(feature = "proof")]
mod proof;
mod propose;
mod punctual;
mod rates;
mod ruleset;
mod service;
mod skeleton;
mod slots;
mod snapshot;
mod target;
mod tcp;
#[cfg(test)]
mod tests;
mod translation;
mod uplink;
mod useless;
mod verbs;
mod watch;

use tarn_base::config::{ConfigError, Section};
use tarn_base::figures::Figures;
use tarn_base::output::Output;
use tarn_frame::journal::OwnChange;
use tarn_frame::state::StateDirectory;
use tarn_frame::survey::{Proposal, Survey};
use tarn_frame::{Ability, Configured, Stage};
use tarn_kernel::features::require_root;

#[cfg(feature = "proof")]
pub use proof::PROOF;

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
        [
            probe::abilities(judge::Measure::default()),
            vec![optional, round_trips],
            networkd::ability().into_iter().collect(),
        ]
        .concat()
    }

    fn propose(&self, survey: &Survey) -> Proposal {
        propose::propose(survey)
    }

    fn configure(&self, section: Section<'_>) -> Result<Box<dyn Configured>, Vec<ConfigError>> {
        Ok(Box::new(config::read(&section)?))
    }

    fn own_change(&self, recorded: &Value) -> Result<Box<dyn OwnChange>> {
        Ok(Box::new(change::PathsChange::read(recorded)?))
    }

    fn status(&self, state: &StateDirectory) -> Result<Option<Figures>> {
        require_root("status")?;
        figures::read(state)
    }

    fn clean_up(&self, state: &StateDirectory) -> Result<()> {
        service::clean_up(state)
    }
}
