//! Segments of a request that waits: lost and sent again, in another order, made up by somebody else.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{MsgFlags, SockaddrStorage, bind, sendto};

use super::connections::{connected, listener};
use super::scene::{PORT, SERVICE, Scene, at, bound, client, eventually, occupied, settings};
use tarn_kernel::icmp::internet_checksum;
use tarn_lab::debug;

/// The client's port.
pub const FROM: u16 = 7000;
/// The sequence number of its first byte: it connects with the one before.
pub const FIRST: u32 = 1_000_000;

/// A connection of class 0, and both of its ends.
fn connection(scene: &Scene, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let asking = connected(scene, FROM, Some(FIRST - 1));
    let (served, _) = listener.accept().unwrap();
    served.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    asking.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    (asking, served)
}

/// Sends a segment of this connection that its client has not sent, or sends again: from `seq` on.
fn send_segment(scene: &Scene, seq: u32, payload: &[u8]) {
    send_segment_with(scene, seq, &[], payload);
}

/// The same with options, whose length is a multiple of 4.
pub fn send_segment_with(scene: &Scene, seq: u32, options: &[u8], payload: &[u8]) {
    let (source, target): (SocketAddr, SocketAddr) = (at(&client(0), FROM), at(SERVICE, PORT));
    let mut segment = Vec::new();
    segment.extend(source.port().to_be_bytes());
    segment.extend(target.port().to_be_bytes());
    segment.extend(seq.to_be_bytes());
    segment.extend([0; 4]); // acknowledges nothing that was sent
    segment.extend([(5 + options.len() as u8 / 4) << 4, 0x18]); // 20 bytes of header, and options; PSH, ACK
    segment.extend(1024_u16.to_be_bytes());
    segment.extend([0; 4]); // checksum, urgent pointer
    segment.extend(options);
    segment.extend(payload);
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => unreachable!("the clients' addresses are of IPv4"),
    };
    let length = (segment.len() as u16).to_be_bytes();
    let pseudo_header = [&octets(source.ip())[..], &octets(target.ip()), &[0, 6], &length].concat();
    let checksum = internet_checksum(&[pseudo_header, segment.clone()].concat());
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    let send = || {
        // SAFETY: the call takes no memory of ours.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_TCP) };
        assert!(socket >= 0);
        // SAFETY: it is new, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        bind(
            socket.as_raw_fd(),
            &SockaddrStorage::from(SocketAddr::new(source.ip(), 0)),
        )?;
        let target = SockaddrStorage::from(SocketAddr::new(target.ip(), 0));
        Ok(sendto(socket.as_raw_fd(), &segment, &target, MsgFlags::empty())?)
    };
    assert_eq!(scene.node("clients").enter(send).unwrap(), segment.len());
}

/// The number of class 0's waiting packets, once it is `expected`, or after five seconds.
fn waiting_packets(scene: &Scene, expected: u32) -> u32 {
    eventually(|| scene.counts()[0].waiting_packets, |count| *count == expected)
}

/// Has the server lose the first packet that this expression of nftables matches.
pub fn lose_first(scene: &Scene, expression: &str) {
    lose_first_of(scene, "server", expression);
}

/// Has a node lose the first packet to it that this expression of nftables matches.
fn lose_first_of(scene: &Scene, node: &str, expression: &str) {
    let ruleset = format!(
        "table ip loss {{
            chain prerouting {{
                type filter hook prerouting priority -500;
                {expression} numgen inc mod 1000000 == 0 drop
            }}
        }}"
    );
    scene.node(node).run("nft", &[&ruleset]).unwrap();
}

/// A POST whose first segment is lost: sent again, it waits with the others, and need not be sent a third time when the
/// others have been handed on.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_segment_that_fills_a_hole_waits_with_the_others() {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    let (mut asking, mut served) = connection(&scene, &listener);
    let answer = occupied(&scene, &datagrams);
    lose_first(&scene, "tcp dport 80 meta length > 200");
    for part in 1..=3_u8 {
        asking.write_all(&[part; 200]).unwrap();
    }
    assert_eq!(waiting_packets(&scene, 3), 3, "{:?}", scene.counts()[0]);
    answer();
    served.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut text = [0; 600];
    served.read_exact(&mut text).unwrap();
    assert_eq!(text, [[1; 200], [2; 200], [3; 200]].concat()[..]);
    served.write_all(b"answer").unwrap();
    asking.read_exact(&mut text[..6]).unwrap();
    let counts = eventually(|| scene.counts()[0], |counts| counts.in_time == 1);
    assert_eq!(
        (counts.requests, counts.in_time, counts.in_flight),
        (1, 1, 0),
        "{counts:?}"
    );
}

/// What is sent again while it waits is dropped, whether as it was or in other pieces.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_what_waits_already_is_not_held_twice() {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    let (mut asking, _served) = connection(&scene, &listener);
    let _answer = occupied(&scene, &datagrams);
    asking.write_all(b"abcdefgh").unwrap();
    asking.write_all(b"ijklmnop").unwrap();
    assert_eq!(waiting_packets(&scene, 2), 2);
    let before = scene.counts()[0].dropped_repeated;
    for (from, length) in [(0, 8), (4, 8), (0, 16), (15, 1)] {
        send_segment(&scene, FIRST + from, &vec![0x5a; length]);
    }
    let counts = eventually(|| scene.counts()[0], |counts| counts.dropped_repeated >= before + 4);
    assert!(counts.dropped_repeated >= before + 4, "{counts:?}");
    assert_eq!(counts.waiting_packets, 2, "{counts:?}");
    // A byte more than waits is new.
    send_segment(&scene, FIRST + 8, &[0x5a; 9]);
    assert_eq!(waiting_packets(&scene, 3), 3);
}

/// Somebody who knows addresses and ports makes numbers up: what the client sends does not look repeated for that.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_made_up_sequence_numbers_drop_nothing() {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    let (mut asking, mut served) = connection(&scene, &listener);
    let answer = occupied(&scene, &datagrams);
    asking.write_all(b"one ").unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    for away in [1_u32 << 31, (1 << 31) - 1, 1000, 5000, 1 << 20, 1 << 30] {
        send_segment(&scene, FIRST.wrapping_add(away), &[0x5a; 50]);
    }
    let before = scene.counts()[0];
    asking.write_all(b"two ").unwrap();
    asking.write_all(b"three").unwrap();
    assert_eq!(
        waiting_packets(&scene, before.waiting_packets + 2),
        before.waiting_packets + 2,
        "{:?}",
        scene.counts()[0]
    );
    answer();
    let mut text = [0; 13];
    served.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"one two three");
}

/// So it is with one who has guessed a number within the window, and covers what the client sends next: TCP would refuse the
/// segment for what it acknowledges, and the client's own would be missing.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_segment_that_tcp_refuses_covers_nothing() {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    let (mut asking, mut served) = connection(&scene, &listener);
    let answer = occupied(&scene, &datagrams);
    asking.write_all(b"one ").unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    send_segment(&scene, FIRST + 4, &[0x5a; 1000]);
    assert_eq!(waiting_packets(&scene, 2), 2);
    asking.write_all(b"two ").unwrap();
    asking.write_all(b"three").unwrap();
    let packets = waiting_packets(&scene, 4);
    let counts = scene.counts()[0];
    assert_eq!(packets, 4, "{counts:?}");
    // A debug kernel takes so long for all of this that the client sends its first part again.
    assert!(debug::is_here() || counts.dropped_repeated == 0, "{counts:?}");
    answer();
    let mut text = [0; 13];
    served.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"one two three");
}

/// A client that has not heard the answer yet sends its request again. The service has it, and answers no second time: a
/// request of its own would take a place in the service until patience ends. So would the byte of a keepalive.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_request_sent_again_after_its_answer_is_none() {
    for demultiplexed in ["0", "1"] {
        let scene = Scene::new();
        let server = scene.node("server");
        server.sysctl("net/ipv4/ip_early_demux", demultiplexed).unwrap();
        let datagrams = bound(&scene, "server", at(SERVICE, PORT));
        scene.set(&settings(Duration::from_secs(10)));
        let listener = listener(&scene);
        let (mut asking, mut served) = connection(&scene, &listener);
        asking.write_all(b"question").unwrap();
        let mut text = [0; 8];
        served.read_exact(&mut text).unwrap();
        served.write_all(b"answered").unwrap();
        asking.read_exact(&mut text).unwrap();
        let counts = eventually(|| scene.counts()[0], |counts| counts.in_time == 1);
        assert_eq!((counts.requests, counts.in_time), (1, 1), "{counts:?}");
        for (from, length) in [(0, 8), (2, 3), (7, 1)] {
            send_segment(&scene, FIRST + from, &vec![0x5a; length]);
        }
        // Outside the window, far ahead and far behind.
        for away in [1_u32 << 30, 1 << 31, 3 << 30] {
            send_segment(&scene, FIRST.wrapping_add(away), b"question");
        }
        // The one place in the service is free for somebody else, who comes behind them.
        let other = bound(&scene, "clients", at(&client(1), 5000));
        other.send_to(b"question", (SERVICE, PORT)).unwrap();
        datagrams.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        assert_eq!(datagrams.recv(&mut text).unwrap(), 8);
        let counts = scene.counts()[0];
        let now = (counts.requests, counts.in_flight, counts.waiting);
        assert_eq!(now, (1, 0, 0), "{counts:?}");
    }
}

/// Who asks again before an answer that was lost is sent again would free the place of the second request, and be counted as answered.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_an_answer_sent_again_answers_nothing_else() {
    let scene = Scene::new();
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    let (mut asking, mut served) = connection(&scene, &listener);
    let mut text = [0; 6];
    lose_first_of(&scene, "clients", "tcp sport 80 meta length > 52");
    asking.write_all(b"first.").unwrap();
    served.read_exact(&mut text).unwrap();
    served.write_all(b"answer").unwrap();
    let first = eventually(|| scene.counts()[0], |counts| counts.in_time == 1);
    assert_eq!((first.in_time, first.in_flight), (1, 0), "{first:?}");
    asking.write_all(b"second").unwrap();
    served.read_exact(&mut text).unwrap();
    asking.read_exact(&mut text).unwrap();
    let counts = scene.counts()[0];
    assert_eq!((counts.in_time, counts.in_flight), (1, 1), "{counts:?}");
    served.write_all(b"ANSWER").unwrap();
    asking.read_exact(&mut text).unwrap();
    let counts = eventually(|| scene.counts()[0], |counts| counts.in_time == 2);
    assert_eq!(
        (counts.requests, counts.in_time, counts.in_flight),
        (2, 2, 0),
        "{counts:?}"
    );
}
