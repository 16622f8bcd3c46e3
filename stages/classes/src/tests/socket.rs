//! The eleven operations of the published interface, by a program on the control socket: the real agent, module and
//! clients.

use std::io::{BufRead, Write};
use std::net::UdpSocket;
use std::time::Duration;

use serde_json::{Value, json};

use super::program::{Server, Session};
use super::scene::{PORT, SERVICE, Scene, client, load, unload};
use crate::module::Module;
use crate::watch::Watch;
use tarn_frame::agent;
use tarn_frame::testing::wait_until;

/// What was published as perOpen, perStart, perStop, perReset, perGetStatus, perSetPvalue, perSetNvalue, perSetQlen,
/// perAddIP, perDeleteIP and perClose, called one after the other, each with what it does to the kernel.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_every_published_operation_is_there_on_the_control_socket() {
    let scene = Scene::new();
    let program = Server::up(&scene);
    let mut session = program.open();
    settings(&scene, &mut session);
    clients(&scene, &mut session);
    begin_and_end(&scene, &mut session);
    assert_eq!(session.ask(&json!({"request": "close"})), Some(json!({"ok": true})));
    assert_eq!(session.reader.read_line(&mut String::new()).unwrap(), 0);
    program.down();
}

fn settings(scene: &Scene, session: &mut Session) {
    let status = session.does("status", &json!({}));
    let service = &status["services"][0];
    assert_eq!((&status["scheduling"], &service["limit"]), (&json!("yes"), &json!(4)));
    let name = service["service"].as_str().unwrap();
    assert_eq!(status["classes"][2]["class"], "rest");
    let answer = session.does("set-target", &json!({"class": "gold", "percent": 95.5}));
    assert_eq!(answer, json!({"class": "gold", "target": 95.5}));
    let answer = session.does("set-deadline", &json!({"time": "40ms"}));
    assert_eq!(answer, json!({"class": null, "service": null, "deadline": "40ms"}));
    let answer = session.does("set-deadline", &json!({"class": 1, "time": "30ms", "service": name}));
    assert_eq!(answer, json!({"class": "silver", "service": name, "deadline": "30ms"}));
    let classes = scene.state().settings.classes.unwrap();
    assert_eq!(classes[0].target, 9550);
    let deadlines: Vec<u64> = classes.iter().map(|class| class.deadline / 1_000_000).collect();
    assert_eq!(deadlines, [40, 30, 40]);
    let hold = |scene: &Scene| {
        let settings = scene.state().settings;
        (settings.hold.unwrap(), settings.hold_rounds.unwrap())
    };
    let answer = session.does("set-hold", &json!({"rounds": 5}));
    assert_eq!(answer, json!({"hold": "0ms", "rounds": 5}));
    assert_eq!(hold(scene), (Duration::ZERO, 5));
    session.does("set-hold", &json!({"time": "200us"}));
    assert_eq!(hold(scene), (Duration::from_micros(200), 0));
    session.does("set-hold", &json!({"time": "0ms"}));
}

/// A client logs in from a network that has a class, and out again.
fn clients(scene: &Scene, session: &mut Session) {
    session.does("add", &json!({"address": "10.0.0.0/24", "class": "silver"}));
    request(scene, &client(4));
    assert_eq!(scene.counts_after(1, 1).requests, 1);
    let answer = session.does("add", &json!({"address": client(4), "class": "gold", "for": "30m"}));
    assert_eq!(answer, json!({"network": client(4), "class": "gold", "for": "30m"}));
    let listed = session.does("list", &json!({}));
    let classes = [0, 1].map(|index| &listed["clients"][index]["class"]);
    assert_eq!(classes, [&json!("silver"), &json!("gold")]);
    let found = |session: &mut Session, address: &str| session.does("find", &json!({ "address": address }));
    let gold = found(session, &client(4));
    assert_eq!((&gold["class"], &gold["network"]), (&json!("gold"), &json!(client(4))));
    assert!(gold["left_s"].as_u64().is_some_and(|left| left <= 1800), "{gold}");
    let silver = json!({"address": "10.0.0.99", "class": "silver", "network": "10.0.0.0/24", "origin": "command", "left_s": null});
    assert_eq!(found(session, "10.0.0.99"), silver);
    let rest = json!({"address": "192.0.2.1", "class": "rest", "network": null, "origin": null, "left_s": null});
    assert_eq!(found(session, "::ffff:192.0.2.1"), rest);
    request(scene, &client(4));
    assert_eq!(scene.counts_after(0, 1).requests, 1);
    let answer = session.does("delete", &json!({"address": client(4)}));
    assert_eq!(answer, json!({"network": client(4), "class": "gold"}));
    request(scene, &client(4));
    assert_eq!(scene.counts_after(1, 2).requests, 2);
    session.does("delete", &json!({"address": "10.0.0.0/24"}));
    assert_eq!(session.does("list", &json!({})), json!({"clients": []}));
    request(scene, &client(4));
    assert_eq!(scene.counts_after(2, 1).requests, 1);
    assert_eq!(session.does("status", &json!({}))["requests"][2]["requests"], 1);
}

fn begin_and_end(scene: &Scene, session: &mut Session) {
    session.does("add", &json!({"address": "2001:db8::/32", "class": "silver"}));
    assert_eq!(session.does("reset", &json!({}))["clients"], false);
    assert!(scene.counts().iter().all(|counts| counts.requests == 0));
    assert_eq!(session.does("list", &json!({}))["clients"].as_array().unwrap().len(), 1);
    session.does("reset", &json!({"clients": true}));
    assert_eq!(session.does("list", &json!({})), json!({"clients": []}));
    assert_eq!(session.does("stop", &json!({})), json!({"stopped": true}));
    assert!(scene.module(Module::state).unwrap().is_none());
    let status = session.does("status", &json!({}));
    assert_eq!(status["scheduling"], "stopped");
    assert_eq!(
        (&status["classes"][2]["class"], &status["requests"][2]["requests"]),
        (&json!("rest"), &Value::Null)
    );
    assert_eq!(session.does("stop", &json!({})), json!({"stopped": false}));
    session.does("set-target", &json!({"class": "rest", "percent": 55}));
    assert_eq!(session.does("start", &json!({})), json!({"started": true}));
    assert_eq!(scene.state().settings.classes.unwrap()[2].target, 5500);
}

/// One request to the service, which nobody serves.
fn request(scene: &Scene, from: &str) {
    let from = from.to_owned();
    let socket = scene
        .node("clients")
        .enter(move || Ok(UdpSocket::bind((from.as_str(), 0))?));
    socket.unwrap().send_to(b"is anyone there?", (SERVICE, PORT)).unwrap();
}

/// Somebody takes the module out: the status says that it is gone, and not that tarn has stopped it; `start` begins again,
/// with what was set.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_a_module_that_somebody_took_out_comes_again_when_asked() {
    let scene = Scene::new();
    let program = Server::up(&scene);
    let mut session = program.open();
    session.does("set-target", &json!({"class": "gold", "percent": 95}));
    let scheduling = |session: &mut Session| session.does("status", &json!({}))["scheduling"].clone();
    let look = || {
        let look = || Watch::new(&program.state(), false).look();
        scene.node("server").enter(look).unwrap().unwrap_or_default()
    };
    assert_eq!(look(), "");
    unload();
    assert_eq!(scheduling(&mut session), "gone");
    let told = look();
    assert!(
        told.contains("tarn_classes was taken out") && told.contains("`tarn classes start`"),
        "{told}"
    );
    assert_eq!(session.does("start", &json!({})), json!({"started": true}));
    assert_eq!(scheduling(&mut session), "yes");
    assert_eq!(scene.state().settings.classes.unwrap()[0].target, 9500);
    // Loaded again by somebody, it does nothing yet.
    unload();
    load();
    assert_eq!(scheduling(&mut session), "gone");
    assert!(look().contains("tarn_classes was stopped"));
    session.does("start", &json!({}));
    session.does("stop", &json!({}));
    assert_eq!((scheduling(&mut session), look()), (json!("stopped"), String::new()));
    unload();
    assert_eq!(scheduling(&mut session), "stopped");
    assert_eq!(session.does("stop", &json!({})), json!({"stopped": false}));
    session.does("start", &json!({}));
    program.down();
}

/// A program is told in the words of the command line, and nothing changes.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_the_control_socket_refuses_in_the_command_line_s_words() {
    let scene = Scene::new();
    let program = Server::up(&scene);
    let mut session = program.open();
    for (verb, arguments, line) in [
        (
            "set-target",
            json!({"class": "bronze", "percent": 95}),
            "set-target bronze 95",
        ),
        ("set-deadline", json!({"time": "2h"}), "set-deadline 2h"),
        ("delete", json!({"address": "192.0.2.1"}), "delete 192.0.2.1"),
        ("add", json!({"address": "192.0.2.1", "class": "7"}), "add 192.0.2.1 7"),
    ] {
        assert_eq!(
            (2, session.refuses(verb, &arguments)),
            program.command_line(line),
            "{line}"
        );
    }
    session.refuses("set-target", &json!({"class": "gold", "percent": 101}));
    session.refuses("set-hold", &json!({"rounds": 1001}));
    let target = scene.state().settings.classes.unwrap()[0].target;
    assert_eq!(target, 9000);
    program.down();
}

/// Login handlers on several sessions and people on the command line change the same things at once: nothing is lost.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_sessions_and_the_command_line_take_turns() {
    const EACH: u32 = 15;
    let scene = Scene::new();
    let program = Server::up(&scene);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let mut session = program.open();
            scope.spawn(move || {
                for host in 0..EACH {
                    let address = format!("192.0.{number}.{host}");
                    session.does("add", &json!({"address": address, "class": number}));
                    session.does("set-target", &json!({"class": number, "percent": 60 + host}));
                }
            });
        }
        for host in 0..EACH {
            let (code, told) = program.command_line(&format!("add 192.0.3.{host} silver"));
            assert_eq!(code, 0, "{told}");
        }
    });
    let mut session = program.open();
    let listed = session.does("list", &json!({}));
    assert_eq!(listed["clients"].as_array().unwrap().len(), 4 * EACH as usize);
    let last = (60 + EACH - 1) * 100;
    let in_kernel: Vec<u32> = scene
        .state()
        .settings
        .classes
        .unwrap()
        .iter()
        .map(|class| class.target)
        .collect();
    assert_eq!(in_kernel, [last; 3]);
    // What a `start` begins again with is the same.
    session.does("stop", &json!({}));
    session.does("start", &json!({}));
    let again: Vec<u32> = scene
        .state()
        .settings
        .classes
        .unwrap()
        .iter()
        .map(|class| class.target)
        .collect();
    assert_eq!(again, in_kernel);
    drop(session);
    program.down();
}

/// An agent that is told to end in the middle of it all leaves what it has answered for, and ends at once.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_an_agent_that_ends_between_calls_loses_none_that_it_answered() {
    let scene = Scene::new();
    let program = Server::up(&scene);
    let state = program.state();
    let mut session = program.open();
    let calls = std::thread::spawn(move || {
        let mut answered = 0;
        for host in 1..250 {
            let call = json!({"stage": "classes", "verb": "add", "arguments":
                {"address": format!("192.0.2.{host}"), "class": "gold"}});
            if session.stream.write_all(format!("{call}\n").as_bytes()).is_err() {
                break;
            }
            let mut line = String::new();
            if !matches!(session.reader.read_line(&mut line), Ok(1..)) {
                break;
            }
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["retry"] == true {
                break;
            }
            assert_eq!(answer["ok"], true, "{answer}");
            answered += 1;
        }
        answered
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(agent::stop_agent(&state).unwrap());
    let answered: usize = calls.join().unwrap();
    wait_until("the agent is gone", || !agent::is_running(&state));
    let (code, listed) = program.command_line("list --json");
    assert_eq!(code, 0, "{listed}");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let there = listed["clients"].as_array().unwrap().len();
    assert!(answered > 0);
    assert_eq!(answered, there);
    program.down();
}
