//! `import`: classes for a whole table of customers.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ArgMatches;
use serde_json::json;

use super::Up;
use crate::clients::{Change, Client};
use crate::import::{Plan, plan};
use crate::known::Known;
use crate::module::Origin;
use tarn_base::error::Usage;
use tarn_base::output::{Align, Output, Table};

/// Gives every customer of a table a class.
pub fn import(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let path = matches.get_one::<PathBuf>("FILE").context("a file is missing")?;
    let is_dry = matches.get_flag("dry-run");
    let text = match path.as_os_str().to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    let text = text.map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    let (up, _lock) = Up::lock("import")?;
    let Some(rule) = up.known.config.import.clone() else {
        let text = "tarn.toml does not say how classes follow from the table: add [classes.import] with by and \
                    thresholds, then `tarn up`";
        return Err(Usage(text.to_owned()).into());
    };
    let plan = plan(&text, &rule).map_err(|wrong| Usage(format!("{}: {wrong}", path.display())))?;
    let is_refused = !plan.wrong.is_empty() && !matches.get_flag("skip-wrong");
    summary(&up.known, &plan, !is_dry && !is_refused, output)?;
    if is_dry {
        return Ok(());
    }
    if is_refused {
        let text = format!(
            "{} wrong lines: mend them, or leave them out with --skip-wrong; nothing has changed",
            plan.wrong.len()
        );
        return Err(Usage(text).into());
    }
    let mut change = Change::default();
    for (network, class) in plan.clients {
        let client = Client {
            origin: Origin::Command,
            ..Client::of_file((network, class))
        };
        change.add(&client);
    }
    up.clients()?.apply(change, up.known.config.max_clients)
}

/// How many addresses go to which class, and which lines are wrong.
fn summary(known: &Known, plan: &Plan, is_carried_out: bool, output: &mut Output) -> Result<()> {
    let mut counts = vec![0_usize; known.config.classes.len()];
    for (_, class) in &plan.clients {
        if let Some(count) = counts.get_mut(*class) {
            *count += 1;
        }
    }
    let named = counts
        .iter()
        .enumerate()
        .map(|(class, count)| (known.name(class), *count));
    if output.json {
        let classes: Vec<_> = named
            .map(|(class, clients)| json!({ "class": class, "clients": clients }))
            .collect();
        let wrong: Vec<_> = plan
            .wrong
            .iter()
            .map(|(line, reason)| json!({ "line": line, "reason": reason }))
            .collect();
        return output.json(&json!({ "classes": classes, "wrong": wrong, "carried_out": is_carried_out }));
    }
    let mut table = Table::new(&[("CLASS", Align::Left), ("CLIENTS", Align::Right)]);
    named.for_each(|(class, count)| table.row([class, count.to_string()]));
    output.table(&table);
    for (line, reason) in &plan.wrong {
        output.line(format_args!("line {line}: {reason}"));
    }
    Ok(())
}
