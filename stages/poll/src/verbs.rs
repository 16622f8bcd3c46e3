//! The stage's verbs.

use std::ops::RangeInclusive;

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

const WATCH_COLUMNS: &str = "\
Columns:
  receives   softirqs, or threads: ahead of ordinary ones (first),
             or like ordinary ones (last)
  packets/s  received, without those that were dropped
  full%      of the polls, those that found as much as they may take
  cpu%       of a CPU, what the busiest thread takes
  dropped/s  packets beyond a fair share
  share      packets a source may send in 10 ms; 0: nothing is dropped";

/// The verbs.
pub fn command() -> Command {
    let number = |name: &'static str, help: &'static str, default: &'static str, range: RangeInclusive<i64>| {
        Arg::new(name)
            .long(name)
            .value_name("NUMBER")
            .help(help)
            .default_value(default)
            .value_parser(value_parser!(u32).range(range))
    };
    Command::new(STAGE)
        .subcommand_required(true)
        .subcommand(Command::new("status").about("What receives from each device, and its queues"))
        .subcommand(
            Command::new("top")
                .about("Who sent the most of what was dropped, since `tarn up`")
                .arg(number("count", "How many", "20", 1..=4096)),
        )
        .subcommand(
            Command::new("watch")
                .about("What comes in and what is dropped, a line a second for each device, until Ctrl-C")
                .after_help(WATCH_COLUMNS)
                .arg(number("interval", "Seconds between lines", "1", 1..=3600))
                .arg(number(
                    "count",
                    "How many times; 0 for no end",
                    "0",
                    0..=u32::MAX.into(),
                )),
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
