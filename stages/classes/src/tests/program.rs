//! tarn on the scene's server: the real agent, and programs that speak to it.

use std::io::{BufRead, BufReader, Result, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::scene::{Scene, unload};
use tarn_frame::state::StateDirectory;
use tarn_kernel::modules;
use tarn_lab::testing::Program;

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

[classes.import]
by = "months"
thresholds = [12, 6]
"#;

/// tarn on the scene's server.
pub struct Server<'a> {
    program: Program<'a>,
}

impl<'a> Server<'a> {
    /// `tarn up`. The scene's own map of clients would stand beside tarn's.
    pub fn up(scene: &'a Scene) -> Self {
        let server = scene.node("server");
        server.run("nft", &["delete table inet classes"]).unwrap();
        let program = Program::new(server, CONFIGURATION);
        program.run("up");
        Self { program }
    }

    /// `tarn up` once more: the agent is replaced.
    pub fn up_again(&self) {
        self.program.run("up");
    }

    /// `tarn down`, after which nothing is left of it.
    pub fn down(self) {
        self.program.run("down");
        assert!(!self.state().exists());
        if modules::is_loaded("tarn_classes") {
            unload();
        }
    }

    /// What tarn keeps about the server's namespace.
    pub fn state(&self) -> StateDirectory {
        self.program.state()
    }

    /// perOpen.
    pub fn open(&self) -> Session {
        let mut session = Session::connect(&self.state()).unwrap();
        assert_eq!(session.ask(&json!({"request": "open"})).unwrap()["ok"], true);
        session
    }

    /// A verb of the stage on the command line: its exit code, and what it printed or complained of.
    pub fn command_line(&self, line: &str) -> (u8, String) {
        self.program.command_line(&format!("tarn classes {line}"))
    }
}

/// A program that speaks to the agent.
pub struct Session {
    pub stream: UnixStream,
    pub reader: BufReader<UnixStream>,
}

impl Session {
    /// Begins, if there is an agent.
    pub fn connect(state: &StateDirectory) -> Result<Self> {
        let stream = UnixStream::connect(state.path().join("control.sock"))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, reader })
    }

    /// One request; an error when it is not let in, or not answered.
    pub fn try_ask(&mut self, request: &Value) -> Result<Value> {
        self.stream.write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

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
