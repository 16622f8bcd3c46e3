//! What the agent and one client say to each other.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::sys::socket::{MsgFlags, send};
use serde_json::{Value, json};

use super::Shared;
use super::lines::Lines;
use super::permits::Permit;
use super::unique::Unique;
use crate::call::Call;
use tarn_base::error::{self, Usage};
use tarn_base::output::Document;
use tarn_frame::agent::patient::Patient;
use tarn_frame::agent::{AgentInformation, lock_path};
use tarn_frame::ending;
use tarn_frame::state::read_bounded;
use tarn_watch::Report;

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// To begin its first request.
    pub first: Duration,
    /// To begin another one in a session.
    pub next: Duration,
    /// From a request's first byte to its line break.
    pub request: Duration,
    /// To take an answer.
    pub answer: Duration,
}

impl Patience {
    /// The agent's.
    pub const USUAL: Self = Self {
        first: Duration::from_secs(5),
        next: Duration::from_secs(60),
        request: Duration::from_secs(5),
        answer: Duration::from_secs(5),
    };
}

/// What a line asks for.
enum Request {
    /// One of the agent's own.
    Own(String),
    /// A stage's verb.
    Verb(Call),
}

/// What becomes of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    HangUp,
    EndTheAgent,
}

/// An answer, in pieces, for a list of a million clients is not copied.
struct Answer(Vec<Vec<u8>>);

/// One connection.
pub struct Session<'a> {
    stream: &'a UnixStream,
    shared: &'a Shared,
    /// A client's, or that of a session once there is one.
    permit: Permit,
    is_open: bool,
}

impl<'a> Session<'a> {
    /// A client that has just connected; `permit` is a client's.
    pub fn new(stream: &'a UnixStream, shared: &'a Shared, permit: Permit) -> Self {
        Self {
            stream,
            shared,
            permit,
            is_open: false,
        }
    }

    /// Answers requests until either side hangs up. When the agent ends, those that it has got are answered, and verbs that have not
    /// begun are refused so that the client knows to repeat them.
    pub fn converse(mut self) {
        let patience = self.shared.patience;
        let mut lines = Lines::of(self.stream, &self.shared.stop);
        loop {
            let silence = if self.is_open { patience.next } else { patience.first };
            let (answer, then) = match lines.next(silence, patience.request) {
                Ok(None) => return,
                Ok(Some(line)) => self.answer(&line),
                Err(error) => (Answer::failure(&error), Then::HangUp),
            };
            let is_taken = answer.send(self.stream, patience.answer);
            if then == Then::EndTheAgent {
                // Not before the answer: the process ends with it.
                self.shared.stop.fire();
            }
            if !is_taken || then != Then::GoOn {
                return;
            }
        }
    }

    fn answer(&mut self, line: &[u8]) -> (Answer, Then) {
        let answer = match Request::read(line) {
            Ok(Request::Own(name)) if name != "open" => {
                let then = match name.as_str() {
                    "stop" => Then::EndTheAgent,
                    "close" => Then::HangUp,
                    _ => self.usually(),
                };
                let answer =
                    own(self.shared, &name).map_or_else(|error| Answer::failure(&error), |json| Answer::of(&json));
                return (answer, then);
            }
            Ok(request) => self.open().and_then(|()| self.in_session(&request)),
            Err(error) => Err(error),
        };
        let answer = answer.unwrap_or_else(|error| Answer::failure(&error));
        (answer, self.usually())
    }

    /// A connection without a session ends with its first answer.
    fn usually(&self) -> Then {
        if self.is_open { Then::GoOn } else { Then::HangUp }
    }

    /// Makes a session of the connection, which is one until it ends.
    fn open(&mut self) -> Result<()> {
        if !self.is_open {
            let permit = self.shared.sessions.take();
            self.permit = permit.context("as many sessions are open as there may be: end one, or try again")?;
            self.is_open = true;
        }
        Ok(())
    }

    fn in_session(&self, request: &Request) -> Result<Answer> {
        match request {
            Request::Own(_) => Ok(Answer::of(&json!({"ok": true, "version": env!("CARGO_PKG_VERSION")}))),
            Request::Verb(call) => {
                ending::on(&self.shared.stop);
                ending::check()?;
                let stream = self.stream.try_clone().context("cannot answer")?;
                let (document, result) = call.carry_out(self.shared.stages, Box::new(move || begin(&stream)));
                Ok(Answer::of_verb(document, result))
            }
        }
    }
}

impl Request {
    fn read(line: &[u8]) -> Result<Self> {
        let wrong = |told: String| anyhow::Error::from(Usage(told));
        let Unique(request) = serde_json::from_slice(line).map_err(|error| match error.is_data() {
            true => wrong(format!("the request is ambiguous: {error}")),
            false => wrong(format!("the request is not JSON: {error}")),
        })?;
        match request.get("request") {
            Some(Value::String(name)) => Ok(Self::Own(name.clone())),
            Some(_) => Err(wrong("\"request\" is no text".to_owned())),
            None if request.get("stage").is_some() => serde_json::from_value(request)
                .map(Self::Verb)
                .map_err(|error| wrong(format!("the request is no call of a verb: {error}"))),
            None => Err(wrong(
                "the request has no \"request\", and no \"stage\" and \"verb\"".to_owned(),
            )),
        }
    }
}

/// Carries out one of the agent's own requests.
fn own(shared: &Shared, name: &str) -> Result<Value> {
    let report = || Report::gather(shared.stages, &shared.state, Some(information(shared)?), false);
    match name {
        "version" => Ok(json!({"ok": true, "version": env!("CARGO_PKG_VERSION")})),
        "agent" => Ok(json!({"ok": true, "agent": information(shared)?})),
        "status" => Ok(json!({"ok": true, "status": report()?.json()})),
        "metrics" => Ok(json!({"ok": true, "metrics": report()?.metrics()})),
        "stop" => Ok(json!({"ok": true, "stopping": true})),
        "close" => Ok(json!({"ok": true})),
        other => Err(Usage(format!(
            "there is no request {other:?}: version, agent, status, metrics, stop, open, close"
        ))
        .into()),
    }
}

fn information(shared: &Shared) -> Result<AgentInformation> {
    let text = read_bounded(&lock_path(&shared.state), 4096).context("cannot read the agent's file")?;
    let me: AgentInformation = serde_json::from_str(&text).context("cannot read the agent's file")?;
    Ok(AgentInformation {
        loops: shared.loops.now(),
        ..me
    })
}

impl Answer {
    fn of(json: &Value) -> Self {
        Self(vec![format!("{json}\n").into_bytes()])
    }

    fn failure(error: &anyhow::Error) -> Self {
        Self::of(&error::json(error))
    }

    /// What a verb has said, also when it has failed.
    fn of_verb(document: Document, result: Result<()>) -> Self {
        let (document, head) = match (document.into_json(), result) {
            (Ok(document), Ok(())) => (document.or(Some(b"null".to_vec())), "{\"ok\":true".to_owned()),
            (document, Err(error)) => {
                let text = error::json(&error).to_string();
                (
                    document.ok().flatten(),
                    text.strip_suffix('}').unwrap_or(&text).to_owned(),
                )
            }
            (Err(error), Ok(())) => return Self::failure(&error),
        };
        match document {
            Some(json) => Self(vec![format!("{head},\"result\":").into_bytes(), json, b"}\n".to_vec()]),
            None => Self(vec![format!("{head}}}\n").into_bytes()]),
        }
    }

    /// Returns whether the client has taken it. One that is gone, or does not take its answer, wants none.
    fn send(&self, stream: &UnixStream, patience: Duration) -> bool {
        let mut stream = Patient::with(stream, patience);
        self.0.iter().all(|piece| stream.write_all(piece).is_ok())
    }
}

/// Begins an answer with a blank, which JSON allows. The kernel decides who is first: a client that has hung up, or shut down
/// reading, before this byte is sent, never gets it and has withdrawn its request.
pub fn begin(stream: &UnixStream) -> Result<()> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    send(stream.as_raw_fd(), b" ", flags).context("the client does not wait for an answer any more")?;
    Ok(())
}

/// Turns a client away that there is no permit for.
pub fn turn_away(stream: &UnixStream, patience: Duration, why: &str) {
    Answer::failure(&anyhow!("{why}")).send(stream, patience);
}
