//! By which device fragments come, and what else listens there.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::orders::{expect_any_order, orders};
use super::packet::{self, Ip, payload};
use super::rig::{
    FAMILIES, FROM, Family, IPV4, IPV6, RECEIVER_MAC, Rig, SENDER_MAC, TO, at, begin, bound, eventually, taken,
};
use super::wire::{self, Wire};
use crate::module::tests::SETTINGS;
use tarn_lab::topology::{End, Namespace, Node, Topology};

/// Who captures packets holds them, too: the capture would show what never came, or the datagram would be damaged.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_a_capture_shows_what_came() {
    let rig = Rig::new();
    let tap = Wire::open(rig.receiver(), "eth0", libc::ETH_P_ALL);
    for family in FAMILIES {
        for size in [800, 64] {
            let content = payload(3000, 1);
            for order in 0..8 {
                tap.drain(Duration::ZERO);
                let fragments = rig.ip(family).fragments(&family.udp(&content), size);
                let (name, ordered) = orders(&fragments, 3).remove(order);
                rig.send_all(&ordered);
                rig.expect(family, &content, &name);
                let sent: Vec<_> = ordered
                    .iter()
                    .map(|packet| packet::frame(RECEIVER_MAC, SENDER_MAC, packet))
                    .collect();
                let captured: Vec<_> = tap
                    .drain(Duration::from_millis(1))
                    .into_iter()
                    .filter(|frame| sent.contains(frame))
                    .collect();
                assert!(
                    captured == sent,
                    "{} {name}: {} of {}",
                    family.name(),
                    captured.len(),
                    sent.len()
                );
            }
        }
        expect_any_order(&rig, family, "with a capture");
    }
    rig.expect_empty();
}

/// A card that joins packets (GRO), and one that leaves checksums to others.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_offloads_of_the_device_do_not_matter() {
    let rig = Rig::new();
    for features in [["gro", "on"], ["tx", "off"], ["rx", "off"], ["gro", "off"]] {
        let switch = ["-K", "eth0", features[0], features[1]];
        rig.receiver().run("ethtool", &switch).unwrap();
        rig.sender().run("ethtool", &switch).unwrap();
        for family in FAMILIES {
            expect_any_order(&rig, family, &format!("{features:?}"));
            // The kernel's own sender leaves the checksum to the device where that can do it.
            let socket = bound(rig.sender(), at(family.sender, 0));
            let content = payload(9000, 3);
            socket.send_to(&content, at(family.receiver, TO)).unwrap();
            rig.expect(family, &content, &format!("{features:?}, by a socket"));
        }
    }
    rig.expect_empty();
}

/// The address is a bridge's, and the fragments come by a port of it.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_by_a_bridge() {
    let rig = Rig::new();
    let commands = [
        "link add br0 address 02:00:00:00:00:01 type bridge",
        "address flush dev eth0",
        "link set eth0 master br0",
        "address add 10.0.0.2/24 dev br0",
        "address add fd00::2/64 dev br0 nodad",
        "link set br0 up",
    ];
    rig.receiver().ip_batch(&commands.map(str::to_owned)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    for family in FAMILIES {
        expect_any_order(&rig, family, "by a bridge");
    }
    rig.expect_empty();
}

/// Tagged frames, as on a trunk.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_by_a_vlan() {
    let mut rig = Rig::new();
    for (namespace, number) in [(rig.sender(), 1), (rig.receiver(), 2)] {
        let commands = [
            "link add link eth0 name eth0.5 type vlan id 5".to_owned(),
            "address flush dev eth0".to_owned(),
            format!("address add 10.0.0.{number}/24 dev eth0.5"),
            format!("address add fd00::{number}/64 dev eth0.5 nodad"),
            "link set eth0.5 up".to_owned(),
        ];
        namespace.ip_batch(&commands).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    rig.wire = Wire::open(rig.sender(), "eth0.5", 0);
    for family in FAMILIES {
        expect_any_order(&rig, family, "by a VLAN");
    }
    rig.expect_empty();
}

/// A VPN's program writes packets to a tun device.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_by_a_tun_device() {
    let rig = Rig::new();
    let mut tun = rig.receiver().enter(|| Ok(open_tun())).unwrap();
    let commands = ["link set tun0 up", "address add fd01::2/64 dev tun0 nodad"];
    rig.receiver().ip_batch(&commands.map(str::to_owned)).unwrap();
    for family in FAMILIES {
        let content = payload(3000, 1);
        for order in 0..6 {
            let fragments = rig.ip(family).fragments(&family.udp(&content), 800);
            let (name, ordered) = orders(&fragments, 1).remove(order);
            for packet in &ordered {
                tun.write_all(packet).unwrap();
            }
            rig.expect(family, &content, &name);
        }
        assert_eq!(rig.counted(family), [("fragments", 24), ("completed", 6)]);
    }
    rig.expect_empty();
}

fn open_tun() -> std::fs::File {
    if !std::path::Path::new("/dev/net/tun").exists() {
        assert!(
            std::process::Command::new("modprobe")
                .arg("tun")
                .status()
                .unwrap()
                .success()
        );
    }
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun").unwrap();
    // SAFETY: an all-zero ifreq is valid; the kernel reads and writes one.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"tun0") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    file
}

/// Programs of one host send each other large datagrams. What comes by loopback keeps its sender's route, which must be given
/// back.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_by_loopback() {
    let host = Namespace::new("host").unwrap();
    host.ip("link set lo mtu 1500").unwrap();
    // What comes out of order has a route, too.
    host.tc("qdisc add dev lo root netem delay 1ms reorder 50% gap 2")
        .unwrap();
    let mut module = begin(&host, &SETTINGS);
    for (address, family) in [("127.0.0.1", IPV4), ("::1", IPV6)] {
        let (from, to) = (bound(&host, at(address, FROM)), bound(&host, at(address, TO)));
        for number in 0..50 {
            let content = payload(20_000, number);
            from.send_to(&content, at(address, TO)).unwrap();
            let received = eventually(|| taken(&to), Option::is_some);
            assert!(received == Some(content), "{address}, {number}");
        }
        let state = module.state().unwrap().unwrap();
        let counts = if family.is_second { state.ipv6 } else { state.ipv4 };
        assert_eq!(
            (counts.completed, counts.passed, state.held.memory),
            (50, 0, 0),
            "{counts:?}"
        );
    }
    module.stop().unwrap();
}

/// Two networks of one host may have the same addresses (VRF), and their senders the same identifiers: a customer would get what is
/// another's.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_networks_of_one_host_are_kept_apart() {
    let topology = Topology::new()
        .node(Node::new("one"))
        .node(Node::new("other"))
        .node(Node::new("receiver").sysctl("net/ipv4/conf/all/rp_filter", "0"))
        .link(
            End::new("one", "eth0").address("10.0.0.1/24").address("fd00::1/64"),
            End::new("receiver", "eth0")
                .address("10.0.0.2/24")
                .address("fd00::2/64"),
        )
        .link(
            End::new("other", "eth0").address("10.0.0.1/24").address("fd00::1/64"),
            End::new("receiver", "eth1"),
        );
    let network = topology.build().unwrap();
    let receiver = network.namespace("receiver").unwrap();
    let mut commands = Vec::new();
    for (vrf, device, table) in [("red", "eth0", 10), ("blue", "eth1", 20)] {
        commands.extend([
            format!("link add {vrf} type vrf table {table}"),
            format!("link set {vrf} up"),
            format!("link set {device} master {vrf}"),
            format!("address replace 10.0.0.2/24 dev {device}"),
        ]);
    }
    receiver.ip_batch(&commands).unwrap();
    receiver.sysctl("net/ipv6/conf/eth1/disable_ipv6", "0").unwrap();
    for device in ["eth0", "eth1"] {
        receiver
            .ip(&format!("address replace fd00::2/64 dev {device} nodad"))
            .unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let mut module = begin(receiver, &SETTINGS);
    let wires = ["one", "other"].map(|name| Wire::open(network.namespace(name).unwrap(), "eth0", 0));
    for family in FAMILIES {
        let sockets = ["red", "blue"].map(|vrf| bound_to_device(receiver, family, vrf));
        let contents = [payload(3000, 1), payload(3000, 2)];
        let both = [0, 1].map(|link: usize| {
            let fragments = family.ip().fragments(&family.udp(&contents[link]), 800);
            orders(&fragments, 3).remove(5 + link).1
        });
        for (one, other) in both[0].iter().zip(&both[1]) {
            for (link, packet) in [(0, one), (1, other)] {
                let (to, from) = ([2, 0, 0, 0, link, 1], [2, 0, 0, 0, link, 0]);
                wires[usize::from(link)].send(&packet::frame(to, from, packet));
            }
        }
        for (socket, content) in sockets.iter().zip(&contents) {
            let received = eventually(|| taken(socket), Option::is_some);
            assert!(received.as_ref() == Some(content), "{}", family.name());
        }
    }
    let state = module.state().unwrap().unwrap();
    assert_eq!(
        (state.ipv4.completed, state.ipv6.completed, state.held.memory),
        (2, 2, 0),
        "{state:?}"
    );
    module.stop().unwrap();
}

fn bound_to_device(namespace: &Namespace, family: Family, device: &str) -> std::net::UdpSocket {
    // Two sockets of one address: each has its device before it has the address.
    let open = || {
        let number = if family.is_second {
            libc::AF_INET6
        } else {
            libc::AF_INET
        };
        // SAFETY: no pointers; the descriptor returned is ours.
        let socket = unsafe {
            use std::os::fd::FromRawFd;
            let socket = libc::socket(number, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            assert!(socket >= 0);
            std::os::fd::OwnedFd::from_raw_fd(socket)
        };
        // SAFETY: the pointer and length are those of a string.
        let result = unsafe {
            let (name, length) = (device.as_ptr().cast(), device.len() as u32);
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_BINDTODEVICE,
                name,
                length,
            )
        };
        assert_eq!(result, 0);
        let address: nix::sys::socket::SockaddrStorage = at(family.receiver, TO).into();
        nix::sys::socket::bind(socket.as_raw_fd(), &address)?;
        Ok(std::net::UdpSocket::from(socket))
    };
    let socket = namespace.enter(open).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Announcements and discovery by multicast and broadcast are for everybody who has joined.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_multicast_and_broadcast_are_delivered() {
    let rig = Rig::new();
    let group: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(239, 1, 2, 3), "ff02::1234".parse().unwrap());
    let any4 = bound(rig.receiver(), at("0.0.0.0", 3000));
    let any6 = bound(rig.receiver(), at("::", 3001));
    wire::set(&any4, libc::SOL_SOCKET, libc::SO_BROADCAST, 1).unwrap();
    any4.join_multicast_v4(&group.0, &"10.0.0.2".parse().unwrap()).unwrap();
    let index = rig
        .receiver()
        .enter(|| Ok(nix::net::if_::if_nametoindex("eth0")?))
        .unwrap();
    any6.join_multicast_v6(&group.1, index).unwrap();
    let content = payload(4000, 1);
    let cases: [(IpAddr, [u8; 6]); 4] = [
        (group.0.into(), [1, 0, 0x5e, 1, 2, 3]),
        (Ipv4Addr::BROADCAST.into(), [0xff; 6]),
        (Ipv4Addr::new(10, 0, 0, 255).into(), [0xff; 6]),
        (group.1.into(), [0x33, 0x33, 0, 0, 0x12, 0x34]),
    ];
    for (destination, mac) in cases {
        let family = FAMILIES[usize::from(destination.is_ipv6())];
        let (socket, port) = if family.is_second { (&any6, 3001) } else { (&any4, 3000) };
        for order in 0..6 {
            let ip = Ip {
                destination,
                ..rig.ip(family)
            };
            let udp = packet::udp(at(family.sender, FROM), (destination, port).into(), &content);
            let (name, ordered) = orders(&ip.fragments(&udp, 800), 1).remove(order);
            for packet in &ordered {
                rig.wire.send(&packet::frame(mac, SENDER_MAC, packet));
            }
            rig.settle();
            assert!(taken(socket).as_ref() == Some(&content), "{destination}, {name}");
            assert_eq!(
                rig.counted(family),
                [("fragments", 6), ("completed", 1)],
                "{destination}"
            );
        }
    }
    rig.expect_empty();
}
