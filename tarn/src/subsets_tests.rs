//! Stages come and go in any combination, and the host is given back.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use libbpf_rs::query::{LinkInfoIter, ProgInfoIter};
use serde_json::Value;
use tarn_lab::random::Random;
use tarn_lab::testing::{Program, is_thorough, seed, sign_of_life};
use tarn_lab::topology::Namespace;

use super::STAGES;
use super::host_tests::{SECTIONS, network};

/// What the kernel frees a moment after it was asked to.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sysctls that change by themselves, or that differ between two looks at an idle host.
const RESTLESS: [&str; 3] = ["conntrack_count", "conntrack_buckets", "random"];

/// What of the network is configured: a line a value.
fn values(host: &Namespace) -> BTreeSet<String> {
    let mut values = BTreeSet::new();
    let mut commands = vec![
        vec!["ip", "-details", "link", "show"],
        vec!["ip", "address", "show"],
        vec!["ip", "rule", "show"],
        vec!["ip", "-6", "rule", "show"],
        vec!["ip", "route", "show", "table", "all"],
        vec!["ip", "nexthop", "show"],
        vec!["tc", "qdisc", "show"],
        vec!["nft", "list", "ruleset"],
        vec!["nft", "list", "hooks"],
    ];
    for device in ["eth0", "right"] {
        for direction in ["ingress", "egress"] {
            commands.push(vec!["tc", "filter", "show", "dev", device, direction]);
        }
    }
    for command in commands {
        let printed = host.run(command[0], &command[1..]).unwrap();
        values.extend(printed.lines().map(|line| format!("{}: {line}", command.join(" "))));
    }
    let sysctls = || {
        let mut lines = Vec::new();
        read_all(Path::new("/proc/sys/net"), &mut lines)?;
        Ok(lines)
    };
    values.extend(host.enter(sysctls).unwrap());
    values.insert(format!("BPF programs: {}", ProgInfoIter::default().count()));
    values.insert(format!("BPF links: {}", LinkInfoIter::default().count()));
    values
}

/// What the files below a directory say.
fn read_all(directory: &Path, lines: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let shown = path.display().to_string();
        if RESTLESS.iter().any(|name| shown.contains(name)) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            read_all(&path, lines)?;
        } else if let Ok(text) = fs::read_to_string(&path) {
            lines.push(format!("{shown}: {}", text.trim()));
        }
    }
    Ok(())
}

/// Waits until the host is as it was.
fn assert_given_back(host: &Namespace, before: &BTreeSet<String>, after: &str) {
    let began = Instant::now();
    loop {
        let now = values(host);
        if now == *before {
            return;
        }
        if began.elapsed() > PATIENCE {
            let (missing, left): (Vec<_>, Vec<_>) =
                (before.difference(&now).collect(), now.difference(before).collect());
            panic!("after {after}: missing {missing:#?}, left behind {left:#?}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The stages whose bits are set.
fn names(set: usize) -> Vec<&'static str> {
    let chosen = |place: &usize| set & (1 << place) != 0;
    (0..SECTIONS.len())
        .filter(chosen)
        .map(|place| STAGES[place].name())
        .collect()
}

/// Brings up these stages, and no others.
fn bring_up(program: &Program<'_>, set: usize) {
    let sections = SECTIONS.iter().enumerate();
    let chosen: Vec<&str> = sections
        .filter(|(place, _)| set & (1 << place) != 0)
        .map(|(_, text)| *text)
        .collect();
    program.configure(&chosen.concat());
    program.run("up");
    let (_, status) = program.command_line("tarn status --json");
    let status: Value = serde_json::from_str(&status).unwrap();
    let stages = status["stages"].as_array().unwrap();
    let up = stages.iter().filter(|stage| stage["up"] == true);
    let up: Vec<&str> = up.map(|stage| stage["name"].as_str().unwrap()).collect();
    assert_eq!(up, names(set), "{status}");
}

/// Somebody who tries stages, or takes one out, would find the host changed.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_any_subset_of_the_stages_in_any_order_gives_the_host_back() {
    let rig = network();
    let host = rig.host().unwrap();
    let all = (1 << SECTIONS.len()) - 1;
    let program = Program::new(host, "");
    // The kernel's modules, and the sysctls that they bring, stay.
    bring_up(&program, all);
    program.run("down");
    let before = values(host);
    let mut sets: Vec<usize> = (1..=all).collect();
    Random::new(u64::from(seed()), "subsets").shuffle(&mut sets);
    sets.truncate(if is_thorough() { all } else { 4 });
    for (round, set) in sets.iter().enumerate() {
        sign_of_life(round as u32);
        bring_up(&program, *set);
        assert!(values(host) != before, "{:?} cannot be seen", names(*set));
        // Half of them are replaced by the next.
        if round % 2 == 1 {
            program.run("down");
            assert_given_back(host, &before, &names(*set).join(", "));
        }
    }
    program.run("down");
    assert_given_back(host, &before, "the last one");
}
