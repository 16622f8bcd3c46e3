//! Hosts and processes for the agent's and the command line's own tests.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use tarn_base::error::{Reported, exit_code};
use tarn_base::output::testing::output;
use tarn_frame::agent::{self, AgentInformation};
use tarn_frame::state::StateDirectory;
pub use tarn_frame::testing::{STAGES, kill_child, wait_until};
use tarn_kernel::sysctl;

use crate::cli::{status, up};
use tarn_watch::Frame;

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

    /// `tarn up`, in a process of its own, of which the agent is a copy. Returns what it printed.
    pub fn up(&self) -> Result<String> {
        let ended = self.command("up").stdout(Stdio::piped()).output()?;
        let printed = String::from_utf8(ended.stdout)?;
        // Before that, the harness has printed what it runs.
        let (_, told) = printed.split_once(TOLD).context("it died")?;
        match ended.status.code() {
            Some(0) => Ok(told.to_owned()),
            code => Err(Reported {
                message: told.to_owned(),
                code: code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
            }
            .into()),
        }
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
        // With troubles, they are the first lines.
        if let Err(error) = status::status(&self.frame(), &mut output) {
            assert!(written.text().starts_with("trouble: "), "{error:#}");
        }
        written.text()
    }

    /// `tarn status --json`: its exit code, and the document.
    pub fn status_json(&self) -> (u8, serde_json::Value) {
        let (mut output, written) = output(None);
        output.json = true;
        let outcome = status::status(&self.frame(), &mut output);
        let code = outcome.map_or_else(|error| exit_code(&error), |()| 0);
        (code, serde_json::from_str(&written.text()).unwrap())
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
        agent::information(&self.frame().state)
    }

    /// Sends the agent a signal, and waits until it is gone.
    pub fn signal_agent(&self, signal: Signal) {
        let agent = self.agent().expect("an agent lives");
        kill(Pid::from_raw(agent.pid as i32), signal).unwrap();
        wait_until("the agent is gone", || !agent::is_running(&self.frame().state));
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
        let _ = agent::stop_agent(&self.frame().state);
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

/// What a verb's process prints before what the verb printed, or what it failed of.
pub const TOLD: &str = "\n-- told --\n";

/// The file beside a configuration by which the state is that of the network namespace that a process is in, in
/// `/run/tarn`, and not beside the configuration too.
pub const REAL_NAMESPACE: &str = "real-namespace";

/// The frame whose configuration is at `path`.
pub fn frame_at(path: &Path) -> Frame {
    let directory = path.parent().unwrap_or(Path::new("/"));
    match directory.join(REAL_NAMESPACE).exists() {
        true => Frame::of_this_namespace(STAGES).unwrap(),
        false => Frame {
            stages: STAGES,
            state: StateDirectory::at(&directory.join("run"), "netns-test"),
            rights: |_| Ok(()),
        },
    }
}

/// The arguments by which this harness is a verb, and runs nothing else, with the configuration at `path`: `up`, `down` or
/// `foreground`.
pub fn verb_arguments(verb: &str, path: &Path) -> Vec<String> {
    let test = "agent::tests::processes::verb_process";
    let path = path.display().to_string();
    [
        "--exact",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
        test,
        verb,
        &path,
    ]
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
