//! `tarn reassembly status|top|set`.

use anyhow::Result;
use clap::builder::EnumValueParser;
use clap::{Arg, ArgMatches, Command, value_parser};

use super::known::{Known, stopped};
use super::module::Module;
use super::top::{self, By};
use super::{STAGE, figures};
use tarn_base::error::Usage;
use tarn_base::figures::Figures;
use tarn_base::output::Output;
use tarn_frame::up;

mod set;

/// As many sources are shown by default; the kernel tells at most 512.
const COUNT: &str = "20";

const TOP_COLUMNS: &str = "Columns: the source, which is an IPv4 address or the first 64 bits of an IPv6
address; the memory that its fragments take, and how much of `memory` that is;
its datagrams that are not complete; those that were discarded since it was
first noticed; whether a datagram of it was completed within the last minute.";

/// The verbs.
pub fn command() -> Command {
    let by = Arg::new("by")
        .long("by")
        .value_name("WHAT")
        .value_parser(EnumValueParser::<By>::new())
        .default_value("memory")
        .help("Those first that hold most memory, or whose datagrams failed most");
    let count = Arg::new("count")
        .long("count")
        .value_name("NUMBER")
        .value_parser(value_parser!(u32).range(1..=512))
        .default_value(COUNT)
        .help("How many");
    Command::new(STAGE)
        .subcommand_required(true)
        .subcommand(Command::new("status").about("What is held, and what became of fragments and datagrams"))
        .subcommand(
            Command::new("top")
                .about("The sources that hold most memory, or whose datagrams failed most")
                .after_help(TOP_COLUMNS)
                .arg(by)
                .arg(count),
        )
        .subcommand(set::command())
}

/// Carries out a verb.
///
/// # Errors
/// What failed, and what to do about it.
pub fn execute(verb: &str, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    match verb {
        "status" => up::find(STAGE, verb, figures::read)?.1.answer(output),
        "top" => top(matches, output),
        "set" => set::execute(matches, output),
        other => Err(Usage(format!("there is no verb {other}: `tarn reassembly --help` lists them")).into()),
    }
}

/// Shows the sources that matter most.
fn top(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    up::find(STAGE, "top", Known::load)?;
    let by = matches.get_one::<By>("by").copied().unwrap_or(By::Memory);
    let count = matches.get_one::<u32>("count").copied().unwrap_or_default();
    let mut module = Module::loaded()?;
    let running = module.state()?.ok_or_else(stopped)?;
    let sources = top::ordered(module.sources()?, by, count as usize);
    let table = top::table(&sources, &running.settings);
    if output.json {
        return Figures {
            tables: vec![table],
            ..Figures::default()
        }
        .answer(output);
    }
    match (sources.is_empty(), by) {
        (false, _) => output.table(&table.table()),
        (true, By::Memory) => output.line("no fragments are held"),
        (true, By::Failures) => output.line("no source is known whose datagrams failed"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<ArgMatches, clap::Error> {
        command().try_get_matches_from(std::iter::once(STAGE).chain(line.split_whitespace()))
    }

    /// What scripts and programs call.
    #[test]
    fn every_verb_is_understood() {
        command().debug_assert();
        for line in [
            "status",
            "top",
            "top --by failures --count 512",
            "set memory=16MiB timeout=2s",
        ] {
            assert!(parsed(line).is_ok(), "{line}: {}", parsed(line).unwrap_err());
        }
        for line in ["", "top --by age", "top --count 0", "top --count 513", "set"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn help_fits_a_terminal() {
        for verb in command().get_subcommands_mut() {
            let help = verb.render_long_help().to_string();
            let wide = help.lines().find(|line| line.len() > 80);
            assert!(wide.is_none(), "{wide:?}");
        }
    }
}
