//! Targets of probes that are silent, late, heard twice, or answered for by somebody else.

use std::time::Duration;

use super::scene::{BOTH, Scene, TARGETS, await_state, await_used, uplink};
use tarn_lab::testing::{Program, ticks};
use tarn_lab::topology::Shape;

const SOON: Duration = Duration::from_secs(10);
/// Who is not there.
const SILENT: [&str; 2] = ["10.9.9.10", "fd09::10"];

const TABLE: &str = r#"
table inet far {
    chain answers {
        type filter hook postrouting priority filter;
        RULES
    }
}
"#;

/// The configuration with these targets: `NAME` stands for the one that answers, `SILENT` for the one that does not.
fn asking(targets: &str) -> String {
    TARGETS
        .iter()
        .zip(SILENT)
        .fold(BOTH.to_owned(), |text, (target, silent)| {
            let list = targets.replace("SILENT", silent).replace("NAME", target);
            text.replace(&format!("targets = [\"{target}\"]"), &format!("targets = {list}"))
        })
}

/// What the far side does to its answers from now on, in the words of nftables.
fn far(scene: &Scene, rules: &str) {
    let table = TABLE.replace("RULES", rules);
    scene.node("far").run_with_input("nft", &["-f", "-"], &table).unwrap();
}

fn far_as_before(scene: &Scene) {
    scene
        .node("far")
        .run("nft", &["delete", "table", "inet", "far"])
        .unwrap();
}

/// Asserts that an uplink takes so long, over IPv4 and IPv6, evenly, and loses nothing.
fn assert_calm(program: &Program<'_>, device: &str, rtt: std::ops::Range<f64>) {
    for to in ["default", "::/0"] {
        let row = uplink(program, to, device);
        let figure = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        assert!(rtt.contains(&figure("rtt")) && figure("loss") == 0.0, "{row}");
        assert!(figure("jitter") < 0.5, "{row}");
    }
}

/// One target that is down, or that answers nobody's pings, would make every uplink look dead, and hide the death of one.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_judge_by_the_target_that_answers() {
    let scene = Scene::new([10, 30]);
    let program = scene.up_with(&asking(r#"["SILENT", "NAME"]"#));
    std::thread::sleep(SOON);
    assert_calm(&program, "wan1", 10.0..11.0);
    assert_calm(&program, "wan2", 30.0..31.0);
    assert_eq!(TARGETS.map(|target| scene.way(target)), ["wan1"; 2]);
    let exchanges = scene.requests(TARGETS[0], 200, || {
        std::thread::sleep(Duration::from_millis(500));
        scene.kill("wan1");
    });
    let lost = exchanges.sent_count() - exchanges.answered_count();
    assert!((1..=20).contains(&lost), "{lost} requests lost, one every 10 ms");
    assert_eq!(TARGETS.map(|target| scene.way(target)), ["wan2"; 2]);
    program.run("down");
}

/// Targets that nobody answers are no reason to send nothing, nor to go to and fro.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_keep_what_is_in_use_when_no_target_answers() {
    let scene = Scene::new([10, 30]);
    let program = scene.up_with(&asking(r#"["SILENT"]"#));
    await_state(&program, "default", "wan1", "silent");
    for target in TARGETS {
        let exchanges = scene.requests(target, 1000, || {});
        assert_eq!((scene.way(target).as_str(), exchanges.answered_count()), ("wan1", 1000));
    }
    let (_, history) = program.command_line("tarn paths history");
    assert_eq!(history.matches("the first choice").count(), 2, "{history}");
    assert_eq!(history.trim().lines().count(), 3, "{history}");
    program.run("down");
}

/// The same of targets that have answered until now: pings are what a network in trouble drops first.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_lose_nothing_when_all_targets_fall_silent() {
    let scene = Scene::new([10, 30]);
    let program = scene.up();
    std::thread::sleep(SOON);
    let exchanges = scene.requests(TARGETS[0], 1000, || {
        far(&scene, "icmp type echo-reply drop\n icmpv6 type echo-reply drop\n");
        await_state(&program, "default", "wan2", "silent");
    });
    assert_eq!(exchanges.answered_count(), 1000);
    let ways = TARGETS.map(|target| scene.way(target));
    std::thread::sleep(Duration::from_secs(30));
    assert_eq!(TARGETS.map(|target| scene.way(target)), ways);
    far_as_before(&scene);
    await_used(&program, "wan1");
    program.run("down");
}

/// An answer that nobody waits for any more is none: what is in use would take seconds for every click.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_take_an_answer_after_the_timeout_for_none() {
    let scene = Scene::new([10, 30]);
    let program = scene.up_with(&BOTH.replace("[paths]", "[paths]\ntimeout = \"250ms\""));
    std::thread::sleep(SOON);
    assert_eq!(scene.way(TARGETS[0]), "wan1");
    scene.delay("wan1", 2000);
    await_state(&program, "default", "wan1", "silent");
    for _ in 0..20 {
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(uplink(&program, "default", "wan1")["state"], "silent");
        assert_eq!(scene.way(TARGETS[0]), "wan2");
    }
    scene.delay("wan1", 10);
    await_state(&program, "default", "wan1", "returning");
    await_used(&program, "wan1");
    program.run("down");
}

/// A bridge with a loop, or a radio link that sends again what was heard, doubles packets: that is no loss, and no delay.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_count_an_answer_once_that_comes_twice() {
    let scene = Scene::new([10, 30]);
    let program = scene.up();
    std::thread::sleep(SOON);
    let twice = |delay| {
        Shape::new()
            .delay(Duration::from_millis(delay))
            .duplicate_percent(100.0)
    };
    scene.host().shape("wan1", &twice(0)).unwrap();
    scene.node("far").shape("wan1", &twice(10)).unwrap();
    let exchanges = scene.requests(TARGETS[0], 100, || {});
    assert_eq!(
        exchanges.duplicate_count(),
        300,
        "every request and every answer is doubled"
    );
    std::thread::sleep(Duration::from_secs(20));
    assert_calm(&program, "wan1", 10.0..11.0);
    for (to, target) in ["default", "::/0"].into_iter().zip(TARGETS) {
        assert_eq!(uplink(&program, to, "wan1")["state"], "used");
        assert_eq!(scene.way(target), "wan1");
    }
    program.run("down");
}

/// A provider's box that answers for whoever is behind it says nothing of what is behind it.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_take_no_answer_from_anybody_else() {
    let scene = Scene::new([10, 30]);
    let program = scene.up();
    std::thread::sleep(SOON);
    let rules = "oifname wan1 icmp type echo-reply ip saddr set 10.9.9.10\n \
                 oifname wan1 icmpv6 type echo-reply ip6 saddr set fd09::10\n";
    far(&scene, rules);
    for (to, target) in ["default", "::/0"].into_iter().zip(TARGETS) {
        await_state(&program, to, "wan1", "silent");
        assert_eq!(scene.way(target), "wan2");
    }
    std::thread::sleep(Duration::from_secs(20));
    for to in ["default", "::/0"] {
        assert_eq!(uplink(&program, to, "wan1")["state"], "silent", "and stays so");
    }
    far_as_before(&scene);
    await_used(&program, "wan1");
    program.run("down");
}

/// The host itself answers by every uplink, also by one that is dead.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_refuse_to_ask_the_host_itself() {
    let scene = Scene::new([0, 0]);
    let before = scene.dump();
    let program = Program::new(scene.host(), &BOTH.replace("10.9.9.9", "10.1.0.2"));
    let complaint = program.complaint("up");
    assert!(
        complaint.contains("the target 10.1.0.2 is this host's own"),
        "{complaint}"
    );
    assert_eq!(scene.dump(), before);
}

/// Anybody can send echo replies: the thread that probes goes before all ordinary programs, and would keep a processor.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_are_not_kept_busy_by_a_flood_of_echo_replies() {
    let scene = Scene::new([0, 0]);
    let program = scene.up();
    let pid = tarn_frame::agent::information(&program.state()).unwrap().pid;
    std::thread::sleep(SOON);
    let flood = || {
        let socket: std::net::UdpSocket = tarn_kernel::icmp::echo_socket("10.1.0.2".parse().unwrap())?.into();
        let began = std::time::Instant::now();
        let (reply, mut sent) = ([0_u8, 0, 0xff, 0xff, 0, 0, 0, 0], 0_u64);
        while began.elapsed() < Duration::from_secs(2) {
            sent += u64::from(socket.send_to(&reply, ("10.1.0.2", 0)).is_ok());
        }
        Ok(sent)
    };
    let before = ticks(pid);
    let sent = scene.node("far").enter(flood).unwrap();
    let busy = ticks(pid) - before;
    println!("{busy} ticks of 10 ms for {sent} replies");
    assert!(sent > 10_000 && busy < 20, "{busy} ticks of 10 ms for {sent} replies");
    program.run("down");
}
