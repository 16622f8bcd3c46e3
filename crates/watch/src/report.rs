//! What runs, read from the kernel, so that it is true without an agent too.
//!
//! The document of `--json`:
//!
//! | key | meaning |
//! |---|---|
//! | `tarn` | the version of the program that prints this |
//! | `namespace` | which network namespace this is about |
//! | `up` | whether any stage is up |
//! | `troubles` | why not all of it works as configured, one text each: then `tarn status` exits with 1 |
//! | `changing` | whether a `tarn up` is at work, for a minute at most: the agent may be absent meanwhile |
//! | `unfinished` | whether a `tarn up` was interrupted: `tarn up` or `tarn down` finishes it |
//! | `agent` | `null` without an agent; otherwise `pid`, `version`, `since` (UTC), `uptime_s`, `answers` (whether it does) |
//! | `stages[].name` | the stages, in packet order |
//! | `stages[].up` | whether the stage is up in the kernel |
//! | `stages[].trouble` | `null`, or why it does not do what it was configured for: half up, left alone because somebody else has changed it, ... |
//! | `stages[].loop` | `null`, or `state` (`running`, `waiting` after a failure, `ended`), `restarts`, `error` |
//! | `stages[].figures` | `null`, or the stage's own figures, as its README describes them |
//! | `stages[].error` | `null`, or why the stage's figures could not be read |

use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};

use tarn_base::error::paragraph;
use tarn_base::figures::{Exposition, Figures, Kind};
use tarn_base::output::Output;
use tarn_base::runtime;
use tarn_frame::Stage;
use tarn_frame::agent::{self, AgentInformation, LoopInformation, LoopState};
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;

use crate::frame::Frame;

/// What a stage says of itself now.
#[derive(Debug, Clone)]
pub struct StageView {
    /// Its name.
    pub name: &'static str,
    /// Its figures; `None` when it is down, or why they could not be read.
    pub figures: Result<Option<Figures>, String>,
    /// Why it does not do what it was configured for.
    pub trouble: Option<String>,
}

/// All that is told about one namespace.
#[derive(Debug)]
pub struct Report {
    namespace: String,
    /// Whether a `tarn up` is at work, which may replace the agent.
    is_changing: bool,
    unfinished: bool,
    agent: Option<AgentInformation>,
    stages: Vec<StageReport>,
}

#[derive(Debug)]
struct StageReport {
    name: &'static str,
    figures: Result<Option<Figures>, String>,
    looping: Option<LoopInformation>,
    /// Whether the journal has changes of it.
    is_recorded: bool,
}

impl StageReport {
    /// Why it does not do what it was configured for.
    fn trouble(&self) -> Option<String> {
        match (&self.figures, &self.looping) {
            (Err(error), _) => Some(format!("its figures cannot be read: {error}")),
            (Ok(None), _) if self.is_recorded => Some(
                "half up: some of its changes stand, and it does not run: `tarn up` or `tarn down` finishes it"
                    .to_owned(),
            ),
            (_, Some(looping)) if looping.state == LoopState::Waiting => Some(format!(
                "its loop failed {} times and is about to be started again: {}",
                looping.restarts,
                looping.error.as_deref().unwrap_or("no reason given")
            )),
            (Ok(figures), _) => figures.as_ref()?.trouble().map(str::to_owned),
        }
    }

    fn is_up(&self) -> bool {
        matches!(self.figures, Ok(Some(_)))
    }

    fn json(&self) -> Value {
        let looping = self
            .looping
            .as_ref()
            .map(|looping| json!({"state": looping.state, "restarts": looping.restarts, "error": looping.error}));
        json!({
            "name": self.name,
            "up": self.is_up(),
            "trouble": self.trouble(),
            "loop": looping,
            "figures": self.figures.as_ref().ok().and_then(Option::as_ref).map(Figures::json),
            "error": self.figures.as_ref().err(),
        })
    }
}

impl Report {
    /// Reads everything. An agent that does not answer within `patience` counts as one that does not answer.
    ///
    /// # Errors
    /// Those of [`Report::gather`].
    pub fn of(frame: &Frame, patience: Duration) -> Result<Self> {
        let state = &frame.state;
        let was_changing = state.is_coming_up();
        let exists = state.exists();
        let agent = exists.then(|| agent::information_within(state, patience)).flatten();
        Self::gather(frame.stages, state, agent, was_changing)
    }

    /// The agent in a short line.
    pub fn agent(&self) -> String {
        match &self.agent {
            Some(agent) => format!(
                "agent: process {}, up {}{}",
                agent.pid,
                uptime(agent),
                other_version(agent)
            ),
            None if self.is_up() => "agent not running".to_owned(),
            None => "nothing is up in this network namespace".to_owned(),
        }
    }

    /// The stages, in packet order.
    pub fn into_stages(self) -> Vec<StageView> {
        let view = |stage: StageReport| StageView {
            name: stage.name,
            trouble: stage.trouble(),
            figures: stage.figures,
        };
        self.stages.into_iter().map(view).collect()
    }

    /// Reads everything. `agent` is what the agent says of itself; `was_changing`, whether a `tarn up` was at work before it
    /// was asked.
    ///
    /// # Errors
    /// When the journal cannot be read. A stage that cannot be read is told of in the report.
    pub fn gather(
        stages: &[&dyn Stage],
        state: &StateDirectory,
        agent: Option<AgentInformation>,
        was_changing: bool,
    ) -> Result<Self> {
        let exists = state.exists();
        let is_changing = was_changing || state.is_coming_up();
        // Another tarn that is at work now has not finished either.
        let is_settled = exists && !state.is_locked();
        let journal = is_settled.then(|| Journal::open(state)).transpose()?;
        let unfinished = agent.is_none() && journal.as_ref().is_some_and(Journal::is_unfinished);
        let loop_of = |name: &str| agent.as_ref()?.loops.iter().find(|entry| entry.stage == name).cloned();
        let stages = stages.iter().map(|stage| StageReport {
            name: stage.name(),
            figures: if exists {
                stage.status(state).map_err(|error| paragraph(&error))
            } else {
                Ok(None)
            },
            looping: loop_of(stage.name()),
            is_recorded: journal
                .as_ref()
                .is_some_and(|journal| journal.stages().contains(&stage.name())),
        });
        let stages = stages.collect();
        Ok(Self {
            namespace: state.name(),
            is_changing,
            unfinished,
            agent,
            stages,
        })
    }

    fn is_up(&self) -> bool {
        self.stages.iter().any(StageReport::is_up)
    }

    /// As `--json` prints it.
    pub fn json(&self) -> Value {
        let agent = self.agent.as_ref().map(|agent| {
            json!({
                "pid": agent.pid,
                "version": agent.version,
                "since": runtime::timestamp(agent.since),
                "uptime_s": runtime::now().saturating_sub(agent.since),
                "answers": !agent.silent,
            })
        });
        json!({
            "tarn": env!("CARGO_PKG_VERSION"),
            "namespace": self.namespace,
            "up": self.is_up(),
            "troubles": self.troubles(),
            "changing": self.is_changing,
            "unfinished": self.unfinished,
            "agent": agent,
            "stages": self.stages.iter().map(StageReport::json).collect::<Vec<_>>(),
        })
    }

    /// As Prometheus reads it.
    pub fn metrics(&self) -> String {
        let mut exposition = Exposition::default();
        let mut gauge = |name: &str, about: &str, labels: &[(&str, String)], value: f64| {
            exposition.add(name, Kind::Gauge, about, labels, value);
        };
        let build = [("version", env!("CARGO_PKG_VERSION").to_string())];
        gauge("tarn_build_info", "The version of tarn that prints this", &build, 1.0);
        gauge(
            "tarn_agent_up",
            "Whether the agent runs",
            &[],
            truth(self.agent.is_some()),
        );
        for stage in &self.stages {
            let labels = [("stage", stage.name.to_string())];
            let about = "Whether the stage is up in the kernel";
            gauge("tarn_stage_up", about, &labels, truth(stage.is_up()));
        }
        gauge(
            "tarn_troubles",
            "Why not all works as configured: how many reasons `tarn status` gives",
            &[],
            self.troubles().len() as f64,
        );
        for stage in &self.stages {
            if let Some(looping) = &stage.looping {
                let about = "How often the stage's loop failed and was started again";
                let labels = [("stage", stage.name.to_string())];
                let name = "tarn_stage_loop_restarts_total";
                exposition.add(name, Kind::Counter, about, &labels, looping.restarts as f64);
            }
            if let Ok(Some(figures)) = &stage.figures {
                exposition.add_figures(stage.name, figures);
            }
        }
        exposition.render()
    }

    /// As people read it.
    pub fn print(&self, output: &mut Output) {
        let troubles = self.troubles();
        if !self.is_up() && self.agent.is_none() && troubles.is_empty() {
            output.line("nothing is up in this network namespace");
            return;
        }
        for trouble in troubles {
            output.line(format_args!("trouble: {trouble}"));
        }
        if self.is_changing && self.agent.is_none() {
            output.line("a `tarn up` is at work, and starts the agent");
        }
        if let Some(agent) = &self.agent {
            output.line(agent_line(agent));
        }
        for stage in &self.stages {
            stage.print(output);
        }
    }

    /// Why not all of it works as it was configured, the most general first; empty when it does, or nothing is up.
    pub fn troubles(&self) -> Vec<String> {
        let interrupted = "half up: a `tarn up` was interrupted: `tarn up` or `tarn down` finishes it";
        let alone = "the agent is not running: what is up in the kernel works, but nothing adapts it; `tarn up` starts it \
                     again";
        let silent = "the agent does not answer: if that stays so, `tarn up` replaces it";
        let agent = match &self.agent {
            _ if self.unfinished => Some(interrupted),
            None if self.is_up() && !self.is_changing => Some(alone),
            Some(agent) if agent.silent && !self.is_changing => Some(silent),
            _ => None,
        };
        let named = |stage: &StageReport| Some(format!("{}: {}", stage.name, stage.trouble()?));
        let stages = self.stages.iter().filter_map(named);
        agent.map(str::to_owned).into_iter().chain(stages).collect()
    }

    /// What could not be read.
    pub fn errors(&self) -> Option<anyhow::Error> {
        let failed = |stage: &StageReport| {
            stage
                .figures
                .as_ref()
                .err()
                .map(|error| format!("{}: {error}", stage.name))
        };
        let errors: Vec<String> = self.stages.iter().filter_map(failed).collect();
        (!errors.is_empty()).then(|| anyhow!("cannot read the figures of {}", errors.join("; ")))
    }
}

/// As Prometheus has it.
fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn uptime(agent: &AgentInformation) -> String {
    runtime::duration(runtime::now().saturating_sub(agent.since))
}

/// What to do about an agent of another version; empty when it is this one.
fn other_version(agent: &AgentInformation) -> String {
    match agent.version.as_str() {
        env!("CARGO_PKG_VERSION") => String::new(),
        other => format!(", of version {other}: `tarn up` starts this one"),
    }
}

fn agent_line(agent: &AgentInformation) -> String {
    let (uptime, version) = (uptime(agent), other_version(agent));
    format!("the agent runs as process {}, for {uptime}{version}", agent.pid)
}

impl StageReport {
    fn print(&self, output: &mut Output) {
        let Ok(Some(figures)) = &self.figures else {
            output.line(format_args!(
                "\n{}: {}",
                self.name,
                if self.figures.is_err() { "not known" } else { "down" }
            ));
            return;
        };
        output.line(format_args!("\n{}: up", self.name));
        if let Some(LoopInformation {
            restarts: restarts @ 1..,
            error: Some(error),
            ..
        }) = &self.looping
        {
            output.line(format_args!("its loop failed {restarts} times before, of: {error}"));
        }
        if !figures.fields.is_empty() {
            output.table(&figures.table());
        }
        for table in &figures.tables {
            output.line(format_args!("\n{}: {}", self.name, table.about));
            output.table(&table.table());
        }
    }
}
