//! Stages and processes for the frame's own tests: a stage that sets files as if they were kernel parameters, and can
//! be told to fail or to die at any point.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::{Arg, ArgMatches, Command};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use toml::Spanned;

use crate::agent::{AgentInformation, Launcher, client};
use crate::cli::{Frame, status, up};
use crate::config::{ConfigError, Section};
use crate::error::Unsupported;
use crate::figures::{Field, Figures, Kind, Value};
use crate::journal::{Change, Journal};
use crate::kernel::sysctl;
use crate::output::Output;
use crate::output::testing::output;
use crate::runtime::Stop;
use crate::stages::{Ability, Configured, Running, Stage};
use crate::state::StateDirectory;

pub mod program;

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
}

static FIELDS: &[Field] = &[Field {
    name: "changes",
    unit: "",
    kind: Kind::Gauge,
    about: "Changes that stand",
}];

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
        Ok((count > 0).then(|| Figures {
            fields: FIELDS,
            values: vec![Value::from(count)],
            tables: Vec::new(),
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
                let (before, after) = (sysctl::read(path)?, value.get_ref().to_string());
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

/// A host of its own: values below a temporary directory, and a state directory beside them.
pub struct Host {
    directory: tempfile::TempDir,
}

impl Host {
    /// A host with the values `a`, `b`, `c` and `d`, all 0.
    pub fn new() -> Self {
        let host = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        for name in ["a", "b", "c", "d"] {
            host.set(name, "0");
        }
        host
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What the verbs act on.
    pub fn frame(&self) -> Frame {
        frame_at(&self.path().join("tarn.toml"))
    }

    /// Sets a value, as an administrator would.
    pub fn set(&self, name: &str, value: &str) {
        std::fs::write(self.path().join(name), format!("{value}\n")).unwrap();
    }

    /// The four values.
    pub fn values(&self) -> String {
        let value = |name| sysctl::read(&self.path().join(name)).unwrap();
        ["a", "b", "c", "d"].map(value).join(" ")
    }

    /// Writes a configuration; `@` stands for the host's directory.
    pub fn configure(&self, text: &str) {
        let text = text.replace('@', &self.path().display().to_string());
        std::fs::write(self.path().join("tarn.toml"), text).unwrap();
    }

    /// `tarn up`. Returns what it printed.
    pub fn up(&self) -> Result<String> {
        let (mut output, written) = output(None);
        up::up(&self.frame(), &options(self.path(), false), &mut output)?;
        Ok(written.text())
    }

    /// `tarn down`. Returns what it printed.
    pub fn down(&self) -> Result<String> {
        let (mut output, written) = output(None);
        up::down(&self.frame(), &mut output)?;
        Ok(written.text())
    }

    /// `tarn status`. Returns what it printed.
    pub fn status(&self) -> String {
        let (mut output, written) = output(None);
        status::status(&self.frame(), &mut output).unwrap();
        written.text()
    }

    /// A verb as a process of its own: `up`, `down` or `foreground`.
    pub fn command(&self, verb: &str) -> Process {
        let mut process = Process::new(std::env::current_exe().unwrap());
        process.args(verb_arguments(verb, &self.path().join("tarn.toml")));
        process.stdout(Stdio::null()).stderr(Stdio::null());
        keep_signals(&mut process);
        process
    }

    /// Starts [`Host::command`].
    pub fn spawn(&self, verb: &str) -> Child {
        self.command(verb).spawn().unwrap()
    }

    /// The agent that lives here.
    pub fn agent(&self) -> Option<AgentInformation> {
        client::information(&self.frame().state)
    }

    /// Sends the agent a signal, and waits until it is gone.
    pub fn signal_agent(&self, signal: Signal) {
        let agent = self.agent().expect("an agent lives");
        kill(Pid::from_raw(agent.pid as i32), signal).unwrap();
        wait_until("the agent is gone", || !client::is_running(&self.frame().state));
    }

    /// Asserts that this host is as it was before tarn.
    pub fn assert_untouched(&self) {
        assert_eq!(self.values(), "0 0 0 0");
        assert!(!self.path().join("run").exists(), "nothing is left in /run");
        assert!(self.agent().is_none());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A test that failed leaves no agent behind.
        let _ = client::stop_agent(&self.frame().state);
    }
}

/// The options of `tarn up` with the configuration in `directory`.
pub fn options(directory: &Path, foreground: bool) -> up::Options {
    up::Options {
        path: directory.join("tarn.toml"),
        dry_run: false,
        foreground,
    }
}

/// The file beside a configuration by which the state is that of the network namespace that a process is in, in
/// `/run/tarn`, and not beside the configuration too.
pub const REAL_NAMESPACE: &str = "real-namespace";

/// The file beside a configuration by which it is one of the program's own stages.
pub const REAL_STAGES: &str = "real-stages";

/// The frame whose configuration is at `path`.
pub fn frame_at(path: &Path) -> Frame {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let state = match directory.join(REAL_NAMESPACE).exists() {
        true => StateDirectory::of_this_namespace().unwrap(),
        false => StateDirectory::at(&directory.join("run"), "netns-test"),
    };
    let stages = match directory.join(REAL_STAGES).exists() {
        true => crate::stages::STAGES,
        false => STAGES,
    };
    Frame {
        stages,
        state,
        launcher: Launcher::of(
            std::env::current_exe().unwrap(),
            harness_arguments("agent_process"),
            keep_signals,
        ),
        rights: |_| Ok(()),
    }
}

/// The arguments by which this harness is a verb, with the configuration at `path`: `up`, `down` or `foreground`.
pub fn verb_arguments(verb: &str, path: &Path) -> Vec<String> {
    let mut arguments = harness_arguments("verb_process");
    arguments.extend([verb.to_string(), path.display().to_string()]);
    arguments
}

/// The arguments by which this test harness runs one function of the agent's tests and nothing else.
fn harness_arguments(function: &str) -> Vec<String> {
    let test = format!("agent::tests::processes::{function}");
    ["--exact", "--ignored", "--nocapture", "--test-threads=1", &test]
        .map(str::to_string)
        .to_vec()
}

/// The harness has a main thread of its own, which a signal would end the process by: it is to leave signals to the
/// thread that runs the test.
pub fn keep_signals(process: &mut Process) {
    let block = || {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTERM);
        mask.add(Signal::SIGINT);
        Ok(mask.thread_block()?)
    };
    // SAFETY: pthread_sigmask() may be called between fork and exec, and nothing else is.
    unsafe { process.pre_exec(block) };
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
