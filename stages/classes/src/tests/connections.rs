//! What a connection does while its request waits: it begins again, it is reset, its numbers wrap.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};

use super::scene::{PORT, SERVICE, Scene, at, bound, client, counter, eventually, occupied, settings};
use crate::module::Settings;

/// A connection from this port of class 0's client. `first` is the sequence number that it begins with.
pub fn connected(scene: &Scene, port: u16, first: Option<u32>) -> TcpStream {
    let connect = || {
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(at(&client(0), port)))?;
        if let Some(first) = first {
            begin_at(socket.as_raw_fd(), first);
        }
        connect(socket.as_raw_fd(), &SockaddrStorage::from(at(SERVICE, PORT)))?;
        Ok(TcpStream::from(socket))
    };
    let stream = scene.node("clients").enter(connect).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// The next connect begins with this sequence number: that of a socket in repair is kept (tcp(7), TCP_REPAIR).
fn begin_at(socket: i32, sequence: u32) {
    let set = |option: i32, value: u32| {
        // SAFETY: the value lives for the call, and its length is told.
        let result = unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, option, (&raw const value).cast(), 4) };
        assert_eq!(result, 0, "{option}: {}", std::io::Error::last_os_error());
    };
    const SEND_QUEUE: u32 = 2;
    set(libc::TCP_REPAIR, 1);
    set(libc::TCP_REPAIR_QUEUE, SEND_QUEUE);
    set(libc::TCP_QUEUE_SEQ, sequence);
    set(libc::TCP_REPAIR, 0);
}

/// The service, over TCP.
pub fn listener(scene: &Scene) -> TcpListener {
    scene
        .node("server")
        .enter(|| Ok(TcpListener::bind((SERVICE, PORT))?))
        .unwrap()
}

/// A request whose sequence numbers go round while it waits is the same request: it neither looks repeated nor new.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_sequence_numbers_wrap_in_a_waiting_request() {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    let answer = occupied(&scene, &datagrams);
    let mut asking = connected(&scene, 7000, Some(u32::MAX - 10));
    let (mut served, _) = listener.accept().unwrap();
    for part in [&[1_u8; 8], &[2; 8], &[3; 8]] {
        asking.write_all(part).unwrap();
    }
    let packets = || scene.counts()[0].waiting_packets;
    assert_eq!(eventually(packets, |packets| *packets == 3), 3);
    let counts = scene.counts()[0];
    assert_eq!(
        (counts.waiting, counts.requests, counts.dropped_repeated),
        (1, 1, 0),
        "{counts:?}"
    );
    answer();
    served.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut text = [0; 24];
    served.read_exact(&mut text).unwrap();
    assert_eq!(text, [[1; 8], [2; 8], [3; 8]].concat()[..]);
    served.write_all(b"answer").unwrap();
    asking.read_exact(&mut text[..6]).unwrap();
    let server = scene.node("server");
    assert_eq!(
        counter(server, "TcpExtTCPOFOQueue") + counter(server, "TcpRetransSegs"),
        0
    );
    let counts = eventually(|| scene.counts()[0], |counts| counts.in_time == 1);
    assert_eq!(
        (counts.requests, counts.in_time, counts.in_flight),
        (1, 1, 0),
        "{counts:?}"
    );
}

/// A client that gives up resets its connection. The reset waits behind the request, the service hears of both, and the
/// request does not take a place in the service for an answer that cannot come.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_reset_waits_behind_its_request_and_ends_it() {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    // So that it is not patience that ends the request.
    scene.set(&Settings {
        patience: Some(Duration::from_secs(3600)),
        ..settings(Duration::from_secs(10))
    });
    let listener = listener(&scene);
    let mut asking = connected(&scene, 7000, None);
    let (mut served, _) = listener.accept().unwrap();
    let answer = occupied(&scene, &datagrams);
    asking.write_all(b"never mind").unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&asking, sockopt::Linger, &at_once).unwrap();
    drop(asking);
    let packets = || scene.counts()[0].waiting_packets;
    assert_eq!(eventually(packets, |packets| *packets == 2), 2);
    answer();
    served.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut text = [0; 32];
    let read = served.read(&mut text);
    assert!(
        matches!(&read, Ok(10))
            || read
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{read:?}"
    );
    // What the service has, it works on: the place is free when that is likely done.
    let counts = eventually(
        || scene.counts()[0],
        |counts| counts.unanswered == 1 && counts.in_flight == 0,
    );
    assert_eq!(
        (counts.waiting, counts.in_flight, counts.unanswered),
        (0, 0, 1),
        "{counts:?}"
    );
}

/// A SYN never waits: who connects while others wait is connected at once, and a client that begins again from the same
/// port, while a request of its last connection waits, gets through in the end.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_connections_begin_while_requests_wait() {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    let answer = occupied(&scene, &datagrams);
    let mut first = connected(&scene, 7000, None);
    let (_served, _) = listener.accept().unwrap();
    first.write_all(b"first").unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    let _other = connected(&scene, 7001, None);
    let (_, from) = listener.accept().unwrap();
    assert_eq!((from.port(), scene.waiting(0, 1)), (7001, 1));

    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&first, sockopt::Linger, &at_once).unwrap();
    drop(first);
    let mut again = std::thread::scope(|scope| {
        let again = scope.spawn(|| connected(&scene, 7000, None));
        // The old connection, whose reset waits, is in the way of the first SYN.
        std::thread::sleep(Duration::from_millis(200));
        answer();
        again.join().unwrap()
    });
    let (mut served, from) = listener.accept().unwrap();
    assert_eq!(from.port(), 7000);
    again.write_all(b"again").unwrap();
    served.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut text = [0; 5];
    served.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"again");
}

/// How the service's connections begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handshake {
    Usual,
    /// It is over when data comes (TCP_DEFER_ACCEPT), as for Apache.
    Deferred,
    /// The server keeps nothing of it (SYN cookies): any segment of the client's can be its end.
    Cookies,
}

/// A late request that is dropped because the cap is reached is over for both ends. Sent again, it would be a new one: answered in time,
/// as it would seem, to a client who has long given up.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_a_late_request_that_is_dropped_ends_its_connection() {
    for handshake in [Handshake::Usual, Handshake::Deferred, Handshake::Cookies] {
        drops_a_late_request(handshake);
    }
}

fn drops_a_late_request(handshake: Handshake) {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    let deadline = Duration::from_millis(50);
    let mut set = settings(deadline);
    set.classes.as_mut().unwrap()[0].cap = 2;
    scene.set(&set);
    if handshake == Handshake::Cookies {
        let server = scene.node("server");
        server.run("sysctl", &["-qw", "net.ipv4.tcp_syncookies=2"]).unwrap();
    }
    let listener = listener(&scene);
    if handshake == Handshake::Deferred {
        defer_accept(&listener);
    }
    let answer = occupied(&scene, &datagrams);
    let ask = |number: u16, waiting: u32| {
        let mut asking = connected(&scene, 7000 + number, None);
        asking.write_all(b"request").unwrap();
        let (served, _) = listener.accept().unwrap();
        for end in [&asking, &served] {
            end.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        }
        let packets = || scene.counts()[0].waiting_packets;
        assert_eq!(eventually(packets, |packets| *packets == waiting), waiting);
        (asking, served)
    };
    let (_first, mut late) = (ask(0, 1), ask(1, 2));
    std::thread::sleep(2 * deadline);
    answer();
    let aside = || scene.counts()[0].aside;
    assert_eq!(eventually(aside, |aside| *aside == 1), 1, "{:?}", scene.counts()[0]);

    let _others = (ask(2, 2), ask(3, 2));
    let mut buffer = [0; 16];
    for (end, who) in [(&mut late.1, "the service"), (&mut late.0, "the client")] {
        let error = end.read(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{handshake:?}: {who}");
    }
    // Several times as long as TCP takes to send it again.
    std::thread::sleep(Duration::from_secs(1));
    let counts = scene.counts()[0];
    assert_eq!(
        (counts.requests, counts.waiting_packets),
        (4, 2),
        "{handshake:?}: {counts:?}"
    );
    assert_eq!(
        (counts.dropped_cap, counts.dropped_memory),
        (1, 0),
        "{handshake:?}: {counts:?}"
    );
    listener.set_nonblocking(true).unwrap();
    let error = listener.accept().unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::WouldBlock,
        "{handshake:?}: it is not made anew"
    );
}

fn defer_accept(listener: &TcpListener) {
    let seconds: i32 = 10;
    // SAFETY: the value lives for the call, and its length is told.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            4,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
