//! `tarn reassembly set`: changes settings while fragments are held.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Map, Value, json};

use crate::known::Known;
use crate::module::{Datagrams, Module, Settings};
use crate::{STAGE, config};
use tarn_base::config::suggestion;
use tarn_base::error::Usage;
use tarn_base::output::Output;
use tarn_base::wrong::Wrong;
use tarn_base::{size, time};
use tarn_frame::up;

/// What is set: a list, also of a program's call.
const SETTINGS: &str = "settings";
const KEYS: [&str; 4] = ["memory", "timeout", "share", "datagrams"];

const EXAMPLES: &str = "Settings, as in tarn.toml: memory (256KiB to 256MiB), timeout (100ms to 2m, for
IPv4 and IPv6), share (1/2 to 1/64), datagrams (auto, host, all). Fragments that
are held stay, as far as a smaller memory has room for them. The next `tarn up`
returns to tarn.toml.

Examples:
  tarn reassembly set memory=16MiB
  tarn reassembly set timeout=2s share=1/16";

/// The verb.
pub fn command() -> Command {
    let settings = Arg::new(SETTINGS)
        .value_name("KEY=VALUE")
        .help("What to set")
        .required(true)
        .num_args(1..)
        .action(ArgAction::Append);
    Command::new("set")
        .about("Change settings while fragments are held, until the next `tarn up`")
        .after_help(EXAMPLES)
        .arg(settings)
}

/// Carries it out: all that is named, or nothing.
///
/// # Errors
/// What failed, and what to do about it.
pub fn execute(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let settings = matches.get_many::<String>(SETTINGS).unwrap_or_default();
    let changes = settings.map(|text| Change::read(text)).collect::<Result<Vec<_>, _>>()?;
    let (state, known, _lock) = up::lock(STAGE, "set", Known::load)?;
    let change = |settings: &mut Settings| changes.iter().for_each(|change| change.apply(settings));
    known.change(change, &state, &mut Module::loaded()?)?;
    let changed: Map<String, Value> = changes.iter().map(Change::json).collect();
    let lines: Vec<String> = changes.iter().map(Change::to_string).collect();
    output.answer(&json!({ "set": changed }), lines.join("\n"))
}

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Memory(u64),
    /// Of both families.
    Timeout(Duration),
    Share(u32),
    Datagrams(Datagrams),
}

impl Change {
    /// Reads `KEY=VALUE`.
    fn read(setting: &str) -> Result<Self, Usage> {
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            let example = "write KEY=VALUE, as in memory=16MiB";
            Usage(format!("'{setting}' has no value: {example}"))
        })?;
        let change = match key {
            "memory" => config::memory(value).map(Self::Memory),
            "timeout" => config::timeout(value).map(Self::Timeout),
            "share" => config::share(value).map(Self::Share),
            "datagrams" => config::datagrams(value).map(Self::Datagrams),
            _ => Err(Wrong::new("there is no such setting", suggestion(key, &KEYS))),
        };
        change.map_err(|wrong| Usage(format!("{key}: {wrong}")))
    }

    fn apply(&self, settings: &mut Settings) {
        match *self {
            Self::Memory(bytes) => settings.memory = bytes,
            Self::Timeout(time) => (settings.timeout4, settings.timeout6) = (time, time),
            Self::Share(parts) => settings.share = parts,
            Self::Datagrams(whose) => settings.datagrams = whose,
        }
    }

    fn key_and_value(&self) -> (&'static str, String) {
        match self {
            Self::Memory(bytes) => ("memory", size::text(*bytes)),
            Self::Timeout(time) => ("timeout", time::text(*time)),
            Self::Share(parts) => ("share", format!("1/{parts}")),
            Self::Datagrams(whose) => ("datagrams", whose.to_string()),
        }
    }

    fn json(&self) -> (String, Value) {
        let (key, value) = self.key_and_value();
        (key.to_owned(), Value::from(value))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = self.key_and_value();
        write!(formatter, "{key} is now {value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::tests::SETTINGS as STOCK;

    #[test]
    fn what_can_be_written_can_be_set() {
        let mut settings = STOCK;
        for text in ["memory=16MiB", "timeout=1.5s", "share=1/16", "datagrams=all"] {
            Change::read(text).unwrap().apply(&mut settings);
        }
        let timeout = Duration::from_millis(1500);
        let expected = Settings {
            memory: 16 << 20,
            share: 16,
            timeout4: timeout,
            timeout6: timeout,
            datagrams: Datagrams::All,
        };
        assert_eq!(settings, expected);
        assert_eq!(Change::Timeout(timeout).to_string(), "timeout is now 1500ms");
    }

    #[test]
    fn a_wrong_setting_is_refused_with_what_would_be_right() {
        for (setting, expected) in [
            (
                "memory=1KiB",
                "memory: 1KiB is out of range; write \"256KiB\" to \"256MiB\"",
            ),
            ("timeout=1ms", "timeout: 1ms is out of range; write 100ms to 2m"),
            ("share=8", "share: '8' is no share; write \"1/2\" to \"1/64\""),
            ("datagrams=none", "known here: auto, host, all"),
            ("memroy=1MiB", "did you mean `memory`?"),
            ("memory", "'memory' has no value: write KEY=VALUE, as in memory=16MiB"),
        ] {
            let refusal = Change::read(setting).unwrap_err().to_string();
            assert!(refusal.contains(expected), "{setting}: {refusal}");
        }
    }
}
