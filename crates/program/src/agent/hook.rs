//! The command that is run for each event.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tarn_base::output::event::Event;
use tarn_base::output::{Priority, log_at, unwatch_events, watch_events};
use tarn_frame::configuration::Hook;

#[cfg(test)]
mod tests;

/// Who speaks of the hook in the log. It is not run for that: it would be run for its own failure.
const SELF: &str = "hook";

/// Events that wait for the one before.
const WAITING_MOST: usize = 64;

/// How long the command may take.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// How often its end is looked for.
const INTERVAL: Duration = Duration::from_millis(20);

/// The thread that runs the command.
pub struct HookThread(JoinHandle<()>);

impl HookThread {
    /// Ends when the command has been run for the events that have come, at the latest at `patience`.
    pub fn end(self, patience: Instant) {
        unwatch_events();
        while !self.0.is_finished() && Instant::now() < patience {
            std::thread::sleep(INTERVAL);
        }
    }
}

/// Runs the command for each event from now on, one after the other. Whoever logs does not wait for it.
///
/// # Errors
/// No thread can be started.
pub fn start(hook: Hook) -> Result<HookThread> {
    let (sender, receiver) = sync_channel(WAITING_MOST);
    let lost = Arc::new(AtomicU64::new(0));
    let (command, counted) = (hook.command.clone(), Arc::clone(&lost));
    let thread = std::thread::Builder::new()
        .name(SELF.to_owned())
        .spawn(move || run_each(&command, &receiver, &counted))
        .context("cannot start a thread for the hook")?;
    watch_events(move |event| pass_on(&hook, event, &sender, &lost));
    Ok(HookThread(thread))
}

/// Called with the log's lock held: it waits for nothing.
fn pass_on(hook: &Hook, event: &Event, sender: &SyncSender<Event>, lost: &AtomicU64) {
    let is_wanted = event.stage != SELF && event.priority as u8 <= hook.least as u8;
    if is_wanted && sender.try_send(event.clone()).is_err() {
        lost.fetch_add(1, Ordering::Relaxed);
    }
}

fn run_each(command: &str, events: &Receiver<Event>, lost: &AtomicU64) {
    for event in events {
        if let Err(error) = run(command, &event) {
            log_at(Priority::Warning, SELF, format!("{error:#}"));
        }
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            number => log_at(
                Priority::Warning,
                SELF,
                format!("too slow: it was not run for {number} events"),
            ),
        }
    }
}

/// Runs the command. The event is in its environment, so that a shell does not read it.
fn run(command: &str, event: &Event) -> Result<()> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .env("TARN_AT", &event.at)
        .env("TARN_STAGE", &event.stage)
        .env("TARN_PRIORITY", event.priority.name())
        .env("TARN_MESSAGE", &event.message)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("cannot run it")?;
    match wait(&mut child).context("cannot wait for it")? {
        Some(status) if status.success() => Ok(()),
        Some(status) => anyhow::bail!("it failed: {status}"),
        None => anyhow::bail!("it took more than {} s and was killed", PATIENCE.as_secs()),
    }
}

/// Waits for its end; kills it and all that it started when that takes too long.
fn wait(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(INTERVAL);
    }
    if let Ok(group) = i32::try_from(child.id()) {
        // It has ended meanwhile, or is its group's leader.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    child.wait().map(|_| None)
}
