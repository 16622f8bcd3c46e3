//! The agent's control socket: `control.sock` in the state directory, for root alone.
//!
//! A client writes requests as lines of JSON and reads an answer to each as a line of JSON. The agent's own requests:
//!
//! | request | answer besides `"ok":true` |
//! |---|---|
//! | `{"request":"version"}` | `version` |
//! | `{"request":"agent"}` | `agent`: `pid`, `version`, `since` (s since 1970), `loops` (`stage`, `state`, `restarts`, `error`) |
//! | `{"request":"status"}` | `status`: what `tarn status --json` prints |
//! | `{"request":"metrics"}` | `metrics`: what `tarn metrics` prints, as one text |
//! | `{"request":"stop"}` | `stopping`; the agent ends, and what is up in the kernel stays up |
//! | `{"request":"open"}` | `version`; begins a session |
//! | `{"request":"close"}` | nothing; ends it |
//!
//! and those of the stages, `{"stage":"classes","verb":"add","arguments":{...}}` ([`crate::cli::call`]), which are answered
//! with `result`. The first of them begins a session too. Without a session the agent hangs up after its answer.
//!
//! A request that cannot be answered, or not carried out, gets `{"ok":false,"error":"...","code":1}` with the words and the
//! exit code of the command line. docs/control-socket.md is for those who write programs.

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

mod lines;
mod permits;
mod session;
#[cfg(test)]
mod tests;
mod unique;

use self::permits::Permits;
use self::session::{Patience, Session, turn_away};
use super::supervisor::Loops;
use tarn_base::output::{Priority, log_at};
use tarn_base::runtime::{Stop, readable};
use tarn_frame::Stages;
use tarn_frame::agent::socket_path;
use tarn_frame::state::StateDirectory;

/// As many clients without a session are served at once.
const CLIENTS_LIMIT: usize = 16;

/// As many sessions are open at once. They take the permit of no client: `tarn status` is answered whatever they do.
const SESSIONS_LIMIT: usize = 16;

/// Answers requests until the stop fires.
pub struct Control {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

/// What every connection's thread has.
struct Shared {
    stages: Stages,
    state: StateDirectory,
    loops: Loops,
    stop: Arc<Stop>,
    patience: Patience,
    clients: Permits,
    sessions: Permits,
}

impl Shared {
    fn new(stages: Stages, state: StateDirectory, loops: Loops, stop: Arc<Stop>) -> Self {
        Self {
            stages,
            state,
            loops,
            stop,
            patience: Patience::USUAL,
            clients: Permits::new(CLIENTS_LIMIT),
            sessions: Permits::new(SESSIONS_LIMIT),
        }
    }
}

impl Control {
    /// Listens and answers on a thread of its own. An earlier agent's socket is replaced.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(stages: Stages, state: StateDirectory, loops: Loops, stop: Arc<Stop>) -> Result<Self> {
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
        let shared = Arc::new(Shared::new(stages, state, loops, stop));
        let context = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("control".to_string());
        let thread = thread.spawn(move || accept(&listener, &path, &context));
        let thread = thread.with_context(failed)?;
        Ok(Self { thread, shared })
    }

    /// Ends, after the stop has fired: clients have answers to all that they have sent, or `patience` ends. A verb that waits for its
    /// turn is refused then, see [`tarn_frame::ending`].
    pub fn end(self, patience: Instant) {
        // The thread ends with the stop; one that panicked has ended too.
        let _ = self.thread.join();
        let is_answering = || self.shared.clients.any_taken() || self.shared.sessions.any_taken();
        while Instant::now() < patience && is_answering() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn accept(listener: &UnixListener, path: &Path, context: &Arc<Shared>) {
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
    // Nobody finds the agent any more, and whoever has just found it is answered.
    let _ = std::fs::remove_file(path);
    while let Ok((stream, _)) = listener.accept() {
        serve(stream, context);
    }
}

/// Serves a client on a thread of its own, so that a slow one keeps nobody waiting.
fn serve(stream: UnixStream, context: &Arc<Shared>) {
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    let refuse = |why| turn_away(&stream, context.patience.answer, why);
    if !is_trusted(&stream) {
        return refuse("the control socket is for root alone");
    }
    let Some(permit) = context.clients.take() else {
        return refuse("the agent is busy with other clients: try again");
    };
    let shared = Arc::clone(context);
    let thread = std::thread::Builder::new().name("client".to_string());
    // Without a thread, the client's permit and the connection go with the closure.
    let _ = thread.spawn(move || Session::new(&stream, &shared, permit).converse());
}

/// Whether root, or the user that the agent runs as, is at the other end. The socket's mode says the same of who connects;
/// this holds also for a socket that somebody has made accessible to others.
fn is_trusted(stream: &UnixStream) -> bool {
    let us = nix::unistd::geteuid().as_raw();
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == 0 || peer.uid() == us)
}
