//! Events of a real agent: kept, followed, and passed to the hook.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tarn_base::output::event::Event;
use tarn_lab::testing::Program;
use tarn_lab::topology::{End, Node, Topology};

/// An operator is paged by the hook, reads the list, and follows it. None of the three misses what was decided while the stages came
/// up, nor the agent's end.
#[test]
#[ignore = "needs the lab"]
fn lab_events_are_kept_followed_and_passed_to_the_hook() {
    // The lab's image has bash alone.
    if !Path::new("/bin/sh").exists() {
        symlink("bash", "/bin/sh").unwrap();
    }
    let network = Topology::new()
        .node(Node::new("host"))
        .node(Node::new("server"))
        .link(
            End::new("host", "eth0").address("10.8.2.1/24"),
            End::new("server", "eth0").address("10.8.2.2/24"),
        )
        .build()
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let told = directory.path().join("told");
    let configuration = format!(
        "[events]\nhook = 'echo \"$TARN_PRIORITY $TARN_STAGE: $TARN_MESSAGE\" >>{}'\npriority = \"info\"\n\
         [[redirect.rule]]\nprotocol = \"udp\"\nfrom = \"10.8.2.1:9100\"\nto = \"10.8.2.2:9000\"\n",
        told.display()
    );
    let host = network.namespace("host").unwrap();
    let program = Program::new(host, &configuration);
    program.run("up");
    let (code, list) = program.command_line("tarn events --json");
    let list: Vec<Event> = serde_json::from_str(&list).unwrap();
    let place = |text: &str| list.iter().position(|event| event.message.contains(text));
    let (forwarding, up) = (place("forwarding is turned on").unwrap(), place("is up").unwrap());
    assert!(
        code == 0 && list[forwarding].stage == "redirect" && forwarding < up,
        "{list:?}"
    );

    let mut command: Command = host.command(program.path());
    let mut follower = command
        .args(["events", "--follow", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut followed = Vec::new();
    let mut follow_up_to = |text: &str| {
        for line in lines.by_ref() {
            let event = Event::of_line(&line.unwrap()).expect("an event");
            let is_the_last = event.message.contains(text);
            followed.push(event);
            if is_the_last {
                return;
            }
        }
        panic!("it has ended: {followed:?}");
    };
    follow_up_to("is up");
    program.kill_agent();
    program.run("up");
    follow_up_to("is up");
    program.run("down");
    let end = Instant::now() + Duration::from_secs(5);
    let of_the_end = || {
        fs::read_to_string(&told)
            .unwrap_or_default()
            .contains("ended; what is up")
    };
    while !of_the_end() {
        assert!(
            Instant::now() < end,
            "{}",
            fs::read_to_string(&told).unwrap_or_default()
        );
    }
    // The state directory is another one now.
    program.run("up");
    follow_up_to("is up");
    follower.kill().unwrap();
    follower.wait().unwrap();
    let told = fs::read_to_string(&told).unwrap();
    for event in followed {
        let line = format!("{} {}: {}\n", event.priority.name(), event.stage, event.message);
        assert!(told.contains(&line), "{line} is missing in\n{told}");
    }
}
