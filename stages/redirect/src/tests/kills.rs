//! Clients while everything of tarn's is killed at any moment: they notice nothing.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use super::program::{asked, configuration, prepare};
use super::scene::{FAMILIES, Family, Scene, at, near};
use super::traffic::Traffic;
use super::way::Way;
use tarn_lab::testing::{Program, is_thorough, seed};

fn traffic(scene: &Scene, family: &Family, port: u16) -> Traffic {
    Traffic::start(scene.udp("client", at(family.client, 0)), at(family.host, port))
}

/// Agents and those that come up in their place are killed again and again, at any moment, and rules come and go
/// meanwhile: no client of another rule loses a packet, be the rule one of the file or added by command.
pub fn lab_loses_nothing_whatever_is_killed(way: Way) {
    let scene = Scene::of(way, &near(way, false));
    prepare(&scene);
    let program = Program::new(scene.namespace("host"), &configuration(way));
    program.run("up");
    let add = |port: u16, family: &Family| {
        let (from, to) = (at(family.host, port), at(family.server, 8083));
        program.command_line(&format!("tarn redirect add udp {from} {to}")).0
    };
    FAMILIES.iter().for_each(|family| assert_eq!(add(9000, family), 0));
    let clients: Vec<Traffic> = FAMILIES
        .iter()
        .flat_map(|family| [asked(family).port(), 9000].map(|port| traffic(&scene, family, port)))
        .collect();
    let rounds = if is_thorough() { 40 } else { 3 };
    for round in 0..rounds {
        program.kill_agent();
        // From the beginning of an `up` to its end, at other moments with another seed.
        let moment = (round + 1) * 37 % 200 + u64::from(seed()) % 37;
        let up = program.start("up");
        sleep(Duration::from_millis(moment));
        program.interrupt(up);
        let port = 9001 + round as u16;
        FAMILIES.iter().for_each(|family| assert_eq!(add(port, family), 0));
        program.run("up");
        assert_eq!(
            program
                .command_line(&format!("tarn redirect del --from {}", at(FAMILIES[0].host, port)))
                .0,
            0
        );
    }
    clients
        .into_iter()
        .for_each(|traffic| traffic.end("agents that are killed"));
    program.run("down");
}

/// A `tarn up` is killed, and then a rule is added whose target is another host: forwarding is turned on for it, and the next
/// `tarn up`, which puts back what the one that was killed had changed, does not turn it off for a moment.
pub fn lab_keeps_what_a_rule_needs_after_a_killed_up(way: Way) {
    let scene = Scene::of(way, &near(way, false));
    prepare(&scene);
    let whole = configuration(way);
    let without_rules = whole.split("[[redirect.rule]]").next().unwrap();
    let program = Program::new(scene.namespace("host"), without_rules);
    program.run("up");
    program.kill_agent();
    let journal = program.state().path().join("journal");
    // Killed before it has changed anything.
    let mut journal = OpenOptions::new().append(true).open(journal).unwrap();
    journal.write_all(b"{\"begin\":{}}\n").unwrap();
    for family in &FAMILIES {
        let (from, to) = (asked(family), at(family.server, 8083));
        let (code, told) = program.command_line(&format!("tarn redirect add udp {from} {to}"));
        assert_eq!(code, 0, "{told}");
    }
    let clients: Vec<Traffic> = FAMILIES.iter().map(|family| traffic(&scene, family, 8080)).collect();
    let records = || {
        let journal = fs::read_to_string(program.state().path().join("journal")).unwrap();
        journal
            .lines()
            .filter(|line| line.contains("\"change\""))
            .filter(|line| line.contains("forward"))
            .count()
    };
    let before = records();
    let told = program.remarks("up");
    assert!(told.contains("was interrupted"), "{told}");
    assert_eq!(records(), before, "forwarding was turned off and on");
    clients
        .into_iter()
        .for_each(|traffic| traffic.end("a rule that was added"));
    program.run("down");
}
