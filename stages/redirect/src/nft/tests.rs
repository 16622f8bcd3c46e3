//! The carrier on a real kernel, in the network of [`scene`].

use std::net::SocketAddr;

use super::*;
use crate::lookup::Index;
use crate::rule::Protocol;
use crate::rule::samples::udp;

mod adoption;
mod changes;
mod late;
mod load;
mod scene;

use scene::{Scene, ask, numbered};

/// A redirected client gets its answer from the address it spoke to, and one that knows the server is left alone.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_nft_redirects_and_leaves_direct_clients_alone() {
    let scene = Scene::new();
    scene.serve("server", &["10.0.1.2:8083", "[fd01::2]:8083"]);
    scene.up(&numbered(vec![
        udp("192.168.64.2:8080", "10.0.1.2:8083", None),
        udp("[fd64::2]:8080", "[fd01::2]:8083", None),
    ]));
    assert_eq!(
        scene.answer("192.168.64.1", "192.168.64.2:8080"),
        "server 10.0.1.2:8083"
    );
    assert_eq!(scene.answer("fd64::1", "[fd64::2]:8080"), "server [fd01::2]:8083");
    assert_eq!(scene.answer("192.168.64.1", "10.0.1.2:8083"), "server 10.0.1.2:8083");
    // A program on the host itself is a client like any other.
    assert_eq!(
        ask(&scene.client("host", "192.168.64.2", "192.168.64.2:8080")),
        "server 10.0.1.2:8083"
    );
    // The server has no such port: its refusal reaches the client as one of the address it spoke to.
    scene.change(&numbered(vec![udp("192.168.64.2:9", "10.0.1.2:9", None)]), &[]);
    assert_eq!(scene.answer("192.168.64.1", "192.168.64.2:9"), "[refused]");
}

/// Of the rules that match, the documented one is met, whatever maps they lie in.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_nft_meets_the_rule_that_the_order_says() {
    let scene = Scene::new();
    let ports: Vec<String> = (9000..9010)
        .flat_map(|port| [format!("10.0.1.2:{port}"), format!("10.0.1.3:{port}")])
        .collect();
    scene.serve("server", &ports.iter().map(String::as_str).collect::<Vec<_>>());
    let rules = numbered(vec![
        udp("0.0.0.0:53", "10.0.1.2:9000", None),
        udp("0.0.0.0:53", "10.0.1.2:9001", Some("192.168.64.128/25")),
        udp("192.168.64.2:53", "10.0.1.2:9002", None),
        udp("192.168.64.2:53", "10.0.1.2:9003", Some("192.168.64.0/24")),
        udp("192.168.64.2:53", "10.0.1.2:9004", Some("192.168.64.1/32")),
        udp("10.9.9.9:53", "10.0.1.2:9005", None),
        udp("192.168.64.2:9000-9006", "10.0.1.3", None),
        udp("192.168.64.2:100-106", "10.0.1.3:9001-9007", None),
        udp("192.168.64.2:200-206", "10.0.1.3:9008", None),
    ]);
    scene.up(&rules);
    let index = Index::new(&rules);
    let destinations = [
        "192.168.64.2:53",
        "10.0.1.1:53",
        "10.9.9.9:53",
        "192.168.64.2:9000",
        "192.168.64.2:9006",
        "192.168.64.2:100",
        "192.168.64.2:103",
        "192.168.64.2:106",
        "192.168.64.2:200",
        "192.168.64.2:205",
    ];
    for to in destinations.map(|to| to.parse::<SocketAddr>().unwrap()) {
        for from in ["192.168.64.1", "192.168.64.130"] {
            let local = to.ip() != std::net::IpAddr::from([10, 9, 9, 9]);
            let rule = index
                .find(Protocol::Udp, from.parse().unwrap(), to.ip(), to.port(), local)
                .expect("a rule");
            let expected = format!("server {}:{}", rule.to, rule.target_port(to.port()));
            assert_eq!(scene.answer(from, &to.to_string()), expected, "{from} to {to}");
        }
    }
    assert_eq!(
        scene.answer("192.168.64.1", "192.168.64.2:107"),
        "[refused]",
        "beyond the range"
    );
}

/// An administrator sees what each rule carries: each packet of a client once, and nothing that is not ours.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_nft_counts_what_each_rule_carried() {
    let scene = Scene::new();
    let begun = monotonic_ns();
    scene.serve("server", &["10.0.1.2:53", "10.0.1.2:8083", "[fd01::2]:53"]);
    let set = numbered(vec![
        udp("192.168.64.2:53", "10.0.1.2:53", None),
        udp("0.0.0.0:50-60", "10.0.1.2:8083", Some("192.168.64.0/24")),
        udp("[::]:53", "[fd01::2]:53", None),
        udp("192.168.64.2:54", "10.0.1.2:53", None),
    ]);
    scene.up(&set);
    let client = scene.client("client", "192.168.64.1", "192.168.64.2:53");
    let answers: Vec<String> = (0..10).map(|_| ask(&client)).collect();
    assert!(
        answers.iter().all(|answer| answer == "server 10.0.1.2:53"),
        "{answers:?}"
    );
    for port in [50, 51, 55, 60] {
        assert_eq!(
            scene.answer("192.168.64.1", &format!("192.168.64.2:{port}")),
            "server 10.0.1.2:8083"
        );
    }
    assert_eq!(scene.answer("fd64::1", "[fd64::2]:53"), "server [fd01::2]:53");
    // A client on the host itself is counted once.
    assert_eq!(
        ask(&scene.client("host", "192.168.64.2", "192.168.64.2:53")),
        "server 10.0.1.2:53"
    );
    // What someone else redirects is not counted as ours.
    scene.nft("add table ip other");
    scene.nft("add chain ip other c { type nat hook prerouting priority -150; }");
    scene.nft("add rule ip other c udp dport 54 dnat to 10.0.1.2:8083");
    assert_eq!(scene.answer("192.168.64.1", "10.0.1.1:54"), "server 10.0.1.2:8083");
    let counters = scene.counters(&set);
    let counted: Vec<(u64, u64)> = counters.iter().map(|c| (c.packets, c.bytes)).collect();
    // 4 bytes of payload, 8 of UDP, 20 or 40 of IP.
    assert_eq!(counted, [(11, 11 * 32), (5, 5 * 32), (1, 52), (0, 0)]);
    let kept = scene.within("host", || keeps_last(&Nft::find().unwrap()));
    let now = monotonic_ns();
    for counters in counters {
        let expected = (kept && counters.packets > 0).then_some(begun..=now);
        let right = match (counters.last_used_ns, expected) {
            (Some(last), Some(range)) => range.contains(&last),
            (last, expected) => last.is_none() && expected.is_none(),
        };
        assert!(right, "{counters:?} between {begun} and {now}");
    }
}

/// `tarn check` tells the truth, and looking changes nothing.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_nft_says_what_it_can_do_here() {
    let scene = Scene::new();
    let abilities = scene.within("host", abilities);
    assert!(abilities.iter().all(|ability| ability.present), "{abilities:?}");
    assert_eq!(scene.nft("list ruleset"), "", "looking changes nothing");
}

/// On a router, what the rules say of packets from outside does not hold for others, nor for its own.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_nft_redirects_packets_of_the_named_devices_alone() {
    let scene = Scene::new();
    scene.serve("server", &["10.0.1.2:8083"]);
    scene.serve("host", &["0.0.0.0:53"]);
    let set = numbered(vec![udp("0.0.0.0:53", "10.0.1.2:8083", None)]);
    let up = |names: &[&str]| {
        let devices = match names {
            [] => Devices::All,
            _ => Devices::Named(names.iter().map(ToString::to_string).collect()),
        };
        scene.within("host", || {
            let mut journal = Journal::open(&scene.state()).unwrap();
            Nftables {
                devices,
                state: scene.state(),
            }
            .up(&mut journal, &set, &[])
            .unwrap();
        });
    };
    let own = || ask(&scene.client("host", "192.168.64.2", "192.168.64.2:53"));
    let (local, redirected) = ("host 0.0.0.0:53", "server 10.0.1.2:8083");
    for (names, expected) in [
        (&["left", "any*"][..], [redirected, local]),
        (&["right"][..], [local, local]),
        (&[][..], [redirected, redirected]),
    ] {
        up(names);
        assert_eq!(
            [scene.answer("192.168.64.1", "192.168.64.2:53"), own()],
            expected,
            "{names:?}"
        );
    }
}
