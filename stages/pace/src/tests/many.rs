//! Many connections at a time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};

use super::available;
use super::chosen::{control, host, pairs};
use crate::registration::{NAME, Registration};
use crate::skeleton::types::pace_parameters;
use tarn_lab::testing::{Program, is_thorough};

/// Bytes go through each, both ways.
fn assert_alive(pairs: &[[TcpStream; 2]]) {
    for [one, other] in pairs {
        for (mut from, mut to) in [(one, other), (other, one)] {
            let mut got = [0; 100];
            from.write_all(&[3; 100]).unwrap();
            to.read_exact(&mut got).unwrap();
        }
    }
}

fn count(pairs: &[[TcpStream; 2]], name: &str) -> usize {
    let ends = pairs.iter().flatten();
    ends.filter(|end| control(end) == name).count()
}

fn many_files() {
    setrlimit(Resource::RLIMIT_NOFILE, 65_536, 65_536).unwrap();
}

/// A server with a thousand clients is left by tarn without one of them noticing.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_goes_down_under_a_thousand_connections() {
    many_files();
    for (existing, after) in [(false, NAME), (true, "cubic")] {
        let host = host(&["192.0.2.1/32"]);
        let program = Program::new(&host, &format!("[pace]\nfor = \"all\"\nexisting = {existing}\n"));
        program.run("up");
        let pairs = pairs(&host, "192.0.2.1", 1_000);
        assert_eq!(count(&pairs, NAME), 2_000);
        program.run("down");
        assert!(!available().contains(&NAME.to_owned()));
        assert_eq!(count(&pairs, after), 2_000, "existing = {existing}");
        assert_alive(&pairs);
    }
}

/// An update of tarn brings another program: those that are open keep theirs, and new ones take the new one.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_is_replaced_under_a_thousand_connections() {
    many_files();
    let host = host(&["192.0.2.1/32"]);
    let old = Registration::new(&pace_parameters::default(), |_| Ok(())).unwrap();
    host.sysctl("net/ipv4/tcp_congestion_control", NAME).unwrap();
    let pairs = pairs(&host, "192.0.2.1", 1_000);
    let new = Registration::new(&pace_parameters::default(), |_| old.remove().map(drop)).unwrap();
    assert!(new.stands().unwrap() && !old.stands().unwrap());
    assert_alive(&pairs);
    assert_eq!(count(&pairs, NAME), 2_000);
    host.sysctl("net/ipv4/tcp_congestion_control", "cubic").unwrap();
    assert!(new.remove().unwrap());
    assert_alive(&pairs);
}

/// Looking at ten thousand connections takes a moment, and no memory to speak of.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_shows_ten_thousand_connections_in_a_moment() {
    many_files();
    let host = host(&["192.0.2.1/32"]);
    host.sysctl("net/ipv4/ip_local_port_range", "1024 65535").unwrap();
    let program = Program::new(&host, "[pace]\nfor = \"all\"\n");
    program.run("up");
    let all = if is_thorough() { 10_000 } else { 2_000 };
    // Both ends are here.
    let pairs = pairs(&host, "192.0.2.1", all / 2);
    // A socket that listens is no connection.
    let listener = host.enter(|| Ok(TcpListener::bind("192.0.2.1:0")?)).unwrap();
    let began = Instant::now();
    let (code, text) = program.command_line("tarn pace status --json");
    let took = began.elapsed();
    assert_eq!(code, 0, "{text}");
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = told["destinations"].as_array().unwrap();
    let counts = ["connections", "idle", "starting"].map(|key| &rows[0][key]);
    assert_eq!(counts, [all; 3], "{told}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    let (code, text) = program.command_line("tarn pace top --count 3 --json");
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, told["connections"].as_array().unwrap().len()), (0, 3));
    drop((pairs, listener));
    program.run("down");
}
