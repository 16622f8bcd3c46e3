//! Rules that change while clients are there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::scene::{Scene, ask, numbered};
use super::*;
use crate::rule::samples::{rules, udp};
use tarn_kernel::conntrack;

/// A client that keeps its port goes where the rules lead now, not where they led when it began.
#[test]
#[ignore = "needs the lab"]
fn lab_nft_rules_hold_for_clients_that_were_there_before() {
    let scene = Scene::new();
    scene.serve("server", &["10.0.1.2:53", "10.0.1.3:53", "[fd01::2]:53"]);
    scene.serve("host", &["0.0.0.0:53", "[fd64::2]:53"]);
    scene.up(&[]);
    let old = scene.client("client", "192.168.64.1", "192.168.64.2:53");
    let other = scene.client("client", "192.168.64.130", "192.168.64.2:53");
    let six = scene.client("client", "fd64::1", "[fd64::2]:53");
    assert_eq!(
        (ask(&old), ask(&other), ask(&six)),
        (
            "host 0.0.0.0:53".into(),
            "host 0.0.0.0:53".into(),
            "host [fd64::2]:53".into()
        )
    );
    let set = numbered(vec![
        udp("0.0.0.0:53", "10.0.1.2:53", None),
        udp("[::]:53", "[fd01::2]:53", None),
        udp("192.168.64.2:53", "10.0.1.3:53", Some("192.168.64.1/32")),
    ]);
    scene.change(&set[..2], &[]);
    assert_eq!(
        (ask(&old), ask(&other), ask(&six)),
        (
            "server 10.0.1.2:53".into(),
            "server 10.0.1.2:53".into(),
            "server [fd01::2]:53".into()
        )
    );
    scene.change(&set[2..], &[]);
    assert_eq!(
        (ask(&old), ask(&other)),
        ("server 10.0.1.3:53".into(), "server 10.0.1.2:53".into())
    );
    // The rule of one client replaced in one go, then taken away: it falls back to the one for all.
    let moved = Rule {
        to: "10.0.1.2".parse().unwrap(),
        ..set[2].clone()
    };
    scene.change(std::slice::from_ref(&moved), &set[2..]);
    assert_eq!(ask(&old), "server 10.0.1.2:53");
    scene.change(&[], &[moved]);
    assert_eq!(ask(&old), "server 10.0.1.2:53");
    scene.change(&[], &set[..2]);
    assert_eq!(
        (ask(&old), ask(&other), ask(&six)),
        (
            "host 0.0.0.0:53".into(),
            "host 0.0.0.0:53".into(),
            "host [fd64::2]:53".into()
        )
    );
}

/// Clients that a change is not about keep their connections, even with a rule that matches them but does not win.
#[test]
#[ignore = "needs the lab"]
fn lab_nft_forgets_only_the_connections_a_change_is_about() {
    let scene = Scene::new();
    scene.serve("server", &["10.0.1.2:53", "10.0.1.3:53"]);
    let set = numbered(vec![
        udp("192.168.64.2:53", "10.0.1.2:53", None),
        udp("0.0.0.0:53", "10.0.1.3:53", None),
    ]);
    scene.up(&set[..1]);
    let client = scene.client("client", "192.168.64.1", "192.168.64.2:53");
    assert_eq!(ask(&client), "server 10.0.1.2:53");
    let ids = || {
        scene.within("host", || {
            let mut known = Vec::new();
            conntrack::forget(|entry| {
                known.push((entry.original, entry.id()));
                false
            })
            .unwrap();
            known
        })
    };
    let before = ids();
    scene.change(&set[1..], &[]);
    assert_eq!(
        (before.len(), ids()),
        (1, before),
        "the named address goes before the any-local one"
    );
    scene.up(&set);
    assert_eq!(ids().len(), 1);
}

/// Rules come and go, with new sorts of lookups among them, and no packet of anybody else is lost.
#[test]
#[ignore = "needs the lab"]
fn lab_nft_loses_no_packet_while_rules_change() {
    let scene = Scene::new();
    scene.serve("server", &["10.0.1.2:8083"]);
    let set = numbered(vec![udp("192.168.64.2:8080", "10.0.1.2:8083", None)]);
    scene.up(&set);
    let ended = AtomicBool::new(false);
    let (asked, changed) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut asked = 0;
            while !ended.load(Ordering::Relaxed) {
                // A new connection each time: every one of them meets the chains.
                let answer = scene.answer("192.168.64.1", "192.168.64.2:8080");
                assert_eq!(answer, "server 10.0.1.2:8083", "after {asked} answers");
                asked += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            asked
        });
        let mut changed = 0;
        for length in [12, 16, 20, 24, 28, 31] {
            let source = format!("172.16.0.0/{length}");
            let others = numbered(vec![
                udp("192.168.64.2:9000-9063", "10.0.1.2", Some(&source)),
                udp("0.0.0.0:8080", "10.0.1.3:1", Some(&source)),
                udp("192.168.64.2:100-200", "10.0.1.2:300-400", None),
            ]);
            let others: Vec<Rule> = others
                .into_iter()
                .map(|rule| Rule {
                    id: rule.id + 1,
                    ..rule
                })
                .collect();
            scene.change(&others, &[]);
            scene.change(&[], &others);
            changed += 2;
        }
        ended.store(true, Ordering::Relaxed);
        (traffic.join().unwrap(), changed)
    });
    println!("{asked} connections while rules changed {changed} times");
    assert!(asked > changed);
    assert_eq!(scene.counters(&set)[0].packets, asked);
}

/// Answers each line on every connection with this name, until the peer ends.
fn serve_tcp(scene: &Scene, node: &'static str, address: &str) {
    let address: SocketAddr = address.parse().unwrap();
    let listener = scene.within(node, || TcpListener::bind(address).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let (mut stream, mut line) = (stream.unwrap(), [0; 64]);
                while stream.read(&mut line).is_ok_and(|length| length > 0) {
                    stream.write_all(format!("{node} {address}").as_bytes()).unwrap();
                }
            });
        }
    });
}

fn connect(scene: &Scene, to: &str) -> TcpStream {
    let to: SocketAddr = to.parse().unwrap();
    let stream = scene.within("client", || {
        TcpStream::connect_timeout(&to, Duration::from_secs(5)).unwrap()
    });
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// Who answers on a connection, `None` when it is broken.
fn say(mut stream: &TcpStream) -> Option<String> {
    let mut answer = [0; 64];
    stream.write_all(b"who?").ok()?;
    let length = stream.read(&mut answer).ok().filter(|length| *length > 0)?;
    Some(String::from_utf8_lossy(&answer[..length]).into_owned())
}

/// A new rule does not break connections that were established before; a removed one ends those it carried.
#[test]
#[ignore = "needs the lab"]
fn lab_nft_leaves_established_tcp_connections_where_they_began() {
    let scene = Scene::new();
    serve_tcp(&scene, "server", "10.0.1.2:8083");
    serve_tcp(&scene, "host", "192.168.64.2:80");
    scene.up(&[]);
    let (local, redirected) = (
        Some("host 192.168.64.2:80".to_owned()),
        Some("server 10.0.1.2:8083".to_owned()),
    );
    let old = connect(&scene, "192.168.64.2:80");
    assert_eq!(say(&old), local);
    let set = numbered(rules(&["tcp"], "192.168.64.2:80", "10.0.1.2:8083", None));
    scene.change(&set, &[]);
    let new = connect(&scene, "192.168.64.2:80");
    assert_eq!((say(&old), say(&new)), (local.clone(), redirected));
    scene.change(&[], &set);
    assert_eq!(
        (say(&old), say(&new), say(&connect(&scene, "192.168.64.2:80"))),
        (local.clone(), None, local)
    );
}
