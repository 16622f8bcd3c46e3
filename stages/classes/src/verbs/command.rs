//! How the verbs are called.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Arg, ArgAction, Command, value_parser};

use crate::STAGE;
use crate::config::{HOLD_ROUNDS, target};
use crate::network::Network;
use tarn_base::time;
use tarn_base::wrong::Wrong;

const ADD_EXAMPLES: &str = "Examples:
  tarn classes add 192.0.2.7 gold --for 30m    what a login handler calls
  tarn classes add 2001:db8::/32 silver

The same addresses may be added again, with another class or another time. A
network may lie in another one: the longest prefix around a client decides.";

const IMPORT_EXAMPLES: &str = "The file's first line names its columns: address, and months or spending, as
[classes.import] in tarn.toml says. Nothing changes when a line is wrong,
unless --skip-wrong is given.

Examples:
  tarn classes import customers.csv --dry-run
  tarn classes import customers.csv
  tarn classes import customers.csv --replace    delete those not listed";

/// The verbs.
pub fn command() -> Command {
    let verb = |name: &'static str, about: &'static str| Command::new(name).about(about);
    let class = || Arg::new("CLASS").help("Its name, or its number from 0");
    let address = || {
        let help = "A network as in 192.0.2.0/24 or 2001:db8::/32, or one address";
        Arg::new("ADDRESS").required(true).value_parser(network).help(help)
    };
    Command::new(STAGE)
        .subcommand_required(true)
        .subcommand(verb("start", "Schedule requests again, after `stop`"))
        .subcommand(verb("stop", "Schedule no longer; what waits goes on to the service"))
        .subcommand(
            verb("reset", "Count anew").arg(
                Arg::new("clients")
                    .long("clients")
                    .action(ArgAction::SetTrue)
                    .help("Also forget the class of every client"),
            ),
        )
        .subcommand(verb("status", "The figures of every class"))
        .subcommand(
            verb("haproxy", "Print what HAProxy's configuration needs").arg(
                Arg::new("SERVICE").help("One with through = \"haproxy\"; may be left out where there is only one"),
            ),
        )
        .subcommand(
            verb("set-target", "Promise a class another share of answers in time")
                .arg(class().required(true))
                .arg(
                    Arg::new("PERCENT")
                        .required(true)
                        .value_parser(share)
                        .help("0.01 to 100"),
                ),
        )
        .subcommand(
            verb("set-deadline", "Set the deadline of a class, or of all")
                .allow_missing_positional(true)
                .arg(class().help("Its name or number; all classes when left out"))
                .arg(duration_argument("TIME").required(true).help("As in 4ms: 1us to 1h"))
                .arg(
                    Arg::new("service")
                        .long("service")
                        .value_name("NAME")
                        .help("At this service only"),
                ),
        )
        .subcommand(
            verb("set-hold", "Let requests gather before a choice")
                .arg(
                    duration_argument("TIME")
                        .required_unless_present("rounds")
                        .help("As in 200us: at most 1s"),
                )
                .arg(
                    Arg::new("rounds")
                        .long("rounds")
                        .value_name("N")
                        .value_parser(value_parser!(u32).range(*HOLD_ROUNDS.start()..=*HOLD_ROUNDS.end()))
                        .conflicts_with("TIME")
                        .help("For so many rounds of the dispatcher instead"),
                ),
        )
        .subcommand(
            verb("add", "Give a client, or a network of them, a class")
                .after_help(ADD_EXAMPLES)
                .arg(address())
                .arg(class().required(true))
                .arg(
                    duration_argument("for")
                        .long("for")
                        .value_name("TIME")
                        .help("How long, as in 30m, from 1s on; until `delete` or `tarn down` when left out"),
                ),
        )
        .subcommand(
            verb(
                "delete",
                "Take a client's class away: it gets its network's, or the last one",
            )
            .arg(address()),
        )
        .subcommand(verb("find", "Show an address's class, and why").arg(address().help("An address of a client")))
        .subcommand(verb("list", "Show every client that has a class"))
        .subcommand(import_command())
}

fn import_command() -> Command {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new("import")
        .about("Give classes to customers from a table, by the rule in tarn.toml")
        .after_help(IMPORT_EXAMPLES)
        .arg(
            Arg::new("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Comma-separated values; - is the standard input"),
        )
        .arg(flag("dry-run", "Show what would become of it, and change nothing"))
        .arg(flag("skip-wrong", "Leave wrong lines out instead of refusing the file"))
        .arg(
            flag(
                "replace",
                "Also remove clients that have no line; keep those of tarn.toml, and of `add --for`",
            )
            .conflicts_with("skip-wrong"),
        )
}

fn duration_argument(name: &'static str) -> Arg {
    Arg::new(name).value_parser(time::parse)
}

fn network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|wrong: Wrong| wrong.to_string())
}

fn share(text: &str) -> Result<u32, String> {
    let found = text.trim_end_matches('%').parse().ok().and_then(target);
    found.ok_or_else(|| "write the percent of answers to be in time: 0.01 to 100".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::ArgMatches;

    use super::*;

    fn parsed(line: &str) -> Result<ArgMatches, clap::Error> {
        command().try_get_matches_from(std::iter::once("classes").chain(line.split_whitespace()))
    }

    /// What scripts and login handlers call.
    #[test]
    fn every_verb_is_understood() {
        command().debug_assert();
        for line in [
            "start",
            "stop",
            "reset --clients",
            "status",
            "set-target gold 95",
            "set-target 0 99.9%",
            "set-deadline 4ms",
            "set-deadline gold 4ms",
            "set-deadline 4ms --service web",
            "set-hold 200us",
            "set-hold --rounds 5",
            "add 192.0.2.7 gold --for 30m",
            "delete 2001:db8::/32",
            "find 192.0.2.7",
            "list",
            "import customers.csv --dry-run",
            "import customers.csv --replace",
        ] {
            assert!(parsed(line).is_ok(), "{line}: {}", parsed(line).unwrap_err());
        }
        for line in [
            "",
            "set-target gold 101",
            "set-hold",
            "set-hold 1ms --rounds 2",
            "add gold 192.0.2.7",
            "set-hold --rounds 1001",
            "import customers.csv --replace --skip-wrong",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_deadline_is_for_all_classes_or_for_one() {
        let found = |line: &str| {
            let matches = parsed(line).unwrap();
            let matches = matches.subcommand_matches("set-deadline").unwrap().clone();
            (
                matches.get_one::<String>("CLASS").cloned(),
                matches.get_one::<Duration>("TIME").copied().unwrap(),
            )
        };
        assert_eq!(found("set-deadline 4ms"), (None, Duration::from_millis(4)));
        assert_eq!(
            found("set-deadline gold 4ms"),
            (Some("gold".to_owned()), Duration::from_millis(4))
        );
    }
}
