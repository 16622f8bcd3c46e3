//! Starting the agent as a process of its own.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Error, Result, anyhow};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, chdir, dup2_stdin, dup2_stdout, fork, setsid};

use super::Parent;
use super::parent::{Word, nowhere};
use tarn_base::error::{Reported, exit_code};
use tarn_base::output::Output;
use tarn_frame::Stages;
use tarn_frame::configuration::Configuration;
use tarn_frame::journal::Journal;
use tarn_frame::state::{Lock, StateDirectory};
use tarn_frame::tidy::tidy_after;

/// Starts an agent with a configuration that was found to fit, and waits until it is up, or has failed and put back what it
/// did. `lock` is that of the state directory.
///
/// The agent is a copy of this process (fork(2)), which has no other thread: it need not read the configuration again, nor
/// find out again what was found out about it.
///
/// # Errors
/// What the agent failed of, with the exit code it chose.
pub fn launch(
    stages: Stages,
    state: &StateDirectory,
    configuration: Configuration,
    lock: Lock,
    output: &mut Output,
) -> Result<()> {
    let failed = |error: Error| tidy_after(state, &lock, error.context("cannot start the agent"));
    let (ours, theirs) = UnixStream::pair().map_err(|error| failed(error.into()))?;
    // SAFETY: there is no other thread, which could hold a lock that nobody gives up in the copy.
    match unsafe { fork() }.map_err(|error| failed(error.into()))? {
        ForkResult::Child => {
            drop(ours);
            be_the_agent(stages, state, configuration, lock, theirs)
        }
        ForkResult::Parent { child } => {
            drop(theirs);
            listen(ours, output).unwrap_or_else(|| Err(put_back_after_death(child, stages, state, &lock)))
        }
    }
}

/// Reads the agent's words up to its last. `None` when it died without one.
fn listen(stream: UnixStream, output: &mut Output) -> Option<Result<()>> {
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line.ok()?).ok()? {
            Word::Up(stage) => output.line(format_args!("{stage} is up")),
            Word::Ready => return Some(Ok(())),
            Word::Failed { message, code } => return Some(Err(Reported { message, code }.into())),
        }
    }
    None
}

/// The agent died while it brought the stages up, without a word: its journal tells what is to be put back.
fn put_back_after_death(agent: Pid, stages: Stages, state: &StateDirectory, lock: &Lock) -> Error {
    let end = match waitpid(agent, None) {
        Ok(WaitStatus::Signaled(_, signal, _)) => format!("signal: {} ({signal})", signal as i32),
        Ok(WaitStatus::Exited(_, code)) => format!("exit status: {code}"),
        other => format!("{other:?}"),
    };
    let error = anyhow!("the agent died while it brought the stages up ({end})");
    let undone = Journal::of(stages, state).and_then(|mut journal| journal.undo_unfinished());
    match undone {
        Ok(_) => tidy_after(state, lock, error),
        Err(undoing) => {
            let both = format!("{error}; and then: {undoing:#}");
            error.context(both)
        }
    }
}

/// Is the agent, in a session of its own, until it ends. Whatever happens is told to the `tarn up` that waits.
fn be_the_agent(
    stages: Stages,
    state: &StateDirectory,
    configuration: Configuration,
    lock: Lock,
    stream: UnixStream,
) -> ! {
    let left = leave_the_verb(stream.as_raw_fd(), lock.as_raw_fd());
    let mut parent = Parent::Verb(stream);
    let result = left.and_then(|()| super::run(stages, state, configuration, lock, &mut parent));
    if let Err(error) = &result {
        parent.failed(error);
    }
    std::process::exit(result.map_or_else(|error| exit_code(&error), |()| 0).into())
}

/// Keeps nothing of the process that this one is a copy of, but its standard error and two descriptors.
fn leave_the_verb(word: RawFd, lock: RawFd) -> Result<()> {
    close_all_but(word, lock);
    // Fails only for the leader of a process group, which a child of `tarn up` is not.
    let _ = setsid();
    chdir("/").context("cannot change to /")?;
    umask(Mode::from_bits_truncate(0o077));
    let nowhere = nowhere()?;
    dup2_stdin(&nowhere)
        .and_then(|()| dup2_stdout(&nowhere))
        .context("cannot leave the terminal")
}

/// Closes what the shell, or a program that ran `tarn up`, left open: whoever waits for its end must not wait for the
/// agent's.
fn close_all_but(word: RawFd, lock: RawFd) {
    let (low, high) = (word.min(lock), word.max(lock));
    let first = libc::STDERR_FILENO + 1;
    for (from, to) in [
        (first, low - 1),
        (low + 1, high - 1),
        (high.saturating_add(1), RawFd::MAX),
    ] {
        if from <= to {
            // SAFETY: this is the agent's first act, and a configuration that is not up yet has nothing open: no descriptor
            // above standard error is this process's own, but the two that are kept.
            unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
        }
    }
}
