//! For the tests of the frame, the agent and the stages: a stage that sets files as if they were kernel parameters, and
//! can be told to fail or to die at any point; and waiting for other processes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::{Arg, ArgMatches, Command};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use tarn_base::config::{ConfigError, Section};
use tarn_base::described;
use tarn_base::error::Unsupported;
use tarn_base::figures::Figures;
use tarn_base::output::{Output, log};
use tarn_base::runtime::Stop;
use toml::Spanned;

use crate::journal::{Change, Journal};
use crate::state::StateDirectory;
use crate::survey::{Profile, Proposal, Survey};
use crate::sysctl;
use crate::{Ability, Configured, Running, Stage};

/// Two stages, so that one can fail after the other is up.
pub static STAGES: &[&dyn Stage] = &[&Values { name: "first" }, &Values { name: "second" }];

/// A stage that sets values.
struct Values {
    name: &'static str,
}

/// Its section.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    #[serde(default)]
    set: Vec<Setting>,
    #[serde(default)]
    then: Then,
    missing: Option<String>,
    #[serde(skip)]
    name: &'static str,
}

/// One value.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    path: PathBuf,
    value: Spanned<u16>,
    #[serde(default)]
    note: String,
}

/// What happens when the last value is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Then {
    #[default]
    Run,
    Fail,
    DieBeforeTheChange,
    DieAfterTheChange,
    Dawdle,
    FailInTheLoop,
    NeverEnd,
    TellStandardError,
}

described! {
    struct Standing {
        changes: Gauge "" "Changes that stand",
        trouble: Note "" "Why they are not in force",
    }
}

impl Stage for Values {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        "sets values"
    }

    fn command(&self) -> Command {
        let list = Command::new("list").arg(Arg::new("filter"));
        let count = Command::new("count").arg(Arg::new("to").required(true).value_parser(clap::value_parser!(u64)));
        Command::new(self.name)
            .subcommand_required(true)
            .subcommands([list, count])
    }

    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()> {
        let Some(("count", matches)) = matches.subcommand() else {
            output.line(format!("{} json={}", self.name, output.json));
            return Ok(());
        };
        let to = matches.get_one::<u64>("to").copied().unwrap_or_default();
        output.json(&(1..=to).collect::<Vec<u64>>())?;
        match to {
            13 => Err(Unsupported("this host is superstitious".into()).into()),
            _ => Ok(()),
        }
    }

    fn probe(&self) -> Vec<Ability> {
        let ability = |name: &str, present, required| Ability {
            name: name.into(),
            present,
            required,
            detail: if present {
                "found".into()
            } else {
                "gone: bring it back".into()
            },
        };
        vec![
            ability("files", true, true),
            ability("wings", false, self.name == "second"),
        ]
    }

    fn propose(&self, survey: &Survey) -> Proposal {
        let missing = if self.name == "second" {
            "missing = \"gone\"\n"
        } else {
            ""
        };
        let section = format!("[{}]\nset = []\n{missing}", self.name);
        match survey.profile {
            Profile::Server => Proposal::of("Servers have values.", section),
            _ => Proposal::example("Others have none.", section),
        }
    }

    fn configure(&self, section: Section<'_>) -> Result<Box<dyn Configured>, Vec<ConfigError>> {
        let configuration: Configuration = section.deserialize_whole()?;
        let zero = configuration.set.iter().filter(|setting| *setting.value.get_ref() == 0);
        let errors: Vec<ConfigError> = zero
            .map(|setting| {
                section.error(
                    setting.value.span(),
                    "set.value",
                    "is 0".into(),
                    "write 1 to 65535".into(),
                )
            })
            .collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Box::new(Configuration {
            name: self.name,
            ..configuration
        }))
    }

    fn clean_up(&self, state: &StateDirectory) -> Result<()> {
        let path = state.path().join(self.name);
        Ok(std::fs::remove_file(&path).or_else(|error| if path.exists() { Err(error) } else { Ok(()) })?)
    }

    fn status(&self, state: &StateDirectory) -> Result<Option<Figures>> {
        let journal = Journal::open(state)?;
        let count = journal.changes(self.name).count() as u64;
        let is_another_s = |change: &Change| match change {
            Change::Sysctl { path, after, .. } => {
                tarn_kernel::sysctl::read(path.as_ref()).is_ok_and(|value| value != *after)
            }
            _ => false,
        };
        let is_left_alone = journal.changes(self.name).any(|(_, change)| is_another_s(change));
        let trouble = is_left_alone.then_some("left alone: somebody else has changed a value");
        Ok((count > 0).then(|| Figures {
            fields: Standing::FIELDS,
            values: Standing {
                changes: count.into(),
                trouble: trouble.into(),
            }
            .values(),
            ..Figures::default()
        }))
    }
}

impl Configured for Configuration {
    fn missing(&self) -> Vec<Ability> {
        let missing = self.missing.iter();
        let ability = |detail: &String| Ability {
            name: "wings".into(),
            present: false,
            required: true,
            detail: detail.clone(),
        };
        missing.map(ability).collect()
    }

    fn plan(&self) -> Result<Vec<String>> {
        let write = |setting: &Setting| format!("echo {} >{}", setting.value.get_ref(), setting.path.display());
        Ok(self.set.iter().map(write).collect())
    }

    fn up(&self, _: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>> {
        for Setting { path, value, note } in &self.set {
            if self.then == Then::DieBeforeTheChange {
                let (before, after) = (tarn_kernel::sysctl::read(path)?, value.get_ref().to_string());
                journal.record(
                    self.name,
                    Change::Sysctl {
                        path: path.display().to_string(),
                        before,
                        after,
                    },
                )?;
                die();
            }
            let value = if note.is_empty() {
                value.get_ref().to_string()
            } else {
                note.clone()
            };
            sysctl::change(journal, self.name, path, &value)?;
            if self.then == Then::Dawdle {
                std::thread::sleep(Duration::from_millis(300));
            }
        }
        match self.then {
            Then::Fail => bail!("told to fail"),
            Then::DieAfterTheChange => die(),
            _ => Ok(Box::new(Loop(self.then))),
        }
    }
}

fn die() -> ! {
    kill(Pid::this(), Signal::SIGKILL).unwrap();
    unreachable!("killed");
}

struct Loop(Then);

impl Running for Loop {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        match self.0 {
            Then::FailInTheLoop => Err(anyhow!("told to fail")),
            Then::TellStandardError => {
                log("loop", std::fs::read_link("/proc/self/fd/2")?.display());
                stop.wait(Duration::MAX);
                Ok(())
            }
            Then::NeverEnd => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            _ => {
                stop.wait(Duration::MAX);
                Ok(())
            }
        }
    }
}

/// Waits for something that is about to happen, at most half a minute.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what} has not happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills a process of ours and waits for its end.
pub fn kill_child(mut child: Child) {
    let _ = child.kill();
    child.wait().unwrap();
}
