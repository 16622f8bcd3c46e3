//! `tarn init`: a commented `tarn.toml` for this host, stage by stage with the reason.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tarn_base::error::{Usage, paragraph};
use tarn_base::output::{Align, Output, Table, printable};
use tarn_frame::configuration::{self, DEFAULT_PATH};
use tarn_frame::state::StateDirectory;
use tarn_frame::survey::{Profile, Proposal, Survey};
use tarn_frame::{Ability, Stage, Stages};

use tarn_watch::Frame;

mod file;

/// The width of the file's lines.
const WIDTH: usize = 80;

/// What was asked for.
pub struct Options {
    /// The host's, where somebody has said it.
    pub profile: Option<Profile>,
    /// Where the file goes; `-` for standard output.
    pub path: PathBuf,
    /// Whether a configuration that is there is replaced.
    pub replaces: bool,
}

/// `tarn init`: writes the file, and says what is in it. Changes nothing else.
///
/// # Errors
/// [`Usage`] where there is a configuration already, or no regular file; a kernel that does not answer; a file that cannot be written.
pub fn init(frame: &Frame, options: &Options, output: &mut Output) -> Result<()> {
    (frame.rights)("init")?;
    let is_printed = options.path == Path::new("-");
    if !is_printed {
        refuse_to_replace(options, frame.stages)?;
    }
    let survey = Survey::of_this_host(options.profile)?;
    let proposals: Vec<(&'static str, Proposal)> = frame
        .stages
        .iter()
        .map(|stage| (stage.name(), possible(*stage, &frame.state, stage.propose(&survey))))
        .collect();
    let text = text(&survey, &proposals);
    if is_printed {
        output.line(text.trim_end());
        return Ok(());
    }
    let kept = file::replace(&options.path, &text)?;
    tell(&options.path, &survey, &proposals, output);
    if let Some(kept) = kept {
        output.line(format!("the file that was there is {} now", kept.display()));
    }
    Ok(())
}

/// Somebody has written what is there, unless it is only comments.
fn refuse_to_replace(options: &Options, stages: Stages) -> Result<(), Usage> {
    let path = &options.path;
    let refused = |why: &str| Err(Usage(format!("{} {why}", path.display())));
    let is_link = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return refused(&format!("cannot be looked at: {error}")),
        Ok(found) => found.is_symlink(),
    };
    // In a directory that everybody may write to, somebody else may have made the link.
    if is_link && !options.replaces {
        return refused("is a symbolic link: name the file that it leads to, or replace that with --force");
    }
    let found = match path.metadata() {
        Err(error) => return refused(&format!("is a symbolic link that cannot be followed: {error}")),
        Ok(found) => found,
    };
    if !found.is_file() {
        return refused("is not a regular file: name a file with -o, or print the configuration with -o -");
    }
    if options.replaces {
        return Ok(());
    }
    let text = configuration::read(path)?;
    match configuration::parse(&text, path, stages) {
        Ok(configuration) if configuration.is_empty() => Ok(()),
        Ok(_) => refused("already configures tarn: name another file with -o, or replace it with --force"),
        Err(_) => refused("is there and has mistakes: name another file with -o, or replace it with --force"),
    }
}

/// The proposal, or the same commented out where this host cannot run it.
fn possible(stage: &dyn Stage, state: &StateDirectory, proposal: Proposal) -> Proposal {
    let hindrance = match proposal.is_proposed {
        true => hindrance(stage, state, &proposal.section),
        false => None,
    };
    match hindrance {
        None => proposal,
        Some(why) => Proposal {
            reason: format!(
                "{} This host cannot run it now: {}.",
                proposal.reason,
                why.trim_end_matches('.')
            ),
            is_proposed: false,
            ..proposal
        },
    }
}

/// Why this host cannot do what a section configures, as `tarn up` would find out.
fn hindrance(stage: &dyn Stage, state: &StateDirectory, section: &str) -> Option<String> {
    let configured = match configuration::parse(section, Path::new("proposal"), &[stage]) {
        Ok(configuration) => configuration.stages,
        Err(errors) => return Some(errors.to_string()),
    };
    let lack = |ability: Ability| format!("{}: {}", ability.name, ability.detail);
    configured.iter().find_map(|stage| {
        let configured = &stage.configured;
        let missing = configured.missing().into_iter().next().map(lack);
        let refused = || configured.plan().and_then(|_| configured.fits(state)).err();
        missing.or_else(|| refused().map(|error| paragraph(&error)))
    })
}

/// The whole file.
fn text(survey: &Survey, proposals: &[(&str, Proposal)]) -> String {
    let mut text = String::new();
    comment(
        &format!("Configuration for this host. {}", described(survey)),
        &mut text,
    );
    comment(
        concat!(
            "Commented sections are examples; a stage runs if it has a section. docs/configuration.md has every key. ",
            "Written by tarn ",
            env!("CARGO_PKG_VERSION"),
            "; `tarn init --force` writes it anew."
        ),
        &mut text,
    );
    for (name, proposal) in proposals {
        // Nothing can fail that is written to a text.
        let _ = write!(text, "\n# --- {name} {:-<1$}\n", "", WIDTH - 7 - name.len());
        comment(&printable(&proposal.reason), &mut text);
        text.push('\n');
        for line in proposal.section.lines() {
            let mark = match (proposal.is_proposed, line.is_empty()) {
                (true, _) => "",
                (false, true) => "#",
                (false, false) => "# ",
            };
            text += mark;
            text += line;
            text.push('\n');
        }
    }
    text
}

/// What was found on the host, a sentence each. The names of devices are somebody else's text.
fn described(survey: &Survey) -> String {
    let profile = match survey.seems {
        Some(why) => format!("It looks like a {}: {why}. Use --profile to override.", survey.profile),
        None => format!("Its profile is {}.", survey.profile),
    };
    let names: Vec<&str> = survey.uplinks.iter().map(|uplink| uplink.device.as_str()).collect();
    let uplinks = match names.is_empty() {
        true => "It has no default route.".to_owned(),
        false => format!("Default routes lead by {}.", names.join(", ")),
    };
    let ports: Vec<String> = survey.ports.iter().take(16).map(ToString::to_string).collect();
    let more = if survey.ports.len() > ports.len() { ", ..." } else { "" };
    let ports = match ports.is_empty() {
        true => "No program listens for other hosts.".to_owned(),
        false => format!("Programs listen on {}{more}.", ports.join(", ")),
    };
    printable(&format!("{profile} {uplinks} {ports}"))
}

/// Appends a comment, in lines that fit.
fn comment(words: &str, text: &mut String) {
    let mut length = 0;
    for word in words.split_whitespace() {
        if length > 0 && length + 1 + word.chars().count() > WIDTH {
            text.push('\n');
            length = 0;
        }
        if length == 0 {
            text.push('#');
            length = 1;
        }
        text.push(' ');
        text.push_str(word);
        length += 1 + word.chars().count();
    }
    text.push('\n');
}

/// Says what the file has, and what comes next.
fn tell(path: &Path, survey: &Survey, proposals: &[(&str, Proposal)], output: &mut Output) {
    let mut table = Table::new(&[("STAGE", Align::Left), ("", Align::Left), ("WHY", Align::Left)]);
    for (name, proposal) in proposals {
        let state = if proposal.is_proposed { "on" } else { "off" };
        table.row([(*name).to_owned(), state.to_owned(), proposal.reason.clone()]);
    }
    output.line(format!("{}: {}", path.display(), described(survey)));
    output.table(&table);
    let file = match path == Path::new(DEFAULT_PATH) {
        true => String::new(),
        false => format!(" -c {}", path.display()),
    };
    let is_any = proposals.iter().any(|(_, proposal)| proposal.is_proposed);
    let first = if is_any { "read it" } else { "choose a stage in it" };
    output.line(format!(
        "next: {first}, then `tarn up --dry-run{file}` and `tarn up{file}`"
    ));
}

#[cfg(test)]
mod tests;
