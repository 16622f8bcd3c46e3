//! An agent that ends in the middle of a storm, and a system that leaves ordinary threads nothing.
//!
//! ```text
//!   host                    client
//!   10.8.0.1 eth0 ──────── eth0 10.8.0.2     (proof/rig.rs)
//! ```

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tarn_frame::agent;
use tarn_kernel::sysfs::Sysfs;
use tarn_lab::load::{Wire, udp};
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

use super::life::{goes_first, is_calm, seen};
use super::{flood, flooded, is_left_alone, status, wait_until};
use crate::proof::rig::Rig;
use crate::threads;

/// linux/capability.h; libc has no name for it.
const CAP_SYS_NICE: libc::c_ulong = 23;

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

const IPV6_HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 8, 0, 0, 0, 0, 1);

/// A datagram to a closed port, each from another network (RFC 8200, section 3).
fn from_many_networks(wire: Wire, number: u16) -> Vec<u8> {
    const ETHERTYPE: u16 = 0x86dd;
    const HOPS: u8 = 64;
    let source = SocketAddr::new(Ipv6Addr::new(0x2001, 0xdb8, 0x100, number, 0, 0, 0, 1).into(), 20_000);
    let target = SocketAddr::new(IPV6_HOST.into(), 9);
    let datagram = udp(source, target, number.into(), 8, true);
    let mut frame = [wire.to, wire.from].concat();
    frame.extend(ETHERTYPE.to_be_bytes());
    frame.extend([6 << 4, 0, 0, 0]);
    frame.extend((datagram.len() as u16).to_be_bytes());
    frame.extend([libc::IPPROTO_UDP as u8, HOPS]);
    for address in [source.ip(), target.ip()] {
        let IpAddr::V6(address) = address else { unreachable!() };
        frame.extend(address.octets());
    }
    frame.extend(datagram);
    frame
}

/// Whoever has a /48 of IPv6 has 65,536 networks to send from, and no neighbour is found without neighbour discovery.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_answer_others_in_a_flood_from_many_ipv6_networks() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let (host, client) = (rig.host().unwrap(), rig.client().unwrap());
    for (node, address) in [(host, IPV6_HOST.to_string()), (client, "2001:db8:8::2".to_owned())] {
        // The rig speaks IPv4 only.
        let speak_ipv6 = || Ok(fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0")?);
        node.enter(speak_ipv6).unwrap();
        node.ip(&format!("address add {address}/64 dev eth0 nodad")).unwrap();
    }
    let program = Program::new(host, "[poll]\n");
    program.run("up");
    flood(&rig, || rig.begin_with(21, from_many_networks).unwrap());
    let arguments = ["-6", "-q", "-c", "50", "-i", "0.01", "-W", "1", &IPV6_HOST.to_string()];
    let answers = [pings(client), client.run("ping", &arguments).unwrap()];
    let status = status(&program);
    rig.flood(false).unwrap();
    program.run("down");
    assert!(
        answers.iter().all(|answer| answer.contains("50 received")),
        "{answers:?}\n{status}"
    );
    assert!(status["shed_port"].as_u64().unwrap() > 1_000, "{status}");
}

/// Storms that last.
mod lab_long {
    use super::*;

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

    /// In a container, or a control group without a budget for real-time threads: nothing goes first, and the flood is shed all the same.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_cards_answer_others_in_a_storm_without_the_right_to_go_first() {
        if is_left_alone() {
            return;
        }
        let rig = Rig::new().unwrap();
        let (host, client) = (rig.host().unwrap(), rig.client().unwrap());
        let program = Program::new(host, "[poll]\n");
        let remarks = std::thread::scope(|scope| {
            // For what this thread starts, the agent among it.
            let up = scope.spawn(|| {
                // SAFETY: the call takes numbers only.
                let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_NICE) };
                assert_eq!(dropped, 0);
                program.remarks("up")
            });
            up.join().unwrap()
        });
        flood(&rig, || rig.begin(21, 9).unwrap());
        let answer = pings(client);
        let went_first = goes_first(host);
        let status = status(&program);
        rig.flood(false).unwrap();
        program.run("down");
        println!("{remarks}\n{answer}\n{status}");
        assert!(
            !went_first && answer.contains("50 received"),
            "{remarks}\n{answer}\n{status}"
        );
        assert_eq!((seen(host).threaded.as_str(), seen(host).xdp), ("0", None));
    }
}
