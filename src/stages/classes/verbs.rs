//! `tarn classes start|stop|reset|status|set-target|set-deadline|set-hold|add|delete|list|import`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;

use super::clients::{self, Change, Client};
use super::config::{Config, DEADLINE, HOLD, HOLD_ROUNDS, percent, target};
use super::import::{Plan, plan};
use super::known::Known;
use super::module::{Module, Settings};
use super::network::Network;
use super::{STAGE, figures, service, time};
use crate::agent;
use crate::error::Usage;
use crate::kernel::features::require_root;
use crate::kernel::modules;
use crate::output::{Align, Output, Table};
use crate::state::{Lock, StateDirectory};

const ADD_EXAMPLES: &str = "Examples:
  tarn classes add 192.0.2.7 gold --for 30m    what a login handler calls
  tarn classes add 2001:db8::/32 silver

The same addresses may be added again, with another class or another time. A
client has one class: what overlaps with a network that has one is refused.";

const IMPORT_EXAMPLES: &str = "The file's first line names its columns: address, and months or spending, as
[classes.import] in tarn.toml says. Nothing changes when a line is wrong,
unless --skip-wrong is given.

Examples:
  tarn classes import customers.csv --dry-run
  tarn classes import customers.csv";

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
                .arg(duration_argument("TIME").required(true).help("As in 4ms: 1us to 1h")),
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
                        .help("How long, as in 30m; until `delete` or `tarn down` when left out"),
                ),
        )
        .subcommand(verb("delete", "Take a client's class away: it gets the last one").arg(address()))
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
}

fn duration_argument(name: &'static str) -> Arg {
    Arg::new(name).value_parser(time::parse)
}

fn network(text: &str) -> Result<Network, String> {
    text.parse()
        .map_err(|wrong: super::network::NoNetwork| wrong.to_string())
}

fn share(text: &str) -> Result<u32, String> {
    let found = text.trim_end_matches('%').parse().ok().and_then(target);
    found.ok_or_else(|| "write the percent of answers to be in time: 0.01 to 100".to_owned())
}

/// Carries out a verb.
///
/// # Errors
/// What failed, and what to do about it.
pub fn execute(verb: &str, matches: &ArgMatches, output: &mut Output) -> Result<()> {
    match verb {
        "start" => start(output),
        "stop" => stop(output),
        "reset" => reset(matches, output),
        "status" => status(output),
        "set-target" => set_target(matches, output),
        "set-deadline" => set_deadline(matches, output),
        "set-hold" => set_hold(matches, output),
        "add" => add(matches, output),
        "delete" => delete(matches, output),
        "list" => list(output),
        "import" => import(matches, output),
        other => Err(Usage(format!("there is no verb {other}: `tarn classes --help` lists them")).into()),
    }
}

/// What is up.
struct Up {
    state: StateDirectory,
    known: Known,
}

impl Up {
    fn find(verb: &str) -> Result<Self> {
        require_root(&format!("{STAGE} {verb}"))?;
        let state = StateDirectory::of_this_namespace()?;
        let known = Known::load(&state)?.ok_or_else(not_up)?;
        Ok(Self { state, known })
    }

    /// What is up, to be changed: with the lock held, looked at again under it.
    fn lock(verb: &str) -> Result<(Self, Lock)> {
        let Self { state, .. } = Self::find(verb)?;
        let lock = state.lock_for(&format!("{STAGE} {verb}"))?;
        match Known::load(&state)? {
            Some(known) => Ok((Self { state, known }, lock)),
            None => {
                agent::tidy(&state, &lock)?;
                Err(not_up())
            }
        }
    }

    fn class(&self, matches: &ArgMatches) -> Result<Option<usize>> {
        let Some(text) = matches.get_one::<String>("CLASS") else {
            return Ok(None);
        };
        let names = || {
            self.known
                .config
                .classes
                .iter()
                .map(|class| class.name.as_str())
                .collect::<Vec<_>>()
        };
        let unknown = || Usage(format!("there is no class '{text}'; there are {}", names().join(", ")));
        Ok(Some(self.known.config.class(text).ok_or_else(unknown)?))
    }

    /// Changes a setting in the kernel, if classes run, and for the next `start`.
    fn change(&mut self, change: impl FnOnce(&mut Config), settings: impl FnOnce(Settings) -> Settings) -> Result<()> {
        change(&mut self.known.config);
        if modules::is_loaded(super::module::FAMILY.0) {
            let mut module = service::loaded()?;
            if module.state()?.is_some() {
                module.set(&settings(self.known.config.settings()))?;
            }
        }
        self.known.save(&self.state)
    }
}

fn not_up() -> anyhow::Error {
    anyhow!("classes are not up here: `tarn up` with a section [classes] brings them up")
}

fn tell(output: &mut Output, json: &serde_json::Value, text: impl std::fmt::Display) -> Result<()> {
    if output.json {
        return output.json(json);
    }
    output.line(text);
    Ok(())
}

fn start(output: &mut Output) -> Result<()> {
    let (up, _lock) = Up::lock("start")?;
    let mut module: Module = service::loaded()?;
    let ran = module.state()?.is_some();
    service::configure(&mut module, &up.known.config)?;
    let text = if ran {
        "requests are scheduled already"
    } else {
        "requests are scheduled"
    };
    tell(output, &json!({ "started": !ran }), text)
}

fn stop(output: &mut Output) -> Result<()> {
    let (_up, _lock) = Up::lock("stop")?;
    let ran = service::loaded()?.stop()?;
    let text = match ran {
        true => "requests are not scheduled any more; what waited has gone on to the service",
        false => "requests are not scheduled; `tarn classes start` begins again",
    };
    tell(output, &json!({ "stopped": ran }), text)
}

fn reset(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let (mut up, _lock) = Up::lock("reset")?;
    let mut module = service::loaded()?;
    if module.state()?.is_some() {
        module.reset()?;
    }
    let clients = matches.get_flag("clients");
    if clients {
        clients::forget_all()?;
        up.known.networks.clear();
        up.known.save(&up.state)?;
    }
    let text = match clients {
        true => "counters begin at 0, and every client is of the last class",
        false => "counters begin at 0",
    };
    tell(output, &json!({ "reset": true, "clients": clients }), text)
}

fn status(output: &mut Output) -> Result<()> {
    let up = Up::find("status")?;
    let figures = figures::read(&up.state)?.ok_or_else(not_up)?;
    if output.json {
        return output.json(&figures.json());
    }
    output.table(&figures.table());
    for table in &figures.tables {
        output.line(format_args!("\n{}", table.about));
        output.table(&table.table());
    }
    Ok(())
}

fn only_classes(settings: Settings) -> Settings {
    Settings {
        classes: settings.classes,
        ..Settings::default()
    }
}

fn set_target(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let (mut up, _lock) = Up::lock("set-target")?;
    let class = up.class(matches)?.unwrap_or_default();
    let target = matches.get_one::<u32>("PERCENT").copied().unwrap_or_default();
    up.change(|config| config.classes[class].target = target, only_classes)?;
    let name = up.known.name(class);
    let text = format!("class {name}: {} % of answers are to be in time", percent(target));
    tell(output, &json!({ "class": name, "target": percent(target) }), text)
}

fn set_deadline(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let deadline = duration(matches, "TIME", &DEADLINE)?;
    let (mut up, _lock) = Up::lock("set-deadline")?;
    let class = up.class(matches)?;
    let set = |config: &mut Config| {
        let chosen = config
            .classes
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| class.is_none_or(|class| class == *index));
        chosen.for_each(|(_, class)| class.deadline = deadline);
    };
    up.change(set, only_classes)?;
    let (name, shown) = (class.map(|class| up.known.name(class)), time::text(deadline));
    let text = match &name {
        Some(name) => format!("class {name}: answers are in time within {shown}"),
        None => format!("all classes: answers are in time within {shown}"),
    };
    tell(output, &json!({ "class": name, "deadline": shown }), text)
}

fn duration(matches: &ArgMatches, name: &str, range: &std::ops::RangeInclusive<Duration>) -> Result<Duration> {
    let found = matches.get_one::<Duration>(name).copied().unwrap_or_default();
    if range.contains(&found) {
        return Ok(found);
    }
    let (least, most) = (time::text(*range.start()), time::text(*range.end()));
    Err(Usage(format!(
        "{} is out of range: write {least} to {most}",
        time::text(found)
    ))
    .into())
}

fn set_hold(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let rounds = matches.get_one::<u32>("rounds").copied().unwrap_or_default();
    let hold = duration(matches, "TIME", &HOLD)?;
    let (mut up, _lock) = Up::lock("set-hold")?;
    let set = |config: &mut Config| (config.hold, config.hold_rounds) = (hold, rounds);
    up.change(set, |settings| Settings {
        hold: settings.hold,
        hold_rounds: settings.hold_rounds,
        ..Settings::default()
    })?;
    let text = match rounds {
        0 => format!("requests gather for {}", time::text(hold)),
        rounds => format!("requests gather for {rounds} rounds of the dispatcher"),
    };
    tell(output, &json!({ "hold": time::text(hold), "rounds": rounds }), text)
}

fn address(matches: &ArgMatches) -> Result<Network> {
    matches
        .get_one::<Network>("ADDRESS")
        .copied()
        .context("an address is missing")
}

fn add(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let (mut up, _lock) = Up::lock("add")?;
    let client = Client {
        network: address(matches)?,
        class: up.class(matches)?.unwrap_or_default(),
        timeout: matches.get_one::<Duration>("for").copied(),
    };
    let change = Change {
        add: vec![client],
        ..Change::default()
    };
    change.apply()?;
    up.taken_over(&change)?;
    let name = up.known.name(client.class);
    let shown = client.timeout.map(time::text);
    let lasting = shown.as_ref().map(|time| format!(" for {time}")).unwrap_or_default();
    let json = json!({ "network": client.network, "class": name, "for": shown });
    tell(
        output,
        &json,
        format_args!("{} is of class {name}{lasting}", client.network),
    )
}

impl Up {
    /// What is changed by command is no longer the file's.
    fn taken_over(&mut self, change: &Change) -> Result<()> {
        let changed = change.add.iter().chain(&change.remove);
        let changed: HashSet<Network> = changed.map(|client| client.network).collect();
        let before = self.known.networks.len();
        self.known.networks.retain(|(network, _)| !changed.contains(network));
        if self.known.networks.len() == before {
            return Ok(());
        }
        self.known.save(&self.state)
    }
}

fn delete(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let network = address(matches)?;
    let (mut up, _lock) = Up::lock("delete")?;
    let class = match clients::class_at(network.first)? {
        Some((first, class)) if first == network.first => class,
        Some((first, class)) => {
            let name = up.known.name(class);
            let text = format!("{network} lies in a network of class {name} that begins at {first}: delete that one");
            return Err(Usage(text).into());
        }
        None => {
            let text = format!("{network} has no class of its own: `tarn classes list` shows those that have one");
            return Err(Usage(text).into());
        }
    };
    let change = Change {
        remove: vec![Client {
            network,
            class,
            timeout: None,
        }],
        ..Change::default()
    };
    change.apply()?;
    up.taken_over(&change)?;
    let name = up.known.name(class);
    tell(
        output,
        &json!({ "network": network, "class": name }),
        format_args!("{network} is no longer of class {name}"),
    )
}

fn list(output: &mut Output) -> Result<()> {
    let up = Up::find("list")?;
    let clients = clients::all()?;
    let left = |client: &Client| client.timeout.map(|left| left.as_secs());
    if output.json {
        let described = |client: &Client| json!({ "network": client.network, "class": up.known.name(client.class), "left_s": left(client) });
        let clients: Vec<_> = clients.iter().map(described).collect();
        return output.json(&json!({ "clients": clients }));
    }
    if clients.is_empty() {
        output.line("no client has a class: all are of the last one");
        return Ok(());
    }
    let mut table = Table::new(&[
        ("NETWORK", Align::Left),
        ("CLASS", Align::Left),
        ("LEFT (s)", Align::Right),
    ]);
    for client in &clients {
        let left = left(client).map_or_else(|| "-".to_owned(), |left| left.to_string());
        table.row([client.network.to_string(), up.known.name(client.class), left]);
    }
    output.table(&table);
    Ok(())
}

fn import(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let path = matches.get_one::<PathBuf>("FILE").context("a file is missing")?;
    let is_dry = matches.get_flag("dry-run");
    let text = match path.as_os_str().to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    let text = text.map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    let (mut up, _lock) = Up::lock("import")?;
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
    let change = Change {
        add: plan
            .clients
            .into_iter()
            .map(|(network, class)| Client {
                network,
                class,
                timeout: None,
            })
            .collect(),
        ..Change::default()
    };
    change.apply()?;
    up.taken_over(&change)
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

#[cfg(test)]
mod tests {
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
            "set-hold 200us",
            "set-hold --rounds 5",
            "add 192.0.2.7 gold --for 30m",
            "delete 2001:db8::/32",
            "list",
            "import customers.csv --dry-run",
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
                duration(&matches, "TIME", &DEADLINE).unwrap(),
            )
        };
        assert_eq!(found("set-deadline 4ms"), (None, Duration::from_millis(4)));
        assert_eq!(
            found("set-deadline gold 4ms"),
            (Some("gold".to_owned()), Duration::from_millis(4))
        );
    }
}
