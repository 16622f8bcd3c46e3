//! The lab: stock Debian kernels under an emulated, exactly repeatable clock.
//!
//! The host's side makes images ([`image`], [`builder`], [`debug_kernel`]), boots guests ([`vm`]) and gathers what they measure
//! ([`run`]) or test ([`harness`]). The guest's side ([`guest`]) is the same program, as process 1.

use std::path::Path;

use anyhow::Result;
use clap::{ArgMatches, Command};

use tarn_base::output::Output;
use tarn_frame::Tool;

use crate::experiment::Experiment;

mod archive;
mod bootstrap;
pub mod builder;
mod cache;
pub mod cards;
mod command;
mod console;
pub mod debug;
mod debug_kernel;
mod elf;
pub mod experiment;
mod guest;
mod harness;
mod highlight;
mod host;
mod image;
mod kept;
mod parallel;
mod program;
pub mod progress;
mod protocol;
mod record;
mod report;
mod results;
mod run;
mod sandbox;
pub mod software;
mod suite;
mod table;
mod tables;
#[cfg(feature = "testing")]
pub mod testing;
mod times;
mod turns;
mod vm;
mod watchdog;

/// What proves a stage.
pub struct Proof {
    /// The stage's name.
    pub stage: &'static str,
    /// Its kernel modules, built in the lab for the kernels that it boots.
    pub modules: &'static [builder::Source],
    /// What measures it in the lab.
    pub experiments: &'static [&'static Experiment],
    /// What measures it on this machine.
    pub bench: Option<&'static dyn Tool>,
}

/// The proofs that a program has, in packet order.
pub type Proofs = &'static [&'static Proof];

/// `tarn lab`.
pub struct Lab(pub Proofs);

impl Lab {
    /// Where this process is the first of a guest of the lab, it is nothing else, and this does not return.
    pub fn be_guest_if_booted(&self) {
        if std::process::id() == 1 && Path::new(protocol::JOB_PATH).exists() {
            guest::main(self.0);
        }
    }
}

impl Tool for Lab {
    fn command(&self) -> Command {
        command::command(self.0)
    }

    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()> {
        command::execute(self.0, matches, output)
    }
}

/// Every experiment of these proofs, in packet order.
fn experiments(proofs: Proofs) -> impl Iterator<Item = &'static Experiment> {
    proofs.iter().flat_map(|proof| proof.experiments).copied()
}

// What runs in the guest and measures: a library for the experiments and tests of all stages.
pub mod busy;
pub mod exchange_cost;
pub mod load;
pub mod random;
pub mod stats;
pub mod topology;
