//! `tarn paths status|history|set`.

use anyhow::Result;
use clap::{ArgMatches, Command};
use serde_json::json;

use super::{STAGE, figures, history};
use tarn_base::error::Usage;
use tarn_base::output::{Align, Output, Table};
use tarn_base::runtime;
use tarn_frame::up;

mod set;

/// The verbs.
pub fn command() -> Command {
    let verb = |name: &'static str, about: &'static str| Command::new(name).about(about);
    Command::new(STAGE)
        .subcommand_required(true)
        .subcommand(verb("status", "What every uplink is like, and which are used"))
        .subcommand(verb("history", "When traffic moved, where to, and why"))
        .subcommand(set::command())
}

/// Carries out a verb.
///
/// # Errors
/// What failed, and what to do about it.
pub fn execute(verb: &str, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    match verb {
        "status" => up::find(STAGE, verb, figures::read)?.1.answer(output),
        "history" => history(output),
        "set" => set::execute(matches, output),
        other => Err(Usage(format!("there is no verb {other}: `tarn paths --help` lists them")).into()),
    }
}

fn history(output: &mut Output) -> Result<()> {
    let (state, _) = up::find(STAGE, "history", figures::read)?;
    let entries = history::load(&state)?;
    if output.json {
        let entry = |entry: &history::Entry| {
            json!({
                "at": runtime::timestamp(entry.at),
                "to": entry.group,
                "from": entry.from,
                "uplink": entry.to,
                "weights": entry.weights.iter().cloned().collect::<std::collections::BTreeMap<String, u32>>(),
                "reason": entry.reason.to_string(),
            })
        };
        return output.json(&entries.iter().map(entry).collect::<Vec<_>>());
    }
    let columns = ["AT", "TO", "FROM", "UPLINK", "WHY"].map(|title| (title, Align::Left));
    let mut table = Table::new(&columns);
    for entry in &entries {
        table.row([
            runtime::timestamp(entry.at),
            entry.group.clone(),
            entry.from.clone().unwrap_or_else(|| "-".to_owned()),
            entry.to.clone(),
            entry.reason.to_string(),
        ]);
    }
    output.table(&table);
    Ok(())
}
