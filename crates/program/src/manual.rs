//! What a package ships of the command line: man pages and completions. Both are made of the command tree, so that they cannot disagree
//! with the program.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Roff, bold, italic, roman};
use tarn_base::output::Output;
use tarn_frame::configuration::DEFAULT_PATH;

#[cfg(test)]
mod tests;

/// The section for programs of system administrators, see man-pages(7).
const SECTION: &str = "8";

const COMPLETIONS: &str = "completions";
const PAGES: &str = "man-pages";

const COMPLETIONS_HELP: &str = "\
A package has installed them already. For a shell that has none:

Examples:
  tarn completions bash >~/.local/share/bash-completion/completions/tarn
  tarn completions zsh >~/.zfunc/_tarn    with ~/.zfunc in fpath
  tarn completions fish >~/.config/fish/completions/tarn.fish";

/// The verb `completions`.
pub fn completions_command() -> Command {
    let shell = Arg::new("shell")
        .value_name("SHELL")
        .required(true)
        .value_parser(value_parser!(Shell));
    Command::new(COMPLETIONS)
        .about("Print completions for a shell")
        .arg(shell)
        .after_help(COMPLETIONS_HELP)
}

/// The verb `man-pages`, for `make install` and packages only.
pub fn pages_command() -> Command {
    let directory = Arg::new("directory")
        .value_name("DIRECTORY")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("Where to write them; made when it is missing");
    Command::new(PAGES)
        .about("Write a man page for each verb")
        .arg(directory)
        .hide(true)
}

/// Carries out one of these verbs for a program with the verbs that `tree` has; `None` for another one.
///
/// # Errors
/// When files cannot be written.
pub fn execute(tree: Command, verb: &str, matches: &ArgMatches, output: &mut Output) -> Option<Result<()>> {
    match verb {
        COMPLETIONS => {
            let shell = matches.get_one("shell").copied()?;
            output.line(completions(tree, shell).trim_end());
            Some(Ok(()))
        }
        PAGES => Some(write_pages(tree, matches.get_one::<PathBuf>("directory")?)),
        _ => None,
    }
}

fn completions(mut tree: Command, shell: Shell) -> String {
    let mut script = Vec::new();
    let name = tree.get_name().to_owned();
    clap_complete::generate(shell, &mut tree, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn write_pages(tree: Command, directory: &Path) -> Result<()> {
    let context = || format!("cannot write man pages to {}", directory.display());
    fs::create_dir_all(directory).with_context(context)?;
    // Each page lists its own verbs; `help` says the same on a terminal.
    let mut tree = tree.disable_help_subcommand(true);
    tree.build();
    let version = tree.get_version().unwrap_or_default().to_owned();
    pages(&tree, &version)
        .iter()
        .try_for_each(|page| fs::write(directory.join(&page.name), &page.text))
        .with_context(context)
}

/// A man page: its file's name and its source for troff(1).
struct Page {
    name: String,
    text: Vec<u8>,
}

/// The pages of a verb and of those below it.
fn pages(command: &Command, version: &str) -> Vec<Page> {
    let shown = |below: &&Command| !below.is_hide_set();
    let mut all = vec![page(command, version)];
    for below in command.get_subcommands().filter(shown) {
        all.extend(pages(below, version));
    }
    all
}

fn page(command: &Command, version: &str) -> Page {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned();
    let mut text = Vec::new();
    // A vector takes everything.
    let _ = render(&name, command, version, &mut text);
    Page {
        name: format!("{name}.{SECTION}"),
        text,
    }
}

fn render(name: &str, command: &Command, version: &str, text: &mut dyn Write) -> std::io::Result<()> {
    let man = Man::new(command.clone()).section(SECTION);
    // An empty date has to stand there: without it, what follows is taken for the date.
    writeln!(
        text,
        ".TH \"{name}\" {SECTION} \"\" \"tarn {version}\" \"System Administration\""
    )?;
    man.render_name_section(text)?;
    synopsis(command).to_writer(text)?;
    if command.get_long_about().is_some() {
        man.render_description_section(text)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(text)?;
    }
    man.render_options_section(text)?;
    let mut roff = Roff::new();
    notes(
        &mut roff,
        &command.get_after_help().map(ToString::to_string).unwrap_or_default(),
    );
    if !command.get_display_name().unwrap_or_default().contains('-') {
        files(&mut roff);
    }
    see_also(&mut roff, command);
    roff.to_writer(text)
}

/// The line that `--help` has. The options' values are shown where the options are described.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for line in usage.trim_start_matches("Usage:").lines().map(str::trim) {
        let rest = line.strip_prefix(name).unwrap_or(line);
        roff.text([bold(name), roman(rest)]);
        roff.control("br", []);
    }
    roff
}

/// The text behind a verb's options. A paragraph with a title, as `Examples:`, is a section; the others are notes.
fn notes(roff: &mut Roff, text: &str) {
    let title = |paragraph: &&str| first_line(paragraph).is_some_and(|line| line.ends_with(':') && !line.contains(' '));
    let paragraphs = text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty());
    let (sections, notes): (Vec<&str>, Vec<&str>) = paragraphs.partition(title);
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
    }
    for paragraph in notes {
        roff.control("PP", []);
        lines(roff, paragraph.lines());
    }
    for section in sections {
        let title = first_line(section).unwrap_or_default().trim_end_matches(':');
        roff.control("SH", [title.to_uppercase().as_str()]);
        lines(roff, section.lines().skip(1));
    }
}

fn first_line(paragraph: &str) -> Option<&str> {
    paragraph.lines().next()
}

/// Running text is filled; indented lines stand as they are.
fn lines<'a>(roff: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    for line in lines {
        let Some(literal) = line.strip_prefix("  ") else {
            roff.text([roman(line)]);
            continue;
        };
        roff.control("nf", []);
        roff.text([roman(literal)]);
        roff.control("fi", []);
    }
}

fn files(roff: &mut Roff) {
    let files = [
        (DEFAULT_PATH, "The configuration, one section a stage."),
        (
            "/run/tarn/",
            "What tarn changed and how to put it back, one directory a network namespace; for root alone.",
        ),
    ];
    roff.control("SH", ["FILES"]);
    for (path, about) in files {
        roff.control("TP", []);
        roff.text([italic(path)]);
        roff.text([roman(about)]);
    }
}

/// The page above this one, or what else an administrator reads.
fn see_also(roff: &mut Roff, command: &Command) {
    let name = command.get_display_name().unwrap_or_default();
    let others = match name.rsplit_once('-') {
        Some((above, _)) => vec![(above, SECTION)],
        None => vec![("nft", "8"), ("tc", "8"), ("ip-netns", "8"), ("bpftool", "8")],
    };
    roff.control("SH", ["SEE ALSO"]);
    let last = others.len() - 1;
    let reference = |(index, (page, section)): (usize, (&str, &str))| {
        let comma = if index < last { ", " } else { "" };
        [bold(page), roman(format!("({section}){comma}"))]
    };
    roff.text(others.into_iter().enumerate().flat_map(reference).collect::<Vec<_>>());
}
