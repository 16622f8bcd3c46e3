//! The module `tarn_poll`: how many packets a poll may take.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use tarn_kernel::genl::refusal;
use tarn_kernel::sysfs::Sysfs;
use tarn_kernel::{links, modules};
use tarn_lab::testing::{Program, is_thorough, sign_of_life};
use tarn_lab::topology::{End, Namespace, Network, Node, Topology};

use super::{is_left_alone, wait_until};
use crate::module::{MODULE, Module, Rule, Weighed};
use crate::proof::contender::thread;
use crate::proof::rig::Rig;
use crate::threads;

/// Two hosts with a veth pair whose ends have NAPIs.
///
/// ```text
///   one                    other
///   10.8.2.1 veth0 ─────── veth0 10.8.2.2
/// ```
fn pair() -> Network {
    let network = Topology::new()
        .node(Node::new("one"))
        .node(Node::new("other"))
        .link(
            End::new("one", "veth0").address("10.8.2.1/24"),
            End::new("other", "veth0").address("10.8.2.2/24"),
        )
        .permanent_neighbours()
        .build()
        .unwrap();
    for name in ["one", "other"] {
        let namespace = network.namespace(name).unwrap();
        namespace.run("ethtool", &["-K", "veth0", "gro", "on"]).unwrap();
    }
    modules::load(MODULE.name).unwrap();
    network
}

fn index(namespace: &Namespace, name: &str) -> u32 {
    let all = namespace.enter(links::all).unwrap();
    all.iter().find(|link| link.name == name).unwrap().index
}

fn set(namespace: &Namespace, name: &str, rule: Rule) {
    let device = index(namespace, name);
    namespace.enter(|| Module::loaded()?.set(device, rule)).unwrap();
}

fn weighed(namespace: &Namespace) -> Vec<Weighed> {
    namespace.enter(|| Module::loaded()?.napis()).unwrap()
}

/// What polls of a namespace's devices may take, where that is set.
pub fn weights(namespace: &Namespace) -> Vec<u32> {
    weighed(namespace).iter().map(|napi| napi.weight).collect()
}

/// Whether all NAPIs of a device have the kernel's weight: only such are taken.
fn assert_untouched(namespace: &Namespace, name: &str) {
    modules::load(MODULE.name).unwrap();
    set(namespace, name, Rule::Fixed(33));
    let found = weights(namespace);
    assert!(
        !found.is_empty() && found.iter().all(|weight| *weight == 33),
        "{found:?}"
    );
    namespace.enter(|| Module::loaded()?.stop()).unwrap();
}

/// A thread that is due would wait as long as on a stock kernel; and after `down`, polls would stay short for good.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_polls_take_as_much_as_is_configured_until_down() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let timely = |weight: u32| format!("[poll]\nprofile = \"timely\"\nweight = {weight}\n");
    let program = Program::new(host, &timely(16));
    program.run("up");
    let patience = Duration::from_secs(5);
    wait_until("polls take 16", patience, || weights(host) == [16]);
    rig.readdress().unwrap();
    let client = rig.client().unwrap();
    client
        .run("ping", &["-q", "-c", "5", "-i", "0.01", "10.8.0.1"])
        .unwrap();
    let (_, status) = program.command_line("tarn poll status --json");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["queues"][0]["weight"], 16, "{status}");
    assert!(status["queues"][0]["polls"].as_u64().unwrap() > 0, "{status}");

    program.configure(&timely(8));
    program.run("up");
    wait_until("polls take 8", patience, || weights(host) == [8]);
    // Somebody takes the module out, and puts it in again.
    modules::unload(MODULE.name).unwrap();
    modules::load(MODULE.name).unwrap();
    wait_until("polls take 8 again", patience, || weights(host) == [8]);
    program.kill_agent();
    wait_until("who outlives the agent puts weights back", patience, || {
        weights(host).is_empty()
    });
    program.run("up");
    wait_until("polls take 8", patience, || weights(host) == [8]);
    program.run("down");
    assert!(!modules::is_loaded(MODULE.name));
    assert_untouched(host, "eth0");
    modules::unload(MODULE.name).unwrap();
}

/// A card keeps its NAPIs while it is down; Linux 6.13 and newer give them other numbers when it is up again.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_that_were_down_get_their_weight_back() {
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    modules::load(MODULE.name).unwrap();
    set(host, "eth0", Rule::Fixed(16));
    host.ip("link set eth0 down").unwrap();
    host.ip("link set eth0 up").unwrap();
    assert_eq!(weights(host), [16]);
    host.enter(|| Module::loaded()?.stop()).unwrap();
    assert_untouched(host, "eth0");
    modules::unload(MODULE.name).unwrap();
}

/// For comparison only, and as published.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_the_published_rule_grows_under_load_and_shrinks_without() {
    let rig = Rig::new().unwrap();
    let (host, client) = (rig.host().unwrap(), rig.client().unwrap());
    modules::load(MODULE.name).unwrap();
    rig.flood(false).unwrap();
    if !is_left_alone() {
        // This test would not get the CPU meanwhile.
        host.enter(|| thread(None)).unwrap();
    }
    set(host, "eth0", Rule::Published);
    // 420,000 packets a second, more than the CPU can take: every poll is full.
    rig.begin(21, 9).unwrap();
    rig.flood(true).unwrap();
    wait_until("the weight grows", Duration::from_secs(2), || weights(host) == [256]);
    rig.flood(false).unwrap();
    client
        .run("ping", &["-q", "-c", "20", "-i", "0.01", "10.8.0.1"])
        .unwrap();
    assert_eq!(weights(host), [16], "a ping is a short poll");
    host.enter(|| Module::loaded()?.stop()).unwrap();
    assert_untouched(host, "eth0");
    modules::unload(MODULE.name).unwrap();
    host.enter(|| threads::set_threaded(&Sysfs::of_this_namespace()?, "eth0", false))
        .unwrap();
}

/// A host would keep short polls that nobody can set back.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_poll_weights_are_put_back_by_whatever_ends_them() {
    let network = pair();
    let [one, other] = ["one", "other"].map(|name| network.namespace(name).unwrap());
    set(one, "veth0", Rule::Fixed(16));
    assert!(weights(other).is_empty(), "each namespace has its own");
    assert!(weights(one).iter().all(|weight| *weight == 16));

    // The module goes while the device is down.
    one.ip("link set veth0 down").unwrap();
    modules::unload(MODULE.name).unwrap();
    one.ip("link set veth0 up").unwrap();
    assert_untouched(one, "veth0");

    // The rule changes.
    for rule in [Rule::Fixed(8), Rule::Published, Rule::Fixed(256)] {
        set(one, "veth0", rule);
    }
    assert!(weights(one).iter().all(|weight| *weight == 256));
    one.enter(|| Module::loaded()?.stop()).unwrap();
    assert_untouched(one, "veth0");

    // Its NAPIs are disabled and enabled meanwhile; Linux 6.13 and newer give them other numbers.
    set(one, "veth0", Rule::Fixed(16));
    one.ip("link set veth0 mtu 1400").unwrap();
    one.ip("link set veth0 down").unwrap();
    one.ip("link set veth0 up").unwrap();
    set(one, "veth0", Rule::Fixed(16));
    assert!(weights(one).iter().all(|weight| *weight == 16));
    set(one, "veth0", Rule::Fixed(64));
    assert!(weights(one).is_empty());
    assert_untouched(one, "veth0");

    // The device goes to another namespace.
    set(one, "veth0", Rule::Fixed(16));
    one.ip("link add moved type veth peer name peer").unwrap();
    one.run("ethtool", &["-K", "moved", "gro", "on"]).unwrap();
    one.ip("link set moved up").unwrap();
    one.ip("link set peer up").unwrap();
    set(one, "moved", Rule::Fixed(16));
    let holder = format!("/proc/{}/fd/{}", std::process::id(), other.as_fd().as_raw_fd());
    one.ip(&format!("link set moved netns {holder}")).unwrap();
    let left = index(one, "veth0");
    assert!(weighed(one).iter().all(|napi| napi.device == left));
    other.ip("link set moved up").unwrap();
    assert_untouched(other, "moved");
    one.enter(|| Module::loaded()?.stop()).unwrap();

    let gone = one.enter(|| Module::loaded()?.set(9999, Rule::Fixed(16))).unwrap_err();
    assert_eq!(refusal(&gone), Some(Errno::ENODEV), "{gone:#}");
    let wrong = one.enter(|| Module::loaded()?.set(left, Rule::Fixed(7))).unwrap_err();
    assert_eq!(refusal(&wrong), Some(Errno::ERANGE), "{wrong:#}");
    modules::unload(MODULE.name).unwrap();
}

/// Devices come and go, rules change and the module is taken out while packets are received.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_poll_survives_devices_and_modules_that_go_under_load() {
    let network = pair();
    let [one, other] = ["one", "other"].map(|name| network.namespace(name).unwrap());
    let (done, rounds) = (AtomicBool::new(false), if is_thorough() { 200 } else { 20 });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = other.run("ping", &["-q", "-f", "-c", "2000", "10.8.2.1"]);
            }
        });
        for round in 0..rounds {
            sign_of_life(round);
            modules::load(MODULE.name).unwrap();
            one.ip("link add short type veth peer name peer").unwrap();
            one.run("ethtool", &["-K", "short", "gro", "on"]).unwrap();
            one.ip("link set short up").unwrap();
            let rule = [Rule::Published, Rule::Fixed(8), Rule::Fixed(64)][round as usize % 3];
            set(one, "veth0", rule);
            set(one, "short", rule);
            set(one, "veth0", [Rule::Fixed(16), Rule::Published][round as usize % 2]);
            if round % 4 == 0 {
                one.ip("link set veth0 down").unwrap();
                one.ip("link set veth0 up").unwrap();
            }
            if round % 2 == 0 {
                one.ip("link del short").unwrap();
            }
            modules::unload(MODULE.name).unwrap();
            if round % 2 == 1 {
                one.ip("link del short").unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_untouched(one, "veth0");
    modules::unload(MODULE.name).unwrap();
}

/// Everybody on the host, or the root of a container, could slow receiving down.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_poll_the_root_of_a_user_namespace_is_refused() {
    modules::load(MODULE.name).unwrap();
    // SAFETY: the child has this thread only; it makes system calls, and ends without any of the parent's destructors.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let refused = || {
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).unwrap();
            let mut module = Module::find().unwrap().unwrap();
            let errors = [
                module.set(1, Rule::Fixed(16)).err(),
                module.napis().err(),
                module.stop().err(),
            ];
            let is_refused = |error: &Option<anyhow::Error>| error.as_ref().and_then(refusal) == Some(Errno::EPERM);
            errors.iter().all(is_refused)
        };
        let status = std::panic::catch_unwind(refused).map_or(2, |refused| i32::from(!refused));
        // SAFETY: it does not return.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the status is written to a place of its size.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "1 << 8: it was not refused");
    modules::unload(MODULE.name).unwrap();
}
