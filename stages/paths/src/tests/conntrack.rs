//! What the kernel tracks, read and forgotten.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use tarn_kernel::conntrack::*;
use tarn_lab::topology::{End, Network, Node, Topology};

/// A host that tracks what a client sends it.
fn scene() -> Network {
    let network = Topology::new()
        .node(Node::new("client"))
        .node(Node::new("host"))
        .link(
            End::new("client", "eth0").address("10.0.1.1/24").address("fd01::1/64"),
            End::new("host", "eth0").address("10.0.1.2/24").address("fd01::2/64"),
        )
        // What is sent is there when it was sent.
        .permanent_neighbours()
        .build()
        .unwrap();
    let host = network.namespace("host").unwrap();
    for command in [
        "add table inet t",
        "add chain inet t c { type filter hook prerouting priority 0; }",
        "add rule inet t c ct state new",
    ] {
        host.run("nft", &[command]).unwrap();
    }
    // A link carries packets a moment after it was set up.
    while count(&network, |_| true) < 2 {
        send(&network, "10.0.1.1", "10.0.1.2", [9].into_iter());
        send(&network, "fd01::1", "fd01::2", [9].into_iter());
        std::thread::sleep(Duration::from_millis(10));
    }
    forgotten(&network, |_| true);
    network
}

fn send(network: &Network, from: &str, to: &str, ports: impl Iterator<Item = u16> + Send) {
    let sent = network.namespace("client").unwrap().enter(|| {
        let socket = UdpSocket::bind((from, 4000))?;
        for port in ports {
            // A refusal told for an earlier datagram is not an error of this one.
            let _ = socket.send_to(b"x", (to, port));
        }
        Ok(())
    });
    sent.unwrap();
}

fn count(network: &Network, chosen: impl Fn(&Entry<'_>) -> bool + Sync) -> usize {
    let counted = network.namespace("host").unwrap().enter(|| {
        let mut counted = 0;
        forget(|entry| {
            counted += usize::from(chosen(entry));
            false
        })?;
        Ok(counted)
    });
    counted.unwrap()
}

/// How many connections fewer there are once those chosen are forgotten.
fn forgotten(network: &Network, chosen: impl Fn(&Entry<'_>) -> bool + Sync) -> usize {
    let before = count(network, |_| true);
    let host = network.namespace("host").unwrap();
    host.enter(|| forget(|entry| chosen(entry))).unwrap();
    before - count(network, |_| true)
}

#[test]
#[ignore = "needs the lab"]
fn lab_oldest_conntrack_entries_are_read_as_the_client_sent_them() {
    let network = scene();
    send(&network, "10.0.1.1", "10.0.1.2", [53].into_iter());
    send(&network, "fd01::1", "fd01::2", [54].into_iter());
    let tuple = |source: &str, destination: &str, port| Tuple {
        protocol: 17,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        source_port: 4000,
        destination_port: port,
    };
    for (original, back) in [
        (tuple("10.0.1.1", "10.0.1.2", 53), tuple("10.0.1.2", "10.0.1.1", 4000)),
        (tuple("fd01::1", "fd01::2", 54), tuple("fd01::2", "fd01::1", 4000)),
    ] {
        let reply = Tuple {
            source_port: original.destination_port,
            ..back
        };
        let right =
            |entry: &Entry<'_>| (entry.original, entry.reply, entry.destination_nat) == (original, reply, false);
        assert_eq!(count(&network, right), 1);
        assert_eq!(forgotten(&network, |entry| entry.original == original), 1);
        assert_eq!(count(&network, |entry| entry.original == original), 0);
    }
}

/// A few connections among very many are found and forgotten, and nobody else's.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_conntrack_forgets_some_of_many() {
    let network = scene();
    send(&network, "10.0.1.1", "10.0.1.2", 1..=4_000);
    send(&network, "fd01::1", "fd01::2", 1..=1_000);
    let chosen = |entry: &Entry<'_>| entry.original.destination_port % 100 == 42;
    let (all, some) = (count(&network, |_| true), count(&network, chosen));
    // A busy host may have lost some of so many datagrams sent at once.
    assert!(all > 2_000 && some > 20, "{all} {some}");
    let start = Instant::now();
    assert_eq!(forgotten(&network, chosen), some);
    println!("{some} of {all} connections forgotten in {:?}", start.elapsed());
    assert_eq!((count(&network, |_| true), count(&network, chosen)), (all - some, 0));
    let six = |entry: &Entry<'_>| entry.original.destination.is_ipv6();
    assert_eq!(count(&network, six), forgotten(&network, six));
    assert_eq!(count(&network, six), 0);
}
