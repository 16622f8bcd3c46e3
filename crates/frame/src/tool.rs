//! Verbs that belong to no stage.

use anyhow::Result;
use clap::{ArgMatches, Command};
use tarn_base::output::Output;

/// A verb of the command line beside those of the frame and the stages: the lab is one.
pub trait Tool: Sync {
    /// The verb, with its own verbs.
    fn command(&self) -> Command;

    /// Carries it out.
    ///
    /// # Errors
    /// What failed.
    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()>;
}
