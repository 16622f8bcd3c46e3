//! Starting the agent as a process of its own, and being that process.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, anyhow};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use super::Parent;
use super::parent::{Word, say_failed};
use tarn_base::error::Reported;
use tarn_base::output::Output;
use tarn_frame::configuration::{self, ConfiguredStage};
use tarn_frame::journal::Journal;
use tarn_frame::state::{Lock, StateDirectory};
use tarn_frame::tidy::tidy_after;
use tarn_frame::{Stage, Stages};

/// How the agent's process is started.
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<String>,
    prepare: fn(&mut Command),
}

impl Launcher {
    /// This program, with the hidden verb `agent`.
    pub fn this_program() -> Self {
        // By way of /proc, so that it is this very program even after an upgrade has replaced its file.
        Self {
            program: PathBuf::from("/proc/self/exe"),
            arguments: vec!["agent".to_string()],
            prepare: |_| {},
        }
    }

    /// Another program, for tests. What [`inherit`] needs to know is put behind its arguments.
    #[cfg(test)]
    pub fn of(program: PathBuf, arguments: Vec<String>, prepare: fn(&mut Command)) -> Self {
        Self {
            program,
            arguments,
            prepare,
        }
    }
}

/// Starts an agent with a configuration that was found valid, and waits until it is up, or has failed and put back
/// what it did. `lock` is that of the state directory.
///
/// # Errors
/// What the agent failed of, with the exit code it chose.
pub fn launch(
    launcher: &Launcher,
    stages: Stages,
    state: &StateDirectory,
    (path, text): (&Path, &str),
    lock: &Lock,
    output: &mut Output,
) -> Result<()> {
    match start(launcher, (path, text), lock) {
        Err(error) => Err(tidy_after(state, lock, error)),
        Ok((mut child, stream)) => match listen(stream, output) {
            Some(result) => result,
            None => Err(put_back_after_death(&mut child, stages, state, lock)),
        },
    }
}

/// Starts the process and hands the configuration to it. Returns it with the socket that it speaks on.
fn start(launcher: &Launcher, (path, text): (&Path, &str), lock: &Lock) -> Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket for the agent")?;
    let (word, held) = (for_child(&theirs)?, for_child(&lock.share()?)?);
    drop(theirs);
    let mut command = Command::new(&launcher.program);
    command.arg0("tarn");
    (launcher.prepare)(&mut command);
    command
        .args(&launcher.arguments)
        .arg(path)
        .args([word.as_raw_fd().to_string(), held.as_raw_fd().to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().context("cannot start the agent")?;
    drop((word, held));
    if let Some(mut stdin) = child.stdin.take() {
        // An agent that is gone already is noticed below.
        let _ = stdin.write_all(text.as_bytes());
    }
    Ok((child, ours))
}

/// A copy of a descriptor that a child inherits.
fn for_child(fd: &impl AsFd) -> Result<OwnedFd> {
    let copy = fcntl(fd.as_fd(), FcntlArg::F_DUPFD(10)).context("cannot hand a descriptor to the agent")?;
    // SAFETY: `copy` was just made by fcntl() and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
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
fn put_back_after_death(child: &mut Child, stages: Stages, state: &StateDirectory, lock: &Lock) -> anyhow::Error {
    let end = child
        .wait()
        .map_or_else(|error| error.to_string(), |status| status.to_string());
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

/// What the process that [`launch`] started finds: the configuration's file name, and the numbers of the two
/// descriptors it inherits.
#[derive(Debug)]
pub struct Inheritance {
    path: PathBuf,
    stream: UnixStream,
    lock: Lock,
}

/// Takes over what [`launch`] handed down.
///
/// # Errors
/// When the descriptors are not there: nobody but tarn is meant to call this.
pub fn inherit(path: &Path, word: RawFd, lock: RawFd) -> Result<Inheritance> {
    check_descriptor(word)?;
    check_descriptor(lock)?;
    close_all_but(word, lock);
    let stream = UnixStream::from(take_descriptor(word)?);
    let lock = Lock::inherited(take_descriptor(lock)?);
    Ok(Inheritance {
        path: path.to_path_buf(),
        stream,
        lock,
    })
}

fn check_descriptor(number: RawFd) -> Result<()> {
    // SAFETY: F_GETFD takes no pointer and fails for a number that is no open descriptor.
    if number <= libc::STDERR_FILENO || unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(anyhow!(
            "descriptor {number} was not handed down: the verb `agent` is for tarn itself"
        ));
    }
    Ok(())
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
            // SAFETY: this is the agent's first act: no descriptor above standard error is its own yet, but the
            // two that are kept.
            unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
        }
    }
}

fn take_descriptor(number: RawFd) -> Result<OwnedFd> {
    // SAFETY: the descriptor is open, and was made by the parent for this process to own.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).context("cannot keep a descriptor from children")?;
    Ok(fd)
}

impl Inheritance {
    /// Is the agent, in a session of its own. Whatever happens is told to the `tarn up` that waits.
    ///
    /// # Errors
    /// What the agent failed of.
    pub fn run(mut self, stages: Stages, state: &StateDirectory) -> Result<()> {
        let mut speaker = self.stream.try_clone().context("cannot reach `tarn up`")?;
        let result = self.prepare(stages).and_then(|configured| {
            let parent = Parent::Verb(self.stream);
            super::run(stages, state, configured, self.lock, parent)
        });
        if let Err(error) = &result {
            say_failed(&mut speaker, error);
        }
        result
    }

    fn prepare(&mut self, stages: &[&dyn Stage]) -> Result<Vec<ConfiguredStage>> {
        // Fails only for the leader of a process group, which a child of `tarn up` is not.
        let _ = nix::unistd::setsid();
        // What ps and top show; executed by way of /proc, it would be called `exe`.
        let _ = std::fs::write("/proc/self/comm", "tarn");
        nix::unistd::chdir("/").context("cannot change to /")?;
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read the configuration")?;
        Ok(configuration::parse(&text, &self.path, stages)?)
    }
}
