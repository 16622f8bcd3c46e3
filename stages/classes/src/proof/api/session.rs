//! A program on the control socket: see docs/control-socket.md.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use tarn_frame::state::StateDirectory;

/// An open session.
pub struct Session {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Session {
    /// With the agent of this state directory.
    ///
    /// # Errors
    /// No agent runs.
    pub fn open(state: &StateDirectory) -> Result<Self> {
        let stream = UnixStream::connect(state.path().join("control.sock")).context("cannot reach the agent")?;
        let reader = BufReader::new(stream.try_clone()?);
        let mut session = Self { stream, reader };
        session.ask(&json!({ "request": "open" })).map(|_| session)
    }

    /// What a verb of the stage answers with.
    ///
    /// # Errors
    /// What it refuses.
    pub fn call(&mut self, verb: &str, arguments: &Value) -> Result<Value> {
        let call = json!({ "stage": crate::STAGE, "verb": verb, "arguments": arguments });
        Ok(self.ask(&call)?["result"].take())
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        self.stream.write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("the agent says {line:?}"))?;
        ensure!(answer["ok"] == json!(true), "{request}: {answer}");
        Ok(answer)
    }
}
