//! What a stage is.
//!
//! A stage is a vertical slice: everything about it lives in its own crate. The command line, the agent, `check`, `status`
//! and the metrics iterate the list of stages that they are given; none of them knows a stage by name.

use std::sync::Arc;

use anyhow::{Result, bail};
use clap::{ArgMatches, Command};
use serde_json::Value;
use tarn_base::config::{ConfigError, Section};
use tarn_base::figures::{FigureTable, Figures};
use tarn_base::output::Output;
use tarn_base::runtime::Stop;

use crate::Ability;
use crate::journal::{Journal, OwnChange};
use crate::state::StateDirectory;
use crate::survey::{Proposal, Survey};

/// The stages of a program, in packet order.
pub type Stages = &'static [&'static dyn Stage];

/// One stage of the way of a packet.
pub trait Stage: Sync {
    /// The name on the command line, in `tarn.toml` and in the report.
    fn name(&self) -> &'static str;

    /// What it does, in one line of at most 70 characters.
    fn about(&self) -> &'static str;

    /// The stage's own verbs; the frame adds `--json` to those that read and renders errors.
    fn command(&self) -> Command;

    /// Carries out one of the stage's own verbs.
    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()>;

    /// Whether a program may call this verb over the agent's control socket. What takes long or asks a person is for the
    /// command line alone.
    fn takes_calls(&self, _verb: &str) -> bool {
        true
    }

    /// What this host can do, one entry an ability; nothing on the host changes.
    fn probe(&self) -> Vec<Ability>;

    /// What the stage would do on a host: `tarn init` writes it to `tarn.toml`. Whether this host supports it is checked afterwards.
    fn propose(&self, survey: &Survey) -> Proposal;

    /// Validates the stage's section of `tarn.toml`, without looking at the host.
    ///
    /// # Errors
    /// Every error found, each with its place in the file and what would be right.
    fn configure(&self, section: Section<'_>) -> Result<Box<dyn Configured>, Vec<ConfigError>>;

    /// A change of the stage's own, as it stands in the journal.
    ///
    /// # Errors
    /// It is none that this stage makes.
    fn own_change(&self, recorded: &Value) -> Result<Box<dyn OwnChange>> {
        bail!("{} makes no such change: {recorded}", self.name())
    }

    /// What runs now, read from the kernel, so that it is true without an agent too; `None` when the stage is down.
    fn status(&self, state: &StateDirectory) -> Result<Option<Figures>>;

    /// Tables that are too large or change too much to be figures: who sends, single connections. Those `rows` rows each that
    /// matter most. Asked only while somebody looks at a stage that is up.
    ///
    /// # Errors
    /// As [`Stage::status`].
    fn detail(&self, _state: &StateDirectory, _rows: usize) -> Result<Vec<FigureTable>> {
        Ok(Vec::new())
    }

    /// Gets rid of what no change in the journal stands for, after all those were put back: connections that the
    /// kernel remembers, files in the state directory. Called again after a crash; without anything to do it does
    /// nothing.
    ///
    /// # Errors
    /// When the rest cannot be got rid of.
    fn clean_up(&self, _state: &StateDirectory) -> Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for dyn Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A stage with a configuration that was found valid.
///
/// Before `up`, `tarn up` copies itself (fork(2)) to be the agent: what is asked before that leaves no thread behind, and nothing
/// open.
pub trait Configured: Send {
    /// What the configuration needs and this host lacks; empty when `up` can go on. Changes nothing.
    fn missing(&self) -> Vec<Ability>;

    /// Refuses a configuration that cannot stand with what runs already. Asked before anything changes, with the state
    /// directory's lock held.
    ///
    /// # Errors
    /// What cannot stand together, and what would be right.
    fn fits(&self, _state: &StateDirectory) -> Result<()> {
        Ok(())
    }

    /// Every change `up` would make now, as commands that a person can read.
    fn plan(&self) -> Result<Vec<String>>;

    /// Brings the stage up, or adopts what an earlier agent left running without losing a packet.
    ///
    /// Every change is written to the journal before it is made, so that a failure (and a crash) can be undone
    /// by the frame alone.
    fn up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>>;
}

/// A stage that is up, as the agent sees it.
pub trait Running: Send {
    /// The stage's long-running loop, on a thread of its own; returns soon after `stop` fires.
    ///
    /// What the stage set up in the kernel stays as it is when this returns.
    fn run(&mut self, stop: Arc<Stop>) -> Result<()>;
}
