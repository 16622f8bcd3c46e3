//! The agent: the process that brings the stages up and stays to run their loops.
//!
//! What the stages set up in the kernel does not need it: it outlives the agent, whatever ends it, and the next agent
//! adopts it. `tarn up` starts the agent in a session of its own and waits for its word; `tarn up --foreground` is
//! the agent itself, for systemd.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use tarn_base::output::{Priority, log, log_at, record_events};
use tarn_base::runtime::{self, Signals, Stop, readable};
use tarn_frame::agent::{AgentInformation, lock_path};
use tarn_frame::configuration::{Configuration, ConfiguredStage, Hook};
use tarn_frame::journal::Journal;
use tarn_frame::state::{EVENTS, Lock, StateDirectory};
use tarn_frame::tidy::tidy_after;
use tarn_frame::{Running, Stage, Stages};
use tarn_watch::Frame;

mod control;
mod hook;
mod launch;
mod notify;
mod parent;
mod supervisor;
#[cfg(test)]
mod tests;

pub use launch::launch;
pub use parent::Parent;

use control::Control;
use hook::HookThread;
use supervisor::Supervisor;

use crate::page::{self, PageThread};

/// How long the stages' loops, and verbs that change something, may take to end before the agent ends without them.
const ENDING_PATIENCE: Duration = Duration::from_secs(3);

/// How long the agent looks after itself between two looks, unless systemd wants it more often.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);

/// Is the agent: brings the stages up, tells `parent`, and runs their loops until it is told to end (SIGTERM, SIGINT,
/// a request on the control socket). The kernel's state stays as it is then.
///
/// `lock` is that of the state directory, and is given up as soon as the stages are up.
///
/// # Errors
/// When a stage cannot be brought up: what was changed for it is put back first.
pub fn run(
    stages: Stages,
    state: &StateDirectory,
    configuration: Configuration,
    lock: Lock,
    parent: &mut Parent,
) -> Result<()> {
    lock.tell("up");
    let agent = match begin(stages, state, configuration, parent) {
        Ok(agent) => agent,
        Err(error) => return Err(tidy_after(state, &lock, error)),
    };
    drop(lock);
    parent.begin_log(state);
    let supervisor = agent
        .supervisor
        .start(agent.running)
        .context("what is up in the kernel is left without an agent")?;
    parent.ready();
    look_after(&agent.signals, &agent.stop, parent);
    parent.stopping();
    let patience = Instant::now() + ENDING_PATIENCE;
    drop(agent.page);
    supervisor.end(patience);
    agent.control.end(patience);
    log("agent", "ended; what is up in the kernel stays up");
    if let Some(hook) = agent.hook {
        hook.end(patience);
    }
    Ok(())
}

/// An agent whose stages are up.
struct Agent {
    signals: Signals,
    stop: Arc<Stop>,
    supervisor: Supervisor,
    control: Control,
    hook: Option<HookThread>,
    page: Option<PageThread>,
    running: Vec<(&'static str, Box<dyn Running>)>,
    /// Held as long as the agent lives.
    _lock: Lock,
}

/// Becomes the agent of this namespace and brings the stages up. Nothing of it is left when that fails, but the files
/// in the state directory.
fn begin(stages: Stages, state: &StateDirectory, configuration: Configuration, parent: &mut Parent) -> Result<Agent> {
    let signals = Signals::new()?;
    let stop = Arc::new(Stop::new()?);
    let agent_lock = take_agent_lock(state)?;
    let supervisor = Supervisor::new(stop.clone());
    let control = Control::listen(stages, state.clone(), supervisor.loops(), stop.clone())?;
    let Configuration {
        stages: configured,
        hook,
        page,
    } = configuration;
    let hook = keep_events(state, hook);
    let frame = Frame {
        stages,
        state: state.clone(),
        rights: |_| Ok(()),
    };
    let page = page.and_then(|page| {
        let failed = |error| log_at(Priority::Warning, "page", format!("{error:#}: it is not shown"));
        page::start(&page, frame).map_err(failed).ok()
    });
    let mut interrupted = || match signals.arrived() {
        Some(signal) => bail!("interrupted by {signal}"),
        None if stop.fired() => bail!("asked to end by another tarn"),
        None => Ok(()),
    };
    match bring_up(stages, state, configured, &mut interrupted, parent) {
        Ok(running) => Ok(Agent {
            signals,
            stop,
            supervisor,
            control,
            hook,
            page,
            running,
            _lock: agent_lock,
        }),
        Err(error) => {
            stop.fire();
            control.end(Instant::now() + ENDING_PATIENCE);
            Err(error)
        }
    }
}

/// From now on, log lines are events too. What is up needs neither their file nor the hook: what cannot be had is reported.
///
/// This comes after signals are blocked: a thread that does not block them would be ended by one.
fn keep_events(state: &StateDirectory, hook: Option<Hook>) -> Option<HookThread> {
    if let Err(error) = record_events(&state.path().join(EVENTS)) {
        let message = format!("{error:#}: `tarn events` will show none");
        log_at(Priority::Warning, "agent", message);
    }
    hook.and_then(|hook| {
        let failed = |error| log_at(Priority::Warning, "agent", format!("{error:#}"));
        hook::start(hook).map_err(failed).ok()
    })
}

/// Waits until the agent is to end, and tells systemd's watchdog that it is alive in between.
fn look_after(signals: &Signals, stop: &Stop, parent: &Parent) {
    use std::os::fd::AsFd;
    let interval = parent.watchdog_interval().unwrap_or(IDLE_INTERVAL);
    while !stop.fired() {
        readable(&[signals.as_fd(), stop.as_fd()], interval);
        if let Some(signal) = signals.arrived() {
            log("agent", format!("ending on {signal}"));
            stop.fire();
        }
        parent.alive();
    }
}

/// One agent a namespace. An agent that was told to end may still be at it, so this waits for a moment.
fn take_agent_lock(state: &StateDirectory) -> Result<Lock> {
    let path = lock_path(state);
    let patience = Instant::now() + Duration::from_secs(2);
    loop {
        if let Some(lock) = Lock::try_take(&path).with_context(|| format!("cannot lock {}", path.display()))? {
            let since = runtime::now();
            let version = env!("CARGO_PKG_VERSION").to_string();
            let me = AgentInformation {
                pid: std::process::id(),
                version,
                since,
                loops: Vec::new(),
                silent: false,
            };
            let written = lock.write(&serde_json::to_string(&me)?);
            return written.map(|()| lock).context("cannot write the agent's file");
        }
        if Instant::now() >= patience {
            return Err(anyhow!(
                "another agent runs in this network namespace: run `tarn down` first"
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Brings the stages up in packet order. `interrupted` is asked between two stages.
fn bring_up(
    stages: Stages,
    state: &StateDirectory,
    configured: Vec<ConfiguredStage>,
    interrupted: &mut dyn FnMut() -> Result<()>,
    parent: &mut Parent,
) -> Result<Vec<(&'static str, Box<dyn Running>)>> {
    let mut journal = Journal::of(stages, state)?;
    if journal.is_unfinished() {
        log_at(
            Priority::Notice,
            "journal",
            "an earlier `tarn up` was interrupted: putting back what it had changed",
        );
        journal.undo_unfinished()?;
    }
    journal.begin()?;
    let names: Vec<&str> = configured.iter().map(|stage| stage.name).collect();
    let result = bring_up_each(state, &mut journal, configured, interrupted, parent);
    match result {
        Ok(running) => {
            journal.complete()?;
            take_down_others(stages, state, &mut journal, &names);
            Ok(running)
        }
        Err(error) => match journal.undo_unfinished() {
            Ok(_) => Err(error),
            Err(undoing) => {
                let both = format!("{}; and then: {undoing:#}", tarn_base::error::paragraph(&error));
                Err(error.context(both))
            }
        },
    }
}

fn bring_up_each(
    state: &StateDirectory,
    journal: &mut Journal,
    configured: Vec<ConfiguredStage>,
    interrupted: &mut dyn FnMut() -> Result<()>,
    parent: &mut Parent,
) -> Result<Vec<(&'static str, Box<dyn Running>)>> {
    let mut all = Vec::new();
    for ConfiguredStage { name, configured } in configured {
        interrupted()?;
        let running = configured
            .up(state, journal)
            .with_context(|| format!("{name} could not be brought up"))?;
        all.push((name, running));
        parent.stage_up(name)?;
    }
    interrupted()?;
    Ok(all)
}

/// Puts back the stages that an earlier configuration had and this one has not. What cannot be put back stays in the
/// journal, for the next `tarn up` or `tarn down`; it is no reason to take down what is up.
fn take_down_others(stages: &[&dyn Stage], state: &StateDirectory, journal: &mut Journal, configured: &[&str]) {
    let others: Vec<String> = journal
        .stages()
        .into_iter()
        .filter(|stage| !configured.contains(stage))
        .map(str::to_string)
        .collect();
    for name in others {
        log(&name, "is no longer configured: putting it back");
        let clean_up = |_| {
            let stage = stages.iter().find(|stage| stage.name() == name);
            stage.map_or(Ok(()), |stage| stage.clean_up(state))
        };
        if let Err(error) = journal.undo(Some(&name)).and_then(clean_up) {
            log_at(Priority::Error, &name, format!("{error:#}"));
        }
    }
}
