//! The stage's verbs.

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command, value_parser};

use crate::STAGE;
use crate::figures;
use crate::keeper;
use crate::programs::Maps;
use crate::standing::standing;
use tarn_base::figures::Figures;
use tarn_base::output::Output;
use tarn_frame::up;

/// The verbs.
pub fn command() -> Command {
    let count = Arg::new("count")
        .long("count")
        .value_name("NUMBER")
        .help("How many")
        .default_value("20")
        .value_parser(value_parser!(u32).range(1..=4096));
    Command::new(STAGE)
        .subcommand_required(true)
        .subcommand(Command::new("status").about("What receives from each device, and its queues"))
        .subcommand(
            Command::new("top")
                .about("Who sent the most of what was dropped, since `tarn up`")
                .arg(count),
        )
        .subcommand(keeper::command())
}

/// Shows the figures.
///
/// # Errors
/// The stage is not up, or the kernel's.
pub fn status(output: &mut Output) -> Result<()> {
    let (state, _) = up::find(STAGE, "status", standing)?;
    figures::read(&state)?.ok_or_else(|| up::not_up(STAGE))?.answer(output)
}

/// Shows who sent the most of what was dropped.
///
/// # Errors
/// The stage is not up, or has no agent.
pub fn top(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let (_, standing) = up::find(STAGE, "top", standing)?;
    let maps = Maps::open(&standing.maps).context("no agent counts here: `tarn up` starts one")?;
    let count = matches.get_one::<u32>("count").copied().unwrap_or_default();
    let table = figures::senders(&maps, count as usize);
    if output.json {
        return Figures {
            tables: vec![table],
            ..Figures::default()
        }
        .answer(output);
    }
    output.table(&table.table());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_terminal() {
        for verb in command().get_subcommands_mut() {
            let help = verb.render_long_help().to_string();
            let wide = help.lines().find(|line| line.len() > 80);
            assert!(wide.is_none(), "{wide:?}");
        }
    }
}
