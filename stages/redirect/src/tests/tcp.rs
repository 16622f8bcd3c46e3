//! TCP with much to carry.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use super::scene::{FAMILIES, Scene, at, both, near};
use super::serve::connect_from;
use super::way::Way;

/// Sends so many bytes to a service that sends them back, while they come back.
///
/// # Panics
/// When what comes back is not what was sent.
pub fn echo(from: SocketAddr, to: SocketAddr, length: usize) {
    let mut stream = connect_from(from, to).unwrap_or_else(|error| panic!("connecting to {to}: {error}"));
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8 ^ (at / 65_536) as u8).collect();
    let mut writing = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writing.write_all(&sent).unwrap();
            writing.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::with_capacity(length);
        stream.read_to_end(&mut received).unwrap();
        assert!(
            received == sent,
            "{} of {length} bytes came back, or others",
            received.len()
        );
    });
}

/// Bulk data arrives intact and at a speed that does not come from retransmissions, with and without segmentation
/// left to devices.
pub fn lab_bulk_arrives_intact_both_ways(way: Way) {
    const LENGTH: usize = 2 << 20;
    for offload in [true, false] {
        let scene = Scene::of(way, &near(way, offload));
        let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
        pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
        scene.up(&both(&pairs));
        for (family, (asked, _)) in FAMILIES.iter().zip(pairs) {
            let began = Instant::now();
            scene.within("client", || echo(at(family.client, 0), asked, LENGTH));
            let took = began.elapsed();
            println!("{LENGTH} bytes to {asked} and back, offload {offload}: {took:?}");
            assert!(
                took < Duration::from_secs(2),
                "{took:?} for {LENGTH} bytes, offload {offload}"
            );
        }
        let (again, sent) = scene.within("client", || (counter("RetransSegs"), counter("OutSegs")));
        assert!(
            again * 20 < sent,
            "{again} of {sent} segments sent again, offload {offload}"
        );
    }
}

/// A counter of this namespace's TCP.
fn counter(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let found = names
        .split_whitespace()
        .zip(values.split_whitespace())
        .find(|(found, _)| *found == name);
    found.unwrap().1.parse().unwrap()
}
