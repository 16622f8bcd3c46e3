//! `tarn up` and `tarn down`.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use crate::agent::{self, Parent};
use crate::page;
use tarn_base::error::{Unsupported, Usage};
use tarn_base::output::{Output, Priority, log, log_at};
use tarn_frame::agent as client;
use tarn_frame::configuration::{self, ConfiguredStage, Page};
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_frame::tidy::tidy_after;
use tarn_frame::{Ability, Stages};
use tarn_watch::Frame;

/// What `tarn up` was asked for.
#[derive(Debug)]
pub struct Options {
    /// The configuration file.
    pub path: PathBuf,
    /// Only print what would be done.
    pub dry_run: bool,
    /// Be the agent instead of starting one.
    pub foreground: bool,
}

/// `tarn up`: everything that can be refused is refused before anything changes.
///
/// # Errors
/// A configuration that is wrong (2), a host that cannot do it (3), or a stage that could not be brought up and was
/// put back (1).
pub fn up(frame: &Frame, options: &Options, output: &mut Output) -> Result<()> {
    let Frame { stages, state, .. } = frame;
    let configuration = configuration::load(&options.path, stages)?;
    let configured = &configuration.stages;
    if !options.dry_run {
        (frame.rights)("up")?;
    }
    refuse_missing(configured)?;
    if let Some(page) = &configuration.page {
        check_page(page, options)?;
    }
    if options.dry_run {
        return dry_run(stages, state, configured, output);
    }
    let lock = state.lock_for("up")?;
    if let Err(error) = configured.iter().try_for_each(|stage| stage.configured.fits(state)) {
        // An agent that runs goes on; without one, no directory is left.
        return Err(match Journal::open(state) {
            Ok(journal) if !journal.is_empty() => error,
            _ => tidy_after(state, &lock, error),
        });
    }
    // A journal that cannot be understood is found out before the agent that may is ended.
    match Journal::of(stages, state).and_then(|_| client::stop_agent(state)) {
        Ok(true) => log("agent", "taking over from the one that ran"),
        Ok(false) => {}
        Err(error) => return Err(tidy_after(state, &lock, error)),
    }
    if options.foreground {
        return agent::run(stages, state, configuration, lock, &mut Parent::service());
    }
    agent::launch(stages, state, configuration, lock, output)
}

/// Refuses a page that could not be shown. A service comes up without it, as a token may come later than the network; and a dry run on
/// another machine has none.
fn check_page(page: &Page, options: &Options) -> Result<(), Usage> {
    match page::check(page).map_err(|error| format!("{error:#}")) {
        // The agent logs it.
        _ if options.foreground => Ok(()),
        Err(why) if options.dry_run => {
            log_at(Priority::Warning, "page", format!("{why}: it could not be shown"));
            Ok(())
        }
        checked => checked.map_err(Usage),
    }
}

/// Refuses a configuration that needs what this host lacks.
fn refuse_missing(configured: &[ConfiguredStage]) -> Result<(), Unsupported> {
    let lacks = |stage: &ConfiguredStage| {
        let missing = stage.configured.missing();
        let told: Vec<String> = missing
            .iter()
            .map(|Ability { name, detail, .. }| format!("{name}: {detail}"))
            .collect();
        (!told.is_empty()).then(|| format!("{} cannot run here: {}", stage.name, told.join("; ")))
    };
    let reasons: Vec<String> = configured.iter().filter_map(lacks).collect();
    if reasons.is_empty() {
        Ok(())
    } else {
        Err(Unsupported(reasons.join("; ")))
    }
}

/// Prints every change that `up` would make, as commands that a person can read.
fn dry_run(stages: Stages, state: &StateDirectory, configured: &[ConfiguredStage], output: &mut Output) -> Result<()> {
    let mut plans = Vec::new();
    for stage in configured {
        plans.push((stage.name.to_string(), stage.configured.plan()?));
    }
    plans.extend(put_back(stages, state, configured));
    if output.json {
        let stages: Vec<_> = plans
            .iter()
            .map(|(name, plan)| json!({"name": name, "commands": plan}))
            .collect();
        return output.json(&json!({ "stages": stages }));
    }
    for (name, plan) in plans {
        output.line(format_args!("# {name}"));
        if plan.is_empty() {
            output.line("# nothing to change");
        }
        plan.into_iter().for_each(|command| output.line(command));
    }
    Ok(())
}

/// What would be put back because it is no longer configured, as comments. Without the right to look there is none.
fn put_back(stages: Stages, state: &StateDirectory, configured: &[ConfiguredStage]) -> Vec<(String, Vec<String>)> {
    let Ok(journal) = Journal::of(stages, state) else {
        return Vec::new();
    };
    let others = journal
        .stages()
        .into_iter()
        .filter(|stage| configured.iter().all(|other| other.name != *stage));
    let plan_of = |stage: &str| {
        let changes = journal
            .changes(stage)
            .rev()
            .map(|(_, change)| format!("# put back: {}", journal.subject(stage, change)));
        (stage.to_string(), changes.collect())
    };
    others.map(plan_of).collect()
}

/// `tarn down`: ends the agent, puts back what the journal tells, newest first, and removes the state directory.
///
/// # Errors
/// When something could not be put back: the rest was, and another `tarn down` tries again.
pub fn down(frame: &Frame, output: &mut Output) -> Result<()> {
    let state = &frame.state;
    if !state.exists() {
        // Without the rights to it there is nothing that it could be about either.
        let _ = state.sweep();
        output.line("nothing is up in this network namespace");
        return Ok(());
    }
    (frame.rights)("down")?;
    let lock = state.lock_for("down")?;
    Journal::of(frame.stages, state)?;
    client::stop_agent(state)?;
    let mut journal = Journal::of(frame.stages, state)?;
    let nothing = journal.is_empty();
    let summary = journal.undo(None)?;
    for stage in frame.stages {
        if let Err(error) = stage.clean_up(state) {
            // What the kernel holds was put back, and the files go now.
            log_at(Priority::Warning, stage.name(), format!("{error:#}"));
        }
    }
    state.remove(&lock)?;
    if nothing {
        output.line("down: there was nothing to put back");
        return Ok(());
    }
    let left_alone = match summary.left_alone.len() {
        0 => String::new(),
        1 => "; 1 was changed by someone else since and left alone".to_string(),
        count => format!("; {count} were changed by someone else since and left alone"),
    };
    let changes = match summary.put_back + summary.gone {
        1 => "1 change".to_string(),
        count => format!("{count} changes"),
    };
    output.line(format_args!("down: {changes} put back{left_alone}"));
    Ok(())
}
