//! A stage's verb, called by a program: the verb of the command line, with its arguments by name.
//!
//! ```json
//! {"stage":"classes","verb":"add","arguments":{"address":"192.0.2.7","class":"gold","for":"30m"}}
//! ```
//!
//! The call becomes a command line, which the stage's own command tree reads. So the verb, what it refuses, and the words
//! for it exist once; and no value that a program was given by a stranger is taken for an option.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use clap::builder::ValueHint;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Deserialize;
use serde_json::{Map, Value};

use tarn_base::error::Usage;
use tarn_base::output::{Beginning, Document, Output};
use tarn_frame::Stage;

/// The longest file that a verb reads for a program, in bytes.
const FILE_LIMIT: u64 = 256 << 20;

/// What a program calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    stage: String,
    verb: String,
    /// By the names of the command line: small letters, `_` for `-`.
    #[serde(default)]
    arguments: Map<String, Value>,
}

impl Call {
    /// Carries the verb out; `beginning` is that of its answer. What it has said is there also when it failed.
    pub fn carry_out(&self, stages: &[&dyn Stage], beginning: Beginning) -> (Document, Result<()>) {
        let mut output = Output::to_document();
        output.beginning = Some(beginning);
        let result = self
            .understand(stages)
            .and_then(|(stage, matches)| stage.execute(&matches, &mut output))
            .and_then(|()| output.finish());
        (output.into_document(), result)
    }

    /// The stage, and its verb as its own command line reads it.
    ///
    /// # Errors
    /// There is no such stage, verb or argument, or a value is wrong.
    pub fn understand<'a>(&self, stages: &[&'a dyn Stage]) -> Result<(&'a dyn Stage, ArgMatches)> {
        let Some(stage) = stages.iter().find(|stage| stage.name() == self.stage) else {
            let known = list(stages.iter().map(|stage| stage.name()));
            return Err(Usage(format!("there is no stage `{}`: known are {known}", self.stage)).into());
        };
        let command = stage.command();
        let Some(verb) = verbs(*stage, &command).find(|verb| verb.get_name() == self.verb) else {
            let known = list(verbs(*stage, &command).map(Command::get_name));
            return Err(Usage(format!("there is no verb `{}`: known are {known}", self.verb)).into());
        };
        let mut line: Vec<OsString> = vec![stage.name().into(), verb.get_name().into()];
        line.extend(words(verb, &self.arguments)?.into_iter().map(OsString::from));
        let matches = command.try_get_matches_from(line).map_err(|error| in_words(&error))?;
        Ok((*stage, matches))
    }
}

/// The verbs that a program may call.
pub fn verbs<'a>(stage: &'a dyn Stage, command: &'a Command) -> impl Iterator<Item = &'a Command> {
    command
        .get_subcommands()
        .filter(|verb| stage.takes_calls(verb.get_name()))
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// An argument's name in a call.
pub fn key(argument: &Arg) -> String {
    argument.get_id().as_str().to_lowercase().replace('-', "_")
}

/// The words of the command line that stand for these arguments.
fn words(verb: &Command, arguments: &Map<String, Value>) -> Result<Vec<String>, Usage> {
    let known: Vec<String> = verb.get_arguments().map(key).collect();
    if let Some(unknown) = arguments.keys().find(|name| !known.contains(name)) {
        let remedy = match known.is_empty() {
            true => format!("`{}` has none", verb.get_name()),
            false => format!("known are {}", known.join(", ")),
        };
        return Err(Usage(format!("there is no argument `{unknown}`: {remedy}")));
    }
    let mut words = Vec::new();
    for argument in verb.get_arguments().filter(|argument| !argument.is_positional()) {
        options(argument, arguments.get(&key(argument)), &mut words)?;
    }
    positionals(verb, arguments, &mut words)?;
    Ok(words)
}

/// An argument with a name: `--for=30m`, or `--clients` alone.
fn options(argument: &Arg, value: Option<&Value>, words: &mut Vec<String>) -> Result<(), Usage> {
    let Some(name) = argument.get_long() else { return Ok(()) };
    if argument.get_action().takes_values() {
        words.extend(
            values(argument, value)?
                .into_iter()
                .map(|value| format!("--{name}={value}")),
        );
        return Ok(());
    }
    match value {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(Value::Bool(true)) => words.push(format!("--{name}")),
        Some(other) => return Err(wrong(argument, &format!("{other} is neither true nor false"))),
    }
    Ok(())
}

/// The arguments that have a place instead of a name. None may move into the place of one that is missing.
fn positionals(verb: &Command, arguments: &Map<String, Value>, words: &mut Vec<String>) -> Result<(), Usage> {
    let mut missing: Option<&Arg> = None;
    for argument in verb.get_positionals() {
        let values = values(argument, arguments.get(&key(argument)))?;
        if values.is_empty() {
            if argument.is_required_set() {
                return Err(wrong(argument, "it is missing"));
            }
            missing = missing.or(Some(argument));
            continue;
        }
        // Where the command allows it, one that may be missing stands before the last.
        if let Some(missing) = missing.filter(|_| !verb.is_allow_missing_positional_set()) {
            return Err(wrong(missing, "it is missing"));
        }
        if let Some(value) = values.iter().find(|value| value.starts_with('-')) {
            return Err(wrong(argument, &format!("'{value}' begins with -")));
        }
        words.extend(values);
    }
    Ok(())
}

/// The values of an argument as texts; none when it is left out.
fn values(argument: &Arg, value: Option<&Value>) -> Result<Vec<String>, Usage> {
    let texts = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(all)) if matches!(argument.get_action(), ArgAction::Append) => {
            all.iter().map(|value| text(argument, value)).collect()
        }
        Some(one) => text(argument, one).map(|text| vec![text]),
    }?;
    if argument.get_value_hint() == ValueHint::AnyPath {
        texts.iter().try_for_each(|text| check_file(argument, text))?;
    }
    Ok(texts)
}

fn text(argument: &Arg, value: &Value) -> Result<String, Usage> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(wrong(argument, &format!("{other} is neither a text nor a number"))),
    }
}

/// The agent is in another directory than the program, and has no standard input; what never ends would hold it up.
fn check_file(argument: &Arg, text: &str) -> Result<(), Usage> {
    let path = Path::new(text);
    if !path.is_absolute() {
        let told = format!("'{text}' is no path from the root: write it whole, as in /etc/tarn/{text}");
        return Err(wrong(argument, &told));
    }
    match std::fs::metadata(path) {
        Err(error) => Err(wrong(argument, &format!("cannot read {text}: {error}"))),
        Ok(file) if !file.is_file() => Err(wrong(argument, &format!("{text} is no file"))),
        Ok(file) if file.len() > FILE_LIMIT => {
            let told = format!("{text} has more than {} MiB: use the command line", FILE_LIMIT >> 20);
            Err(wrong(argument, &told))
        }
        Ok(_) => Ok(()),
    }
}

fn wrong(argument: &Arg, told: &str) -> Usage {
    Usage(format!("argument `{}`: {told}", key(argument)))
}

/// What clap tells people, without its hints about the command line.
pub fn in_words(error: &clap::Error) -> Usage {
    let text = error.render().to_string();
    let told = text.split("\n\nUsage:").next().unwrap_or(&text);
    let told = told.split("\n\nFor more information").next().unwrap_or(told);
    let told = told.trim_start_matches("error: ");
    Usage(told.split_whitespace().collect::<Vec<_>>().join(" "))
}
