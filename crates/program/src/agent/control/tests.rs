//! Conversations over a socket pair, with an agent's side and nobody's stages but the frame's own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;

use serde_json::{Value, json};

use super::*;
use crate::testing::STAGES;

/// An agent's side for as many clients and sessions as it has places.
struct Agent {
    shared: Arc<Shared>,
    _directory: tempfile::TempDir,
}

/// The other side of one connection.
struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

const SHORT: Duration = Duration::from_millis(100);

impl Agent {
    fn new() -> Self {
        Self::with(Patience::USUAL)
    }

    fn with(patience: Patience) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(&directory.path().join("run"), "netns-test");
        let stop = Arc::new(Stop::new().unwrap());
        let shared = Shared {
            patience,
            ..Shared::new(STAGES, state, Loops::default(), stop)
        };
        Self {
            shared: Arc::new(shared),
            _directory: directory,
        }
    }

    fn connect(&self) -> Client {
        let (ours, theirs) = UnixStream::pair().unwrap();
        serve(ours, &self.shared);
        let reader = BufReader::new(theirs.try_clone().unwrap());
        reader
            .get_ref()
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Client { stream: theirs, reader }
    }
}

impl Client {
    fn say(&mut self, text: &str) {
        // The agent may have hung up already.
        let _ = self.stream.write_all(text.as_bytes());
    }

    /// The next answer; `None` when the agent has hung up.
    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            // Hung up before all of a request was read.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(error) => panic!("the agent neither answers nor hangs up: {error}"),
        }
    }

    fn ask(&mut self, request: &Value) -> Option<Value> {
        self.say(&format!("{request}\n"));
        self.hear()
    }

    fn count(&mut self, to: &Value) -> Option<Value> {
        self.ask(&json!({"stage": "first", "verb": "count", "arguments": {"to": to}}))
    }
}

fn result(json: &Value) -> Option<Value> {
    Some(json!({"ok": true, "result": json}))
}

#[test]
fn one_session_carries_many_requests() {
    let mut client = Agent::new().connect();
    assert_eq!(
        client.ask(&json!({"request": "open"})),
        Some(json!({"ok": true, "version": env!("CARGO_PKG_VERSION")}))
    );
    assert_eq!(client.count(&json!(2)), result(&json!([1, 2])));
    assert_eq!(client.count(&json!("3")), result(&json!([1, 2, 3])));
    assert_eq!(client.ask(&json!({"request": "version"})).unwrap()["ok"], true);
    let list = json!({"stage": "second", "verb": "list"});
    assert_eq!(client.ask(&list), result(&json!("second json=true")));
    assert_eq!(client.ask(&json!({"request": "close"})), Some(json!({"ok": true})));
    assert_eq!(client.hear(), None);
}

/// Programs that were written before there were sessions read to the end of the stream.
#[test]
fn without_a_session_the_agent_hangs_up_after_its_answer() {
    let agent = Agent::new();
    for request in ["{\"request\":\"version\"}\n", "rubbish\n", "{\"request\":\"dance\"}\n"] {
        let mut client = agent.connect();
        client.say(request);
        assert!(client.hear().is_some(), "{request}");
        assert_eq!(client.hear(), None, "{request}");
    }
}

#[test]
fn a_verb_begins_a_session_and_may_be_followed_at_once() {
    let mut client = Agent::new().connect();
    let call = |to: u64| json!({"stage": "first", "verb": "count", "arguments": {"to": to}});
    client.say(&format!("{}\n{}\n{}\n", call(1), call(2), call(0)));
    for expected in [json!([1]), json!([1, 2]), json!([])] {
        assert_eq!(client.hear(), result(&expected));
    }
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.hear(), None);
}

/// A program tells a refusal from a failure by the code, as a script does, and goes on.
#[test]
fn what_is_wrong_is_told_with_its_exit_code_and_ends_no_session() {
    let mut client = Agent::new().connect();
    assert!(client.count(&json!(0)).is_some());
    for (line, code, told) in [
        ("rubbish", 2, "the request is not JSON"),
        ("", 2, "the request is not JSON"),
        ("\u{0}", 2, "the request is not JSON"),
        ("{}", 2, "no \"request\""),
        ("[1]", 2, "no \"request\""),
        ("{\"request\":7}", 2, "\"request\" is no text"),
        (
            "{\"request\":\"stop\",\"request\":\"version\"}",
            2,
            "the request is ambiguous: the key \"request\" is given twice",
        ),
        (
            "{\"stage\":\"first\",\"verb\":\"count\",\"arguments\":{\"to\":1,\"to\":2}}",
            2,
            "the key \"to\" is given twice",
        ),
        ("{\"request\":\"dance\"}", 2, "there is no request \"dance\""),
        ("{\"stage\":\"first\"}", 2, "missing field `verb`"),
        (
            "{\"stage\":\"third\",\"verb\":\"count\"}",
            2,
            "there is no stage `third`",
        ),
        (
            "{\"stage\":\"first\",\"verb\":\"dance\"}",
            2,
            "there is no verb `dance`",
        ),
        (
            "{\"stage\":\"first\",\"verb\":\"count\"}",
            2,
            "argument `to`: it is missing",
        ),
        (
            "{\"stage\":\"first\",\"verb\":\"count\",\"arguments\":{\"to\":\"x\"}}",
            2,
            "invalid value 'x' for '<to>'",
        ),
    ] {
        client.say(&format!("{line}\n"));
        let answer = client.hear().unwrap();
        assert_eq!(
            (&answer["ok"], &answer["code"]),
            (&json!(false), &json!(code)),
            "{answer}"
        );
        assert!(answer["error"].as_str().unwrap().contains(told), "{answer}");
    }
    let answer = client.count(&json!(13)).unwrap();
    assert_eq!(
        (&answer["code"], answer["result"].as_array().unwrap().len()),
        (&json!(3), 13)
    );
    assert_eq!(answer["error"], "this host is superstitious");
    assert_eq!(client.count(&json!(1)), result(&json!([1])));
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_agent_hangs_up() {
    let mut client = Agent::new().connect();
    assert!(client.count(&json!(0)).is_some());
    client.say(&"x".repeat(lines::REQUEST_LIMIT + 1));
    let answer = client.hear().unwrap();
    assert!(
        answer["error"].as_str().unwrap().contains("may have 262144 bytes"),
        "{answer}"
    );
    assert_eq!(client.hear(), None);
}

/// Who was told that nothing changes must not find it changed later, however late the agent gets to it.
#[test]
fn a_request_is_withdrawn_for_certain_or_not_at_all() {
    let read = |mut client: &UnixStream| {
        let mut read = String::new();
        client.read_to_string(&mut read).unwrap();
        read
    };
    let (agent, client) = UnixStream::pair().unwrap();
    session::begin(&agent).unwrap();
    client.shutdown(Shutdown::Read).unwrap();
    assert_eq!(read(&client), " ", "the agent was first");

    let (agent, client) = UnixStream::pair().unwrap();
    client.shutdown(Shutdown::Read).unwrap();
    assert_eq!(read(&client), "", "the client was first");
    assert!(session::begin(&agent).is_err());

    let (agent, client) = UnixStream::pair().unwrap();
    drop(client);
    assert!(session::begin(&agent).is_err());

    // Who reads nothing keeps no loop of a stage waiting.
    let (mut agent, _client) = UnixStream::pair().unwrap();
    agent.set_nonblocking(true).unwrap();
    while agent.write(&[0; 4096]).is_ok() {}
    agent.set_nonblocking(false).unwrap();
    assert!(session::begin(&agent).is_err());
}

/// A router's many uplinks can be given their costs at once.
#[test]
fn one_request_has_room_for_64_uplinks_in_64_groups() {
    let mut client = Agent::new().connect();
    let costs: Vec<String> = (0..64 * 64).map(|number| format!("uplink-{number:08}=10000")).collect();
    let answer = client.ask(&json!({"stage": "first", "verb": "count", "arguments": {"to": 1, "cost": costs}}));
    let error = answer.unwrap()["error"].to_string();
    assert!(error.contains("there is no argument `cost`"), "it was read: {error}");
}

/// Half a request may be the beginning of another one than it looks like.
#[test]
fn half_a_request_is_not_carried_out() {
    let mut client = Agent::new().connect();
    client.say("{\"stage\":\"first\",\"verb\":\"count\",\"arguments\":{\"to\":1}}");
    client.stream.shutdown(Shutdown::Write).unwrap();
    let answer = client.hear().unwrap();
    assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!(2)));
    assert!(
        answer["error"].as_str().unwrap().contains("has no line end"),
        "{answer}"
    );
    assert_eq!(client.hear(), None);
}

#[test]
fn who_says_nothing_is_hung_up_on_before_and_in_a_session() {
    let agent = Agent::with(Patience {
        first: SHORT,
        next: SHORT,
        ..Patience::USUAL
    });
    let mut silent = agent.connect();
    let mut session = agent.connect();
    session.say("{\"request\":\"open\"}\n");
    assert_eq!(session.hear().unwrap()["ok"], true);
    for client in [&mut silent, &mut session] {
        let answer = client.hear().unwrap();
        assert_eq!(answer["code"], 1);
        assert!(answer["error"].as_str().unwrap().contains("in time"), "{answer}");
        assert_eq!(client.hear(), None);
    }
    crate::testing::wait_until("their places are free", || {
        agent.shared.sessions.take().is_some() && !agent.shared.clients.any_taken()
    });
}

/// Whoever takes no answers blocks a thread of its own, and not for ever.
#[test]
fn who_takes_no_answer_is_hung_up_on() {
    let agent = Agent::with(Patience {
        answer: SHORT,
        ..Patience::USUAL
    });
    let mut client = agent.connect();
    client.say("{\"stage\":\"first\",\"verb\":\"count\",\"arguments\":{\"to\":1000000}}\n");
    crate::testing::wait_until("the session is over", || {
        !agent.shared.sessions.any_taken() && !agent.shared.clients.any_taken()
    });
}

/// Programs that keep sessions open take neither each other's turn nor `tarn status`'s place.
#[test]
fn there_are_so_many_sessions_and_clients_besides_and_no_more() {
    let agent = Agent::new();
    let mut sessions: Vec<Client> = (0..SESSIONS_LIMIT).map(|_| agent.connect()).collect();
    for session in &mut sessions {
        assert!(session.count(&json!(0)).is_some());
    }
    let mut late = agent.connect();
    let answer = late.count(&json!(0)).unwrap();
    assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!(1)));
    assert!(
        answer["error"].as_str().unwrap().contains("sessions are open"),
        "{answer}"
    );
    assert_eq!(late.hear(), None);
    let version = json!({"request": "version"});
    assert_eq!(agent.connect().ask(&version).unwrap()["ok"], true);
    assert!(sessions.iter_mut().all(|session| session.count(&json!(1)).is_some()));
    sessions.pop();
    crate::testing::wait_until("there is room again", || {
        agent.connect().count(&json!(0)).unwrap()["ok"] == true
    });
}

#[test]
fn every_session_gets_its_own_answers() {
    let agent = Agent::new();
    std::thread::scope(|scope| {
        for number in 0..8_u64 {
            let mut client = agent.connect();
            scope.spawn(move || {
                for round in 0..50 {
                    let to = number * 7 + round;
                    let expected: Vec<u64> = (1..=to).collect();
                    let answer = client.count(&json!(to)).unwrap();
                    assert_eq!(answer["result"], json!(expected));
                }
            });
        }
    });
}

#[test]
fn an_agent_that_ends_hangs_up() {
    let agent = Agent::new();
    let mut client = agent.connect();
    assert!(client.count(&json!(0)).is_some());
    agent.shared.stop.fire();
    assert_eq!(client.hear(), None);
}

/// A program whose request was neither answered nor refused would not know whether its client has the class.
#[test]
fn an_agent_that_ends_answers_what_it_has_got_and_refuses_what_it_has_not_begun() {
    let agent = Agent::new();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let call = "{\"stage\":\"first\",\"verb\":\"count\",\"arguments\":{\"to\":1}}\n";
    theirs
        .write_all(format!("{call}{{\"request\":\"version\"}}\n{call}{{\"request\":").as_bytes())
        .unwrap();
    let mut client = Client {
        reader: BufReader::new(theirs.try_clone().unwrap()),
        stream: theirs,
    };
    agent.shared.stop.fire();
    serve(ours, &agent.shared);
    let answers: Vec<Value> = std::iter::from_fn(|| client.hear()).collect();
    let refused = json!({
        "ok": false,
        "error": "the agent is ending, and has not carried this out: connect again, and repeat the request",
        "code": 1,
        "retry": true,
    });
    let version = json!({"ok": true, "version": env!("CARGO_PKG_VERSION")});
    assert_eq!(answers, [refused.clone(), version, refused]);
    assert!(
        client.stream.write_all(call.as_bytes()).is_err(),
        "nothing more is let in"
    );
}

/// A change that somebody was promised is finished; `tarn down` waits for no client that asks for nothing.
#[test]
fn an_agent_that_ends_waits_for_clients_that_it_answers_and_for_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::at(&directory.path().join("run"), "netns-test");
    state.create().unwrap();
    let ended = |is_answering: bool| {
        let stop = Arc::new(Stop::new().unwrap());
        let control = Control::listen(STAGES, state.clone(), Loops::default(), Arc::clone(&stop)).unwrap();
        let _silent = UnixStream::connect(socket_path(&state)).unwrap();
        let session = is_answering.then(|| control.shared.sessions.take());
        stop.fire();
        let start = Instant::now();
        let release = std::thread::spawn(move || {
            std::thread::sleep(SHORT);
            drop(session);
        });
        control.end(start + Duration::from_secs(30));
        let elapsed = start.elapsed();
        release.join().unwrap();
        assert!(
            elapsed < Duration::from_secs(20) && (!is_answering || elapsed >= SHORT),
            "{elapsed:?}"
        );
    };
    ended(false);
    ended(true);
    assert!(!socket_path(&state).exists());
}

#[test]
fn another_user_is_not_answered() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: only root can be another user");
        return;
    }
    let pair = std::thread::spawn(|| {
        // SAFETY: the system call is for this thread alone, which ends afterwards, and takes no pointer.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
        UnixStream::pair().unwrap()
    });
    let (stranger, _other) = pair.join().unwrap();
    assert!(!is_trusted(&stranger));
    assert!(is_trusted(&UnixStream::pair().unwrap().0));
}
