//! Datagrams that no ordinary client sends: without a checksum, longer or shorter than they say, damaged, to all hosts by their
//! frames, several in one packet.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::scene::{PORT, SERVICE, Scene, at, bound, client, eventually, occupied, settings};
use tarn_kernel::icmp::internet_checksum;
use tarn_lab::load::{Fragment, FrameSender, Wire, udp};
use tarn_lab::topology::hardware_address;

/// `UDP_NO_CHECK6_TX`, `UDP_NO_CHECK6_RX` and others of linux/udp.h; libc has no name for some.
const SEGMENT: i32 = 103;
const GRO: i32 = 104;
const NO_CHECK6_TX: i32 = 101;
const NO_CHECK6_RX: i32 = 102;
/// A datagram's header: 8 bytes, of which 2 are its length.
const LENGTH: std::ops::Range<usize> = 4..6;

fn switch_on(socket: &UdpSocket, level: i32, option: i32) {
    set(socket, level, option, 1);
}

fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) {
    // SAFETY: the value lives for the call, and its length is told.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), 4) };
    assert_eq!(result, 0, "{option}: {}", std::io::Error::last_os_error());
}

/// Old resolvers, and tunnels, send datagrams without a checksum. They wait as others do: whoever left it out would be served
/// before everybody.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_datagrams_without_a_checksum_wait_as_others() {
    for (service, from) in [(SERVICE, client(0)), ("fd00::100", "fd00::1".to_owned())] {
        let scene = Scene::new();
        scene.set(&settings(Duration::from_secs(10)));
        let busy = bound(&scene, "server", at(SERVICE, PORT));
        let answer = occupied(&scene, &busy);
        let asking = bound(&scene, "clients", at(&from, 5000));
        let socket = match service {
            SERVICE => busy.try_clone().unwrap(),
            _ => bound(&scene, "server", at(service, PORT)),
        };
        if service == SERVICE {
            switch_on(&asking, libc::SOL_SOCKET, libc::SO_NO_CHECK);
        } else {
            switch_on(&asking, libc::IPPROTO_UDP, NO_CHECK6_TX);
            switch_on(&socket, libc::IPPROTO_UDP, NO_CHECK6_RX);
        }
        asking.send_to(b"me first", (service, PORT)).unwrap();
        assert_eq!(scene.waiting(0, 1), 1, "{service}: it did not wait");
        answer();
        let mut buffer = [0; 16];
        assert_eq!(socket.recv(&mut buffer).unwrap(), 8);
    }
}

/// A datagram from class 0's client in a frame of its own, as `change` makes it.
fn send(scene: &Scene, change: impl FnOnce(&mut Vec<u8>)) {
    send_to(scene, hardware_address(0, 1), change);
}

/// The same, for this hardware address.
fn send_to(scene: &Scene, hardware: [u8; 6], change: impl FnOnce(&mut Vec<u8>)) {
    let (source, target): (SocketAddr, SocketAddr) = (at(&client(0), 5000), at(SERVICE, PORT));
    let mut datagram = udp(source, target, 0, 100, true);
    change(&mut datagram);
    let frame = Fragment {
        source: source.ip(),
        target: target.ip(),
        identifier: 0,
        offset: 0,
        more: false,
        bytes: &datagram,
    }
    .frame(Wire {
        from: hardware_address(0, 0),
        to: hardware,
    });
    let clients = scene.node("clients");
    clients.enter(|| FrameSender::open("eth0")?.send(&[frame])).unwrap();
}

/// What UDP drops takes no place in the service, for nobody answers it; what UDP delivers waits, also with bytes behind it.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_datagram_is_as_long_as_udp_says() {
    let scene = Scene::new();
    scene.set(&settings(Duration::from_secs(10)));
    let service = bound(&scene, "server", at(SERVICE, PORT));
    // None of these is a request, though nothing else is in service.
    for length in [0_u16, 7, 109, u16::MAX] {
        send(&scene, |datagram| {
            datagram[LENGTH].copy_from_slice(&length.to_be_bytes())
        });
    }
    send(&scene, |datagram| datagram.truncate(4));
    send(&scene, |datagram| datagram.truncate(7));
    send(&scene, |datagram| datagram[50] ^= 1);
    let answer = occupied(&scene, &service);
    assert_eq!(scene.counts()[0].requests, 0);
    send(&scene, |datagram| datagram.extend([0x5a; 30]));
    assert_eq!(scene.waiting(0, 1), 1, "with bytes behind it, it did not wait");
    // Damaged before the bytes behind it.
    send(&scene, |datagram| {
        datagram.extend([0x5a; 30]);
        datagram[50] ^= 1;
    });
    send(&scene, |_| {});
    assert_eq!(scene.waiting(0, 2), 2);
    answer();
    let mut buffer = [0; 200];
    assert_eq!(service.recv(&mut buffer).unwrap(), 100);
    let counts = scene.counts()[0];
    assert_eq!((counts.requests, counts.in_flight), (2, 1), "{counts:?}");
}

/// UDP does not look at the frame: a datagram for the service in one for all hosts is delivered. It would be read before all
/// that wait.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_datagram_in_a_frame_to_all_waits_as_others() {
    let scene = Scene::new();
    scene.set(&settings(Duration::from_secs(10)));
    let service = bound(&scene, "server", at(SERVICE, PORT));
    let answer = occupied(&scene, &service);
    send_to(&scene, [0xff; 6], |_| {});
    assert_eq!(scene.waiting(0, 1), 1, "it did not wait");
    answer();
    assert_eq!(service.recv(&mut [0; 200]).unwrap(), 100);
}

/// Over IPv6, UDP takes a length of 0 for that of a jumbogram (RFC 2675), up to Linux 6.12 at least. What it delivers has waited.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_datagram_of_length_zero_waits_as_others() {
    const SERVICE6: &str = "fd00::100";
    let scene = Scene::new();
    scene.set(&settings(Duration::from_secs(10)));
    let busy = bound(&scene, "server", at(SERVICE, PORT));
    let service = bound(&scene, "server", at(SERVICE6, PORT));
    // Neighbours get to know each other.
    let asking = bound(&scene, "clients", at("fd00::1", 5001));
    asking.send_to(b"hello", (SERVICE6, PORT)).unwrap();
    let (_, from) = service.recv_from(&mut [0; 16]).unwrap();
    service.send_to(b"answer", from).unwrap();
    let answer = occupied(&scene, &busy);
    let frame = jumbogram(at("fd00::1", 5000), at(SERVICE6, PORT));
    let clients = scene.node("clients");
    clients.enter(|| FrameSender::open("eth0")?.send(&[frame])).unwrap();
    let waiting = scene.waiting(0, 1);
    service.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(service.recv(&mut [0; 200]).is_err(), "it did not wait");
    assert_eq!(waiting, 1);
    answer();
    // A kernel that drops it lets it go on, too: nobody sends such a one who wants an answer.
    if let Ok(length) = service.recv(&mut [0; 200]) {
        assert_eq!(length, 100);
    }
}

/// A datagram of 100 bytes over IPv6, in a frame for the server, that says of its length 0.
fn jumbogram(source: SocketAddr, target: SocketAddr) -> Vec<u8> {
    let octets = |address: SocketAddr| match address {
        SocketAddr::V6(address) => address.ip().octets(),
        SocketAddr::V4(_) => unreachable!("both are of IPv6"),
    };
    let mut datagram = udp(source, target, 0, 100, false);
    let length = (datagram.len() as u16).to_be_bytes();
    datagram[LENGTH].fill(0);
    let pseudo_header = [&octets(source)[..], &octets(target), &[0, 0], &length, &[0, 0, 0, 17]].concat();
    let checksum = internet_checksum(&[pseudo_header, datagram.clone()].concat());
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = [hardware_address(0, 1), hardware_address(0, 0)].concat();
    frame.extend(0x86dd_u16.to_be_bytes());
    frame.extend([6 << 4, 0, 0, 0]);
    frame.extend(length);
    frame.extend([17, 64]); // UDP; hop limit
    frame.extend(octets(source));
    frame.extend(octets(target));
    frame.extend(&datagram);
    frame
}

/// A neighbour sends forty datagrams as one packet (UDP_SEGMENT), over IPv6 also behind a header of destination options. The limit
/// is one request at a time: the service has one, and the others wait, whole and in their order, also for a service that would take
/// several at a time (UDP_GRO).
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_each_datagram_of_a_packet_is_a_request() {
    const ALL: u8 = 40;
    for (service, from, behind, merged) in [
        (SERVICE, client(4), false, false),
        (SERVICE, client(4), false, true),
        ("fd00::100", "fd00::5".to_owned(), false, false),
        ("fd00::100", "fd00::5".to_owned(), true, false),
    ] {
        let case = format!("{service}, behind options: {behind}, merged: {merged}");
        let scene = Scene::new();
        scene.set(&settings(Duration::from_secs(10)));
        let served = bound(&scene, "server", at(service, PORT));
        let asking = bound(&scene, "clients", at(&from, 5000));
        if merged {
            switch_on(&served, libc::SOL_UDP, GRO);
        }
        set(&asking, libc::SOL_UDP, SEGMENT, 20);
        if behind {
            options(&asking);
        }
        let text: Vec<u8> = (0..ALL).flat_map(|number| [number; 20]).collect();
        match asking.send_to(&text, (service, PORT)) {
            // Linux 6.1 sends none behind extension headers.
            Err(error) if behind && error.raw_os_error() == Some(libc::EIO) => continue,
            sent => assert_eq!(sent.unwrap(), text.len()),
        }
        let state = eventually(|| scene.state(), |state| state.counts[4].requests == u64::from(ALL));
        let counts = state.counts[4];
        let now = (counts.requests, state.in_flight, counts.waiting);
        assert_eq!(now, (u64::from(ALL), 1, u32::from(ALL) - 1), "{case}: {counts:?}");
        let mut buffer = [0; 2000];
        for number in 0..ALL {
            let (length, from) = served.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..length], [number; 20], "{case}");
            served.send_to(b"answer", from).unwrap();
        }
        let done = eventually(|| scene.counts()[4].in_time, |count| *count == u64::from(ALL));
        assert_eq!(done, u64::from(ALL), "{case}");
    }
}

/// Has a socket send a header of destination options (RFC 8200, section 4.6) with 8 bytes of padding.
fn options(socket: &UdpSocket) {
    let padding = [0_u8, 0, 1, 4, 0, 0, 0, 0];
    // SAFETY: the value lives for the call, and its length is told.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_DSTOPTS,
            padding.as_ptr().cast(),
            padding.len() as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
