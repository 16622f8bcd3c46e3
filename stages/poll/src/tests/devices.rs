//! A device that goes and comes during a storm, or is set up anew.
//!
//! ```text
//!   host                    client
//!   10.8.0.1 eth0 ──────── eth0 10.8.0.2     (proof/rig.rs)
//!   init
//!   where eth0 is meanwhile
//! ```

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_lab::testing::Program;
use tarn_lab::topology::{End, Namespace, Node, Topology};

use super::life::{goes_first, is_calm, seen, seen_of};
use super::{flooded, is_left_alone, status, wait_until};
use crate::proof::rig::Rig;

/// What its driver calls the cards, by their places on the bus.
const DRIVER: &str = "/sys/bus/pci/drivers/vmxnet3";
/// What the card is called while it is not the host's.
pub(super) const AWAY: &str = "away0";

/// A name of a namespace for `ip`.
pub(super) fn holder(namespace: &Namespace) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd())
}

/// Gives the host's card to somebody else during a storm, who sets it up. Nobody guards its threads there.
pub(super) fn take_away(rig: &Rig, init: &Namespace) {
    let host = rig.host().unwrap();
    wait_until("threads go first", Duration::from_secs(5), || goes_first(host));
    host.ip(&format!("link set eth0 netns {} name {AWAY}", holder(init)))
        .unwrap();
    init.ip(&format!("link set {AWAY} up")).unwrap();
    wait_until("its threads go last", Duration::from_secs(2), || {
        !seen_of(init, AWAY).goes_first()
    });
}

/// Gives the host its card back, as an administrator would.
pub(super) fn give_back(rig: &Rig, init: &Namespace, name: &str) {
    let host = rig.host().unwrap();
    move_back(host, init, name);
    set_up(host);
}

/// Moves the card to the host, where it is down at first.
fn move_back(host: &Namespace, init: &Namespace, name: &str) {
    init.ip(&format!("link set {name} netns {} name eth0", holder(host)))
        .unwrap();
}

fn set_up(host: &Namespace) {
    host.ip_batch(&[
        "address add 10.8.0.1/24 dev eth0".to_owned(),
        "link set eth0 up".to_owned(),
    ])
    .unwrap();
}

/// Floods the host anew; it has to shed, and others to be answered.
fn survives(rig: &Rig, program: &Program<'_>, what: &str) {
    // The card has forgotten its address.
    rig.flood(false).unwrap();
    wait_until("it is watched", Duration::from_secs(5), || {
        status(program)["watched"][0]["device"] == "eth0"
    });
    let shed = || status(program)["shed_source"].as_u64().unwrap();
    let before = shed();
    rig.flood(true).unwrap();
    // The driver may have lost the program. Once it is attached again, the card has forgotten its address once more.
    std::thread::sleep(Duration::from_secs(1));
    rig.flood(false).unwrap();
    rig.flood(true).unwrap();
    wait_until("it sheds", Duration::from_secs(3), || shed() > before + 1_000);
    wait_until("threads go first", Duration::from_secs(5), || {
        goes_first(rig.host().unwrap())
    });
    let arguments = ["-q", "-c", "50", "-i", "0.01", "-W", "1", "10.8.0.1"];
    let answer = rig.client().unwrap().run("ping", &arguments).unwrap();
    assert!(answer.contains("50 received"), "{what}: {answer}");
}

/// The storm is over, and `down` leaves nothing behind.
pub(super) fn ends_calm(rig: &Rig, program: &Program<'_>) {
    let host = rig.host().unwrap();
    rig.flood(false).unwrap();
    program.run("down");
    assert!(is_calm(host));
    assert_eq!(seen(host).xdp, None);
}

/// The first card's place on the bus.
fn slot() -> PathBuf {
    let entries = fs::read_dir(DRIVER).unwrap().map(|entry| entry.unwrap().path());
    let has_colon = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().contains(':');
    entries.filter(has_colon).min().unwrap()
}

/// `bind` or `unbind` of the driver.
fn tell_driver(what: &str, slot: &Path) {
    let name = slot.file_name().unwrap().as_encoded_bytes();
    fs::write(Path::new(DRIVER).join(what), name).unwrap();
}

/// A card is given to a container and taken back, or pulled out and put in again. Its threads must not go first where nobody guards them,
/// and once it is back, it is protected as before.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_that_go_and_come_in_a_storm_are_protected_again() {
    if is_left_alone() {
        return;
    }
    let (rig, init) = (Rig::new().unwrap(), Namespace::of_init().unwrap());
    let program = flooded(&rig);
    take_away(&rig, &init);
    give_back(&rig, &init, AWAY);
    survives(&rig, &program, "in another namespace meanwhile");

    let slot = slot();
    tell_driver("unbind", &slot);
    std::thread::sleep(Duration::from_secs(2));
    tell_driver("bind", &slot);
    let name = fs::read_dir(slot.join("net")).unwrap().next().unwrap().unwrap();
    give_back(&rig, &init, name.file_name().to_str().unwrap());
    survives(&rig, &program, "pulled out meanwhile");

    ends_calm(&rig, &program);
}

/// A veth pair has no NAPI as it is made, so nothing can be threaded. `status` must not say that it is; once it has one, it has to be.
///
/// ```text
///   host                    other
///   10.8.2.1 eth0 ─────── eth0 10.8.2.2
/// ```
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_poll_threads_a_veth_once_it_has_a_napi() {
    if is_left_alone() {
        return;
    }
    let network = Topology::new()
        .node(Node::new("host"))
        .node(Node::new("other"))
        .link(
            End::new("host", "eth0").address("10.8.2.1/24"),
            End::new("other", "eth0").address("10.8.2.2/24"),
        )
        .build()
        .unwrap();
    let host = network.namespace("host").unwrap();
    let program = Program::new(host, "[poll]\ndevices = [\"eth0\"]\nthreads = \"on\"\n");
    program.run("up");
    let receives = |what: &str| status(&program)["watched"][0]["receives"] == what;
    wait_until("it has no NAPI", Duration::from_secs(3), || {
        receives("softirqs, no NAPI")
    });
    assert_eq!(seen(host).threaded, "0");

    host.run("ethtool", &["-K", "eth0", "gro", "on"]).unwrap();
    wait_until("threads receive", Duration::from_secs(3), || receives("threads, first"));
    assert!(seen(host).threaded == "1" && goes_first(host));
    let answer = host.run("ping", &["-q", "-c", "20", "-i", "0.01", "10.8.2.2"]).unwrap();
    assert!(answer.contains("20 received"), "{answer}");

    host.run("ethtool", &["-K", "eth0", "gro", "off"]).unwrap();
    wait_until("it has none again", Duration::from_secs(3), || {
        receives("softirqs, no NAPI")
    });
    host.run("ethtool", &["-K", "eth0", "gro", "on"]).unwrap();
    program.run("down");
    assert!(is_calm(host));
}

/// What lies above a card receives in the card's own softirq: threads of its own would only cost, and WireGuard's and veth's are made for other
/// loads. The card below, which is a port of a bridge here, is protected.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_what_lies_above_them_is_left_alone() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    for line in [
        "link add bridge0 type bridge",
        "link set eth0 master bridge0",
        "link add link bridge0 name vlan5 type vlan id 5",
        "link add wireguard0 type wireguard",
        "link add veth0 type veth peer name veth1",
    ] {
        host.ip(line).unwrap();
    }
    let above = ["bridge0", "vlan5", "wireguard0", "veth0", "veth1"];
    above
        .iter()
        .for_each(|name| drop(host.ip(&format!("link set {name} up")).unwrap()));
    let threaded = || above.map(|name| seen_of(host, name).threaded);
    let before = threaded();
    let program = Program::new(host, "[poll]\n");
    program.run("up");
    let (_, check) = program.command_line("tarn check poll");
    for (name, kind) in above.iter().zip(["bridge", "vlan", "wireguard", "veth", "veth"]) {
        assert!(
            check.contains(&format!("{name}: left alone, its kind is {kind}")),
            "{check}"
        );
    }
    let watched = status(&program)["watched"].clone();
    let names: Vec<&str> = watched
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["device"].as_str())
        .collect();
    assert_eq!(names, ["eth0"], "{watched}");
    assert_eq!(threaded(), before);
    program.run("down");
    assert!(is_calm(host));
    assert_eq!(threaded(), before);
}

/// Storms that last.
mod lab_long {
    use super::*;

    /// A service manager starts the agent anew while a container has the card. It comes back with threads: as a device that somebody else
    /// manages, nobody would guard them, and `down` would leave them behind.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_cards_that_were_away_while_the_agent_was_started_anew_are_protected_again() {
        if is_left_alone() {
            return;
        }
        let rig = Rig::new().unwrap();
        let (host, init) = (rig.host().unwrap(), Namespace::of_init().unwrap());
        let program = flooded(&rig);
        take_away(&rig, &init);
        assert_eq!(seen_of(&init, AWAY).threaded, "1", "it takes its threads with it");
        program.kill_agent();
        program.run("up");
        give_back(&rig, &init, AWAY);
        survives(&rig, &program, "the agent was started anew meanwhile");

        // And once more, but the card is there again, and still down, when the agent is started.
        take_away(&rig, &init);
        program.kill_agent();
        move_back(host, &init, AWAY);
        program.run("up");
        set_up(host);
        survives(&rig, &program, "it came back before the agent was started");
        ends_calm(&rig, &program);
    }

    /// Longer rings are what many guides recommend against drops: the driver makes all its queues anew.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_cards_whose_rings_change_in_a_storm_are_protected() {
        if is_left_alone() {
            return;
        }
        let rig = Rig::new().unwrap();
        let host = rig.host().unwrap();
        let program = flooded(&rig);
        wait_until("threads go first", Duration::from_secs(5), || goes_first(host));
        for length in ["512", "2048"] {
            host.run("ethtool", &["-G", "eth0", "rx", length]).unwrap();
            survives(&rig, &program, length);
        }
        ends_calm(&rig, &program);
    }
}
