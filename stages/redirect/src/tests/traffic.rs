//! Changes while clients are served: nobody loses a packet, whether the change is about it or not.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use super::scene::{FAMILIES, Scene, at, both, both_from, named};
use super::way::Way;
use crate::rule::Protocol;

/// How often a client asks. Long enough for a guest under emulation, short enough to meet every moment of a change.
const PAUSE: Duration = Duration::from_millis(1);

/// A client that asks again as soon as it was answered.
pub struct Traffic {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Outcome>,
}

#[derive(Debug, Default)]
pub struct Outcome {
    answered: u64,
    /// Questions that no answer came to, or one from another address; by number.
    lost: Vec<String>,
}

impl Traffic {
    /// Begins when a first question was answered: a network that was only just made may lose that one.
    pub fn start(socket: UdpSocket, to: SocketAddr) -> Self {
        assert!(
            asked(&socket, to, 0).or_else(|_| asked(&socket, to, 0)).is_ok(),
            "nobody answers from {to}"
        );
        let ended: Arc<AtomicBool> = Arc::default();
        let until = Arc::clone(&ended);
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let thread = std::thread::spawn(move || {
            let mut outcome = Outcome::default();
            let mut number = 0_u64;
            while !until.load(Ordering::Relaxed) {
                number += 1;
                match asked(&socket, to, number) {
                    Ok(()) => outcome.answered += 1,
                    Err(why) => outcome.lost.push(format!("{number} to {to}: {why}")),
                }
                sleep(PAUSE);
            }
            outcome
        });
        Traffic { ended, thread }
    }

    /// Panics when a question was lost, or hardly one was asked.
    pub fn end(self, what: &str) {
        let outcome = self.finish();
        assert!(
            outcome.lost.is_empty(),
            "{what}: of {}, lost {:?}",
            outcome.answered,
            outcome.lost
        );
        assert!(outcome.answered > 20, "{what}: only {} answered", outcome.answered);
    }

    fn finish(self) -> Outcome {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Asks once, and waits for the answer to this very question.
fn asked(socket: &UdpSocket, to: SocketAddr, number: u64) -> Result<(), String> {
    let question = number.to_be_bytes();
    socket
        .send_to(&question, to)
        .map_err(|error| format!("not sent: {error}"))?;
    let mut buffer = [0; 64];
    loop {
        let (length, from) = socket
            .recv_from(&mut buffer)
            .map_err(|error| format!("no answer: {error}"))?;
        if from != to {
            return Err(format!("answered by {from}"));
        }
        if buffer[..length] == question {
            return Ok(());
        }
    }
}

/// Rules that come and go, dozens of times, cost the clients of other rules no packet.
pub fn lab_of_other_rules_is_not_disturbed(way: Way) {
    let scene = Scene::new(way);
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up(&both(&pairs));
    let clients = FAMILIES.iter().zip(pairs);
    let traffic: Vec<_> = clients
        .map(|(family, (asked, _))| Traffic::start(scene.udp("client", at(family.client, 0)), asked))
        .collect();
    for round in 0..20 {
        let coming = FAMILIES.map(|family| (at(family.host, 9000 + round), at(family.server, 8083)));
        let sourced = crate::rule::samples::rules(
            &["udp", "tcp"],
            "192.168.64.2:8080",
            "10.0.1.3:8083",
            Some("192.168.64.128/25"),
        );
        let mut rules = both_from(100, &coming);
        rules.extend(super::scene::numbered(120, sourced));
        scene.change(&rules, &[]);
        for (family, (asked, target)) in FAMILIES.iter().zip(coming) {
            assert_eq!(
                scene.who(Protocol::Udp, "client", family.client, asked),
                named("server", target)
            );
        }
        scene.change(&[], &rules);
    }
    traffic.into_iter().for_each(|traffic| traffic.end("a rule that stays"));
}

/// A rule led elsewhere while its clients ask: every question is answered, by the one server or the other. To a port that
/// no rule has led to before: the first answers from there have to be known for what they are.
pub fn lab_of_a_replaced_rule_loses_nothing(way: Way) {
    const PORTS: std::ops::Range<u16> = 8084..8099;
    let scene = Scene::new(way);
    let asked = FAMILIES.map(|family| at(family.host, 8080));
    let one = both(&FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083))));
    let others = |port| FAMILIES.map(|family| at(family.other_server, port));
    for family in FAMILIES {
        scene.serve("server", at(family.server, 8083));
        PORTS.for_each(|port| scene.serve("server", at(family.other_server, port)));
    }
    scene.up(&one);
    let clients = FAMILIES.iter().zip(asked);
    let traffic: Vec<_> = clients
        .map(|(family, asked)| Traffic::start(scene.udp("client", at(family.client, 0)), asked))
        .collect();
    for port in PORTS {
        let [v4, v6] = others(port);
        let other = both_from(4, &[(asked[0], v4), (asked[1], v6)]);
        for (old, new, targets) in [
            (&one, &other, others(port)),
            (&other, &one, FAMILIES.map(|family| at(family.server, 8083))),
        ] {
            scene.change(new, old);
            for ((family, asked), target) in FAMILIES.iter().zip(asked).zip(targets) {
                let reached = scene.who(Protocol::Udp, "client", family.client, asked);
                assert_eq!(reached, named("server", target), "a new client");
            }
        }
    }
    traffic
        .into_iter()
        .for_each(|traffic| traffic.end("a rule that is led elsewhere"));
}

/// A server thinks; its rule is led elsewhere meanwhile, and then deleted: both servers' answers come from the address
/// that was asked.
pub fn lab_under_way_arrives_whatever_changes(way: Way) {
    const THINKING: Duration = Duration::from_millis(600);
    let scene = Scene::new(way);
    let rule = |target: fn(&super::scene::Family) -> &'static str, first| {
        both_from(
            first,
            &FAMILIES.map(|family| (at(family.host, 8080), at(target(&family), 8083))),
        )
    };
    let (one, other) = (rule(|family| family.server, 0), rule(|family| family.other_server, 4));
    let server = |address| scene.udp("server", at(address, 8083));
    let servers = FAMILIES.map(|family| [server(family.server), server(family.other_server)]);
    let clients = FAMILIES.map(|family| (scene.udp("client", at(family.client, 0)), at(family.host, 8080)));
    scene.up(&one);
    let mut asked_of: Vec<(usize, usize, SocketAddr)> = Vec::new();
    for (round, change) in [(0, (&other[..], &one[..])), (1, (&[][..], &other[..]))] {
        for (index, (socket, to)) in clients.iter().enumerate() {
            socket.send_to(b"?", to).unwrap();
            let (_, from) = servers[index][round].recv_from(&mut [0; 8]).expect("the question");
            asked_of.push((index, round, from));
        }
        sleep(THINKING);
        scene.change(change.0, change.1);
    }
    for (index, round, from) in asked_of {
        let (socket, to) = &clients[index];
        // The second is sent in fragments.
        for length in [1, 4000] {
            servers[index][round].send_to(&vec![round as u8; length], from).unwrap();
            let mut answer = [9; 8000];
            let (received, by) = socket.recv_from(&mut answer).expect("the answer");
            assert_eq!((received, answer[0], by), (length, round as u8, *to), "{from}");
        }
    }
}

/// An agent that comes up while another one's rules are carried out takes them over without a gap.
pub fn lab_goes_on_while_another_agent_comes_up(way: Way) {
    let scene = Scene::new(way);
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    let rules = both(&pairs);
    scene.up(&rules);
    let clients = FAMILIES.iter().zip(pairs);
    let traffic: Vec<_> = clients
        .map(|(family, (asked, _))| Traffic::start(scene.udp("client", at(family.client, 0)), asked))
        .collect();
    for _ in 0..3 {
        scene.up(&rules);
        sleep(Duration::from_millis(50));
    }
    let carried = scene.counters(&rules)[0].packets;
    assert!(carried > 0, "counters go on");
    traffic.into_iter().for_each(|traffic| traffic.end("a rule taken over"));
}

/// The way to the server changes while clients ask: nothing is lost, and soon everything goes the new way.
pub fn lab_follows_the_route_to_the_server(way: Way) {
    use tarn_lab::topology::{Node, Topology};
    let end = |node: &str, interface: &str| super::scene::end(way, false, node, interface);
    let topology = Topology::new()
        .node(Node::new("client"))
        .node(
            Node::new("host")
                .forwarding()
                .route("10.9.9.9/32", "10.0.1.2")
                .route("fd09::9/128", "fd01::2"),
        )
        .node(
            Node::new("server")
                .route("default", "10.0.1.1")
                .route("default", "fd01::1")
                .ip("address add 10.9.9.9/32 dev lo")
                .ip("address add fd09::9/128 dev lo nodad"),
        )
        .link(
            end("client", "eth0").address("192.168.64.1/24").address("fd64::1/64"),
            end("host", "left").address("192.168.64.2/24").address("fd64::2/64"),
        )
        .link(
            end("host", "right").address("10.0.1.1/24").address("fd01::1/64"),
            end("server", "eth0").address("10.0.1.2/24").address("fd01::2/64"),
        )
        .link(
            end("host", "new").address("10.0.3.1/24").address("fd03::1/64"),
            end("server", "eth1").address("10.0.3.2/24").address("fd03::2/64"),
        );
    let scene = Scene::of(way, &topology);
    let pairs = [
        (at("192.168.64.2", 8080), at("10.9.9.9", 8083)),
        (at("fd64::2", 8080), at("fd09::9", 8083)),
    ];
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up(&both(&pairs));
    let clients = FAMILIES.iter().zip(pairs);
    let traffic: Vec<_> = clients
        .map(|(family, (asked, _))| Traffic::start(scene.udp("client", at(family.client, 0)), asked))
        .collect();
    sleep(Duration::from_millis(200));
    let host = scene.namespace("host");
    host.ip("route replace 10.9.9.9/32 via 10.0.3.2").unwrap();
    host.ip("route replace fd09::9/128 via fd03::2").unwrap();
    let server = scene.namespace("server");
    server.ip("route replace default via 10.0.3.1").unwrap();
    server.ip("route replace default via fd03::1").unwrap();
    sleep(Duration::from_millis(1500));
    // Nothing may need the old way any more.
    host.ip("link set right down").unwrap();
    sleep(Duration::from_millis(300));
    traffic
        .into_iter()
        .for_each(|traffic| traffic.end("a server whose route changed"));
}

/// The server's container ends and another takes its place, behind a new device: within two seconds it is reached,
/// before an agent has looked and after.
pub fn lab_finds_a_server_whose_device_is_new(way: Way) {
    use std::os::fd::{AsFd, AsRawFd};
    let scene = Scene::new(way);
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    let rules = both(&pairs);
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up(&rules);
    let reached = || {
        for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
            scene.expect(family.client, asked, &named("server", target));
        }
    };
    reached();
    let clients = FAMILIES.iter().zip(pairs);
    let traffic: Vec<_> = clients
        .map(|(family, (asked, _))| Traffic::start(scene.udp("client", at(family.client, 0)), asked))
        .collect();
    let (host, server) = (scene.namespace("host"), scene.namespace("server"));
    host.ip("link delete right").unwrap();
    let process = std::process::id();
    let there = server.as_fd().as_raw_fd();
    host.ip(&format!(
        "link add right type veth peer name eth0 netns /proc/{process}/fd/{there}"
    ))
    .unwrap();
    for (namespace, device, addresses) in [
        (host, "right", vec!["10.0.1.1/24", "fd01::1/64"]),
        (
            server,
            "eth0",
            vec!["10.0.1.2/24", "10.0.1.3/24", "fd01::2/64", "fd01::3/64"],
        ),
    ] {
        for address in addresses {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            namespace
                .ip(&format!("address add {address} dev {device} {nodad}"))
                .unwrap();
        }
        namespace.ip(&format!("link set {device} up")).unwrap();
    }
    server.ip("route add default via 10.0.1.1").unwrap();
    server.ip("route add default via fd01::1").unwrap();
    sleep(Duration::from_secs(2));
    for (traffic, family) in traffic.into_iter().zip(FAMILIES) {
        let outcome = traffic.finish();
        assert!(outcome.lost.len() < 8, "{}: {:?}", family.host, outcome.lost);
    }
    reached();
    scene.up(&rules);
    reached();
}
