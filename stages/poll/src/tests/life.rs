//! It comes up, outlives its agent safely, and goes.
//!
//! ```text
//!   host                    client
//!   10.8.0.1 eth0 ──────── eth0 10.8.0.2     (proof/rig.rs)
//! ```

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tarn_frame::agent;
use tarn_kernel::features::{Host, Release};
use tarn_kernel::netdev;
use tarn_kernel::scheduling::{Policy, policy, set_policy};
use tarn_kernel::sysfs::Sysfs;
use tarn_kernel::{attach, links};
use tarn_lab::load::{TcpAnswerer, syn};
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

use super::{card, flooded, is_left_alone, wait_until};
use crate::proof::rig::{HOST, Rig};

/// The port of a server.
const WEB: u16 = 80;

/// Since when an overload starves programs.
const LIVELOCKS: Release = Release {
    major: 6,
    minor: 4,
    patch: 0,
};

/// What tarn has to leave as it was.
#[derive(Debug, PartialEq)]
pub struct Seen {
    pub threaded: String,
    pub xdp: Option<u32>,
    policies: Vec<Option<Policy>>,
}

impl Seen {
    /// Whether some thread goes before all ordinary ones.
    pub fn goes_first(&self) -> bool {
        self.policies.contains(&Some(Policy::Fifo(1)))
    }
}

/// Of a namespace's eth0.
pub fn seen(host: &Namespace) -> Seen {
    seen_of(host, "eth0")
}

/// Of any device.
pub fn seen_of(host: &Namespace, device: &str) -> Seen {
    let look = || {
        let index = links::all()?.iter().find(|link| link.name == device).unwrap().index;
        let napis = netdev::napis(index)?.unwrap_or_default();
        Ok(Seen {
            threaded: Sysfs::of_this_namespace()?.read(&format!("class/net/{device}/threaded"))?,
            xdp: attach::xdp_program(index)?,
            policies: napis.iter().filter_map(|napi| napi.thread).map(policy).collect(),
        })
    };
    host.enter(look).unwrap()
}

/// Whether threads receive from it, before all ordinary ones.
pub fn goes_first(host: &Namespace) -> bool {
    seen(host).goes_first()
}

/// Whether softirqs receive from it.
pub fn is_calm(host: &Namespace) -> bool {
    let now = seen(host);
    now.threaded == "0" && now.policies.iter().all(|policy| *policy == Some(Policy::Ordinary))
}

#[test]
#[ignore = "needs the lab"]
fn lab_cards_are_put_back_by_down() {
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let before = seen(host);
    for configuration in ["[poll]\n", "[poll]\nshed = \"off\"\n", "[poll]\nthreads = \"on\"\n"] {
        let program = Program::new(host, configuration);
        program.run("up");
        if !is_left_alone() {
            let threads = configuration.contains("o");
            if configuration != "[poll]\n" {
                assert!(threads);
                let patience = Duration::from_secs(5);
                wait_until("threads receive", patience, || seen(host).threaded == "1");
                wait_until("they go first", patience, || goes_first(host));
            }
            assert_eq!(seen(host).xdp.is_some(), !configuration.contains("off"));
        }
        program.run("up");
        program.run("down");
        let now = seen(host);
        assert_eq!(
            (&now.threaded, now.xdp),
            (&before.threaded, before.xdp),
            "{configuration}"
        );
        assert!(
            now.policies.iter().all(|policy| *policy == Some(Policy::Ordinary)),
            "{now:?}"
        );
    }
}

/// A priority without a guard would end everything else on the CPU.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_receive_by_softirqs_after_an_agent_was_killed_or_stopped() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let program = Program::new(host, "[poll]\nthreads = \"on\"\n");
    let first = || goes_first(host);
    let is_calm = || is_calm(host);
    program.run("up");
    wait_until("threads go first", Duration::from_secs(5), first);
    program.kill_agent();
    wait_until("softirqs receive again", Duration::from_secs(1), is_calm);
    assert!(seen(host).xdp.is_some(), "what a packet meets stays");

    program.run("up");
    wait_until("threads go first", Duration::from_secs(5), first);
    let running = agent::information(&program.state()).unwrap();
    let process = Pid::from_raw(running.pid as i32);
    kill(process, Signal::SIGSTOP).unwrap();
    wait_until("softirqs receive again", Duration::from_secs(2), is_calm);
    kill(process, Signal::SIGCONT).unwrap();
    wait_until("the agent goes on", Duration::from_secs(5), first);
    program.run("down");
    assert_eq!(seen(host).xdp, None);
}

/// An administrator who makes a device threaded, or not, decides.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_that_somebody_else_manages_are_left_alone() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let threaded = |value: &str| {
        let write = || Sysfs::of_this_namespace()?.write("class/net/eth0/threaded", value);
        host.enter(write).unwrap();
    };
    threaded("1");
    let program = Program::new(host, "[poll]\n");
    let (_, checked) = program.command_line("tarn check poll");
    assert!(checked.contains("eth0: receives in threads now"), "{checked}");
    program.run("up");
    std::thread::sleep(Duration::from_secs(2));
    program.run("down");
    assert_eq!(seen(host).threaded, "1");
    threaded("0");
    program.run("up");
    std::thread::sleep(Duration::from_secs(2));
    threaded("1");
    std::thread::sleep(Duration::from_secs(3));
    let (_, status) = program.command_line("tarn poll status --json");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["devices"], 0, "{status}");
    program.run("down");
    assert_eq!(seen(host).threaded, "1");
    threaded("0");
}

/// Who asks before anything is up learns whether this kernel needs the stage, and what would be done.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_are_judged_by_check() {
    let rig = Rig::new().unwrap();
    let program = Program::new(rig.host().unwrap(), "[poll]\n");
    let (code, checked) = program.command_line("tarn check poll --json");
    let checked: serde_json::Value = serde_json::from_str(&checked).unwrap();
    let row = |name: &str| {
        let rows = checked["stages"][0]["abilities"].as_array().unwrap();
        rows.iter()
            .find(|row| row["name"] == name)
            .unwrap_or_else(|| panic!("{checked}"))
            .clone()
    };
    let release = Release::parse(&Host::this().release_text()).unwrap();
    let starves = release >= LIVELOCKS;
    let livelock = row("receive livelock");
    assert_eq!((code, livelock["present"].as_bool()), (0, Some(starves)), "{livelock}");
    let (devices, states) = (
        row("devices")["detail"].to_string(),
        row("idle states")["detail"].to_string(),
    );
    let is_to_be_done = match starves {
        true => "eth0: sheds, threads during storms",
        false => "eth0: left alone unless threads = \\\"on\\\"",
    };
    assert!(devices.contains(is_to_be_done), "{devices}");
    assert!(devices.contains("lo: left alone"), "{devices}");
    // The lab's processor has none.
    assert!(states.contains("the kernel knows none"), "{states}");
    let ring_since = Release { minor: 13, ..LIVELOCKS };
    let how = match release >= ring_since {
        true => "a ring of io_uring",
        false => "AF_XDP sockets, for one device at a time",
    };
    let takeover = row("takeover by threads");
    assert_eq!(
        (takeover["present"].as_bool(), takeover["detail"].as_str()),
        (Some(true), Some(how))
    );
}

/// While it is flooded, others are answered, and the sender is named.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_answer_others_in_a_storm() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let (host, client) = (rig.host().unwrap(), rig.client().unwrap());
    let program = flooded(&rig);
    let answer = client
        .run("ping", &["-q", "-c", "50", "-i", "0.01", "-W", "1", "10.8.0.1"])
        .unwrap();
    assert!(answer.contains("50 received"), "{answer}");
    let (_, top) = program.command_line("tarn poll top --json");
    assert!(top.contains("10.2.3.16"), "{top}");
    let (_, status) = program.command_line("tarn poll status --json");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["watched"][0]["storms"], 1, "{status}");
    let [source, port] = ["shed_source", "shed_port"].map(|count| status[count].as_u64().unwrap());
    // The port gets 64 times what the source may send, which it never comes to.
    assert!(source > 10_000 && port < source / 100, "{status}");
    let (_, watched) = program.command_line("tarn poll watch --count 1 --json");
    let watched: serde_json::Value = serde_json::from_str(&watched).unwrap();
    assert!(watched["dropped_per_s"].as_u64().unwrap() > 100_000, "{watched}");
    assert!(
        watched["receives"].as_str().unwrap().starts_with("threads"),
        "{watched}"
    );
    rig.flood(false).unwrap();
    let is_over = || seen(host).threaded == "0";
    wait_until("softirqs receive again", Duration::from_secs(30), is_over);
    program.run("down");
}

/// Who has given a thread another priority by hand during a storm finds it so after the storm.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_keep_a_priority_that_somebody_else_has_given_their_thread() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let program = flooded(&rig);
    let thread = card(host).2.expect("a thread receives");
    wait_until("it goes first", Duration::from_secs(5), || {
        policy(thread) == Some(Policy::Fifo(1))
    });
    set_policy(thread, Policy::Fifo(10)).unwrap();
    rig.flood(false).unwrap();
    wait_until("it is said", Duration::from_secs(30), || {
        let (_, events) = program.command_line("tarn events poll");
        events.contains("somebody else has changed the priority of a thread of eth0: left alone")
    });
    // Newer kernels end the threads of a device that softirqs receive from again.
    let is_kept = || policy(thread).is_none_or(|now| now == Policy::Fifo(10));
    assert!(is_kept());
    program.run("down");
    assert!(is_kept());
    assert_eq!(seen(host).threaded, "0");
    let _ = set_policy(thread, Policy::Ordinary);
}

/// How many of some attempts to connect and ask once are answered within 100 ms, and within four seconds: a request for a connection
/// that is lost is sent again after one second, then after two.
fn asked(client: &Namespace, attempts: u32) -> [usize; 2] {
    let one = || {
        let began = Instant::now();
        let address = SocketAddr::new(IpAddr::V4(HOST), WEB);
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(4)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(4))).ok()?;
        ask(&mut stream)?;
        Some(began.elapsed())
    };
    let times: Vec<Duration> = client
        .enter(|| Ok((0..attempts).filter_map(|_| one()).collect()))
        .unwrap();
    [100, 4_000].map(|limit| times.iter().filter(|time| time.as_millis() < limit).count())
}

fn ask(stream: &mut TcpStream) -> Option<()> {
    let mut message = [7; 64];
    stream.write_all(&message).ok()?;
    stream.read_exact(&mut message).ok()
}

/// Storms that last.
mod lab_long {
    use super::*;

    /// Requests for connections from many forged addresses, of the very port that others use.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_cards_accept_connections_in_a_flood_of_requests() {
        if is_left_alone() {
            return;
        }
        let rig = Rig::new().unwrap();
        let (host, client) = (rig.host().unwrap(), rig.client().unwrap());
        let server = TcpAnswerer::start(host, SocketAddr::new(IpAddr::V4(HOST), WEB), 64, 64).unwrap();
        let program = Program::new(host, "[poll]\n");
        program.run("up");
        rig.flood(false).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(asked(client, 50), [50, 50]);
        let connect = || Ok(TcpStream::connect((HOST, WEB))?);
        let mut open = client.enter(connect).unwrap();
        let request = |wire, number: u16| {
            let source = SocketAddrV4::new(Ipv4Addr::new(10, 2, number as u8, 16), 20_000);
            syn(wire, source, SocketAddrV4::new(HOST, WEB), number.into())
        };
        // 420,000 a second.
        rig.begin_with(21, request).unwrap();
        rig.flood(true).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(
            (0..50).all(|_| ask(&mut open).is_some()),
            "who is connected is answered"
        );
        let new = asked(client, 50);
        let (_, status) = program.command_line("tarn poll status");
        // It connects as fast as it can, beyond the share: some of its requests are shed as well.
        assert!(new[0] >= 40 && new[1] == 50, "{new:?} of 50\n{status}");
        rig.flood(false).unwrap();
        drop(open);
        server.stop().unwrap();
        // A socket that has not said farewell would hold its namespace, and so the card: `down` has QEMU's card forget its address.
        std::thread::sleep(Duration::from_millis(500));
        program.run("down");
    }
}
