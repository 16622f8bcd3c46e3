//! The whole program, as its users run it: verbs as processes, `/run/tarn`, the agent.

use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{REAL_NAMESPACE, REAL_STAGES, keep_signals, verb_arguments, wait_until};
use crate::agent::client;
use crate::cli;
use crate::error::{exit_code, paragraph};
use crate::lab::topology::Namespace;
use crate::output::testing::output;
use crate::stages::STAGES;
use crate::state::StateDirectory;

/// tarn on one host of a network.
pub struct Program<'a> {
    /// The host.
    pub host: &'a Namespace,
    directory: tempfile::TempDir,
}

impl<'a> Program<'a> {
    /// Nothing is up yet.
    pub fn new(host: &'a Namespace, configuration: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for mark in [REAL_NAMESPACE, REAL_STAGES] {
            std::fs::write(directory.path().join(mark), "").unwrap();
        }
        let program = Self { host, directory };
        program.configure(configuration);
        program
    }

    /// Replaces `tarn.toml`.
    pub fn configure(&self, configuration: &str) {
        std::fs::write(self.directory.path().join("tarn.toml"), configuration).unwrap();
    }

    /// Runs a verb to its end, which has to be a good one.
    pub fn run(&self, verb: &str) {
        assert!(self.succeeds(verb), "tarn {verb}");
    }

    /// Runs a verb to its end.
    pub fn succeeds(&self, verb: &str) -> bool {
        self.start(verb).wait().unwrap().success()
    }

    /// Starts a verb, `up` or `down`, or a whole command line of tarn's.
    pub fn start(&self, verb: &str) -> Child {
        let mut command = self.host.command(std::env::current_exe().unwrap());
        command.args(verb_arguments(verb, &self.directory.path().join("tarn.toml")));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        keep_signals(&mut command);
        command.spawn().unwrap()
    }

    /// Runs a verb that has to fail. Returns what it complained of.
    pub fn complaint(&self, verb: &str) -> String {
        let mut command = self.host.command(std::env::current_exe().unwrap());
        command.args(verb_arguments(verb, &self.directory.path().join("tarn.toml")));
        command.stdin(Stdio::null());
        keep_signals(&mut command);
        let outcome = command.output().unwrap();
        assert!(!outcome.status.success(), "tarn {verb}");
        String::from_utf8_lossy(&outcome.stderr).into_owned()
    }

    /// A command line of tarn's: its exit code, and what it printed or complained of.
    pub fn command_line(&self, line: &str) -> (u8, String) {
        let run = || {
            let (mut output, written) = output(None);
            let outcome = cli::run(STAGES, line.split(' ').map(Into::into), &mut output);
            Ok(match outcome {
                Err(error) => (exit_code(&error), paragraph(&error)),
                Ok(_) => (0, written.text()),
            })
        };
        self.host.enter(run).unwrap()
    }

    /// What tarn keeps about the host's namespace.
    pub fn state(&self) -> StateDirectory {
        self.host.enter(StateDirectory::of_this_namespace).unwrap()
    }

    /// `kill -9` of the agent. Returns its process number.
    pub fn kill_agent(&self) -> u32 {
        let state = self.state();
        let agent = client::information(&state).expect("an agent lives");
        kill(Pid::from_raw(agent.pid as i32), Signal::SIGKILL).unwrap();
        wait_until("the agent is gone", || !client::is_running(&state));
        agent.pid
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // A test that failed leaves no agent behind, which would keep the namespace.
        let _ = client::stop_agent(&self.state());
    }
}
