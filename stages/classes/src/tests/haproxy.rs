//! HAProxy from the distribution, steered by the real agent.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use super::scene::{Scene, at, client, eventually};
use crate::haproxy::runtime::Runtime;
use crate::haproxy::steer::TURN;
use crate::proof::service::{Service, Work};
use tarn_kernel::modules;
use tarn_lab::load::{Flow, HttpRequests};
use tarn_lab::testing::Program;
use tarn_lab::testing::software::Running;
use tarn_lab::topology::bring_loopback_up;

const SOCKET: &str = "/tmp/steered/socket";
const BEHIND: &str = "127.0.0.1:8080";
const FRONT: &str = "10.0.0.100:80";
const CONFIGURATION: &str = r#"
[classes]
deadline = "1s"
window = "10s"

[[classes.service]]
name = "shop"
through = "haproxy"
socket = "/tmp/steered/socket"
maps = "/tmp/steered"

[[classes.class]]
name = "gold"
target = 90
networks = ["10.0.0.1"]

[[classes.class]]
name = "rest"
target = 50
"#;

/// What tarn prints, in the least configuration around it.
fn haproxy(scene: &Scene, program: &Program<'_>) -> Running {
    let (code, printed) = program.command_line("tarn classes haproxy shop --json");
    assert_eq!(code, 0, "{printed}");
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let part = |name: &str| printed[name].as_str().unwrap();
    let text = format!(
        "global\n stats socket {SOCKET} level admin\ndefaults\n mode http\n timeout connect 5s\n timeout client 9s\n \
         timeout server 9s\n timeout queue 800ms\nfrontend front\n bind {FRONT}\n default_backend back\n{}backend back\n{} \
         server one {BEHIND} maxconn 1\n",
        part("counters"),
        part("rules")
    );
    fs::write("/tmp/steered/cfg", text).unwrap();
    start(scene)
}

fn start(scene: &Scene) -> Running {
    let server = scene.node("server");
    Running::serve(server, "haproxy", &["-db", "-f", "/tmp/steered/cfg"]).once_listening(server, 80)
}

/// An entry of a map in HAProxy's memory: its value, or nothing.
fn entry(map: &str, key: &str) -> Option<String> {
    let shown = Runtime::new(SOCKET.as_ref())
        .ask(&format!("show map /tmp/steered/shop.{map}"))
        .ok()?;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut lines = shown.lines().map(words).filter(|words| words.len() == 3);
    lines.find(|words| words[1] == key).map(|words| words[2].clone())
}

/// How often a map was given as a whole.
fn version(map: &str) -> String {
    let shown = Runtime::new(SOCKET.as_ref()).ask("show map").unwrap();
    let line = shown
        .lines()
        .find(|line| line.contains(&format!("shop.{map}'")))
        .unwrap();
    let version = line.split_whitespace().find(|word| word.starts_with("curr_ver="));
    version.unwrap().to_owned()
}

fn becomes(map: &str, key: &str, value: Option<&str>) {
    let found = eventually(|| entry(map, key), |found| found.as_deref() == value);
    assert_eq!(found.as_deref(), value, "{map} {key}");
}

/// One request from a class's client is answered.
fn is_served(scene: &Scene, class: usize) -> bool {
    let flow = Flow::to(FRONT.parse().unwrap()).from(at(&client(class), 0));
    let ask = || HttpRequests::new(flow, 1).run();
    let exchanges = scene.node("clients").enter(ask).unwrap();
    exchanges.list().iter().all(|exchange| exchange.answer.is_some())
}

/// A host without the module, with a service that HAProxy can have behind it.
fn scene() -> (Scene, Service) {
    let scene = Scene::new();
    super::scene::unload();
    scene.node("server").run("nft", &["delete table inet classes"]).unwrap();
    scene.node("server").enter(|| Ok(bring_loopback_up()?)).unwrap();
    let work = Work::Sleep(Duration::from_millis(5));
    let service = Service::http(scene.node("server"), BEHIND.parse().unwrap(), work).unwrap();
    fs::create_dir_all("/tmp/steered").unwrap();
    for map in ["clients", "classes"] {
        fs::write(format!("/tmp/steered/shop.{map}"), "").unwrap();
    }
    (scene, service)
}

fn run(program: &Program<'_>, line: &str) -> String {
    let (code, printed) = program.command_line(line);
    assert_eq!(code, 0, "{line}: {printed}");
    printed
}

/// A figure of the table `requests`, of a class; the agent reports it within a second.
fn counts(program: &Program<'_>, class: usize, figure: &str, value: u64) {
    let found = || -> Value {
        let printed = run(program, "tarn classes status --json");
        let status: Value = serde_json::from_str(&printed).unwrap();
        status["requests"][class][figure].clone()
    };
    assert_eq!(eventually(found, |found| *found == value), value, "{figure} of {class}");
}

/// Without the module, HAProxy serves whoever is behind; a restart of HAProxy or of the agent changes nothing, and `tarn down` all.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_haproxy_is_steered_without_the_module_and_across_restarts() {
    let (scene, _service) = scene();
    let program = Program::new(scene.node("server"), CONFIGURATION);
    program.run("up");
    assert!(!modules::is_loaded("tarn_classes"));
    let first = haproxy(&scene, &program);
    becomes("clients", "10.0.0.1", Some("0"));
    becomes("classes", "d1", Some("1000000"));
    becomes("classes", "p0", Some("1"));
    // Gold is served in time, and the other class not at all yet: it is behind.
    assert!(is_served(&scene, 0));
    becomes("classes", "p0", Some("2"));
    // Another HAProxy has empty maps, and the shares are what they were.
    drop(first);
    let second = start(&scene);
    becomes("clients", "10.0.0.1", Some("0"));
    becomes("classes", "p0", Some("2"));
    program.kill_agent();
    assert!(is_served(&scene, 2));
    program.run("up");
    becomes("classes", "p1", Some("1"));
    program.run("down");
    becomes("clients", "10.0.0.1", None);
    becomes("classes", "p0", None);
    assert!(is_served(&scene, 0));
    drop(second);
}

/// What a login handler and an administrator say goes to HAProxy as it would go to the kernel.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_haproxy_follows_every_verb() {
    let (scene, _service) = scene();
    let program = Program::new(scene.node("server"), CONFIGURATION);
    program.run("up");
    let _haproxy = haproxy(&scene, &program);
    becomes("clients", "10.0.0.1", Some("0"));
    assert!(run(&program, "tarn check classes").contains("HAProxy"));
    // What has not changed is not given again and again.
    let versions = (version("classes"), version("clients"));
    std::thread::sleep(5 * TURN);
    assert_eq!((version("classes"), version("clients")), versions);
    // A client that logs in, and leaves; HAProxy knows no ranges.
    run(&program, "tarn classes add 10.0.0.2 gold --for 2s");
    becomes("clients", "10.0.0.2", Some("0"));
    run(&program, "tarn classes add 10.1.0.1-10.1.0.2 gold");
    becomes("clients", "10.1.0.1", Some("0"));
    becomes("clients", "10.1.0.2", Some("0"));
    run(&program, "tarn classes delete 10.1.0.1-10.1.0.2");
    becomes("clients", "10.1.0.1", None);
    becomes("clients", "10.0.0.2", None);
    assert!(is_served(&scene, 0));
    counts(&program, 0, "in_time", 1);
    // An answer takes 5 ms.
    run(&program, "tarn classes set-deadline gold 1ms --service shop");
    becomes("classes", "d0", Some("1000"));
    assert!(is_served(&scene, 0));
    counts(&program, 0, "late", 1);
    counts(&program, 0, "requests", 2);
    run(&program, "tarn classes reset");
    counts(&program, 0, "requests", 0);
    run(&program, "tarn classes stop");
    becomes("classes", "p0", None);
    becomes("clients", "10.0.0.1", None);
    assert!(is_served(&scene, 0));
    run(&program, "tarn classes start");
    becomes("classes", "p0", Some("1"));
    becomes("clients", "10.0.0.1", Some("0"));
    // A service that is in the file no more is served as if tarn was not there.
    program.configure(&CONFIGURATION.replace("\"shop\"", "\"other\""));
    program.run("up");
    becomes("classes", "p0", None);
    program.run("down");
}
