//! Which connections take it.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};

use super::kinds::{connect, socket};
use crate::registration::NAME;
use tarn_frame::testing::wait_until;
use tarn_kernel::cgroup;
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

/// A host that speaks to itself.
pub fn host(addresses: &[&str]) -> Namespace {
    let host = Namespace::new("host").unwrap();
    host.ip("link set lo up").unwrap();
    for address in addresses {
        host.ip(&format!("address add {address} dev lo nodad")).unwrap();
    }
    host
}

/// The two ends of a connection to an address: who made it, and who took it.
pub fn pair(host: &Namespace, address: &str) -> [TcpStream; 2] {
    pairs(host, address, 1).remove(0)
}

/// The same of many connections.
pub fn pairs(host: &Namespace, address: &str, count: usize) -> Vec<[TcpStream; 2]> {
    let address: IpAddr = address.parse().unwrap();
    host.enter(|| {
        let listener = TcpListener::bind(SocketAddr::new(address, 0))?;
        let to = listener.local_addr()?;
        (0..count)
            .map(|_| {
                let maker = TcpStream::connect(to)?;
                let (taker, _) = listener.accept()?;
                Ok([maker, taker])
            })
            .collect()
    })
    .unwrap()
}

/// The congestion control of an end.
pub fn control(end: &TcpStream) -> String {
    let name: OsString = getsockopt(end, sockopt::TcpCongestion).unwrap();
    name.to_string_lossy().trim_end_matches('\0').to_owned()
}

/// What the two ends of a connection to an address have.
pub fn controls(host: &Namespace, address: &str) -> [String; 2] {
    pair(host, address).each_ref().map(control)
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_is_taken_by_connections_to_the_destinations_named() {
    let host = host(&["192.0.2.1/32", "198.51.100.1/32", "2001:db8::1/128"]);
    let program = Program::new(&host, "[pace]\nfor = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n");
    let usual = controls(&host, "192.0.2.1");
    assert!(!usual.contains(&NAME.to_owned()));
    program.run("up");
    // Both ends lie at the address here.
    for address in ["192.0.2.1", "2001:db8::1"] {
        assert_eq!(controls(&host, address), [NAME, NAME], "{address}");
    }
    assert_eq!(controls(&host, "198.51.100.1"), usual);
    let elsewhere = self::host(&["192.0.2.1/32"]);
    assert_eq!(controls(&elsewhere, "192.0.2.1"), usual, "another namespace");
    program.run("up");
    assert_eq!(controls(&host, "192.0.2.1"), [NAME, NAME]);
    assert_eq!(
        programs(&cgroup::root().unwrap()),
        1,
        "of the earlier `up` nothing is left"
    );
    program.configure("[pace]\n");
    program.run("up");
    assert_eq!(controls(&host, "192.0.2.1"), usual);
    program.run("down");
    assert_eq!(programs(&cgroup::root().unwrap()), 0);
}

/// How many programs look at the sockets of a control group.
pub fn programs(group: &Path) -> usize {
    cgroup::socket_programs(group)
        .unwrap()
        .map_or(0, |programs| programs.len())
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_is_taken_by_the_control_groups_named() {
    let host = host(&["192.0.2.1/32"]);
    let group = cgroup::root().unwrap().join("calm.slice");
    let program = Program::new(&host, "[pace]\ncgroups = [\"calm.slice\"]\n");
    let usual = controls(&host, "192.0.2.1");
    std::fs::create_dir(&group).unwrap();
    program.run("up");
    assert_eq!(controls(&host, "192.0.2.1"), usual, "this process is of another group");
    enter(&group);
    assert_eq!(controls(&host, "192.0.2.1"), [NAME, NAME]);
    // A container: another network namespace, the group named.
    let container = self::host(&["192.0.2.1/32"]);
    assert_eq!(controls(&container, "192.0.2.1"), [NAME, NAME]);
    program.run("down");
    assert_eq!(controls(&host, "192.0.2.1"), usual);
    assert_eq!(programs(&group), 0);
    leave(&group);
}

/// This process, the test's, enters a control group.
fn enter(group: &Path) {
    std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
}

fn leave(group: &Path) {
    enter(&cgroup::root().unwrap());
    // A thread that has just ended may be in it for a moment.
    wait_until("the group is gone", || std::fs::remove_dir(group).is_ok());
}

/// systemd makes a service's group when it starts, and removes it when it stops.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_follows_a_service_that_is_restarted() {
    let host = host(&["192.0.2.1/32"]);
    let group = cgroup::root().unwrap().join("restarted.slice");
    let program = Program::new(&host, "[pace]\ncgroups = [\"restarted.slice\"]\n");
    program.run("up");
    for _ in 0..2 {
        std::fs::create_dir(&group).unwrap();
        wait_until("the group has its program", || programs(&group) == 1);
        enter(&group);
        assert_eq!(controls(&host, "192.0.2.1"), [NAME, NAME]);
        leave(&group);
    }
    std::fs::create_dir(&group).unwrap();
    wait_until("the group has its program", || programs(&group) == 1);
    program.run("down");
    assert_eq!(programs(&group), 0);
    leave(&group);
}

/// A server that has `[::]` listen speaks to IPv4 clients through sockets of IPv6.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_tells_families_apart_by_the_address() {
    let host = host(&["192.0.2.1/32", "2001:db8::1/128"]);
    let through_ipv6 = || {
        let listener = host.enter(|| Ok(TcpListener::bind("[::]:0")?)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let _maker = host.enter(|| Ok(TcpStream::connect(("192.0.2.1", port))?)).unwrap();
        control(&listener.accept().unwrap().0)
    };
    let usual = control(&pair(&host, "192.0.2.1")[0]);
    let program = Program::new(&host, "[pace]\nfor = [\"192.0.2.0/24\"]\n");
    program.run("up");
    assert_eq!(through_ipv6(), NAME);
    program.configure("[pace]\nfor = [\"::/0\"]\n");
    program.run("up");
    assert_eq!(controls(&host, "2001:db8::1"), [NAME, NAME]);
    assert_eq!(control(&pair(&host, "192.0.2.1")[0]), usual);
    assert_eq!(through_ipv6(), usual);
    program.run("down");
}

/// What a program asks for itself it gets.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_leaves_a_choice_to_the_process() {
    let host = host(&["192.0.2.1/32"]);
    let program = Program::new(&host, "[pace]\nfor = [\"192.0.2.0/24\"]\n");
    program.run("up");
    let listener = host.enter(|| Ok(TcpListener::bind("192.0.2.1:0")?)).unwrap();
    let to = listener.local_addr().unwrap();
    let maker = host.enter(|| Ok(socket(to, libc::IPPROTO_TCP))).unwrap();
    setsockopt(&maker, sockopt::TcpCongestion, &OsString::from("reno")).unwrap();
    connect(&maker, to);
    let (taker, _) = listener.accept().unwrap();
    assert_eq!([control(&maker), control(&taker)], ["reno", NAME]);
    program.run("down");
}

/// A transfer that began before `up` would keep what it has, however long it lasts; after `down` nothing may be left with ours.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_is_taken_by_connections_that_stand_where_they_may() {
    let host = host(&["192.0.2.1/32", "198.51.100.1/32", "2001:db8::1/128"]);
    let pairs = ["192.0.2.1", "198.51.100.1", "2001:db8::1"].map(|address| pair(&host, address));
    let chosen = pair(&host, "192.0.2.1");
    setsockopt(&chosen[0], sockopt::TcpCongestion, &OsString::from("reno")).unwrap();
    let controls = || pairs.each_ref().map(|pair| control(&pair[0]));
    let program = Program::new(
        &host,
        "[pace]\nfor = [\"192.0.2.0/24\", \"2001:db8::/32\"]\nexisting = true\n",
    );
    program.run("up");
    assert_eq!(controls(), [NAME, "cubic", NAME]);
    assert_eq!(control(&chosen[0]), "reno", "its process has chosen it");
    program.configure("[pace]\nfor = \"all\"\nexisting = true\n");
    program.run("up");
    assert_eq!(controls(), [NAME; 3]);
    program.run("up");
    let later = pair(&host, "192.0.2.1");
    assert_eq!(control(&later[0]), NAME);
    program.run("down");
    assert_eq!(controls(), ["cubic"; 3]);
    assert_eq!(
        (control(&later[0]), control(&chosen[0])),
        ("cubic".to_owned(), "reno".to_owned())
    );
    // What has been moved once can be moved again.
    program.run("up");
    assert_eq!(controls(), [NAME; 3]);
    assert_eq!(control(&chosen[0]), "reno");
    program.configure("[pace]\nfor = \"all\"\n");
    program.run("up");
    assert_eq!(controls(), [NAME; 3], "they are still meant");
    program.run("down");
    assert_eq!(controls(), [NAME; 3], "and keep it until they end");
}

/// A player or a browser that knows the name asks for it, and needs no rights; an unprivileged user changes nothing for others.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_may_be_asked_for_by_anybody() {
    const NOBODY: libc::uid_t = 65534;
    let host = host(&["192.0.2.1/32"]);
    let program = Program::new(&host, "[pace]\n");
    program.run("up");
    let state = program.state();
    let listener = host.enter(|| Ok(TcpListener::bind("192.0.2.1:0")?)).unwrap();
    let to = listener.local_addr().unwrap();
    let (asked, looked) = host
        .enter(|| {
            // SAFETY: it takes no pointers. Of this thread alone, which ends: libc's function would change all.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
            assert_eq!(changed, 0);
            let maker = socket(to, libc::IPPROTO_TCP);
            setsockopt(&maker, sockopt::TcpCongestion, &OsString::from(NAME))?;
            connect(&maker, to);
            let looked = std::fs::read_dir(state.path()).map(|_| ());
            Ok((control(&maker), looked))
        })
        .unwrap();
    assert_eq!(asked, NAME);
    assert!(looked.is_err(), "the state directory and the agent's socket are root's");
    program.run("down");
}
