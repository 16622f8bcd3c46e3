//! Transport checksums: right where there is one, none where there was none.

use std::net::SocketAddr;

use super::far::far;
use super::packet::{self, TCP, UDP};
use super::scene::{BOTH, CLIENT_MAC, FAMILIES, HOST_LEFT_MAC, Scene, V4, WHO, answer, ask, at, both, named, near};
use super::way::Way;
use super::wire::{Wire, set};

/// Sends a packet as if from the client's stack.
fn send(wire: &Wire, packet: &[u8]) {
    wire.send(&packet::frame(HOST_LEFT_MAC, CLIENT_MAC, packet));
}

/// A sender that leaves the checksum out (RFC 768) does so for a reason: it stays out, both ways.
pub fn lab_of_zero_stay_zero(way: Way) {
    let scene = Scene::new(way);
    let (asked, target) = (at(V4.host, 8080), at(V4.server, 8083));
    scene.up(&both(&[(asked, target)]));
    let (client, server) = (scene.wire("client", "eth0"), scene.wire("server", "eth0"));
    let (asking, answering) = (scene.udp("client", at(V4.client, 0)), scene.udp("server", target));
    for socket in [&asking, &answering] {
        set(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    }
    for _ in 0..3 {
        asking.send_to(b"unsummed", asked).unwrap();
        let (_, read) = server.receive("the request", |read| read.destination == target);
        assert_eq!((read.checksum, read.header_is_right), (0, true));
        let (_, from) = answering.recv_from(&mut [0; 64]).unwrap();
        answering.send_to(b"unsummed, too", from).unwrap();
        let (_, read) = client.receive("the answer", |read| read.source == asked);
        assert_eq!((read.checksum, read.header_is_right), (0, true));
        assert_eq!(answer(&asking, asked).unwrap(), b"unsummed, too");
    }
}

/// A UDP checksum that comes out as 0 is sent as 0xffff (RFC 768): 0 would say that there is none, and IPv6 forbids
/// that. TCP sends 0 as it is.
pub fn lab_that_compute_to_zero_arrive_right(way: Way) {
    let scene = Scene::new(way);
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    scene.up(&both(&pairs));
    let (client, server) = (scene.wire("client", "eth0"), scene.wire("server", "eth0"));
    for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
        for protocol in [UDP, TCP] {
            let from = at(family.client, 6000);
            let payload = packet::payload_for_zero(protocol, from, target);
            for _ in 0..2 {
                send(&client, &packet::packet(protocol, from, asked, &payload));
                let arrived = |read: &packet::Read| read.destination == target && read.protocol == protocol;
                let (_, read) = server.receive("the request", arrived);
                assert!(read.checksum_is_right, "{read:?}");
                assert_eq!(
                    read.checksum,
                    if protocol == UDP { 0xffff } else { 0 },
                    "{protocol} {asked}"
                );
            }
        }
        // And the answer's: as seen by the client, it comes from the address asked.
        let (asking, answering) = (
            scene.udp("client", at(family.client, 6000)),
            scene.udp("server", target),
        );
        let payload = packet::payload_for_zero(UDP, asked, asking.local_addr().unwrap());
        asking.send_to(b"request", asked).unwrap();
        let (length, back) = receive_after_syn(&answering);
        assert_eq!(length, 7);
        answering.send_to(&payload, back).unwrap();
        let (_, read) = client.receive("the answer", |read| read.source == asked && read.protocol == UDP);
        assert_eq!(read.checksum, 0xffff);
    }
}

/// The next datagram, and its sender.
fn receive_after_syn(socket: &std::net::UdpSocket) -> (usize, SocketAddr) {
    socket.recv_from(&mut [0; 64]).unwrap()
}

/// A checksum that a local sender left to the device (CHECKSUM_PARTIAL) can still be completed when the packet
/// arrives, and a whole one is right, for both protocols and directions.
pub fn lab_left_to_the_device_arrive_right(way: Way) {
    for offload in [true, false] {
        let scene = Scene::of(way, &near(way, offload));
        let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
        pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
        scene.up(&both(&pairs));
        let (client, server) = (scene.wire("client", "eth0"), scene.wire("server", "eth0"));
        for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
            for _ in 0..2 {
                scene.expect(family.client, asked, &named("server", target));
            }
            for protocol in BOTH {
                let of = protocol.number();
                for _ in 0..2 {
                    let to = |read: &packet::Read| read.destination == target && read.protocol == of;
                    expect_summed("request", server.receive("a request", to));
                    let back = |read: &packet::Read| read.source == asked && read.protocol == of;
                    expect_summed("answer", client.receive("an answer", back));
                }
            }
        }
    }
}

fn expect_summed(what: &str, (frame, read): (super::wire::Frame, packet::Read)) {
    let right = if frame.is_partial {
        read.checksum_is_begun
    } else {
        read.checksum_is_right
    };
    assert!(
        right && read.header_is_right,
        "{what}, partial: {}, {read:?}",
        frame.is_partial
    );
    assert_eq!(
        read.hop_limit, 63,
        "the host counts as a hop, or packets could go round for ever: {what}"
    );
}

/// The same when a device behind the host does complete them: then every sum must be right on the last wire.
pub fn lab_completed_behind_the_host_are_right(way: Way) {
    let scene = Scene::of(way, &far(way, true, [1500; 3]));
    let families = super::far::FAMILIES;
    let pairs = families.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up(&both(&pairs));
    let server = scene.wire("server", "eth0");
    for (family, (asked, target)) in families.iter().zip(pairs) {
        scene.expect(family.client, asked, &named("server", target));
        let socket = scene.udp("client", at(family.client, 0));
        assert!(ask(&socket, asked, WHO).is_ok());
        for protocol in BOTH {
            let to = |read: &packet::Read| read.destination == target && read.protocol == protocol.number();
            let (frame, read) = server.receive("a request", to);
            assert!(!frame.is_partial && read.checksum_is_right, "{protocol} {read:?}");
        }
    }
}
