//! Datagrams in fragments: only the first has ports, and any may come first.

use std::net::{SocketAddr, UdpSocket};

use super::packet::{self, Ip, UDP};
use super::scene::{CLIENT_MAC, FAMILIES, Family, HOST_LEFT_MAC, Scene, answer, at, both, named};
use super::way::Way;
use super::wire::Wire;
use tarn_lab::random::Random;

/// A client that cuts its datagrams itself.
struct Cutter<'a> {
    wire: &'a Wire,
    socket: UdpSocket,
    identification: u32,
}

impl<'a> Cutter<'a> {
    fn new(scene: &Scene, wire: &'a Wire, from: &str) -> Self {
        Cutter {
            wire,
            socket: scene.udp("client", at(from, 0)),
            identification: 7,
        }
    }

    /// The frames of a datagram to `to` with pieces of `size` bytes.
    fn cut(&mut self, to: SocketAddr, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
        let from = self.socket.local_addr().unwrap();
        self.identification += 1;
        let ip = Ip {
            identification: self.identification,
            ..Ip::between(from.ip(), to.ip())
        };
        let pieces = ip.fragments(UDP, &packet::udp(from, to, payload), size);
        pieces
            .iter()
            .map(|piece| packet::frame(HOST_LEFT_MAC, CLIENT_MAC, piece))
            .collect()
    }

    fn send(&self, frames: &[Vec<u8>]) {
        frames.iter().for_each(|frame| self.wire.send(frame));
    }

    fn expect(&self, of: SocketAddr, payload: &[u8], what: &str) {
        match answer(&self.socket, of) {
            Ok(answered) => assert!(
                answered == payload,
                "{what}: {} of {} bytes",
                answered.len(),
                payload.len()
            ),
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

fn payload(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at / 256) as u8 ^ seed)
        .collect()
}

/// Every order to send fragments in, with its name.
fn orders(frames: &[Vec<u8>]) -> Vec<(String, Vec<Vec<u8>>)> {
    let reversed: Vec<_> = frames.iter().rev().cloned().collect();
    let first_last: Vec<_> = frames[1..].iter().chain(&frames[..1]).cloned().collect();
    let twice: Vec<_> = frames.iter().flat_map(|frame| [frame.clone(), frame.clone()]).collect();
    let held_twice: Vec<_> = frames[1..]
        .iter()
        .chain(&frames[1..2])
        .chain(&frames[..1])
        .cloned()
        .collect();
    let mut orders = vec![
        ("in order".to_owned(), frames.to_vec()),
        ("reversed".to_owned(), reversed),
        ("the first one last".to_owned(), first_last),
        ("each twice".to_owned(), twice),
        ("one twice before the first".to_owned(), held_twice),
    ];
    for seed in 0..4 {
        let mut shuffled = frames.to_vec();
        Random::new(seed, "fragments").shuffle(&mut shuffled);
        orders.push((format!("at random, {seed}"), shuffled));
    }
    orders
}

fn scene(way: Way) -> (Scene, [(SocketAddr, SocketAddr); 2]) {
    let scene = Scene::new(way);
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up(&both(&pairs));
    (scene, pairs)
}

/// Whatever order fragments come in, the datagram arrives whole and is answered, in fragments, too.
pub fn lab_in_any_order_arrive_whole(way: Way) {
    let (scene, pairs) = scene(way);
    let wire = scene.wire("client", "eth0");
    for (family, (asked, _)) in FAMILIES.iter().zip(pairs) {
        let mut cutter = Cutter::new(&scene, &wire, family.client);
        for (length, size) in [(5000, 1400), (3000, 256), (40, 16)] {
            let payload = payload(length, size as u8);
            let count = orders(&cutter.cut(asked, &payload, size)).len();
            for order in 0..count {
                let (name, frames) = orders(&cutter.cut(asked, &payload, size)).remove(order);
                cutter.send(&frames);
                cutter.expect(
                    asked,
                    &payload,
                    &format!("{asked}, {length} bytes in pieces of {size}, {name}"),
                );
            }
        }
    }
}

/// Two clients whose datagrams have the same identification and come mixed get each their own answer.
pub fn lab_of_two_clients_are_kept_apart(way: Way) {
    let (scene, pairs) = scene(way);
    let wire = scene.wire("client", "eth0");
    for (family, (asked, _)) in FAMILIES.iter().zip(pairs) {
        let mut one = Cutter::new(&scene, &wire, family.client);
        let mut other = Cutter::new(&scene, &wire, family.other_client);
        let (mine, theirs) = (payload(4000, 1), payload(4000, 2));
        for order in 0..9 {
            let frames = orders(&one.cut(asked, &mine, 800)).remove(order).1;
            let others = orders(&other.cut(asked, &theirs, 800)).remove(8 - order).1;
            for index in 0..frames.len().max(others.len()) {
                one.send(&frames[index.min(frames.len())..(index + 1).min(frames.len())]);
                other.send(&others[index.min(others.len())..(index + 1).min(others.len())]);
            }
            one.expect(asked, &mine, &format!("one, {order}"));
            other.expect(asked, &theirs, &format!("other, {order}"));
        }
    }
}

/// Fragments for the host's own service, at an address that rules are about, are none of tarn's business.
pub fn lab_for_the_host_itself_stay_there(way: Way) {
    let (scene, _) = scene(way);
    let wire = scene.wire("client", "eth0");
    for family in FAMILIES {
        let own = at(family.host, 9999);
        scene.serve("host", own);
        let mut cutter = Cutter::new(&scene, &wire, family.client);
        let payload = payload(4000, 3);
        for order in 0..9 {
            let (name, frames) = orders(&cutter.cut(own, &payload, 800)).remove(order);
            cutter.send(&frames);
            cutter.expect(own, &payload, &format!("{own}, {name}"));
        }
        scene.expect(family.client, own, &named("host", own));
    }
}

/// A server's address may be a client's own choice, too: then nobody changes its fragments.
pub fn lab_straight_to_the_server_stay_as_they_are(way: Way) {
    let (scene, pairs) = scene(way);
    let wire = scene.wire("client", "eth0");
    for (Family { client, .. }, (_, target)) in FAMILIES.iter().zip(pairs) {
        let mut cutter = Cutter::new(&scene, &wire, client);
        let payload = payload(4000, 4);
        for order in 0..9 {
            let (name, frames) = orders(&cutter.cut(target, &payload, 800)).remove(order);
            cutter.send(&frames);
            cutter.expect(target, &payload, &format!("{target}, {name}"));
        }
    }
}

/// Whoever holds fragments has room for so many: what did not find any is counted for its rule, once that is known.
pub fn lab_that_find_no_room_are_counted(way: Way) {
    const HELD: usize = 64;
    let (scene, pairs) = scene(way);
    let wire = scene.wire("client", "eth0");
    for (index, (family, (asked, _))) in FAMILIES.iter().zip(pairs).enumerate() {
        let mut cutter = Cutter::new(&scene, &wire, family.client);
        let payload = payload(16 * (HELD + 6), 5);
        let frames = cutter.cut(asked, &payload, 16);
        cutter.send(&frames[1..]);
        cutter.send(&frames[..1]);
        if way == Way::Nftables {
            cutter.expect(asked, &payload, "the kernel holds more");
            continue;
        }
        let silence = std::time::Duration::from_millis(300);
        cutter.socket.set_read_timeout(Some(silence)).unwrap();
        assert!(answer(&cutter.socket, asked).is_err(), "{asked}");
        let counted = &scene.counters(&both(&pairs))[2 * index];
        let expected = (frames.len() - 1 - HELD) as u64;
        assert_eq!(counted.drops, [("fragments lost", expected)], "{counted:?}");
    }
}
