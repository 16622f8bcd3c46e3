//! Datagrams of every size.

use super::scene::{FAMILIES, Scene, ask, at, both, near};
use super::way::Way;

/// The longest payload of a UDP datagram: 65,535 bytes less the headers; IPv6 does not count its own.
const LONGEST: [usize; 2] = [65_507, 65_527];

/// An empty datagram, one byte, one that just fits and one that just does not, 64 KiB: whole there, whole back.
pub fn lab_from_nothing_to_64_kib_arrive(way: Way) {
    for offload in [true, false] {
        let scene = Scene::of(way, &near(way, offload));
        let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
        pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
        scene.up(&both(&pairs));
        for ((family, (asked, _)), longest) in FAMILIES.iter().zip(pairs).zip(LONGEST) {
            let socket = scene.udp("client", at(family.client, 0));
            for size in [0, 1, 2, 3, 17, 1451, 1452, 1453, 1471, 1472, 1473, 4000, longest, 1, 0] {
                let payload: Vec<u8> = (0..size).map(|at| (at * 7 + at / 251 + size) as u8).collect();
                let answer = ask(&socket, asked, &payload).unwrap_or_else(|error| panic!("{size} bytes: {error}"));
                assert!(answer == payload, "{size} bytes to {asked}: {} came back", answer.len());
            }
        }
    }
}
