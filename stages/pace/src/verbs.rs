//! `tarn pace status|top|watch|set`.

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value, json};

use crate::STAGE;
use crate::config::Config;
use crate::figures::{self, connection};
use crate::parameters::{PARAMETERS, Parameter, RESPONSES, described};
use crate::standing::{FILE, config_of, registered};
use tarn_base::config::suggestion;
use tarn_base::error::Usage;
use tarn_base::figures::Figures;
use tarn_base::output::Output;
use tarn_frame::journal::Journal;
use tarn_frame::up;

/// What `set` sets: a list, also of a program's call.
const SETTINGS: &str = "settings";

const STATUS_COLUMNS: &str = "Columns of the connections: how many there are; the sum of their bandwidth
estimates; the smallest minimum round trip time, and the mean of the current
ones; packets sent again; drops of the bandwidth answered; and the states:
starting (still looking for the bandwidth), answering a drop, competing (others
keep the queue full), bounded (loss limits the packets in flight), idle (the
application has nothing to send), receiver (it has no room for more).
The first 32 destinations of tarn.toml have a row; `other` has the rest.
--json has more columns.";

const TOP_COLUMNS: &str = "Columns: both ends; the bandwidth estimate; the minimum and the current round
trip time; packets sent again; MB acknowledged; the state, with `competing` if
others keep the queue full and `bounded` if loss limits the packets in flight;
and what limits the sending: pace, window, receiver or app (nothing to send).
--json has more columns.";

const WATCH_COLUMNS: &str = "Columns: connections; how many are answering a drop of the bandwidth; drops
answered since the last line; the sum of the bandwidth estimates; the smallest
minimum round trip time, and the mean of the current ones; packets sent again
and MB acknowledged since the last line.";

const SET_EXAMPLES: &str = "Examples:
  tarn pace set response=published-repaired
  tarn pace set window_gain=150 probe_packets=4

A new response applies to connections that begin from now on. The other settings
apply to open connections too. The next `tarn up` returns to tarn.toml.

Settings: response, one of tarn, off, published, published-repaired; and";

/// The verbs.
pub fn command() -> Command {
    Command::new(STAGE)
        .subcommand_required(true)
        .subcommand(
            Command::new("status")
                .about("The settings in force, and figures of the connections by destination")
                .after_help(STATUS_COLUMNS),
        )
        .subcommand(
            Command::new("top")
                .about("The connections that have sent the most")
                .after_help(TOP_COLUMNS)
                .arg(number("count", "How many", "20").value_parser(value_parser!(u32).range(1..=10_000))),
        )
        .subcommand(
            Command::new("watch")
                .about("Figures of all connections, one line a second, until Ctrl-C")
                .after_help(WATCH_COLUMNS)
                .arg(number("interval", "Seconds between lines", "1").value_parser(value_parser!(u32).range(1..=3600)))
                .arg(number("count", "How many lines; 0 for no end", "0").value_parser(value_parser!(u32))),
        )
        .subcommand(set_command())
}

fn set_command() -> Command {
    let settings = Arg::new(SETTINGS)
        .value_name("KEY=VALUE")
        .help("What to set")
        .required(true)
        .num_args(1..)
        .action(ArgAction::Append);
    Command::new("set")
        .about("Change parameters while connections run, until the next `tarn up`")
        .after_help(format!("{SET_EXAMPLES}\n{}", described()))
        .arg(settings)
}

fn number(name: &'static str, help: &'static str, default: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("NUMBER")
        .help(help)
        .default_value(default)
}

/// Shows the figures.
///
/// # Errors
/// The stage is not up, or the kernel's.
pub fn status(output: &mut Output) -> Result<()> {
    let (state, _) = up::find(STAGE, "status", config_of)?;
    figures::read(&state)?.ok_or_else(|| up::not_up(STAGE))?.answer(output)
}

/// Shows the connections that have sent the most.
///
/// # Errors
/// The stage is not up, or the kernel's.
pub fn top(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let (state, _) = up::find(STAGE, "top", config_of)?;
    let count = matches.get_one::<u32>("count").copied().unwrap_or_default();
    let connections = connection::busiest(figures::connections(&state)?, count as usize);
    if output.json {
        return Figures {
            tables: vec![connection::table(&connections)],
            ..Figures::default()
        }
        .answer(output);
    }
    output.table(&connection::short_table(&connections));
    Ok(())
}

/// Sets some of the parameters, all or none.
///
/// # Errors
/// A setting that is wrong; the stage is not up; somebody else has removed the congestion control.
pub fn set(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let settings: Vec<&String> = matches.get_many(SETTINGS).unwrap_or_default().collect();
    let (state, mut config, _lock) = up::lock(STAGE, "set", config_of)?;
    let mut changed = Map::new();
    for setting in settings {
        let (key, value) = change(&mut config, setting)?;
        changed.insert(key, value);
    }
    let registered = registered(&Journal::open(&state)?)?;
    let (.., registration) = registered
        .context("the congestion control is gone: somebody else has removed it; `tarn up` registers it again")?;
    state.write_json_if(FILE, &config, || registration.set(&config.parameters()))?;
    let text: Vec<String> = changed.iter().map(|(key, value)| answer(key, value)).collect();
    output.answer(&json!({ "set": changed }), text.join("\n"))
}

fn answer(key: &str, value: &Value) -> String {
    match value.as_str() {
        // A connection keeps the response that it began with.
        Some(response) => format!("{key} is now {response}, for connections that begin from now on"),
        None => format!("{key} is now {value}"),
    }
}

/// Carries out `KEY=VALUE`, and returns both.
fn change(config: &mut Config, setting: &str) -> Result<(String, Value), Usage> {
    let (key, value) = setting.split_once('=').ok_or_else(|| {
        Usage(format!(
            "'{setting}' has no value: write KEY=VALUE, as in window_gain=150"
        ))
    })?;
    let value = match key {
        "response" => {
            config.response = response(value)?;
            Value::from(value)
        }
        _ => {
            let (parameter, number) = parameter(key, value)?;
            config.values.set(parameter, number);
            Value::from(number)
        }
    };
    Ok((key.to_owned(), value))
}

/// The number of a response.
fn response(name: &str) -> Result<u32, Usage> {
    let names = RESPONSES.map(|(name, _)| name);
    let found = RESPONSES.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number).ok_or_else(|| {
        let near = suggestion(name, &names);
        Usage(format!(
            "there is no response '{name}': write one of {}{near}",
            names.join(", ")
        ))
    })
}

/// A parameter and its value, within its range.
fn parameter(key: &str, value: &str) -> Result<(&'static Parameter, u32), Usage> {
    let found = PARAMETERS.iter().find(|parameter| parameter.name == key);
    let parameter = found.ok_or_else(|| {
        let parameters = PARAMETERS.iter().map(|parameter| parameter.name);
        let names: Vec<&str> = parameters.chain(["response"]).collect();
        Usage(format!("there is no setting '{key}'{}", suggestion(key, &names)))
    })?;
    let (first, last) = (parameter.range.start(), parameter.range.end());
    let number = value.parse().ok().filter(|number| parameter.range.contains(number));
    let number = number.ok_or_else(|| {
        Usage(format!(
            "'{value}' is out of range for {key}: write a whole number, {first} to {last}"
        ))
    })?;
    Ok((parameter, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read;
    use tarn_base::config::testing;

    fn default() -> Config {
        testing::section("pace", "[pace]\n", read).unwrap()
    }

    #[test]
    fn what_can_be_written_can_be_set() {
        let mut config = default();
        change(&mut config, "response=published").unwrap();
        change(&mut config, "window_gain=150").unwrap();
        let written = "[pace]\nresponse = \"published\"\nwindow_gain = 150\n";
        assert_eq!(config, testing::section("pace", written, read).unwrap());
    }

    #[test]
    fn a_wrong_setting_is_refused_with_what_would_be_right() {
        for (setting, expected) in [
            (
                "window_gain=99",
                "'99' is out of range for window_gain: write a whole number, 100 to 300",
            ),
            (
                "window_gain=301",
                "'301' is out of range for window_gain: write a whole number, 100 to 300",
            ),
            (
                "window_gain=1.5",
                "'1.5' is out of range for window_gain: write a whole number, 100 to 300",
            ),
            ("window_gian=150", "did you mean `window_gain`"),
            ("response=none", "write one of tarn, off, published, published-repaired"),
            (
                "response",
                "'response' has no value: write KEY=VALUE, as in window_gain=150",
            ),
        ] {
            let refusal = change(&mut default(), setting).unwrap_err().to_string();
            assert!(refusal.contains(expected), "{setting}: {refusal}");
        }
    }

    /// Whoever reads only the answer has to know that open connections keep their response.
    #[test]
    fn the_answer_says_what_a_setting_applies_to() {
        assert_eq!(answer("window_gain", &Value::from(150)), "window_gain is now 150");
        let response = answer("response", &Value::from("off"));
        assert_eq!(response, "response is now off, for connections that begin from now on");
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
