//! Agents that hang and agents that are replaced, as those see them who call a verb.

use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use super::*;

/// A state directory with the lock and the socket of an agent, which does with each connection in turn what is in its place.
struct Agent {
    _directory: tempfile::TempDir,
    _lock: Lock,
    state: StateDirectory,
    thread: JoinHandle<()>,
}

type Act = Box<dyn FnOnce(UnixStream) + Send>;

impl Agent {
    fn that(acts: Vec<Act>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(&directory.path().join("run"), "netns-test");
        state.create().unwrap();
        let lock = Lock::try_take(&lock_path(&state)).unwrap().unwrap();
        let another = AgentInformation {
            pid: std::process::id() + 1,
            version: String::new(),
            since: 0,
            loops: Vec::new(),
            silent: false,
        };
        lock.write(&serde_json::to_string(&another).unwrap()).unwrap();
        let listener = UnixListener::bind(socket_path(&state)).unwrap();
        let thread = std::thread::spawn(move || acts.into_iter().for_each(|act| act(listener.accept().unwrap().0)));
        Self {
            _directory: directory,
            _lock: lock,
            state,
            thread,
        }
    }

    /// What comes of a call, and of the agent.
    fn call(self) -> Result<Option<Value>> {
        let called = call(&self.state, "paths", "set", &json!({}));
        self.thread.join().unwrap();
        called
    }
}

/// Reads the request.
fn hear(stream: &UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

const LATE: Duration = Duration::from_millis(1500);

/// What `tarn paths set` has given up must not surprise anybody later.
#[test]
fn an_agent_that_hangs_is_told_to_carry_nothing_out_later() {
    let start = Instant::now();
    let agent = Agent::that(vec![Box::new(|mut stream| {
        assert!(hear(&stream).contains("\"set\""));
        std::thread::sleep(LATE);
        assert!(stream.write_all(b" ").is_err(), "it has been withdrawn");
    })]);
    let error = agent.call().unwrap_err();
    assert!(start.elapsed() < 10 * LATE);
    assert!(
        format!("{error:#}").contains("`tarn paths set` has changed nothing, and will not"),
        "{error:#}"
    );
}

#[test]
fn an_agent_that_hangs_after_it_has_begun_is_said_to_go_on() {
    let agent = Agent::that(vec![Box::new(|mut stream| {
        hear(&stream);
        stream.write_all(b" ").unwrap();
        std::thread::sleep(LATE);
    })]);
    let error = agent.call().unwrap_err();
    assert!(format!("{error:#}").contains("is done once it goes on"), "{error:#}");
}

#[test]
fn an_agent_that_ends_after_it_has_begun_may_have_done_it() {
    let agent = Agent::that(vec![Box::new(|mut stream| {
        hear(&stream);
        stream.write_all(b" ").unwrap();
    })]);
    let error = agent.call().unwrap_err();
    assert!(format!("{error:#}").contains("it may have done"), "{error:#}");
}

/// The setting would be lost while `tarn up` reads its file again.
#[test]
fn the_agent_that_replaces_one_is_called_too() {
    let agent = Agent::that(vec![
        // One that ends has read nothing, or all.
        Box::new(drop),
        Box::new(|stream| drop(hear(&stream))),
        Box::new(|mut stream| {
            hear(&stream);
            let answer = tarn_base::error::json(&tarn_base::error::Ending.into());
            stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
        }),
        Box::new(|mut stream| {
            hear(&stream);
            stream.write_all(b" ").unwrap();
            stream.write_all(b"{\"ok\":true,\"result\":7}\n").unwrap();
        }),
    ]);
    assert_eq!(agent.call().unwrap(), Some(json!(7)));
}

#[test]
fn a_refusal_is_told_also_when_the_agent_has_not_read_the_request() {
    let agent = Agent::that(vec![Box::new(|mut stream| {
        stream
            .write_all(b"{\"ok\":false,\"error\":\"busy\",\"code\":1}\n")
            .unwrap();
    })]);
    assert_eq!(format!("{:#}", agent.call().unwrap_err()), "busy");
}

/// `tarn paths set` on a host whose agent was killed ends at once.
#[test]
fn where_no_agent_runs_nobody_waits_for_one() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::at(&directory.path().join("run"), "netns-test");
    state.create().unwrap();
    let start = Instant::now();
    assert_eq!(call(&state, "paths", "set", &json!({})).unwrap(), None);
    assert!(start.elapsed() < CALL_PATIENCE);
    // But while another tarn is at work, which may be starting one.
    let _lock = state.lock_for("up").unwrap();
    assert!(call(&state, "paths", "set", &json!({})).is_err());
}
