//! An agent that ends in the middle of a storm, and a system that leaves ordinary threads nothing.
//!
//! ```text
//!   host                    client
//!   10.8.0.1 eth0 ──────── eth0 10.8.0.2     (proof/rig.rs)
//! ```

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tarn_frame::agent;
use tarn_kernel::sysfs::Sysfs;
use tarn_lab::topology::Namespace;

use super::life::{goes_first, is_calm, seen};
use super::{flooded, is_left_alone, status, wait_until};
use crate::proof::rig::Rig;
use crate::threads;

fn pings(client: &Namespace) -> String {
    let arguments = ["-q", "-c", "50", "-i", "0.01", "-W", "1", "10.8.0.1"];
    client.run("ping", &arguments).unwrap()
}

/// The flood goes on, and nobody guards the threads any more: at a priority they would leave nothing to anybody.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_of_an_agent_that_ends_in_a_storm_leave_others_the_cpu() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let program = flooded(&rig);
        wait_until("threads go first", Duration::from_secs(5), || goes_first(host));
        let process = Pid::from_raw(agent::information(&program.state()).unwrap().pid as i32);
        kill(process, signal).unwrap();
        let began = Instant::now();
        wait_until("they go last", Duration::from_secs(1), || !goes_first(host));
        std::thread::sleep(Duration::from_secs(1));
        // Softirqs would leave nothing to this test, an ordinary thread on the flooded CPU.
        let elapsed = began.elapsed();
        assert!(elapsed < Duration::from_secs(3), "{elapsed:?}");
        assert_eq!(seen(host).threaded, "1");
        rig.flood(false).unwrap();
        wait_until("softirqs receive again", Duration::from_secs(2), || is_calm(host));
        let _ = kill(process, Signal::SIGCONT);
        program.run("down");
        assert_eq!((seen(host).threaded.as_str(), seen(host).xdp), ("0", None));
    }
}

/// What a service manager does: the flood goes on, and a new agent is started.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_shed_again_when_an_agent_that_ended_in_a_storm_is_started_again() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let (host, client) = (rig.host().unwrap(), rig.client().unwrap());
    let program = flooded(&rig);
    program.kill_agent();
    wait_until("threads go last", Duration::from_secs(1), || !goes_first(host));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(seen(host).threaded, "1", "softirqs would leave nothing to anybody");
    program.run("up");
    // The card has forgotten its address.
    rig.flood(false).unwrap();
    rig.flood(true).unwrap();
    wait_until("it sheds", Duration::from_secs(3), || {
        status(&program)["shed_source"].as_u64().unwrap() > 1_000
    });
    let answer = pings(client);
    rig.flood(false).unwrap();
    program.run("down");
    assert!(answer.contains("50 received"), "{answer}");
    assert_eq!((seen(host).threaded.as_str(), seen(host).xdp), ("0", None));
}

/// Where ordinary threads are left nothing beside real-time ones, as audio hosts may have it: then the guard alone does so.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_answer_others_in_a_storm_without_the_kernel_s_share_for_ordinary_threads() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let (host, client) = (rig.host().unwrap(), rig.client().unwrap());
    let share = Path::new("/sys/kernel/debug/sched/fair_server/cpu0/runtime");
    if !share.exists() {
        host.run("mount", &["-t", "debugfs", "debugfs", "/sys/kernel/debug"])
            .unwrap();
    }
    let before = fs::read_to_string(share).unwrap();
    fs::write(share, "0").unwrap();
    let program = flooded(&rig);
    let answer = pings(client);
    let status = status(&program);
    rig.flood(false).unwrap();
    program.run("down");
    fs::write(share, before).unwrap();
    assert!(answer.contains("50 received"), "{answer}\n{status}");
}

/// An administrator who ends a flood by taking the device down.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_that_are_set_down_in_a_storm_can_be_put_back() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    for kills in [false, true] {
        let program = flooded(&rig);
        wait_until("threads go first", Duration::from_secs(5), || goes_first(host));
        host.ip("link set eth0 down").unwrap();
        if kills {
            program.kill_agent();
        }
        // Since Linux 6.17, this would wait for ever.
        program.run("down");
        assert!(!goes_first(host), "{kills}");
        host.ip("link set eth0 up").unwrap();
        rig.flood(false).unwrap();
        let give_back = || threads::set_threaded(&Sysfs::of_this_namespace()?, "eth0", false);
        host.enter(give_back).unwrap();
        assert_eq!((seen(host).threaded.as_str(), seen(host).xdp), ("0", None), "{kills}");
    }
}

/// The same, and the agent got no CPU meanwhile: what it finds then is its own doing, and not somebody else's.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_that_are_down_while_the_agent_is_stopped_are_put_back() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let program = flooded(&rig);
    wait_until("threads go first", Duration::from_secs(5), || goes_first(host));
    host.ip("link set eth0 down").unwrap();
    let pause = || std::thread::sleep(Duration::from_secs(2));
    pause();
    let process = Pid::from_raw(agent::information(&program.state()).unwrap().pid as i32);
    kill(process, Signal::SIGSTOP).unwrap();
    pause();
    kill(process, Signal::SIGCONT).unwrap();
    pause();
    rig.flood(false).unwrap();
    host.ip("link set eth0 up").unwrap();
    pause();
    assert_eq!(status(&program)["watched"][0]["device"], "eth0");
    program.run("down");
    assert_eq!((seen(host).threaded.as_str(), seen(host).xdp), ("0", None));
}
