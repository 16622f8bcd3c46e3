//! The agent's control socket: `control.sock` in the state directory, for root alone.
//!
//! A client connects, writes one request as a line of JSON, and reads one answer as a line of JSON; then the
//! connection ends. Requests:
//!
//! | request | answer besides `"ok":true` |
//! |---|---|
//! | `{"request":"version"}` | `version` |
//! | `{"request":"agent"}` | `agent`: `pid`, `version`, `since` (s since 1970), `loops` (`stage`, `state`, `restarts`, `error`) |
//! | `{"request":"status"}` | `status`: what `tarn status --json` prints |
//! | `{"request":"metrics"}` | `metrics`: what `tarn metrics` prints, as one text |
//! | `{"request":"stop"}` | `stopping`; the agent ends, and what is up in the kernel stays up |
//!
//! A request that cannot be answered gets `{"ok":false,"error":"..."}`. A request has at most 4096 bytes and must come
//! within 5 seconds, and the answer must be taken within 5 more; at most 16 clients are served at once, more are told that the agent is busy.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use super::patient::Patient;
use super::supervisor::Watch;
use super::{AgentInformation, lock_path};
use crate::cli::status;
use crate::output::{Priority, log_at};
use crate::runtime::{Stop, readable};
use crate::stages::Stage;
use crate::state::{StateDirectory, read_bounded};

/// The longest request, in bytes, its line break included.
const REQUEST_LIMIT: u64 = 4096;

/// As many clients are served at once.
const CLIENTS_LIMIT: usize = 16;

/// How long a client may take to ask and to take its answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);

/// The control socket's path.
pub fn socket_path(state: &StateDirectory) -> PathBuf {
    state.path().join("control.sock")
}

/// Answers requests until the stop fires.
#[derive(Debug)]
pub struct Control {
    thread: JoinHandle<()>,
    path: PathBuf,
}

struct Shared {
    stages: &'static [&'static dyn Stage],
    state: StateDirectory,
    watch: Watch,
    stop: Arc<Stop>,
    clients: AtomicUsize,
}

impl Control {
    /// Listens and answers on a thread of its own. An earlier agent's socket is replaced.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(
        stages: &'static [&'static dyn Stage],
        state: StateDirectory,
        watch: Watch,
        stop: Arc<Stop>,
    ) -> Result<Self> {
        let path = socket_path(&state);
        let shown = path.display().to_string();
        let failed = || format!("cannot make the control socket {shown}");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).with_context(failed),
            _ => {}
        }
        let listener = UnixListener::bind(&path).with_context(failed)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).with_context(failed)?;
        listener.set_nonblocking(true).with_context(failed)?;
        let context = Arc::new(Shared {
            stages,
            state,
            watch,
            stop,
            clients: AtomicUsize::new(0),
        });
        let thread = std::thread::Builder::new().name("control".to_string());
        let thread = thread.spawn(move || accept(&listener, &context)).with_context(failed)?;
        Ok(Self { thread, path })
    }

    /// Ends, after the stop has fired.
    pub fn end(self) {
        // The thread ends with the stop; one that panicked has ended too.
        let _ = self.thread.join();
        let _ = std::fs::remove_file(&self.path);
    }
}

fn accept(listener: &UnixListener, context: &Arc<Shared>) {
    while !context.stop.fired() {
        readable(&[listener.as_fd(), context.stop.as_fd()], Duration::from_secs(3600));
        match listener.accept() {
            Ok((stream, _)) => serve(stream, context),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => {
                log_at(Priority::Warning, "agent", format!("cannot accept a client: {error}"));
                // Out of descriptors, most likely: not again at once.
                context.stop.wait(Duration::from_secs(1));
            }
        }
    }
}

/// Serves a client on a thread of its own, so that a slow one keeps nobody waiting.
fn serve(stream: UnixStream, context: &Arc<Shared>) {
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    if context.clients.fetch_add(1, Ordering::SeqCst) >= CLIENTS_LIMIT {
        answer(&stream, &failure("the agent is busy with other clients: try again"));
        context.clients.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let shared = Arc::clone(context);
    let thread = std::thread::Builder::new().name("client".to_string());
    let started = thread.spawn(move || {
        let request = read_request(&stream);
        let stopping = matches!(&request, Ok(request) if request == "stop");
        let reply = request.and_then(|request| respond(&shared, &request));
        answer(
            &stream,
            &reply.unwrap_or_else(|error| failure(&crate::error::paragraph(&error))),
        );
        shared.clients.fetch_sub(1, Ordering::SeqCst);
        // Not before the answer: the process ends with it.
        if stopping {
            shared.stop.fire();
        }
    });
    if started.is_err() {
        context.clients.fetch_sub(1, Ordering::SeqCst);
    }
}

fn read_request(stream: &UnixStream) -> Result<String> {
    let mut line = String::new();
    let mut limited = BufReader::new(Patient::with(stream, CLIENT_PATIENCE).take(REQUEST_LIMIT));
    limited.read_line(&mut line).context("cannot read the request")?;
    if !line.ends_with('\n') {
        return Err(anyhow!(
            "a request is one line of JSON with at most {REQUEST_LIMIT} bytes"
        ));
    }
    let request: Value = serde_json::from_str(&line).context("the request is not JSON")?;
    let name = request.get("request").and_then(Value::as_str).map(str::to_string);
    name.ok_or_else(|| anyhow!("the request has no \"request\""))
}

fn respond(context: &Shared, request: &str) -> Result<Value> {
    match request {
        "version" => Ok(json!({"ok": true, "version": env!("CARGO_PKG_VERSION")})),
        "agent" => Ok(json!({"ok": true, "agent": information(context)?})),
        "status" => {
            let report = status::Report::gather(context.stages, &context.state, Some(information(context)?))?;
            Ok(json!({"ok": true, "status": report.json()}))
        }
        "metrics" => {
            let report = status::Report::gather(context.stages, &context.state, Some(information(context)?))?;
            Ok(json!({"ok": true, "metrics": report.metrics()}))
        }
        "stop" => Ok(json!({"ok": true, "stopping": true})),
        other => Err(anyhow!(
            "there is no request {other:?}: version, agent, status, metrics, stop"
        )),
    }
}

fn information(context: &Shared) -> Result<AgentInformation> {
    let text = read_bounded(&lock_path(&context.state), 4096).context("cannot read the agent's file")?;
    let me: AgentInformation = serde_json::from_str(&text).context("cannot read the agent's file")?;
    Ok(AgentInformation {
        loops: context.watch.loops(),
        ..me
    })
}

fn failure(message: &str) -> Value {
    json!({"ok": false, "error": message})
}

fn answer(stream: &UnixStream, reply: &Value) {
    // A client that is gone, or does not take its answer, wants none.
    let _ = Patient::with(stream, CLIENT_PATIENCE).write_all(format!("{reply}\n").as_bytes());
}
