//! Packets for which the kernel has found a socket before we hold them (early demultiplexing), and sockets that go.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::scene::{PORT, SERVICE, Scene, at, bound, client, counter, eventually, occupied, settings, unload};
use crate::module::Module;
use tarn_lab::topology::Namespace;

/// A server that looks for sockets early, as kernels do by default.
fn scene() -> Scene {
    let scene = Scene::new();
    let server = scene.node("server");
    for parameter in ["ip_early_demux", "tcp_early_demux", "udp_early_demux"] {
        server.sysctl(&format!("net/ipv4/{parameter}"), "1").unwrap();
    }
    scene.set(&settings(Duration::from_secs(10)));
    scene
}

/// What the kernel has delivered to a closed port.
fn no_ports(server: &Namespace) -> u64 {
    counter(server, "UdpNoPorts")
}

/// A server with a socket for each client: its datagrams wait and arrive there. When it closes one, what waits for it
/// goes where the kernel would have put it then, and nothing is kept.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_datagrams_of_a_connected_socket_wait_and_arrive() {
    let scene = scene();
    let busy = bound(&scene, "server", at(SERVICE, PORT));
    let answer = occupied(&scene, &busy);
    let (first, second) = (at(&client(0), 5000), at(&client(1), 5001));
    let sockets = [first, second].map(|peer| bound(&scene, "clients", peer));
    // The port's one socket becomes the first client's; what other clients send then finds none.
    busy.connect(first).unwrap();
    for (number, socket) in sockets.iter().enumerate() {
        for _ in 0..3 {
            socket.send_to(&[number as u8], (SERVICE, PORT)).unwrap();
        }
        assert_eq!(scene.waiting(number, 3), 3);
    }
    scene.module(Module::stop).unwrap();
    let mut buffer = [0; 16];
    for _ in 0..3 {
        assert_eq!((busy.recv(&mut buffer).unwrap(), buffer[0]), (1, 0));
    }
    let refused = || no_ports(scene.node("server"));
    assert_eq!(eventually(refused, |count| *count == 3), 3);

    // Once more, and the socket closes while they wait.
    scene.set(&settings(Duration::from_secs(10)));
    drop(answer);
    for socket in &sockets {
        for _ in 0..3 {
            let _ = socket.send_to(b"x", (SERVICE, PORT));
        }
    }
    assert_eq!(scene.waiting(0, 2), 2);
    assert_eq!(scene.waiting(1, 3), 3);
    drop(busy);
    scene.module(Module::stop).unwrap();
    unload();
}

/// A service that closes a connection while its request waits: the client hears of it, and nothing waits any more.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_connection_closed_by_the_service_takes_its_request_with_it() {
    let scene = scene();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    let listener = scene
        .node("server")
        .enter(|| Ok(TcpListener::bind((SERVICE, PORT))?))
        .unwrap();
    let connect = || {
        let connect = || Ok(TcpStream::connect((SERVICE, PORT))?);
        (
            scene.node("clients").enter(connect).unwrap(),
            listener.accept().unwrap().0,
        )
    };
    let (mut kept, mut keeps) = connect();
    let (mut lost, loses) = connect();
    let answer = occupied(&scene, &datagrams);
    kept.write_all(b"kept").unwrap();
    lost.write_all(b"lost").unwrap();
    assert_eq!(scene.waiting(0, 2), 2);
    drop(loses);
    answer();
    keeps.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut text = [0; 4];
    keeps.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"kept");
    keeps.write_all(b"answer").unwrap();
    lost.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    // Its end, and then that what it sent was not read.
    let mut rest = Vec::new();
    match lost.read_to_end(&mut rest) {
        Ok(0) => {}
        other => assert_eq!(other.unwrap_err().kind(), ErrorKind::ConnectionReset),
    }
    let ended = || scene.counts()[0];
    let counts = eventually(ended, |counts| counts.waiting + counts.in_flight == 0);
    assert_eq!(
        (counts.waiting, counts.in_flight, counts.unanswered),
        (0, 0, 1),
        "{counts:?}"
    );
    unload();
}
