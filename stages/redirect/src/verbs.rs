//! `tarn redirect add|del|list|status`.

use std::collections::{BTreeMap, HashSet};
use std::io::BufRead;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use super::STAGE;
use super::carrier::{Carrier, Counters};
use super::choice::Choice;
use super::figures;
use super::forwarding;
use super::listeners;
use super::parse::{self, Mistake, Written};
use super::rule::{Match, Origin, Rule};
use super::store::Store;
use tarn_base::error::Usage;
use tarn_base::output::Output;
use tarn_base::runtime::monotonic_ns;
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_frame::up;

const ADD_EXAMPLES: &str = "Examples:
  tarn redirect add udp 192.168.64.2:8080 10.0.1.2:8083
  tarn redirect add tcp 0.0.0.0:8000-8100 10.0.1.2:9000-9100
  tarn redirect add tcp,udp [fd00::1]:53 [fd00::2] --source fd00::/8
  tarn redirect add --replace udp 192.168.64.2:8080 10.0.1.3:8083
  tarn redirect add --file rules.txt

0.0.0.0 and [::] stand for any address of this host. A file has a rule a line,
as on the command line (without options but --source), and comments behind #;
'-' is the standard input. --replace leads a rule that is there elsewhere,
under traffic; rules that are the same already stay.";

const DEL_EXAMPLES: &str = "Examples:
  tarn redirect del 3 4
  tarn redirect del --from 192.168.64.2:8080 --protocol udp
  tarn redirect del --all";

/// The verbs.
pub fn command() -> Command {
    Command::new(STAGE)
        .subcommand_required(true)
        .subcommand(add_command())
        .subcommand(del_command())
        .subcommand(Command::new("list").about("Show the rules and what they have carried"))
        .subcommand(Command::new("status").about("What all rules have carried, what works, and what happened"))
}

fn add_command() -> Command {
    let word = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .value_name(name)
            .help(help)
            .required_unless_present("file")
    };
    Command::new("add")
        .about("Add rules; they stay until `del` or `tarn down`")
        .override_usage("tarn redirect add [OPTIONS] PROTOCOL FROM TO\n       tarn redirect add [OPTIONS] --file FILE")
        .after_help(ADD_EXAMPLES)
        .arg(word("PROTOCOL", "udp, tcp, or tcp,udp"))
        .arg(word(
            "FROM",
            "Address and port, or range of ports, that clients speak to",
        ))
        .arg(word(
            "TO",
            "Address where their packets go; with a port, a range, or neither",
        ))
        .arg(option("source", "PREFIX", "Only for these clients"))
        .arg(option("note", "TEXT", "A line of text, shown by `list`"))
        .arg(flag("replace", "Take the place of a rule for the same packets"))
        .arg(flag(
            "over-listeners",
            "Also take ports of a range that programs of this host listen on",
        ))
        .arg(
            option("file", "FILE", "Read rules from a file, all or none")
                .short('f')
                .value_parser(value_parser!(PathBuf))
                .conflicts_with_all(["PROTOCOL", "source", "note"]),
        )
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn del_command() -> Command {
    Command::new("del")
        .about("Delete rules by their numbers, or all that match an address")
        .after_help(DEL_EXAMPLES)
        .override_usage(
            "tarn redirect del ID...\n       tarn redirect del --from ADDRESS:PORT [--protocol PROTOCOL]\n       \
             tarn redirect del --all",
        )
        .arg(
            Arg::new("ID")
                .value_parser(rule_number)
                .action(ArgAction::Append)
                .required_unless_present_any(["from", "all"])
                .help("Numbers as `list` shows them"),
        )
        .arg(option("from", "FROM", "The rules with this address and port").conflicts_with("ID"))
        .arg(
            option("protocol", "PROTOCOL", "Of these only those of this protocol")
                .value_parser(PossibleValuesParser::new(["udp", "tcp"]))
                .requires("from"),
        )
        .arg(flag("all", "Every rule").conflicts_with_all(["ID", "from"]))
}

fn rule_number(text: &str) -> Result<u32, String> {
    let remedy = "`tarn redirect list` shows each rule's; or name its address: --from ADDRESS:PORT";
    text.parse().map_err(|_| format!("it is no rule's number; {remedy}"))
}

/// `tarn redirect add`
pub fn add(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let rules = match matches.get_one::<PathBuf>("file") {
        Some(path) => read_file(path)?,
        None => {
            let word = |name: &str| matches.get_one::<String>(name).map(String::as_str);
            let words = [word("PROTOCOL"), word("FROM"), word("TO")].map(Option::unwrap_or_default);
            written(words, word("source"), word("note"))?
        }
    };
    let (state, choice, _lock) = up::lock(STAGE, "add", Choice::running)?;
    let mut store = Store::open(state.path())?;
    if !matches.get_flag("over-listeners") {
        let there: HashSet<Match> = store.rules().map(Rule::matched).collect();
        let new = rules.iter().filter(|rule| !there.contains(&rule.matched()));
        listeners::refuse_covered(new, choice.takes_answers())?;
    }
    let (added, replaced) = store.add(rules, matches.get_flag("replace"))?;
    let carrier = choice.carrier(&state);
    let all: Vec<Rule> = store.rules().cloned().collect();
    if let Err(error) = carrier.room(&all) {
        store.take_back(&added, &replaced)?;
        return Err(error.context("no rule was added"));
    }
    let done = prepare_forwarding(&state, &added).and_then(|()| carrier.change(&added, &replaced));
    if let Err(error) = done {
        store.take_back(&added, &replaced)?;
        return Err(put_right(&state, carrier.as_ref(), &store, error));
    }
    tell(output, "added", &added)
}

/// After a change that the kernel took in part: has it carry out what it did before.
fn put_right(state: &StateDirectory, carrier: &dyn Carrier, store: &Store, error: anyhow::Error) -> anyhow::Error {
    let rules: Vec<Rule> = store.rules().cloned().collect();
    let carried = Journal::open(state).and_then(|mut journal| carrier.up(&mut journal, &rules, &[]));
    match carried {
        Ok(_) => error.context("no rule was added"),
        Err(again) => error.context(format!(
            "the rules are as before, but the kernel is not: `tarn up` again ({again:#})"
        )),
    }
}

fn prepare_forwarding(state: &StateDirectory, added: &[Rule]) -> Result<()> {
    let settings = forwarding::settings(added)?;
    if settings.is_empty() {
        return Ok(());
    }
    forwarding::apply(&mut Journal::open(state)?, &settings)
}

/// `tarn redirect del`
pub fn del(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let (state, choice, _lock) = up::lock(STAGE, "del", Choice::running)?;
    let mut store = Store::open(state.path())?;
    let ids = chosen(matches, &store)?;
    let removed = store.remove(&ids)?;
    if let Err(error) = choice.carrier(&state).change(&[], &removed) {
        return Err(
            error.context("the rules are deleted, but the kernel may still carry them out: run `tarn up` again")
        );
    }
    tell(output, "deleted", &removed)
}

fn chosen(matches: &ArgMatches, store: &Store) -> Result<Vec<u32>> {
    if matches.get_flag("all") {
        return Ok(store.rules().map(|rule| rule.id).collect());
    }
    let Some(from) = matches.get_one::<String>("from") else {
        return Ok(matches.get_many("ID").into_iter().flatten().copied().collect());
    };
    let (address, ports) = parse::from(from).map_err(|wrong| Usage(format!("from: {wrong}")))?;
    let protocol = matches.get_one::<String>("protocol");
    let of_protocol = |rule: &Rule| protocol.is_none_or(|protocol| rule.protocol.name() == protocol);
    let ids: Vec<u32> = store
        .rules()
        .filter(|rule| rule.address == address && rule.ports == ports && of_protocol(rule))
        .map(|rule| rule.id)
        .collect();
    if ids.is_empty() {
        return Err(Usage(format!(
            "no rule is for {from}: `tarn redirect list` shows those there are"
        ))
        .into());
    }
    Ok(ids)
}

/// `tarn redirect status`
pub fn status(output: &mut Output) -> Result<()> {
    up::find(STAGE, "status", figures::read)?.1.answer(output)
}

/// `tarn redirect list`
pub fn list(_matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let (state, choice) = up::find(STAGE, "list", Choice::running)?;
    let store = Store::open(state.path())?;
    let rules: Vec<Rule> = store.rules().cloned().collect();
    let counters = choice.carrier(&state).counters(&rules)?;
    let now = monotonic_ns();
    if output.json {
        let rules: Vec<Value> = rules
            .iter()
            .zip(&counters)
            .map(|(rule, counters)| described(rule, counters, now))
            .collect::<Result<_>>()?;
        return output.json(&json!({ "rules": rules }));
    }
    if rules.is_empty() {
        output.line("no rules");
        return Ok(());
    }
    output.table(&figures::listing(&rules, &counters, now));
    Ok(())
}

/// A rule and what it has carried, as one object.
fn described(rule: &Rule, counters: &Counters, now: u64) -> Result<Value> {
    let mut object = serde_json::to_value(rule)?;
    object["packets"] = counters.packets.into();
    object["bytes"] = counters.bytes.into();
    object["dropped"] = figures::dropped(counters).into();
    object["drops"] = json!(counters.drops.iter().copied().collect::<BTreeMap<_, _>>());
    object["idle"] = figures::idle(counters, now).into();
    Ok(object)
}

fn tell(output: &mut Output, what: &str, rules: &[Rule]) -> Result<()> {
    let text = match rules {
        [] => "nothing to do: these rules are there".to_owned(),
        [rule] => format!("{what} {}: {rule}", rule.id),
        _ => format!("{what} {} rules", rules.len()),
    };
    output.answer(&json!({ what: rules }), text)
}

fn written(words: [&str; 3], source: Option<&str>, note: Option<&str>) -> Result<Vec<Rule>> {
    let protocols: Vec<&str> = words[0].split(',').collect();
    let written = Written {
        protocols: &protocols,
        from: words[1],
        to: words[2],
        source,
        note,
    };
    parse::rules(&written, Origin::Command).map_err(|mistakes| {
        let texts: Vec<String> = mistakes.into_iter().map(for_a_command).collect();
        Usage(texts.join("\n")).into()
    })
}

/// A mistake with a remedy as it is written on a command line.
fn for_a_command(mistake: Mistake) -> String {
    let remedy = match mistake.remedy.as_str() {
        parse::PROTOCOLS => "write udp, tcp, or tcp,udp".to_owned(),
        _ => mistake.remedy,
    };
    Mistake { remedy, ..mistake }.to_string()
}

/// Rules a line: `PROTOCOL FROM TO [source PREFIX]`, comments behind `#`.
fn read_file(path: &Path) -> Result<Vec<Rule>> {
    let reader: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Box::new(std::io::BufReader::new(file))
    };
    let mut rules = Vec::new();
    for (number, line) in reader.lines().enumerate() {
        let line = line.with_context(|| format!("cannot read {}", path.display()))?;
        let line = line.split('#').next().unwrap_or_default();
        let place = || format!("{}:{}", path.display(), number + 1);
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [] => {}
            [protocol, from, to] => rules.extend(written([protocol, from, to], None, None).with_context(place)?),
            [protocol, from, to, "source" | "--source", source] => {
                rules.extend(written([protocol, from, to], Some(source), None).with_context(place)?);
            }
            _ => {
                let text = "write PROTOCOL FROM TO, or PROTOCOL FROM TO source PREFIX";
                return Err(Usage(format!("{}: not a rule: {text}", place())).into());
            }
        }
    }
    Ok(rules)
}
