//! The stages, in the order a packet meets them.
//!
//! A stage is a vertical slice: everything about it lives in its own directory, and adding one touches only
//! this file. The command line, the agent, `check`, `status`, the metrics and the report iterate [`STAGES`];
//! none of them knows a stage by name.

use std::sync::Arc;

use anyhow::Result;
use clap::{ArgMatches, Command};
use serde::Serialize;

use crate::config::{ConfigError, Section};
use crate::figures::Figures;
use crate::journal::Journal;
use crate::lab::builder::Source;
use crate::lab::experiment::Experiment;
use crate::output::Output;
use crate::runtime::Stop;
use crate::state::StateDirectory;

pub mod classes;
pub mod paths;
pub mod redirect;

/// Every stage, in packet order. This order is the order everywhere.
pub static STAGES: &[&dyn Stage] = &[&redirect::Redirect, &classes::Classes, &paths::Paths];

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

    /// Validates the stage's section of `tarn.toml`, without looking at the host.
    ///
    /// # Errors
    /// Every error found, each with its place in the file and what would be right.
    fn configure(&self, section: Section<'_>) -> Result<Box<dyn Configured>, Vec<ConfigError>>;

    /// What runs now, read from the kernel, so that it is true without an agent too; `None` when the stage is down.
    fn status(&self, state: &StateDirectory) -> Result<Option<Figures>>;

    /// Gets rid of what no change in the journal stands for, after all those were put back: connections that the
    /// kernel remembers, files in the state directory. Called again after a crash; without anything to do it does
    /// nothing.
    ///
    /// # Errors
    /// When the rest cannot be got rid of.
    fn clean_up(&self, _state: &StateDirectory) -> Result<()> {
        Ok(())
    }

    /// The sources of the stage's kernel modules.
    fn modules(&self) -> &'static [Source] {
        &[]
    }

    /// The experiments that prove the stage.
    fn experiments(&self) -> &'static [&'static dyn Experiment] {
        &[]
    }
}

/// A stage with a configuration that was found valid.
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

/// One thing that a stage may need from the host.
#[derive(Debug, Clone, Serialize)]
pub struct Ability {
    /// A short name: `xdp`, `tcx`, `nftables`, `module loading`.
    pub name: String,
    /// Whether this host has it.
    pub present: bool,
    /// Whether the stage cannot run at all without it.
    pub required: bool,
    /// Where it is absent: why, and what to do about it. Where it is present: what was found.
    pub detail: String,
}
