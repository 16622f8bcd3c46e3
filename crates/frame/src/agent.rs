//! The agent as others see it: who it is, how to ask it, and how to end it.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::state::{Lock, StateDirectory, read_bounded};
use tarn_base::error::Reported;
use tarn_base::output::{Priority, log_at};

pub mod patient;
#[cfg(test)]
mod tests;

use patient::{Patient, connect_within};

/// How long the agent may take to answer: it may read 100,000 counters for it. Those of tests have few.
const ANSWER_PATIENCE: Duration = Duration::from_secs(if cfg!(any(test, feature = "testing")) { 3 } else { 10 });

/// How long it may take until the agent, or the one that replaces it, has carried out a stage's verb.
const CALL_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// How long to wait for the agent that replaces one before looking again.
const CALL_INTERVAL: Duration = Duration::from_millis(20);

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
    information_within(state, ANSWER_PATIENCE)
}

/// The same from an agent that answers within `patience`, for a caller that asks again.
pub fn information_within(state: &StateDirectory, patience: Duration) -> Option<AgentInformation> {
    if !is_running(state) {
        return None;
    }
    let answered = ask(state, &json!({ "request": "agent" }), patience).ok().flatten();
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

/// Has the agent carry out a stage's verb that begins its answer before it changes anything (docs/control-socket.md). Returns its
/// result; `None` when no other process is the agent. One that ends without having begun is being replaced, and the next one is
/// asked.
///
/// # Errors
/// When the agent does not answer within 5 s: it does not carry the verb out later either, unless it has begun. Or
/// [`Reported`]: in the words of the verb, and with its exit code.
pub fn call(state: &StateDirectory, stage: &str, verb: &str, arguments: &Value) -> Result<Option<Value>> {
    let request = json!({ "stage": stage, "verb": verb, "arguments": arguments });
    let end = Instant::now() + CALL_PATIENCE;
    loop {
        if recorded(state).is_ok_and(|agent| agent.pid == std::process::id()) {
            return Ok(None);
        }
        let left = end.saturating_duration_since(Instant::now());
        match ask(state, &request, left) {
            Ok(Some(mut answer)) => return Ok(Some(answer["result"].take())),
            Ok(None) if !is_running(state) && !state.is_locked() => return Ok(None),
            Ok(None) if left.is_zero() => bail!("no agent has stayed to answer for {} s", CALL_PATIENCE.as_secs()),
            Ok(None) => std::thread::sleep(CALL_INTERVAL),
            Err(error) if is_late(&error) => bail!(
                "the agent does not answer within {} s: `tarn {stage} {verb}` has changed nothing, and will not. The agent hangs, \
                 or waits for another tarn: `tarn up` replaces one that hangs",
                CALL_PATIENCE.as_secs()
            ),
            Err(error) => return Err(error),
        }
    }
}

/// Whether the agent has not begun to answer in time.
fn is_late(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::TimedOut)
}

/// Sends a request to the agent, and reads its answer. `None` when none listens, or it ends without having carried it out;
/// [`Reported`] when it refuses.
fn ask(state: &StateDirectory, line: &Value, patience: Duration) -> Result<Option<Value>> {
    let end = Instant::now() + patience;
    let stream = match connect_within(&socket_path(state), patience) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        connected => connected.context("cannot reach the agent")?,
    };
    let left = end.saturating_duration_since(Instant::now());
    let Some(answer) = exchange(&stream, line, left).context("the agent does not answer")? else {
        return Ok(None);
    };
    if answer["ok"] == true {
        return Ok(Some(answer));
    }
    if answer["retry"] == true {
        return Ok(None);
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

/// `None` when the agent hangs up without having begun to answer.
///
/// # Errors
/// One that [`is_late`] means that it cannot begin later either.
fn exchange(stream: &UnixStream, line: &Value, patience: Duration) -> Result<Option<Value>> {
    let mut patient = Patient::with(stream, patience);
    let written = match patient.write_all(format!("{line}\n").as_bytes()) {
        // It may have said why it hangs up.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    };
    let mut answer = Vec::new();
    let read = written.and_then(|()| BufReader::new(patient.take(ANSWER_LIMIT)).read_until(b'\n', &mut answer));
    match read {
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            // From now on the kernel refuses what the agent sends; what it has sent before can be read.
            stream.shutdown(Shutdown::Read)?;
            stream.take(ANSWER_LIMIT).read_to_end(&mut answer)?;
            if answer.is_empty() {
                return Err(error.into());
            }
            if !answer.ends_with(b"\n") {
                bail!("it has begun to, and then stopped: what it was asked is done once it goes on");
            }
        }
        Err(error) if error.kind() != ErrorKind::ConnectionReset => return Err(error.into()),
        _ if answer.is_empty() => return Ok(None),
        _ => {}
    }
    if !answer.ends_with(b"\n") {
        bail!("it has begun to, and then ended: it may have done what it was asked, or not");
    }
    serde_json::from_slice(&answer)
        .map(Some)
        .context("its answer is not JSON")
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
