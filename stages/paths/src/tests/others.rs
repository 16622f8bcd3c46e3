//! What belongs to others stays theirs.

use std::time::Duration;

use super::scene::{BOTH, Scene, await_left_alone, uplink};
use tarn_lab::testing::Program;

const GROUP: u32 = 0x7461_0000;

#[test]
#[ignore = "needs the lab"]
fn lab_paths_leave_alone_what_an_administrator_has_changed() {
    let scene = Scene::new([0, 0]);
    let before = scene.dump();
    let program = scene.up();
    let one = GROUP + 1;
    scene
        .host()
        .ip(&format!(
            "nexthop replace id {GROUP} group {one},9/{} type resilient",
            GROUP + 2
        ))
        .unwrap();
    await_left_alone(&program);
    let (code, told) = program.command_line("tarn status");
    assert_eq!(code, 1, "{told}");
    assert!(
        told.contains("paths: default is left alone: its nexthop group"),
        "{told}"
    );
    let left = uplink(&program, "default", "wan1");
    assert!(left["share"].is_null(), "nobody knows what it gets now: {left}");
    scene.kill("wan1");
    std::thread::sleep(Duration::from_secs(5));
    let shown = scene.host().ip(&format!("nexthop show id {GROUP}")).unwrap();
    assert!(shown.contains(&format!("group {one},9/")), "{shown}");
    program.run("down");
    assert_eq!(scene.dump(), before, "what tarn has made goes with it");
}

#[test]
#[ignore = "needs the lab"]
fn lab_paths_refuse_the_place_of_somebody_else_s_route_and_change_nothing() {
    let scene = Scene::new([0, 0]);
    scene.host().ip("route add default via 10.1.0.1").unwrap();
    let before = scene.dump();
    let program = Program::new(scene.host(), BOTH);
    assert!(!program.succeeds("up"));
    assert_eq!(scene.dump(), before);
    program.configure(&BOTH.replace("to = \"default\"", "to = \"default\"\nmetric = 50"));
    program.run("up");
    assert_eq!(scene.way("10.9.9.9"), "wan1");
    program.run("down");
    assert_eq!(scene.dump(), before);
}

/// A group that the file no longer names goes, and an `up` that fails changes nothing of what runs.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_follow_the_file_from_one_up_to_the_next() {
    let scene = Scene::new([0, 0]);
    let program = scene.up();
    let with_both = scene.dump();
    let alone = BOTH
        .split("[[paths.group]]\npin = false\nto = \"::/0\"")
        .next()
        .unwrap();
    program.configure(&format!("{alone}[[paths.group]]\npin = false\nto = \"10.77.0.0/16\"\nuplink = [{{ device = \"wan1\", gateway = \"10.1.0.77\" }}, {{ device = \"wan2\", gateway = \"10.2.0.1\" }}]\n"));
    program.run("up");
    assert!(!scene.host().ip("-6 route show").unwrap().contains("default"));
    assert_eq!(scene.way("10.77.1.1"), "wan1");
    program.configure(BOTH);
    program.run("up");
    assert_eq!(scene.dump(), with_both);
    scene.host().ip("route add 10.78.0.0/16 via 10.1.0.1").unwrap();
    let with_other = scene.dump();
    program.configure(&format!("{BOTH}[[paths.group]]\npin = false\nto = \"10.78.0.0/16\"\nuplink = [{{ device = \"wan1\", gateway = \"10.1.0.1\" }}, {{ device = \"wan2\", gateway = \"10.2.0.1\" }}]\n"));
    assert!(!program.succeeds("up"));
    assert_eq!(scene.dump(), with_other);
    program.run("down");
}

/// Some network managers remove what they do not know. Without rule and table, an uplink would be silent for ever.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_set_their_own_rules_and_tables_again() {
    let scene = Scene::new([0, 0]);
    let program = scene.up();
    let whole = scene.dump();
    scene.host().ip("rule del priority 1001").unwrap();
    scene
        .host()
        .ip(&format!("route del default table {}", GROUP + 2))
        .unwrap();
    assert_ne!(scene.dump(), whole);
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(scene.dump(), whole);
    program.run("down");
}
