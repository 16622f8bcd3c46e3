//! The whole program, as its users run it: verbs as processes, `/run/tarn`, the agent. For the tests of stages.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tarn_frame::agent;
use tarn_frame::state::StateDirectory;
use tarn_frame::testing::wait_until;
use tarn_kernel::modules;

use crate::topology::Namespace;
use crate::{experiment, program};

pub mod software;
pub mod trial;

/// Whether sweeps and loops are wanted at full length: `tarn lab test --all`, or `TARN_LAB_THOROUGH=1` outside the lab.
pub fn is_thorough() -> bool {
    std::env::var_os(program::THOROUGH_VARIABLE).is_some()
}

/// Whether this is a guest of the lab, where a test may change what it likes.
pub fn is_in_guest() -> bool {
    std::env::var_os(program::SEED_VARIABLE).is_some()
}

/// The seed of the guest; 1 outside the lab.
pub fn seed() -> u32 {
    let seed = std::env::var(program::SEED_VARIABLE).ok();
    seed.and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// [`experiment::sign_of_life`] of a long test, once in so many rounds.
pub fn sign_of_life(round: u32) {
    const ROUNDS: u32 = 10;
    if round % ROUNDS == 0 {
        experiment::sign_of_life(&format!("round {round}"));
    }
}

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
        let program = Self { host, directory };
        program.configure(configuration);
        program
    }

    /// Replaces `tarn.toml`.
    pub fn configure(&self, configuration: &str) {
        std::fs::write(self.configuration(), configuration).unwrap();
    }

    /// The program itself, for tests that start it another way.
    pub fn path(&self) -> PathBuf {
        program::of_this_harness()
    }

    /// Its configuration file.
    pub fn configuration(&self) -> PathBuf {
        self.directory.path().join("tarn.toml")
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
        self.command(verb).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Runs a verb that has to fail. Returns what it complained of.
    pub fn complaint(&self, verb: &str) -> String {
        let Output { status, stderr, .. } = self.command(verb).output().unwrap();
        assert!(!status.success(), "tarn {verb}");
        String::from_utf8_lossy(&stderr).into_owned()
    }

    /// Runs a verb to its end, which has to be a good one. Returns what it remarked on its standard error.
    pub fn remarks(&self, verb: &str) -> String {
        let Output { status, stderr, .. } = self.command(verb).output().unwrap();
        let remarks = String::from_utf8_lossy(&stderr).into_owned();
        assert!(status.success(), "tarn {verb}: {remarks}");
        remarks
    }

    /// A command line of tarn's: its exit code, and what it printed or complained of.
    pub fn command_line(&self, line: &str) -> (u8, String) {
        let Output { status, stdout, stderr } = self.command(line).output().unwrap();
        let code = status.code().expect("it ended by itself") as u8;
        if status.success() {
            return (code, String::from_utf8_lossy(&stdout).into_owned());
        }
        let complaint = String::from_utf8_lossy(&stderr);
        (code, complaint.trim().trim_start_matches("tarn: ").to_owned())
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = self.host.command(self.path());
        match verb.strip_prefix("tarn ") {
            Some(line) => command.args(line.split(' ')),
            None => command.arg(verb),
        };
        if verb == "up" {
            command.arg("--config").arg(self.configuration());
        }
        command.stdin(Stdio::null());
        command
    }

    /// What tarn keeps about the host's namespace.
    pub fn state(&self) -> StateDirectory {
        self.host.enter(StateDirectory::of_this_namespace).unwrap()
    }

    /// `kill -9` of a `tarn up` that is under way, and of the agent that it may have begun.
    pub fn interrupt(&self, mut up: Child) {
        up.kill().unwrap();
        up.wait().unwrap();
        let state = self.state();
        wait_until("nothing of it is left", || {
            let recorded = std::fs::read_to_string(agent::lock_path(&state)).unwrap_or_default();
            let agent: serde_json::Value = serde_json::from_str(&recorded).unwrap_or_default();
            if agent::is_running(&state)
                && let Some(pid) = agent["pid"].as_i64()
            {
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
            !agent::is_running(&state) && !state.is_locked()
        });
    }

    /// `kill -9` of the agent. Returns its process number.
    pub fn kill_agent(&self) -> u32 {
        let state = self.state();
        let agent = agent::information(&state).expect("an agent lives");
        kill(Pid::from_raw(agent.pid as i32), Signal::SIGKILL).unwrap();
        wait_until("the agent is gone", || !agent::is_running(&state));
        agent.pid
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // A test that failed leaves no agent behind, which would keep the namespace.
        let _ = agent::stop_agent(&self.state());
    }
}

/// Loads a module in its build for debugging, which tests itself then, and takes it out. Returns the kernel's log.
pub fn log_of_self_tests(module: &str) -> String {
    modules::unload(module).unwrap();
    // What it depends on is loaded as for the ordinary one.
    modules::load(module).unwrap();
    modules::unload(module).unwrap();
    let file = format!("/tarn/modules/debug/{module}.ko");
    let loaded = Command::new("insmod").arg(file).status().unwrap();
    assert!(loaded.success(), "insmod {module}");
    modules::unload(module).unwrap();
    kernel_log()
}

/// How long a process has run, in user and kernel space (proc(5), `/proc/PID/stat`, fields 14 and 15), in ticks of 10 ms.
pub fn ticks(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// The kernel's log so far, for root.
pub fn kernel_log() -> String {
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg")
        .unwrap();
    let (mut log, mut record) = (String::new(), [0; 8192]);
    while let Ok(length) = file.read(&mut record) {
        log.push_str(&String::from_utf8_lossy(&record[..length]));
    }
    log
}
