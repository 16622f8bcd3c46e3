//! An agent that ends in the middle of a storm, and limits of the system's that a real-time thread meets.
//!
//! ```text
//!   host                    client
//!   10.8.0.1 eth0 ──────── eth0 10.8.0.2     (proof/rig.rs)
//! ```

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tarn_frame::agent;
use tarn_kernel::sysctl;
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

use super::life::{goes_first, is_calm, seen};
use super::{flooded, is_left_alone, status, wait_until};
use crate::proof::rig::Rig;

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
        // This test is an ordinary thread on the flooded CPU.
        wait_until("they go last", Duration::from_secs(1), || !goes_first(host));
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

/// Without a limit for real-time threads (`-1`, as audio hosts have it) and with a low one.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_answer_others_in_a_storm_whatever_real_time_threads_may_take() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let client = rig.client().unwrap();
    let parameter = Path::new("/proc/sys/kernel/sched_rt_runtime_us");
    let before = sysctl::read(parameter).unwrap();
    for limit in ["-1", "300000"] {
        sysctl::write(parameter, limit).unwrap();
        let program: Program<'_> = flooded(&rig);
        let answer = pings(client);
        let status = status(&program);
        rig.flood(false).unwrap();
        program.run("down");
        sysctl::write(parameter, &before).unwrap();
        assert!(answer.contains("50 received"), "{limit}: {answer}\n{status}");
    }
}
