//! A network that is not the one declared, or that outlives its test, spoils what is measured after it.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::load::{Arrivals, Ping};

/// ```text
///   client            router             server
///   10.0.1.1 ──────── 10.0.1.2
///   fd01::1  eth0 left fd01::2
///                      10.0.2.1 ──────── 10.0.2.2
///                      fd02::1 right eth0 fd02::2
/// ```
fn routed() -> Topology {
    Topology::new()
        .node(
            Node::new("client")
                .route("default", "10.0.1.2")
                .route("default", "fd01::2"),
        )
        .node(Node::new("router").forwarding())
        .node(
            Node::new("server")
                .route("default", "10.0.2.1")
                .route("default", "fd02::1"),
        )
        .link(
            End::new("client", "eth0").address("10.0.1.1/24").address("fd01::1/64"),
            End::new("router", "left").address("10.0.1.2/24").address("fd01::2/64"),
        )
        .link(
            End::new("router", "right").address("10.0.2.1/24").address("fd02::1/64"),
            End::new("server", "eth0").address("10.0.2.2/24").address("fd02::2/64"),
        )
}

fn links() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned())
        .collect()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
#[ignore = "needs the lab"]
fn lab_a_routed_network_reaches_from_end_to_end_at_once() {
    for topology in [routed(), routed().permanent_neighbours()] {
        let network = topology.build().unwrap();
        assert!(reaches(&network, "client", address("10.0.2.2")));
        assert!(reaches(&network, "client", address("fd02::2")));
        assert!(reaches(&network, "server", address("10.0.1.1")));
        assert!(!reaches(&network, "client", address("10.0.3.1")));
    }
}

#[test]
#[ignore = "needs the lab"]
fn lab_with_permanent_neighbours_nobody_asks_for_one() {
    let network = routed().permanent_neighbours().build().unwrap();
    assert!(reaches(&network, "client", address("10.0.2.2")));
    for (node, entries) in [("client", 2), ("router", 4), ("server", 2)] {
        let table = network.namespace(node).unwrap().ip("neigh show").unwrap();
        let permanent = table.lines().filter(|line| line.contains("PERMANENT")).count();
        assert_eq!(
            (
                permanent,
                table.lines().filter(|line| !line.contains("PERMANENT")).count()
            ),
            (entries, 0),
            "{table}"
        );
    }
}

#[test]
#[ignore = "needs the lab"]
fn lab_addresses_macs_and_mtu_are_those_declared() {
    let network = Topology::new()
        .node(Node::new("one").sysctl("net/ipv4/ip_default_ttl", "33"))
        .node(Node::new("two"))
        .link(
            End::new("one", "eth0").address("10.1.0.1/24").mtu(300),
            End::new("two", "eth0").address("10.1.0.2/24").feature("tso", false),
        )
        .build()
        .unwrap();
    let one = network.namespace("one").unwrap().ip("-o link show eth0").unwrap();
    assert!(one.contains("mtu 300") && one.contains("02:00:00:00:00:00"), "{one}");
    let two = network.namespace("two").unwrap().ip("-o link show eth0").unwrap();
    assert!(two.contains("02:00:00:00:00:01"), "{two}");
    assert_eq!(
        network
            .namespace("one")
            .unwrap()
            .ip("-6 -o address show dev eth0")
            .unwrap(),
        ""
    );
    let ttl = network
        .namespace("one")
        .unwrap()
        .enter(|| Ok(fs::read_to_string("/proc/sys/net/ipv4/ip_default_ttl")?));
    assert_eq!(ttl.unwrap().trim(), "33");
}

#[test]
#[ignore = "needs the lab"]
fn lab_vlans_carry_one_tag_and_two() {
    let end = |node: &str, number: u8| {
        End::new(node, "eth0")
            .vlan(Vlan::new(100).address(&format!("10.2.1.{number}/24")))
            .vlan(Vlan::new(200).inside(100).address(&format!("10.2.2.{number}/24")))
    };
    let topology = Topology::new()
        .node(Node::new("one"))
        .node(Node::new("two"))
        .link(end("one", 1), end("two", 2));
    let network = topology.permanent_neighbours().build().unwrap();
    assert!(reaches(&network, "one", address("10.2.1.2")));
    assert!(reaches(&network, "one", address("10.2.2.2")));
}

#[test]
#[ignore = "needs the lab"]
fn lab_a_shape_can_change_while_traffic_runs() {
    let shaped = |end: End| end.shape(Shape::new().delay(Duration::from_millis(1)));
    let network = Topology::new()
        .node(Node::new("one"))
        .node(Node::new("two"))
        .link(
            shaped(End::new("one", "eth0").address("10.1.0.1/24")),
            End::new("two", "eth0").address("10.1.0.2/24"),
        )
        .build()
        .unwrap();
    let one = network.namespace("one").unwrap();
    let ping = |count| {
        let ping = crate::load::Ping {
            count,
            ..crate::load::Ping::new(address("10.1.0.2"))
        };
        one.enter(|| ping.run()).unwrap().round_trips_us()
    };
    assert!(ping(2)[1] < 2_000.0);
    one.shape("eth0", &Shape::new().delay(Duration::from_millis(50)))
        .unwrap();
    assert!(ping(2)[1] >= 50_000.0);
}

#[test]
#[ignore = "needs the lab"]
fn lab_a_network_leaves_nothing_behind() {
    let (before, namespaces) = (links(), fs::read_dir("/run/netns").map_or(0, Iterator::count));
    let network = routed().build().unwrap();
    assert_eq!(links(), before, "a link was made outside of the network's namespaces");
    drop(network);
    assert_eq!(links(), before);
    assert_eq!(fs::read_dir("/run/netns").map_or(0, Iterator::count), namespaces);
    let open: Vec<_> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .flat_map(|fd| fs::read_link(fd.path()))
        .collect();
    assert!(
        !open.iter().any(|target| target.to_string_lossy().starts_with("net:")),
        "{open:?}"
    );
}

#[test]
#[ignore = "needs the lab"]
fn lab_a_declaration_that_cannot_be_built_says_which_command_failed() {
    let topology = Topology::new().node(Node::new("one").ip("route add 10.0.0.0/8 via 1.2.3.4"));
    let error = format!("{:#}", topology.build().unwrap_err());
    assert!(
        error.contains("route add 10.0.0.0/8 via 1.2.3.4") && error.contains("\"one\""),
        "{error}"
    );
    assert!(format!("{:#}", Topology::new().build().unwrap().namespace("x").unwrap_err()).contains("no node \"x\""));
}

/// Whether an address answers a ping from a node.
fn reaches(network: &Network, from: &str, target: IpAddr) -> bool {
    let ping = Ping {
        count: 1,
        arrivals: Arrivals::WhenAnswered,
        ..Ping::new(target)
    };
    let exchanges = network.namespace(from).unwrap().enter(|| ping.run()).unwrap();
    exchanges.list()[0].answer.is_some()
}
