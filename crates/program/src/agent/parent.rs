//! Who waits for the agent's word that the stages are up.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::notify::Notifier;
use tarn_base::error::{exit_code, paragraph};
use tarn_base::output::{Priority, limit_log_rate, log, log_at, log_to_file};
use tarn_frame::state::StateDirectory;

/// What an agent says to the `tarn up` that started it, one JSON document a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// A stage is up.
    Up(String),
    /// Every stage is up.
    Ready,
    /// It failed and what it did was put back.
    Failed {
        /// What failed.
        message: String,
        /// The exit code.
        code: u8,
    },
}

/// Who waits for the agent.
#[derive(Debug)]
pub enum Parent {
    /// The `tarn up` that started the agent, at the other end of a socket.
    Verb(UnixStream),
    /// Nobody, or systemd: the agent runs in the foreground.
    Service(Notifier),
}

impl Parent {
    /// systemd, or nobody.
    pub fn service() -> Self {
        Self::Service(Notifier::from_environment())
    }

    /// Tells that a stage is up.
    ///
    /// # Errors
    /// When the `tarn up` that waited is gone: somebody has interrupted it, and wants nothing to stay.
    pub fn stage_up(&mut self, name: &str) -> Result<()> {
        match self {
            Self::Verb(stream) => say(stream, &Word::Up(name.to_string())),
            Self::Service(_) => {
                log(name, "is up");
                Ok(())
            }
        }
    }

    /// Begins the log that the agent keeps where no systemd does, and leaves the terminal. What is up does not need a log: without room
    /// for it there is none.
    ///
    /// This comes before the stages' loops: a process that one of them starts inherits standard error, and whoever reads a pipe behind it
    /// would wait for that process's end.
    pub fn begin_log(&self, state: &StateDirectory) {
        if let Self::Verb(_) = self {
            if let Err(error) = log_to_file(&state.path().join("log")) {
                log_at(Priority::Warning, "agent", format!("{error:#}: it goes without"));
            }
            if let Err(error) = leave_terminal() {
                log_at(Priority::Warning, "agent", format!("{error:#}"));
            }
        }
        limit_log_rate();
        log("agent", format!("tarn {} is up", env!("CARGO_PKG_VERSION")));
    }

    /// Reports that every stage is up.
    pub fn ready(&mut self) {
        match self {
            // Everything is up and recorded: a `tarn up` that is gone by now has missed its end, no more.
            Self::Verb(stream) => drop(say(stream, &Word::Ready)),
            Self::Service(systemd) => systemd.send(&format!("READY=1\nMAINPID={}", std::process::id())),
        }
    }

    /// Tells that the agent has failed, where nobody is told by its end.
    pub fn failed(&mut self, error: &anyhow::Error) {
        if let Self::Verb(stream) = self {
            let (message, code) = (paragraph(error), exit_code(error));
            // Nobody is left to tell when this fails.
            let _ = say(stream, &Word::Failed { message, code });
        }
    }

    /// Tells that the agent is about to end.
    pub fn stopping(&self) {
        if let Self::Service(systemd) = self {
            systemd.send("STOPPING=1");
        }
    }

    /// Tells systemd's watchdog that the agent is alive.
    pub fn alive(&self) {
        match self {
            Self::Service(systemd) if systemd.watchdog_interval().is_some() => systemd.send("WATCHDOG=1"),
            _ => {}
        }
    }

    /// How often [`Parent::alive`] is to be called.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        match self {
            Self::Verb(_) => None,
            Self::Service(systemd) => systemd.watchdog_interval(),
        }
    }
}

fn say(stream: &mut UnixStream, word: &Word) -> Result<()> {
    let mut line = serde_json::to_vec(word).context("cannot write a message as JSON")?;
    line.push(b'\n');
    stream.write_all(&line).context("`tarn up` was interrupted")
}

/// Standard error goes nowhere from now on: whoever waits for the terminal or pipe behind it must not wait for the
/// agent.
fn leave_terminal() -> Result<()> {
    nix::unistd::dup2_stderr(nowhere()?).context("cannot leave the terminal")
}

/// What takes everything and gives nothing.
///
/// # Errors
/// When /dev/null is not there.
pub fn nowhere() -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/null");
    opened.context("cannot open /dev/null")
}
