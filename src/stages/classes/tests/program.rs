//! tarn on the scene's server: the real agent, and programs that speak to it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};

use super::scene::{Scene, unload};
use crate::agent::client;
use crate::cli;
use crate::error::{exit_code, paragraph};
use crate::kernel::modules;
use crate::output::testing::output;
use crate::stages::STAGES;
use crate::state::StateDirectory;
use crate::testing::{REAL_NAMESPACE, REAL_STAGES, keep_signals, verb_arguments};

/// Three classes of UDP clients, none of whom the file names.
const CONFIGURATION: &str = r#"
[classes]
ports = ["udp/80"]
deadline = "20ms"
limit = 4

[[classes.class]]
name = "gold"
target = 90

[[classes.class]]
name = "silver"
target = 70

[[classes.class]]
name = "rest"
target = 50
"#;

/// tarn on the scene's server.
pub struct Program<'a> {
    scene: &'a Scene,
    directory: tempfile::TempDir,
}

impl<'a> Program<'a> {
    /// `tarn up`. The scene's own map of clients would stand beside tarn's.
    pub fn up(scene: &'a Scene) -> Self {
        scene.node("server").run("nft", &["delete table inet classes"]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        for mark in [REAL_NAMESPACE, REAL_STAGES] {
            std::fs::write(directory.path().join(mark), "").unwrap();
        }
        std::fs::write(directory.path().join("tarn.toml"), CONFIGURATION).unwrap();
        let program = Self { scene, directory };
        program.run("up");
        program
    }

    /// `tarn down`, after which nothing is left of it.
    pub fn down(self) {
        self.run("down");
        assert!(!self.state().exists());
        if modules::is_loaded("tarn_classes") {
            unload();
        }
    }

    fn run(&self, verb: &str) {
        let mut command = self.scene.node("server").command(std::env::current_exe().unwrap());
        command.args(verb_arguments(verb, &self.directory.path().join("tarn.toml")));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        keep_signals(&mut command);
        assert!(command.status().unwrap().success(), "tarn {verb}");
    }

    /// What tarn keeps about the server's namespace.
    pub fn state(&self) -> StateDirectory {
        self.scene
            .node("server")
            .enter(StateDirectory::of_this_namespace)
            .unwrap()
    }

    /// perOpen.
    pub fn open(&self) -> Session {
        let stream = UnixStream::connect(self.state().path().join("control.sock")).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        let mut session = Session { stream, reader };
        assert_eq!(session.ask(&json!({"request": "open"})).unwrap()["ok"], true);
        session
    }

    /// A verb of the stage on the command line: its exit code, and what it printed or complained of.
    pub fn command_line(&self, line: &str) -> (u8, String) {
        let run = || {
            let (mut output, written) = output(None);
            let words = format!("tarn classes {line}");
            let outcome = cli::run(STAGES, words.split(' ').map(Into::into), &mut output);
            Ok(match outcome {
                Err(error) => (exit_code(&error), paragraph(&error)),
                Ok(_) => (0, written.text()),
            })
        };
        self.scene.node("server").enter(run).unwrap()
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // A test that failed leaves no agent behind, which would keep the namespace.
        let _ = client::stop_agent(&self.state());
    }
}

/// A program that speaks to the agent.
pub struct Session {
    pub stream: UnixStream,
    pub reader: BufReader<UnixStream>,
}

impl Session {
    /// One request; `None` when the agent has hung up.
    pub fn ask(&mut self, request: &Value) -> Option<Value> {
        self.stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        (self.reader.read_line(&mut line).unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    fn call(&mut self, verb: &str, arguments: &Value) -> Value {
        let call = json!({"stage": "classes", "verb": verb, "arguments": arguments});
        self.ask(&call).expect("the agent has not hung up")
    }

    /// What a verb that succeeds answers with.
    pub fn does(&mut self, verb: &str, arguments: &Value) -> Value {
        let answer = self.call(verb, arguments);
        assert_eq!(answer["ok"], true, "{verb} {arguments}: {answer}");
        answer["result"].clone()
    }

    /// The words of a refusal, which has to be one of wrong usage.
    pub fn refuses(&mut self, verb: &str, arguments: &Value) -> String {
        let answer = self.call(verb, arguments);
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!(2)), "{answer}");
        answer["error"].as_str().unwrap().to_owned()
    }
}
