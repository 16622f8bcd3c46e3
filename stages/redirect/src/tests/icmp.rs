//! ICMP errors about redirected packets: whoever sent the packet recognises it, and learns why it did not arrive.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::errors::{self, Told};
use super::far::{FAMILIES, far};
use super::packet::{self, ETHERNET, ICMP, ICMPV6, Ip, UDP};
use super::scene::{CLIENT_MAC, HOST_LEFT_MAC, PATIENCE, Scene, V4, WHO, answer, ask, at, both, named};
use super::way::Way;

const NARROW: u32 = 1300;

/// Redirections to the server behind the router, which serves them.
fn scene(way: Way, offload: bool, mtus: [u32; 3]) -> (Scene, [(SocketAddr, SocketAddr); 2]) {
    let scene = Scene::of(way, &far(way, offload, mtus));
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up(&both(&pairs));
    (scene, pairs)
}

/// Asks until an answer or an error is there: the first packets may go while neighbours are not known yet.
fn answer_or_error(socket: &UdpSocket, to: SocketAddr, payload: &[u8]) -> Result<Vec<u8>, Told> {
    // What the kernel knows not to fit is refused at once; then it names no port.
    let refused = |_| Told {
        about: to,
        ..errors::next(socket).expect("the reason why it cannot be sent")
    };
    socket.send_to(payload, to).map_err(refused)?;
    match errors::wait(socket) {
        Some(told) => Err(told),
        None => Ok(answer(socket, to).unwrap_or_else(|error| panic!("neither answer nor error from {to}: {error}"))),
    }
}

/// A datagram that is too long for a link beyond the host, and may not be cut: its sender learns so, and how long it may
/// be, about the address that it knows.
pub fn lab_of_a_narrow_link_behind_a_router_reach_the_client(way: Way) {
    let (scene, pairs) = scene(way, false, [1500, 1500, NARROW]);
    for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
        let socket = scene.udp("client", at(family.client, 0));
        errors::listen(&socket);
        errors::do_not_fragment(&socket);
        assert_eq!(
            answer_or_error(&socket, asked, WHO).unwrap(),
            named("server", target).into_bytes()
        );
        let told = answer_or_error(&socket, asked, &[b'x'; 1400]).unwrap_err();
        assert_eq!(
            (told.error, told.mtu, told.about),
            (libc::EMSGSIZE, NARROW, asked),
            "{told:?}"
        );
        // And so does its kernel: the next one is refused at once, a shorter one passes.
        assert_eq!(
            socket.send_to(&[b'x'; 1400], asked).unwrap_err().raw_os_error(),
            Some(libc::EMSGSIZE)
        );
        while errors::next(&socket).is_some() {}
        assert_eq!(answer_or_error(&socket, asked, &[b'x'; 1200]).unwrap(), [b'x'; 1200]);
    }
}

/// The same where the narrow link is the host's own, also when only its own end of it is narrow: a datagram that was
/// handed to the other end all the same would be answered by one as long, which the host's end drops without a word.
pub fn lab_of_a_narrow_link_of_the_host_reach_the_client(way: Way) {
    for at_other_end in [NARROW, 1500] {
        let (scene, pairs) = scene(way, false, [1500, NARROW, 1500]);
        let router = scene.namespace("router");
        router.ip(&format!("link set left mtu {at_other_end}")).unwrap();
        for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
            let socket = scene.udp("client", at(family.client, 0));
            errors::listen(&socket);
            errors::do_not_fragment(&socket);
            for _ in 0..2 {
                assert_eq!(
                    answer_or_error(&socket, asked, WHO).unwrap(),
                    named("server", target).into_bytes()
                );
                // The stack carries packets until the neighbour is known, and they would not show it.
                std::thread::sleep(Duration::from_millis(50));
            }
            let told = answer_or_error(&socket, asked, &[b'x'; 1400]).unwrap_err();
            assert_eq!(
                (told.error, told.mtu, told.about),
                (libc::EMSGSIZE, NARROW, asked),
                "{at_other_end} at the other end"
            );
        }
    }
}

/// TCP finds out how long its segments may be, wherever the narrow link is and whichever side sends much.
pub fn lab_let_tcp_find_the_path_mtu(way: Way) {
    const LINKS: [[(&str, &str); 2]; 3] = [
        [("client", "eth0"), ("host", "left")],
        [("host", "right"), ("router", "left")],
        [("router", "right"), ("server", "eth0")],
    ];
    for offload in [true, false] {
        let (scene, pairs) = scene(way, offload, [1500; 3]);
        for (narrow, ends) in LINKS.iter().enumerate() {
            let set_mtu = |mtu: u32| {
                for (node, device) in ends {
                    let node = scene.namespace(node);
                    node.ip(&format!("link set {device} mtu {mtu}")).unwrap();
                }
            };
            set_mtu(NARROW);
            for (family, (asked, _)) in FAMILIES.iter().zip(pairs) {
                let began = Instant::now();
                scene.within("client", || super::tcp::echo(at(family.client, 0), asked, 100_000));
                let took = began.elapsed();
                assert!(
                    took < Duration::from_secs(8),
                    "{took:?} with link {narrow} narrow, offload {offload}"
                );
            }
            set_mtu(1500);
            // What was learnt about this path would spare the next round the finding out.
            for node in ["client", "server"] {
                for family in ["-4", "-6"] {
                    scene
                        .namespace(node)
                        .ip(&format!("{family} route flush cache"))
                        .unwrap();
                }
            }
        }
    }
}

/// An error to the bit: the quote is what the client sent, the error's checksum is right, and where the server itself
/// complains it does so from the address that the client knows.
pub fn lab_quote_what_the_client_sent(way: Way) {
    let (scene, pairs) = scene(way, false, [1500; 3]);
    let client = scene.wire("client", "eth0");
    for (family, (asked, _)) in FAMILIES.iter().zip(pairs) {
        let closed = SocketAddr::new(asked.ip(), 8081);
        let target = at(family.server, 8084);
        scene.change(&super::scene::both_from(8, &[(closed, target)]), &[]);
        let from = at(family.client, 6000);
        for round in 0..3 {
            let ip = Ip {
                identification: 900 + round,
                ..Ip::between(from.ip(), closed.ip())
            };
            let sent = ip.packet(UDP, &packet::udp(from, closed, b"is anyone there?"));
            client.send(&packet::frame(HOST_LEFT_MAC, CLIENT_MAC, &sent));
            let (frame, error) = client.receive("the error", |read| {
                // Not neighbour discovery, whose messages are shorter, nor multicast listener reports.
                (read.protocol == ICMP || read.protocol == ICMPV6)
                    && read.destination.ip() == from.ip()
                    && read.payload.len() >= sent.len()
            });
            assert!(error.header_is_right && error.checksum_is_right, "{error:?}");
            assert_eq!(error.source.ip(), closed.ip(), "the error's source");
            let icmp = &frame.bytes[frame.bytes.len() - error.payload.len() - 8..];
            assert_eq!((icmp[0], icmp[1]), if from.is_ipv4() { (3, 3) } else { (1, 4) });
            assert_eq!(
                as_sent(&error.payload),
                as_sent(&sent),
                "{}",
                frame.bytes.len() - ETHERNET
            );
            assert!(
                from.is_ipv6() || packet::sum(&error.payload[..20]) == 0xffff,
                "the quoted header's checksum"
            );
        }
        scene.change(&[], &super::scene::both_from(8, &[(closed, target)]));
    }
}

/// A packet without what routers change on the way: time to live and header checksum, or hop limit.
fn as_sent(packet: &[u8]) -> Vec<u8> {
    let changing: &[usize] = if packet[0] >> 4 == 4 { &[8, 10, 11] } else { &[7] };
    let kept = packet.iter().enumerate().filter(|(at, _)| !changing.contains(at));
    kept.map(|(_, byte)| *byte).collect()
}

/// A port that nobody listens to: the client's program is told so, instead of waiting.
pub fn lab_of_a_closed_port_reach_the_client(way: Way) {
    let (scene, pairs) = scene(way, true, [1500; 3]);
    for (family, (asked, _)) in FAMILIES.iter().zip(pairs) {
        let closed = SocketAddr::new(asked.ip(), 8081);
        let rules = super::scene::both_from(8, &[(closed, at(family.server, 8084))]);
        scene.change(&rules, &[]);
        let socket = scene.udp("client", at(family.client, 0));
        errors::listen(&socket);
        for _ in 0..2 {
            let told = answer_or_error(&socket, closed, b"?").unwrap_err();
            assert_eq!(
                (told.error, told.about, told.by),
                (libc::ECONNREFUSED, closed, closed.ip())
            );
        }
        assert_eq!(
            scene.who(crate::rule::Protocol::Tcp, "client", family.client, closed),
            "[refused]"
        );
        scene.change(&[], &rules);
    }
}

/// A client that has gone: the server's program is told so, about the client, as if it had spoken to it directly.
pub fn lab_of_a_client_that_has_gone_reach_the_server(way: Way) {
    let scene = Scene::of(way, &far(way, false, [1500; 3]));
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    scene.up(&both(&pairs));
    for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
        let server = scene.udp("server", target);
        errors::listen(&server);
        for _ in 0..2 {
            let client = scene.udp("client", at(family.client, 0));
            client.send_to(b"I must go", asked).unwrap();
            let (_, back) = server.recv_from(&mut [0; 64]).unwrap();
            let port = client.local_addr().unwrap().port();
            drop(client);
            // A command that another test starts at this moment holds the client's socket, too, until it is executed.
            while scene.within("client", || is_bound(port)) {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.send_to(b"wait!", back).unwrap();
            let told = errors::wait(&server).unwrap_or_else(|| panic!("no error about the answer to {back}"));
            assert_eq!((told.error, told.about), (libc::ECONNREFUSED, back));
        }
    }
}

/// Whether a UDP socket of the caller's network namespace has this port.
fn is_bound(port: u16) -> bool {
    let port = format!(":{port:04X} ");
    ["udp", "udp6"].iter().any(|file| {
        let sockets = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        sockets.lines().any(|line| line.contains(&port))
    })
}

/// An ICMP redirect about an answer would give the server advice in its router's name, from anybody who knows the
/// client's address and port: none gets through. An error about the same packet, as a control, does.
pub fn lab_that_redirect_reach_nobody(way: Way) {
    let scene = Scene::new(way);
    let (asked, target) = (at(V4.host, 8080), at(V4.server, 8083));
    scene.serve("server", target);
    scene.up(&both(&[(asked, target)]));
    let socket = scene.udp("client", at(V4.client, 5000));
    assert_eq!(ask(&socket, asked, WHO).unwrap(), named("server", target).into_bytes());
    let (client, server) = (scene.wire("client", "eth0"), scene.wire("server", "eth0"));
    let answer = packet::packet(UDP, asked, at(V4.client, 5000), b"an answer");
    let send = |kind: [u8; 2], gateway: [u8; 4]| {
        let error = packet::icmp_error(kind, gateway, &answer);
        let whole = Ip::between(at(V4.other_client, 0).ip(), asked.ip()).packet(ICMP, &error);
        client.send(&packet::frame(HOST_LEFT_MAC, CLIENT_MAC, &whole));
    };
    const FOR_HOST: [u8; 2] = [5, 1];
    const COUNT: usize = 50;
    (0..COUNT).for_each(|_| send(FOR_HOST, [192, 168, 64, 130]));
    send([3, 1], [0; 4]);
    let came = server.drain(Duration::from_millis(500));
    let came: Vec<u8> = came
        .iter()
        .filter_map(|frame| {
            frame
                .read()
                .filter(|read| read.protocol == ICMP)
                .map(|read| (frame, read))
        })
        .map(|(frame, read)| frame.bytes[frame.bytes.len() - read.payload.len() - 8])
        .collect();
    assert_eq!(came, [3], "types of the ICMP messages that reached the server");
    if way != Way::Nftables {
        assert_eq!(scene.event("ICMP redirect dropped"), COUNT as u64);
    }
}

/// Traceroute to a redirected address: both the host and the router behind it say that they are on the way.
pub fn lab_of_a_time_exceeded_reach_the_client(way: Way) {
    let (scene, pairs) = scene(way, false, [1500; 3]);
    for (family, (asked, _)) in FAMILIES.iter().zip(pairs) {
        let socket = scene.udp("client", at(family.client, 0));
        errors::listen(&socket);
        assert!(ask(&socket, asked, WHO).is_ok());
        for _ in 0..2 {
            for hops in [1, 2] {
                errors::live(&socket, hops);
                let told = answer_or_error(&socket, asked, WHO).unwrap_err();
                let kind = if asked.is_ipv4() { 11 } else { 3 };
                assert_eq!(
                    (told.error, told.icmp, told.about),
                    (libc::EHOSTUNREACH, (kind, 0), asked),
                    "{hops} hops"
                );
            }
            errors::live(&socket, 3);
            let answered = answer_or_error(&socket, asked, WHO);
            assert!(
                answered.is_ok(),
                "three hops are enough, within {PATIENCE:?}: {answered:?}"
            );
        }
    }
}
