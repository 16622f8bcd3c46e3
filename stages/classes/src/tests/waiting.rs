//! What packets do while they wait: caps, order, classes that change, both families, fragments, tracked connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::scene::{PORT, SERVICE, Scene, at, bound, client, occupied, settings};
use crate::module::{Ports, Settings};

const DEADLINE: Duration = Duration::from_millis(20);

/// A class has its cap, and what does not fit is counted; that of others is not touched.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_more_than_the_cap_is_dropped_and_counted() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    let mut small = settings(Duration::from_secs(10));
    small.classes.as_mut().unwrap()[0].cap = 3;
    scene.set(&small);
    let answer = occupied(&scene, &service);
    let one = bound(&scene, "clients", at(&client(0), 5000));
    let other = bound(&scene, "clients", at(&client(1), 5000));
    for number in 0..5_u8 {
        one.send_to(&[number], (SERVICE, PORT)).unwrap();
        other.send_to(&[number], (SERVICE, PORT)).unwrap();
    }
    for (class, expected) in [(0, (3, 2, 5)), (1, (5, 0, 5))] {
        let counts = scene.counts_after(class, 5);
        assert_eq!((counts.waiting, counts.dropped_cap, counts.requests), expected);
    }
    answer();
    scene.module(|module| module.stop()).unwrap();
    let mut buffer = [0; 16];
    let mut arrived = 0;
    while arrived < 8 {
        service.recv_from(&mut buffer).unwrap();
        arrived += 1;
    }
}

/// A client whose class changes while its packets wait stays where it is until they are through.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_flow_stays_in_its_class_while_it_waits() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let answer = occupied(&scene, &service);
    let one = bound(&scene, "clients", at(&client(0), 5000));
    one.send_to(b"1", (SERVICE, PORT)).unwrap();
    let server = scene.node("server");
    server
        .run("nft", &["delete element inet classes clients4 { 10.0.0.1 }"])
        .unwrap();
    server
        .run("nft", &["add element inet classes clients4 { 10.0.0.1 : 7461:3 }"])
        .unwrap();
    one.send_to(b"2", (SERVICE, PORT)).unwrap();
    assert_eq!(scene.waiting(0, 2), 2);
    assert_eq!(scene.counts()[3].waiting, 0);
    // Another flow of the same client has its new class.
    bound(&scene, "clients", at(&client(0), 5001))
        .send_to(b"3", (SERVICE, PORT))
        .unwrap();
    assert_eq!(scene.waiting(3, 1), 1);
    answer();
}

/// IPv6, datagrams in fragments, with and without connection tracking: each waits whole, arrives whole, is answered.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_packets_of_every_kind_wait_and_arrive() {
    for tracked in [false, true] {
        let scene = Scene::new();
        if tracked {
            let server = scene.node("server");
            server
                .run("nft", &["add rule inet classes input ct state new counter accept"])
                .unwrap();
        }
        for (service, client) in [
            (at(SERVICE, PORT), client(2)),
            (at("fd00::100", PORT), "fd00::3".into()),
        ] {
            scene.set(&settings(Duration::from_secs(10)));
            let socket = bound(&scene, "server", service);
            let asking = bound(&scene, "clients", at(&client, 5000));
            let mut buffer = vec![0; 65_536];
            let lengths = [1, 1400, 4000, 60_000];
            for length in lengths {
                asking.send_to(&vec![length as u8; length], service).unwrap();
            }
            assert_eq!(scene.waiting(2, 3), 3, "{service} tracked {tracked}");
            for length in lengths {
                let (received, from) = socket.recv_from(&mut buffer).unwrap();
                assert_eq!(received, length);
                assert!(buffer[..received].iter().all(|byte| *byte == length as u8));
                socket.send_to(&buffer[..1], from).unwrap();
                assert_eq!(asking.recv(&mut buffer).unwrap(), 1);
            }
            let counts = scene.counts()[2];
            assert_eq!(
                (counts.requests, counts.in_time, counts.waiting, counts.in_flight),
                (4, 4, 0, 0)
            );
            scene.module(|module| module.stop()).unwrap();
        }
    }
}

/// A connection whose request waits: data that follows, the end and a reset keep their place behind it.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_the_end_of_a_waiting_connection_comes_last() {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = scene
        .node("server")
        .enter(|| Ok(TcpListener::bind((SERVICE, PORT))?))
        .unwrap();
    let answer = occupied(&scene, &datagrams);
    let mut client = scene
        .node("clients")
        .enter(|| Ok(TcpStream::connect((SERVICE, PORT))?))
        .unwrap();
    client.set_nodelay(true).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    served.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    client.write_all(b"one ").unwrap();
    client.write_all(b"two").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    assert!(
        served.read_to_string(&mut text).is_err() && text.is_empty(),
        "{text:?} did not wait"
    );
    // An unknown client is of the lowest class; three packets, one request.
    let counts = scene.counts()[0];
    assert_eq!((counts.waiting, counts.waiting_packets), (1, 3), "{counts:?}");
    answer();
    served.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    served.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one two");
    assert_eq!(super::scene::counter(scene.node("server"), "TcpExtTCPOFOQueue"), 0);
}

/// A service that never answers does not keep others waiting for longer than patience.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_request_that_is_never_answered_gives_its_place_up() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&Settings {
        patience: Some(Duration::from_millis(50)),
        ..settings(DEADLINE)
    });
    let asking = bound(&scene, "clients", at(&client(1), 5000));
    let mut buffer = [0; 16];
    for number in 0..4_u8 {
        asking.send_to(&[number], (SERVICE, PORT)).unwrap();
    }
    for number in 0..4_u8 {
        assert_eq!(service.recv(&mut buffer).unwrap(), 1);
        assert_eq!(buffer[0], number);
    }
    std::thread::sleep(Duration::from_millis(60));
    let counts = scene.counts()[1];
    assert_eq!((counts.unanswered, counts.in_flight, counts.waiting), (4, 0, 0));
}

/// Requests gather as long as they are told to, and then the best goes first.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_requests_gather_before_a_choice() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&Settings {
        hold: Some(Duration::from_millis(300)),
        ..settings(Duration::from_secs(1))
    });
    for class in (0..5).rev() {
        bound(&scene, "clients", at(&client(class), 5000))
            .send_to(&[class as u8], (SERVICE, PORT))
            .unwrap();
    }
    service.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut buffer = [0; 16];
    assert!(service.recv(&mut buffer).is_err(), "nothing was held");
    service.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    for class in 0..5_u8 {
        let (_, from) = service.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[0], class);
        service.send_to(b"answer", from).unwrap();
    }
}

/// `hold` is how long requests wait for others, and not the start of a longer wait: also the second time, when the timer
/// that ends the first request's patience runs already.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_requests_wait_for_others_no_longer_than_told() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    let asking = bound(&scene, "clients", at(&client(0), 5000));
    let hold = Duration::from_millis(10);
    scene.set(&Settings {
        hold: Some(hold),
        ..settings(Duration::from_secs(1))
    });
    for number in 0..3_u8 {
        let began = Instant::now();
        asking.send_to(&[number], (SERVICE, PORT)).unwrap();
        assert_arrives(&service, number);
        let waited = began.elapsed();
        assert!(waited >= hold && waited < 3 * hold, "request {number}: {waited:?}");
    }
    // What waits already waits as long as is asked for now.
    scene.set(&Settings {
        hold: Some(Duration::from_secs(1)),
        ..Settings::default()
    });
    let began = Instant::now();
    asking.send_to(&[3], (SERVICE, PORT)).unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    scene.set(&Settings {
        hold: Some(Duration::ZERO),
        ..Settings::default()
    });
    assert_arrives(&service, 3);
    let waited = began.elapsed();
    assert!(waited < Duration::from_millis(500), "{waited:?}");
}

/// Receives a request and answers it.
fn assert_arrives(service: &UdpSocket, number: u8) {
    let mut buffer = [0; 16];
    let (_, from) = service.recv_from(&mut buffer).unwrap();
    assert_eq!(buffer[0], number);
    service.send_to(b"answer", from).unwrap();
}

/// Less patience is for those, too, who are in service already.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_less_patience_holds_at_once() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&Settings {
        patience: Some(Duration::from_secs(3600)),
        ..settings(Duration::from_secs(10))
    });
    let _answer = occupied(&scene, &service);
    let asking = bound(&scene, "clients", at(&client(0), 5000));
    asking.send_to(&[1], (SERVICE, PORT)).unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    let began = Instant::now();
    scene.set(&Settings {
        patience: Some(Duration::from_millis(300)),
        ..Settings::default()
    });
    assert_arrives(&service, 1);
    let waited = began.elapsed();
    assert!(waited < Duration::from_millis(500), "{waited:?}");
    assert_eq!(scene.counts()[4].unanswered, 1);
}

/// Ports can change while classes run: as many ranges as there may be, and what is between them is not concerned.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_other_ports_take_the_place_of_those_that_were() {
    let scene = Scene::new();
    let asking = bound(&scene, "clients", at(&client(0), 5000));
    let requests_after = |port: u16, expected: u64| {
        asking.send_to(b"is anyone there?", (SERVICE, port)).unwrap();
        assert_eq!(scene.counts_after(0, expected).requests, expected, "port {port}");
    };
    let _services = [PORT, 1003, 1007].map(|port| bound(&scene, "server", at(SERVICE, port)));
    scene.set(&settings(DEADLINE));
    requests_after(PORT, 1);
    let range = |index: u16| Ports {
        first: 1000 + 10 * index,
        last: 1004 + 10 * index,
        protocol: libc::IPPROTO_UDP as u8,
        padding: [0; 3],
    };
    scene.set(&Settings {
        ports: Some((0..1024).map(range).collect()),
        ..Settings::default()
    });
    // Those that do not count are sent before one that does.
    for (port, expected) in [(PORT, 1), (1007, 1), (1003, 2)] {
        requests_after(port, expected);
    }
}
