//! The agent as others see it: who it is, how to ask it, and how to end it.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::state::{Lock, StateDirectory, read_bounded};
use tarn_base::error::Reported;
use tarn_base::output::{Priority, log_at};

pub mod patient;

use patient::{Patient, connect_within};

/// How long the agent may take to answer: it may read 100,000 counters for it. Those of tests have few.
const ANSWER_PATIENCE: Duration = Duration::from_secs(if cfg!(any(test, feature = "testing")) { 3 } else { 10 });

/// How long it may take to carry out a stage's verb, which may have to wait for its turn.
const CALL_PATIENCE: Duration = Duration::from_secs(20);

/// The longest answer read, in bytes.
const ANSWER_LIMIT: u64 = 256 << 20;

/// How long an agent that was asked to end may take.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How long the kernel may take to end a process that was killed.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Who the agent is and how its loops fare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentInformation {
    /// The agent's process.
    pub pid: u32,
    /// Its version of tarn.
    pub version: String,
    /// When it was started: seconds since 1970, UTC.
    pub since: u64,
    /// The stages' loops.
    #[serde(default)]
    pub loops: Vec<LoopInformation>,
    /// It lives, but does not answer: it is beginning, ending, or hangs.
    #[serde(skip)]
    pub silent: bool,
}

/// How a stage's loop fares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopInformation {
    /// The stage's name.
    pub stage: String,
    /// What the loop does now.
    pub state: LoopState,
    /// How often it failed and was started again.
    pub restarts: u64,
    /// What it failed of the last time.
    pub error: Option<String>,
}

/// What a stage's loop does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoopState {
    /// It runs.
    Running,
    /// It failed and will be started again in a while.
    Waiting,
    /// It has ended: the stage needs no loop.
    Ended,
}

/// The agent's file in the state directory.
pub fn lock_path(state: &StateDirectory) -> PathBuf {
    state.path().join("agent")
}

/// The control socket's path.
pub fn socket_path(state: &StateDirectory) -> PathBuf {
    state.path().join("control.sock")
}

/// Whether an agent lives in this namespace.
pub fn is_running(state: &StateDirectory) -> bool {
    Lock::is_held(&lock_path(state))
}

/// The agent, if one lives. One that does not answer is told of without its loops.
pub fn information(state: &StateDirectory) -> Option<AgentInformation> {
    if !is_running(state) {
        return None;
    }
    let answered = ask(state, &json!({ "request": "agent" }), ANSWER_PATIENCE)
        .ok()
        .flatten();
    let told = answered.and_then(|answer| serde_json::from_value(answer.get("agent")?.clone()).ok());
    told.or_else(|| {
        let read = recorded(state).ok()?;
        Some(AgentInformation { silent: true, ..read })
    })
}

/// What the agent has written down of itself.
fn recorded(state: &StateDirectory) -> Result<AgentInformation> {
    let text = read_bounded(&lock_path(state), 4096).context("cannot read the agent's file")?;
    serde_json::from_str(&text).context("cannot read the agent's file")
}

/// Has the agent carry out a stage's verb (docs/control-socket.md). Returns its result; `None` when no other process is the
/// agent.
///
/// # Errors
/// When the agent does not answer, or [`Reported`]: in the words of the verb, and with its exit code.
pub fn call(state: &StateDirectory, stage: &str, verb: &str, arguments: &Value) -> Result<Option<Value>> {
    if !is_running(state) || recorded(state)?.pid == std::process::id() {
        return Ok(None);
    }
    let call = json!({ "stage": stage, "verb": verb, "arguments": arguments });
    let answer = ask(state, &call, CALL_PATIENCE)?;
    Ok(answer.map(|mut answer| answer["result"].take()))
}

/// Sends a request to the agent, and reads its answer. `None` when none listens; [`Reported`] when it refuses.
fn ask(state: &StateDirectory, line: &Value, patience: Duration) -> Result<Option<Value>> {
    let stream = match connect_within(&socket_path(state), ANSWER_PATIENCE) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        connected => connected.context("cannot reach the agent")?,
    };
    let answer =
        exchange(&stream, line, patience).context("the agent does not answer, and may still do what it was asked")?;
    if answer["ok"] == true {
        return Ok(Some(answer));
    }
    let message = answer["error"]
        .as_str()
        .unwrap_or("the agent gives no reason")
        .to_owned();
    let code = answer["code"].as_u64().and_then(|code| u8::try_from(code).ok());
    Err(Reported {
        message,
        code: code.unwrap_or(1),
    })?
}

fn exchange(stream: &UnixStream, line: &Value, patience: Duration) -> Result<Value> {
    let mut stream = Patient::with(stream, patience);
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut line = String::new();
    if BufReader::new(stream.take(ANSWER_LIMIT)).read_line(&mut line)? == 0 {
        return Err(anyhow!("it has hung up"));
    }
    serde_json::from_str(&line).context("its answer is not JSON")
}

/// Ends the agent, if one lives: asks it, and kills it when it does not end in 5 s. What it set up in the kernel
/// stays. Returns whether there was one.
///
/// # Errors
/// When the agent cannot be ended.
pub fn stop_agent(state: &StateDirectory) -> Result<bool> {
    if !is_running(state) {
        return Ok(false);
    }
    if let Err(error) = ask(state, &json!({ "request": "stop" }), ANSWER_PATIENCE) {
        log_at(Priority::Warning, "agent", format!("{error:#}"));
    }
    if ended_within(state, STOP_PATIENCE) {
        return Ok(true);
    }
    log_at(
        Priority::Warning,
        "agent",
        "it does not end when asked to: killing it, which loses nothing",
    );
    kill(state)?;
    match ended_within(state, KILL_PATIENCE) {
        true => Ok(true),
        false => Err(anyhow!(
            "the agent cannot be ended: its process hangs in the kernel: see the kernel's log"
        )),
    }
}

fn ended_within(state: &StateDirectory, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    while is_running(state) {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Kills the process that holds the agent's lock, and no other: its number is turned into a descriptor first, and
/// only if the lock is held still was it the agent's then.
fn kill(state: &StateDirectory) -> Result<()> {
    let agent = recorded(state)?;
    let pid = libc::pid_t::try_from(agent.pid).context("the agent's file holds no process number")?;
    // SAFETY: pidfd_open() takes no pointer; its result is checked before it is used.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(fd @ 0..) = i32::try_from(fd) else { return Ok(()) };
    // SAFETY: `fd` was just made by pidfd_open() and belongs to nobody else.
    let process = unsafe { OwnedFd::from_raw_fd(fd) };
    if !is_running(state) {
        return Ok(());
    }
    let no_information: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the descriptor is open, and a null siginfo stands for what kill(2) would send.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            libc::SIGKILL,
            no_information,
            0,
        )
    };
    match sent {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).with_context(|| format!("cannot kill the agent, process {pid}")),
    }
}
