//! Datagrams that no ordinary client sends: without a checksum, longer or shorter than they say, damaged.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::scene::{PORT, SERVICE, Scene, at, bound, client, occupied, settings};
use tarn_lab::load::{Fragment, FrameSender, Wire, udp};
use tarn_lab::topology::hardware_address;

/// `UDP_NO_CHECK6_TX`, `UDP_NO_CHECK6_RX` of linux/udp.h; libc has no name for them.
const NO_CHECK6_TX: i32 = 101;
const NO_CHECK6_RX: i32 = 102;
/// A datagram's header: 8 bytes, of which 2 are its length.
const LENGTH: std::ops::Range<usize> = 4..6;

fn switch_on(socket: &UdpSocket, level: i32, option: i32) {
    let on = 1_i32;
    // SAFETY: the value lives for the call, and its length is told.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), 4) };
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
        to: hardware_address(0, 1),
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
