//! What is changed while the agent goes on.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::scene::{Scene, await_state, row, uplink};
use tarn_frame::agent;
use tarn_frame::testing::wait_until;
use tarn_lab::testing::Program;

fn set(program: &Program<'_>, line: &str) -> (u8, String) {
    program.command_line(&format!("tarn paths set {line}"))
}

fn shares(program: &Program<'_>) -> [f64; 2] {
    ["wan1", "wan2"].map(|name| uplink(program, "default", name)["share"].as_f64().unwrap())
}

#[test]
#[ignore = "needs the lab"]
fn lab_paths_go_by_what_is_set_while_they_run() {
    let scene = Scene::new([20, 20]);
    let before = scene.dump();
    let program = scene.up();
    await_state(&program, "default", "wan2", "standby");
    assert_eq!(shares(&program), [100.0, 0.0]);
    assert_eq!(
        set(&program, "--policy proportional"),
        (0, "policy proportional\n".into())
    );
    await_state(&program, "default", "wan2", "used");
    assert!(
        shares(&program).iter().all(|share| (40.0..60.0).contains(share)),
        "{:?}",
        shares(&program)
    );
    assert_eq!(set(&program, "--policy calmest").0, 0);
    await_state(&program, "default", "wan2", "standby");
    let (_, history) = program.command_line("tarn paths history");
    assert!(history.contains("the policy was changed"), "{history}");
    let (_, text) = set(&program, "--cost wan1=400 --to default --json");
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&told["policy"], &told["uplinks"][0]["cost"]),
        (&"calmest".into(), &400.into())
    );
    await_state(&program, "default", "wan2", "used");
    assert_eq!(uplink(&program, "::/0", "wan1")["state"], "used", "another group");
    let last = |to: &str| row(&program, "destinations", |row| row["to"] == to)["why"].to_string();
    assert!(last("default").contains("wan2 is calmer"), "{}", last("default"));
    assert!(last("::/0").contains("the policy was changed"), "{}", last("::/0"));
    program.run("down");
    assert_eq!(scene.dump(), before);
}

#[test]
#[ignore = "needs the lab"]
fn lab_paths_measure_loads_from_the_moment_that_is_set() {
    let scene = Scene::new([10, 10]);
    let program = scene.up();
    assert_eq!(set(&program, "--measure load --load-gain 64").0, 0);
    scene.requests_of(1000, "10.9.9.9", 300, || {
        await_state(&program, "default", "wan2", "used")
    });
    let (_, history) = program.command_line("tarn paths history");
    assert!(history.contains("wan2 is less busy"), "{history}");
    assert_eq!(set(&program, "--measure delay").0, 0);
    let score = uplink(&program, "default", "wan2")["score"].as_f64().unwrap();
    assert!((10.0..12.0).contains(&score), "in ms again: {score}");
    // A mistake changes nothing, and without an agent nobody would go by it.
    assert_eq!(set(&program, "--cost wan7=100").0, 2);
    let policy = || {
        program
            .command_line("tarn paths status --json")
            .1
            .contains("\"policy\": \"proportional\"")
    };
    assert_eq!((set(&program, "--policy proportional").0, policy()), (0, true));
    program.kill_agent();
    let (code, text) = set(&program, "--policy calmest");
    assert!(code == 1 && text.contains("no agent runs"), "{code}: {text}");
    program.run("up");
    assert!(!policy(), "the file's settings hold again");
    program.run("down");
    assert_eq!(set(&program, "--policy proportional").0, 1);
    assert!(!program.state().exists(), "and leaves nothing behind");
}

/// What a script was told has failed must not come true when the agent wakes up, minutes later.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_set_of_an_agent_that_hangs_ends_and_never_comes_true() {
    let scene = Scene::new([10, 10]);
    let program = scene.up();
    let signal = signals_of_agent(&program);
    signal(Signal::SIGSTOP);
    let start = Instant::now();
    let (code, text) = set(&program, "--policy proportional");
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    assert!(
        code == 1 && text.contains("has changed nothing, and will not"),
        "{code}: {text}"
    );
    signal(Signal::SIGCONT);
    // The agent takes it up, and finds that nobody waits any more.
    std::thread::sleep(Duration::from_secs(5));
    let text = program.command_line("tarn paths status --json").1;
    assert!(text.contains("\"policy\": \"calmest\""), "{text}");
    assert_eq!(set(&program, "--policy proportional").0, 0);
    program.run("down");
}

/// An operator of many uplinks sets their costs at once.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_take_the_costs_of_64_uplinks_in_64_groups_at_once() {
    let scene = Scene::new([10, 10]);
    let program = scene.up();
    let costs: Vec<String> = (1..=64 * 64).map(|cost| format!("--cost wan1={cost}")).collect();
    let (code, text) = set(&program, &costs.join(" "));
    assert!(
        code == 0 && text.contains("default: wan1 costs 4096 %"),
        "{code}: {text}"
    );
    await_state(&program, "default", "wan2", "used");
    program.run("down");
}

/// A script's setting would be lost when somebody else runs `tarn up` in that moment.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_are_set_while_another_agent_takes_over() {
    let scene = Scene::new([10, 10]);
    let program = scene.up();
    let signal = signals_of_agent(&program);
    signal(Signal::SIGSTOP);
    // The agent itself holds the lock now and then, as when it follows devices that have come.
    while program.state().is_locked() {
        signal(Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(20));
        signal(Signal::SIGSTOP);
    }
    // It finds the setting first, whose turn it is not as long as `up` has the lock, and then the request to end.
    let mut set = program.start("tarn paths set --policy proportional");
    std::thread::sleep(Duration::from_millis(500));
    let mut up = program.start("up");
    // A setting lasts until the next `up`: only one that comes while it runs is to be in force after it.
    wait_until("`up` has the lock", || program.state().is_locked());
    signal(Signal::SIGCONT);
    assert!(up.wait().unwrap().success());
    assert!(set.wait().unwrap().success());
    let text = program.command_line("tarn paths status --json").1;
    assert!(text.contains("\"policy\": \"proportional\""), "{text}");
    program.run("down");
}

/// Sends signals to the agent that lives now.
fn signals_of_agent(program: &Program<'_>) -> impl Fn(Signal) {
    let agent = agent::information(&program.state()).expect("an agent lives").pid;
    move |signal| {
        kill(Pid::from_raw(agent as i32), signal).unwrap();
        if signal == Signal::SIGSTOP {
            wait_until("all of the agent has stopped", || {
                states_of_threads(agent).iter().all(|state| state == "T")
            });
        }
    }
}

/// The states of a process's threads, as in /proc/PID/stat.
fn states_of_threads(process: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let state = |thread: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
        let (_, behind_the_name) = stat.rsplit_once(") ").unwrap();
        behind_the_name.split(' ').next().unwrap().to_owned()
    };
    threads.map(state).collect()
}
