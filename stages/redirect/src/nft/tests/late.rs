//! Answers that are under way while rules change.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use super::scene::{Scene, ask, numbered};
use super::*;
use crate::rule::samples::udp;
use tarn_kernel::nft::delete_table;

/// How long a slow server thinks: rules change meanwhile.
const THINKING: Duration = Duration::from_millis(1200);

/// Answers each question later, several at a time.
fn serve_slowly(scene: &Scene, node: &'static str, address: &str) {
    let address: SocketAddr = address.parse().unwrap();
    let socket = scene.within(node, || UdpSocket::bind(address).unwrap());
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (socket, ended) = (Arc::new(socket), Arc::clone(&scene.ended));
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while !ended.load(Ordering::Relaxed) {
            let Ok((_, client)) = socket.recv_from(&mut buffer) else {
                continue;
            };
            let socket = Arc::clone(&socket);
            std::thread::spawn(move || {
                sleep(THINKING);
                let _ = socket.send_to(format!("{node} {address}").as_bytes(), client);
            });
        }
    });
}

fn hear(socket: &UdpSocket) -> String {
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).expect("an answer from the address asked");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// Whoever asked before a rule was led elsewhere is answered by the server it asked, from the address it asked, however
/// late; its next question goes where the rules lead now. Back and forth, and in the end to the host itself.
#[test]
#[ignore = "needs the lab"]
fn lab_nft_answers_under_way_arrive_when_rules_change() {
    let scene = Scene::new();
    for address in ["10.0.1.2:53", "10.0.1.3:54", "[fd01::2]:53"] {
        serve_slowly(&scene, "server", address);
    }
    // A target on the host itself answers by another way; so does the host once there is no rule.
    for address in ["10.0.1.1:55", "192.168.64.2:53", "[fd64::2]:53"] {
        serve_slowly(&scene, "host", address);
    }
    let rule = |to: &str| numbered(vec![udp("192.168.64.2:53", to, None)]);
    let six = numbered(vec![udp("[fd64::2]:53", "[fd01::2]:53", None)])
        .into_iter()
        .map(|rule| Rule { id: 7, ..rule });
    let six: Vec<Rule> = six.collect();
    let targets = [
        "10.0.1.2:53",
        "10.0.1.3:54",
        "10.0.1.2:53",
        "10.0.1.1:55",
        "10.0.1.3:54",
    ];
    let name = |target: &str| match target {
        "10.0.1.1:55" => format!("host {target}"),
        _ => format!("server {target}"),
    };
    scene.up(&[]);
    let clients: Vec<UdpSocket> = ["192.168.64.1", "192.168.64.130", "192.168.64.1"]
        .iter()
        .map(|from| scene.client("client", from, "192.168.64.2:53"))
        .chain([scene.client("host", "192.168.64.2", "192.168.64.2:53")])
        .collect();
    let other = scene.client("client", "fd64::1", "[fd64::2]:53");
    let all = || clients.iter().chain([&other]);
    let mut expected = ("host 192.168.64.2:53".to_owned(), "host [fd64::2]:53".to_owned());
    let mut before: Vec<Rule> = Vec::new();
    let lead = |to: Option<&str>, before: &mut Vec<Rule>| {
        let mut now = to.map(rule).unwrap_or_default();
        now.extend(to.is_some().then(|| six[0].clone()));
        scene.change(&now, before);
        *before = now;
    };
    for target in targets.into_iter().map(Some).chain([None]) {
        all().for_each(|client| {
            client.send(b"who?").unwrap();
        });
        sleep(THINKING / 6);
        lead(target, &mut before);
        // A second question, while the answer to the first is under way: its answer must not be the first's way.
        all().for_each(|client| {
            client.send(b"who?").unwrap();
        });
        let next = match target {
            Some(target) => (name(target), "server [fd01::2]:53".to_owned()),
            None => ("host 192.168.64.2:53".to_owned(), "host [fd64::2]:53".to_owned()),
        };
        for client in &clients {
            assert_eq!(
                (hear(client), hear(client)),
                (expected.0.clone(), next.0.clone()),
                "{target:?}"
            );
        }
        assert_eq!(
            (hear(&other), hear(&other)),
            (expected.1.clone(), next.1.clone()),
            "{target:?}"
        );
        expected = next;
    }
    // Nobody else's connection was touched, and what was set up for the answers goes with the table.
    let state = scene.nft("list table inet tarn_redirect");
    assert!(state.contains("late_prerouting"), "{state}");
}

/// After `tarn down` a client is the host's own, although another NAT of the host's would go on to translate what it
/// translated before; that one's connections stay.
#[test]
#[ignore = "needs the lab"]
fn lab_nft_connections_end_with_the_rules_though_another_nat_stays() {
    let scene = Scene::new();
    scene.serve("server", &["10.0.1.2:53", "10.0.1.3:54"]);
    scene.serve("host", &["192.168.64.2:53"]);
    scene.nft("add table ip theirs");
    scene.nft("add chain ip theirs c { type nat hook prerouting priority -110; }");
    scene.nft("add rule ip theirs c udp dport 99 dnat to 10.0.1.2:53");
    let set = numbered(vec![udp("192.168.64.2:53", "10.0.1.2:53", None)]);
    scene.up(&set);
    let (ours, theirs) = (
        scene.client("client", "192.168.64.1", "192.168.64.2:53"),
        scene.client("client", "192.168.64.1", "192.168.64.2:99"),
    );
    assert_eq!(
        (ask(&ours), ask(&theirs)),
        ("server 10.0.1.2:53".into(), "server 10.0.1.2:53".into())
    );
    scene.within("host", || {
        delete_table(FAMILY, TABLE).unwrap();
        flows::forget_all(&set);
    });
    assert_eq!(
        (ask(&ours), ask(&theirs)),
        ("host 192.168.64.2:53".into(), "server 10.0.1.2:53".into())
    );
}

/// The host hides its clients from the server (masquerade): what is under way is led back to each of them all the same.
#[test]
#[ignore = "needs the lab"]
fn lab_nft_answers_under_way_arrive_behind_a_masquerade() {
    let scene = Scene::new();
    serve_slowly(&scene, "server", "10.0.1.2:53");
    serve_slowly(&scene, "server", "10.0.1.3:54");
    scene.nft("add table ip theirs");
    scene.nft("add chain ip theirs c { type nat hook postrouting priority 100; }");
    scene.nft("add rule ip theirs c oifname right masquerade");
    let rule = |to: &str| numbered(vec![udp("192.168.64.2:53", to, None)]);
    scene.up(&rule("10.0.1.2:53"));
    // Both from one port: the host has to give one of them another.
    let clients = ["192.168.64.1:5000", "192.168.64.130:5000"].map(|from| {
        scene.within("client", || {
            let socket = UdpSocket::bind(from).unwrap();
            socket.connect("192.168.64.2:53").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket
        })
    });
    let ask_all = || {
        for client in &clients {
            client.send(b"who?").unwrap();
        }
    };
    for (before, after) in [("10.0.1.2:53", "10.0.1.3:54"), ("10.0.1.3:54", "10.0.1.2:53")] {
        ask_all();
        sleep(THINKING / 6);
        scene.change(&rule(after), &rule(before));
        ask_all();
        for client in &clients {
            assert_eq!(
                (hear(client), hear(client)),
                (format!("server {before}"), format!("server {after}"))
            );
        }
    }
}
