//! A flood of forged clients, against those who are there and those who come. The flow tables are small here, 4096 entries
//! for each family, so that 20,000 flows turn them over as 1,000,000 do those of the default size.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::packet::{self, TCP, UDP};
use super::scene::{CLIENT_MAC, HOST_LEFT_MAC, PATIENCE, Scene, V4, WHO, ask, at, both, both_from, named};
use super::serve::connect_from;
use super::way::Way;
use super::wire::Wire;
use tarn_lab::testing::is_thorough;

/// Connections that say nothing meanwhile.
const IDLE: usize = 48;
/// Frames that the host gets at once: less than its backlog.
const BURST: u32 = 100;

/// How many flows are forged.
fn flows() -> u32 {
    if is_thorough() { 1_000_000 } else { 20_000 }
}

/// Rules to the server, and a way for answers to clients that are none.
fn scene(way: Way) -> (Scene, SocketAddr, SocketAddr) {
    let scene = Scene::new(way);
    let (asked, target) = (at(V4.host, 8080), at(V4.server, 8083));
    scene.up(&both(&[(asked, target)]));
    scene
        .namespace("host")
        .ip("route add 198.18.0.0/15 via 192.168.64.1")
        .unwrap();
    (scene, asked, target)
}

/// Forged packets, each flow of two, so that the server answers the first before the second comes: over UDP that is all
/// that a client of good faith could show. Every other flow is of TCP: half of these call, and half acknowledge what the server never
/// said, the second time what it resets them with.
fn flood(wire: &Wire, asked: SocketAddr, flows: u32) {
    let send = |number: u32, turn: u32| {
        let from = SocketAddr::new(
            IpAddr::V4(Ipv4Addr::from_bits(0xc612_0000 + number % 0x2_0000)),
            1025 + (number >> 17) as u16,
        );
        let packet = match number % 4 {
            0 | 2 => packet::packet(UDP, from, asked, b"?"),
            1 => packet::packet(TCP, from, asked, b"?"),
            _ => packet::Ip::between(from.ip(), asked.ip()).packet(TCP, &packet::tcp_ack(from, asked, 1000 + turn)),
        };
        wire.send(&packet::frame(HOST_LEFT_MAC, CLIENT_MAC, &packet));
    };
    for first in (0..flows).step_by(BURST as usize) {
        for turn in 0..2 {
            (first..first + BURST).for_each(|number| send(number, turn));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn hear(stream: &mut TcpStream, expected: &[u8]) -> bool {
    let mut heard = vec![0; expected.len()];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut heard).is_ok() && heard == expected
}

/// Connections that have been idle since before the flood are there after it, and the server speaks first.
pub fn lab_leaves_idle_connections_alone(way: Way) {
    let (scene, asked, target) = scene(way);
    let datagrams = scene.udp("server", target);
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((length, client)) = datagrams.recv_from(&mut buffer) {
            let _ = datagrams.send_to(&buffer[..length], client);
        }
    });
    let listener = scene.within("server", || TcpListener::bind(target).unwrap());
    let mut pairs: Vec<(TcpStream, TcpStream)> = (0..IDLE)
        .map(|number| {
            let from = at(V4.client, 20_000 + number as u16);
            let mut client = scene.within("client", || connect_from(from, asked).unwrap());
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(b"hello").unwrap();
            assert!(hear(&mut server, b"hello"));
            (client, server)
        })
        .collect();
    flood(&scene.wire("client", "eth0"), asked, flows());
    let mut alive = 0;
    for (client, server) in &mut pairs {
        let spoken = server.write_all(b"news").is_ok() && hear(client, b"news");
        alive += usize::from(spoken && client.write_all(b"thanks").is_ok() && hear(server, b"thanks"));
    }
    assert_eq!(alive, IDLE, "connections that have survived");
    if way != Way::Nftables {
        println!(
            "{} flows pushed out",
            scene.event("flow pushed out before it was established")
        );
        assert!(scene.event("flow pushed out before it was established") > u64::from(flows()) / 4);
    }
}

/// An answer that comes after its flow was pushed out does not tell the client the server's own address: it is dropped,
/// and counted. Who speaks to the server itself is answered all the same.
pub fn lab_lets_no_answer_leave_without_its_flow(way: Way) {
    let (scene, asked, target) = scene(way);
    let server = scene.udp("server", target);
    let wire = scene.wire("client", "eth0");
    let late: Vec<SocketAddr> = (0..10).map(|number| at(V4.client, 30_000 + number)).collect();
    for from in &late {
        scene.udp("client", *from).send_to(WHO, asked).unwrap();
        server.recv_from(&mut [0; 64]).unwrap();
    }
    // Nobody answers these, so they cannot pass for established.
    server.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    for _ in 0..10 {
        flood(&wire, asked, 2000);
        while server.recv_from(&mut [0; 64]).is_ok() {}
    }
    wire.drain(Duration::from_millis(100));
    let dropped = || scene.event("answer dropped, its flow was pushed out");
    let before = dropped();
    for from in &late {
        server.send_to(b"late", from).unwrap();
    }
    let came = wire.drain(Duration::from_millis(300));
    let sources: BTreeSet<SocketAddr> = came
        .iter()
        .filter_map(super::wire::Frame::read)
        .filter(|read| read.payload == b"late")
        .map(|read| read.source)
        .collect();
    assert!(
        !sources.contains(&target),
        "the server's own address has left: {sources:?}"
    );
    assert_eq!(dropped() - before, late.len() as u64);
    assert!(scene.event("flow pushed out before it was established") > 0);
    assert_eq!(scene.event("established flow pushed out"), 0);
    drop(server);
    scene.serve("server", target);
    let direct = scene.udp("client", at(V4.client, 31_000));
    for address in [target, asked, asked, target] {
        assert_eq!(
            ask(&direct, address, WHO).unwrap(),
            named("server", target).into_bytes(),
            "{address}"
        );
    }
    scene.expect(V4.client, target, &named("server", target));
    // Other rules to other ports are none of it.
    let other = at(V4.host, 9090);
    scene.change(&both_from(8, &[(other, target)]), &[]);
    scene.expect(V4.client, other, &named("server", target));
}
