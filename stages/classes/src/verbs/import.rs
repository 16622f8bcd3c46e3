//! `import`: classes for a whole table of customers.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ArgMatches;

use super::Up;
use crate::clients::{Change, Store, find, too_many};
use crate::config::{Config, Import};
use crate::import::{Effect, Plan, plan};
use crate::module::{Entry, Origin};
use tarn_base::error::Usage;
use tarn_base::output::Output;

mod report;

use report::Report;

/// How a file is imported.
#[derive(Debug, Clone, Copy)]
struct How {
    is_dry: bool,
    skips_wrong: bool,
    replaces: bool,
}

/// Gives every customer of a table a class.
pub fn import(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let path = matches.get_one::<PathBuf>("FILE").context("a file is missing")?;
    let how = How {
        is_dry: matches.get_flag("dry-run"),
        skips_wrong: matches.get_flag("skip-wrong"),
        replaces: matches.get_flag("replace"),
    };
    let text = read(path).map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    let up = Up::find("import")?;
    let plan = plan(&text, rule(&up.known.config)?).map_err(|wrong| Usage(format!("{}: {wrong}", path.display())))?;
    drop(text);
    if how.is_dry {
        let (report, _) = carry_out(&up.known.config, &mut up.clients()?, plan, how)?;
        return report.print(&up.known, output);
    }
    let (report, done) = with_lock(&up, plan, how)?;
    report.print(&up.known, output)?;
    done
}

/// Others change things again before anything is printed: who reads that may be slow.
fn with_lock(read: &Up, plan: Plan, how: How) -> Result<(Report, Result<()>)> {
    let (up, _lock) = Up::lock("import")?;
    if up.known.config != read.known.config {
        bail!("the configuration has changed meanwhile, and nothing was imported: try again");
    }
    carry_out(&up.known.config, &mut up.clients()?, plan, how)
}

/// The file's text. Bytes that are no UTF-8 spoil the lines where they matter, and no others.
fn read(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    match path.as_os_str().to_str() {
        Some("-") => std::io::stdin().read_to_end(&mut bytes)?,
        _ => File::open(path)?.read_to_end(&mut bytes)?,
    };
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn rule(config: &Config) -> Result<&Import, Usage> {
    let text = "tarn.toml does not say how classes follow from the table: add [classes.import] with by and thresholds, \
                then `tarn up`";
    config.import.as_ref().ok_or_else(|| Usage(text.to_owned()))
}

/// Carries a plan out, unless it is refused or this is a dry run. The report is there either way.
fn carry_out(config: &Config, store: &mut Store, plan: Plan, how: How) -> Result<(Report, Result<()>)> {
    let now = store.all()?;
    let effect = match how.replaces {
        true => Effect::replacing(&plan, &now),
        false => Effect::of(&plan, &now),
    };
    let after = now.len() + effect.added - effect.removed.len();
    let is_too_many = effect.added > 0 && after > config.max_clients as usize;
    let done = check(&plan, how).map_err(Into::into).and_then(|()| match is_too_many {
        true => Err(too_many(config.max_clients)),
        false if how.is_dry => Ok(()),
        false => {
            let change = change(&plan, &effect, &now);
            // Of a million clients, it is 40 MB.
            drop(now);
            store.apply(change, config.max_clients)
        }
    });
    let report = Report {
        is_dry: how.is_dry,
        is_carried_out: done.is_ok() && !how.is_dry && !plan.customers.is_empty(),
        refused: done.as_ref().err().map(tarn_base::error::paragraph),
        plan,
        effect,
    };
    Ok((report, done))
}

/// Refuses a file with wrong lines, or with nothing else; and one without customers that would replace all of them.
fn check(plan: &Plan, how: How) -> Result<(), Usage> {
    let lines = match plan.wrong.len() {
        0 if how.replaces && plan.customers.is_empty() => {
            let text = "no customer is in the file: check it; nothing has changed";
            return Err(Usage(text.to_owned()));
        }
        0 => return Ok(()),
        1 => "1 wrong line".to_owned(),
        count => format!("{count} wrong lines"),
    };
    match (how.skips_wrong, plan.customers.is_empty()) {
        (true, false) => Ok(()),
        (true, true) => Err(Usage(format!("{lines}, and no other: nothing has changed"))),
        (false, _) => Err(Usage(format!(
            "{lines}: mend the file{}; nothing has changed",
            // Who is in a wrong line would lose a class.
            if how.replaces {
                ""
            } else {
                ", or leave wrong lines out with --skip-wrong"
            }
        ))),
    }
}

/// What tarn.toml names stays of tarn.toml, which decides again at the next `tarn up`: it is none to be replaced.
fn change(plan: &Plan, effect: &Effect, now: &[Entry]) -> Change {
    let mut change = Change::with_room(plan.customers.len() + effect.removed.len());
    effect
        .removed
        .iter()
        .for_each(|removed| change.remove(&removed.network));
    for customer in &plan.customers {
        for prefix in customer.network.prefixes() {
            change.note(Entry {
                prefix,
                class: Some(customer.class as u16),
                origin: match find(now, prefix).map(|entry| entry.origin) {
                    Some(Origin::File) => Origin::File,
                    _ => Origin::Command,
                },
                timeout: None,
            });
        }
    }
    change
}

#[cfg(test)]
mod tests;
