//! The agent as a service: its control socket, and systemd.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use tarn_frame::agent::socket_path;

fn up() -> Host {
    let host = Host::new();
    host.configure(TWO_STAGES);
    host.up().unwrap();
    host
}

fn ask(host: &Host, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket_path(&host.frame().state)).unwrap();
    // The agent may answer and hang up before it has read all of a request that is too long.
    let _ = stream.write_all(request);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn the_control_socket_answers_what_its_documentation_says() {
    let host = up();
    let answer = |request: &str| -> Value {
        serde_json::from_str(&ask(&host, format!("{}\n", json!({ "request": request })).as_bytes())).unwrap()
    };
    assert_eq!(
        answer("version"),
        json!({"ok": true, "version": env!("CARGO_PKG_VERSION")})
    );
    assert_eq!(answer("agent")["agent"]["loops"][0]["stage"], "first");
    assert_eq!(answer("status")["status"]["stages"][1]["figures"]["changes"], 1);
    let metrics = answer("metrics");
    assert!(
        metrics["metrics"]
            .as_str()
            .unwrap()
            .contains("\ntarn_first_changes 2\n"),
        "{metrics}"
    );
    assert_eq!(answer("stop"), json!({"ok": true, "stopping": true}));
    wait_until("the agent is gone", || host.agent().is_none());
    assert_eq!(host.values(), "1 2 3 0", "what is up stays up");
}

#[test]
fn nobody_but_root_reaches_the_control_socket() {
    let host = up();
    let mode = std::fs::metadata(socket_path(&host.frame().state))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_is_no_request_is_refused_and_harms_nothing() {
    let host = up();
    let long = [vec![b'x'; 100_000], b"\n".to_vec()].concat();
    for request in [
        b"\n".as_slice(),
        b"rubbish\n",
        b"{}\n",
        b"{\"request\":\"dance\"}\n",
        b"\xff\xfe\n",
        &long,
    ] {
        let answer = ask(&host, request);
        let refused = answer.is_empty() || serde_json::from_str::<Value>(&answer).unwrap()["ok"] == false;
        assert!(refused, "{answer}");
    }
    assert!(host.status().contains("the agent runs"));
}

#[test]
fn clients_that_say_nothing_keep_nobody_waiting_for_long() {
    let host = up();
    let path = socket_path(&host.frame().state);
    let silent: Vec<UnixStream> = (0..16).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let told = "the agent is busy with other clients";
    wait_until("the bound is reached", || {
        ask(&host, b"{\"request\":\"version\"}\n").contains(told)
    });
    drop(silent);
    wait_until("they are served again", || {
        ask(&host, b"{\"request\":\"version\"}\n").contains("\"ok\":true")
    });
}

/// Asks one request after another in a session, until the agent lets nothing more in. Counts the session once it has an answer.
fn converse(path: &std::path::Path, sessions: &AtomicUsize) {
    let Ok(mut stream) = UnixStream::connect(path) else {
        return;
    };
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut is_first = true;
    while stream
        .write_all(b"{\"stage\":\"first\",\"verb\":\"count\",\"arguments\":{\"to\":1}}\n")
        .is_ok()
    {
        let answer = answers.next().expect("what was let in is answered").unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let is_done = answer["result"] == json!([1]);
        assert!(is_done || answer["retry"] == true, "{answer}");
        if is_done && std::mem::take(&mut is_first) {
            sessions.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// `tarn up` replaces the agent under programs that have a session.
#[test]
fn a_session_gets_an_answer_to_each_request_while_agents_replace_each_other() {
    const AGENTS: usize = 4;
    let host = up();
    let path = socket_path(&host.frame().state);
    let (is_over, sessions) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let program = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                converse(&path, &sessions);
            }
        });
        for agents in 1..=AGENTS {
            let has_answered = || program.is_finished() || sessions.load(Ordering::SeqCst) >= agents;
            wait_until("an agent answers in a session", has_answered);
            if agents < AGENTS {
                host.up().unwrap();
            }
        }
        host.down().unwrap();
        is_over.store(true, Ordering::SeqCst);
        program.join().unwrap();
    });
}

#[test]
fn systemd_hears_when_the_service_is_ready_alive_and_stopping() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    let path = host.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let hear = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let environment = [
        ("NOTIFY_SOCKET", path.display().to_string()),
        ("WATCHDOG_USEC", "20000".to_string()),
    ];
    let mut service = host.command("foreground").envs(environment).spawn().unwrap();
    assert!(hear().starts_with("READY=1"));
    assert_eq!(host.values(), "1 2 3 0");
    assert_eq!(host.agent().unwrap().pid, service.id());
    assert_eq!(hear(), "WATCHDOG=1");
    host.signal_agent(Signal::SIGTERM);
    while hear() != "STOPPING=1" {}
    assert!(service.wait().unwrap().success());
    assert_eq!(host.values(), "1 2 3 0");
    host.down().unwrap();
    // What the notification was received by lies beside the values.
    std::fs::remove_file(path).unwrap();
    host.assert_untouched();
}
