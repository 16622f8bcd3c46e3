//! The lab: stock Debian kernels under an emulated, exactly repeatable clock.
//!
//! The host's side makes images ([`image`], [`builder`], [`debug_kernel`]), boots guests ([`vm`]) and gathers what they measure
//! ([`run`]) or test ([`harness`]). The guest's side ([`guest`]) is the same program, as process 1.

use anyhow::Result;
use clap::{ArgMatches, Command};

use crate::output::Output;

pub mod archive;
pub mod bootstrap;
pub mod builder;
pub mod cache;
mod command;
pub mod console;
pub mod debug_kernel;
pub mod elf;
pub mod experiment;
pub mod guest;
pub mod harness;
pub mod host;
pub mod image;
mod parallel;
pub mod progress;
pub mod protocol;
pub mod record;
pub mod results;
pub mod run;
pub mod sandbox;
pub mod suite;
pub mod table;
pub mod times;
pub mod vm;
pub mod watchdog;

/// `tarn lab` and its verbs.
pub fn command() -> Command {
    command::command()
}

/// Carries out one of the verbs.
///
/// # Errors
/// What failed; a check that does not hold and a failed test are failures too.
pub fn execute(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    command::execute(matches, output)
}

// What runs in the guest and measures: a library for the experiments and tests of all stages. Not everything in it is
// used by every build.
#[allow(dead_code, unused_imports)]
pub mod busy;
pub mod exchange_cost;
#[allow(dead_code, unused_imports)]
pub mod load;
#[allow(dead_code)]
pub mod random;
#[allow(dead_code)]
pub mod stats;
#[allow(dead_code, unused_imports)]
pub mod topology;
