//! Connections of all kinds: each gets through, and nearly at the rate of the path.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::chosen::control;
use crate::registration::NAME;
use tarn_lab::testing::Program;
use tarn_lab::topology::{End, Namespace, Network, Node, Shape, Topology};

/// What is sent in a test, bytes, and the rate of the path.
const BYTES: usize = 4_000_000;
const RATE: u64 = 10_000_000;
/// What it takes without a congestion control in the way.
const IDEAL: Duration = Duration::from_millis(3_340);

/// A sender and a receiver, 10 Mbit/s and 20 ms apart.
fn network() -> Network {
    Topology::new()
        .node(Node::new("sender"))
        .node(Node::new("receiver"))
        .link(
            End::new("sender", "eth")
                .address("10.8.1.1/24")
                .address("fd08::1/64")
                .shape(link()),
            End::new("receiver", "eth")
                .address("10.8.1.2/24")
                .address("fd08::2/64")
                .shape(Shape::new().delay(Duration::from_millis(20))),
        )
        .permanent_neighbours()
        .build()
        .unwrap()
}

fn link() -> Shape {
    Shape::new().rate(RATE).limit(40)
}

/// How both ends of a connection are made.
#[derive(Clone, Copy)]
struct Kind {
    listen: fn(SocketAddr) -> TcpListener,
    connect: fn(SocketAddr) -> TcpStream,
    /// What has to hold when all is sent.
    check: fn(&TcpStream),
}

const ORDINARY: Kind = Kind {
    listen: |address| TcpListener::bind(address).unwrap(),
    connect: |to| TcpStream::connect(to).unwrap(),
    check: |_| {},
};
const MULTIPATH: Kind = Kind {
    listen: |address| listener(&socket(address, libc::IPPROTO_MPTCP), address),
    connect: |to| {
        let socket = socket(to, libc::IPPROTO_MPTCP);
        connect(&socket, to);
        socket
    },
    // struct mptcp_info: the flags behind six bytes, MPTCP_INFO_FLAG_FALLBACK in them.
    check: |socket| {
        assert_eq!(
            information::<12>(socket, SOL_MPTCP, MPTCP_INFO)[8] & 1,
            0,
            "it is plain TCP"
        )
    },
};
/// The first data goes with the first packet, where the server has given a cookie before.
const FAST_OPEN: Kind = Kind {
    listen: |address| {
        let socket = socket(address, libc::IPPROTO_TCP);
        take_first_data(&socket);
        listener(&socket, address)
    },
    connect: |to| {
        let socket = socket(to, libc::IPPROTO_TCP);
        setsockopt(&socket, sockopt::TcpFastOpenConnect, &true).unwrap();
        connect(&socket, to);
        socket
    },
    check: |_| {},
};
/// The same with a cookie.
const FAST_OPEN_AGAIN: Kind = Kind {
    check: |socket| assert_ne!(options(socket) & TCPI_OPT_SYN_DATA, 0, "the first packet had no data"),
    ..FAST_OPEN
};
/// A server that limits what a client gets.
const LIMITED: Kind = Kind {
    connect: |to| {
        let socket = TcpStream::connect(to).unwrap();
        // Bytes a second.
        set(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (RATE / 8 / 2) as libc::c_int,
        );
        socket
    },
    ..ORDINARY
};
/// include/uapi/linux/mptcp.h, tcp.h
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
const TCPI_OPT_TIMESTAMPS: u8 = 1;
const TCPI_OPT_SACK: u8 = 2;
const TCPI_OPT_SYN_DATA: u8 = 32;

/// The first bytes of what the kernel says of a socket.
fn information<const LENGTH: usize>(socket: &TcpStream, level: libc::c_int, name: libc::c_int) -> [u8; LENGTH] {
    let mut information = [0; LENGTH];
    let mut length = LENGTH as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes.
    let got = unsafe {
        let to = information.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), level, name, to, &raw mut length)
    };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
    information
}

/// What was negotiated: tcpi_options of struct tcp_info.
fn options(socket: &TcpStream) -> u8 {
    information::<8>(socket, libc::IPPROTO_TCP, libc::TCP_INFO)[5]
}

/// Sends so many bytes from one namespace to an address in the other. Returns how long it took until all were there.
fn transfer(network: &Network, to: &str, bytes: usize, kind: Kind) -> Duration {
    let [sender, receiver] = ["sender", "receiver"].map(|name| network.namespace(name).unwrap());
    let to: SocketAddr = to.parse().unwrap();
    let listener = receiver.enter(|| Ok((kind.listen)(to))).unwrap();
    let taken = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap()
    });
    let began = Instant::now();
    let mut stream = sender.enter(|| Ok((kind.connect)(to))).unwrap();
    assert_eq!(control(&stream), NAME);
    stream.write_all(&vec![9; bytes]).unwrap();
    (kind.check)(&stream);
    drop(stream);
    assert_eq!(taken.join().unwrap(), bytes);
    began.elapsed()
}

/// Has the first packet of a connection bring data.
fn take_first_data(socket: &TcpStream) {
    let waiting = 16;
    set(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, waiting);
}

fn set(socket: &TcpStream, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    // SAFETY: an option of this size on an open socket.
    let set = unsafe {
        let from = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, name, from, size_of_val(&value) as u32)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn listener(socket: &TcpStream, address: SocketAddr) -> TcpListener {
    let address = nix::sys::socket::SockaddrStorage::from(address);
    nix::sys::socket::bind(socket.as_raw_fd(), &address).unwrap();
    nix::sys::socket::listen(socket, nix::sys::socket::Backlog::new(16).unwrap()).unwrap();
    TcpListener::from(OwnedFd::from(socket.try_clone().unwrap()))
}

/// A socket of a protocol, which is not connected yet.
pub fn socket(address: SocketAddr, protocol: libc::c_int) -> TcpStream {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: it takes no pointers.
    let socket = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, protocol) };
    assert!(socket >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it was just made, and nobody else has it.
    unsafe { TcpStream::from_raw_fd(socket) }
}

pub fn connect(socket: &TcpStream, address: SocketAddr) {
    let address = nix::sys::socket::SockaddrStorage::from(address);
    nix::sys::socket::connect(socket.as_raw_fd(), &address).unwrap();
}

fn up(sender: &Namespace) -> Program<'_> {
    let program = Program::new(sender, "[pace]\nfor = \"all\"\n");
    program.run("up");
    program
}

/// A quarter more than the link takes is for the handshake, the start and what else is on the wire.
fn assert_swift(what: &str, took: Duration) {
    assert!(took > IDEAL * 95 / 100 && took < IDEAL * 5 / 4, "{what}: {took:?}");
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_carries_every_kind_of_connection() {
    let network = network();
    let program = up(network.namespace("sender").unwrap());
    for node in ["sender", "receiver"] {
        network
            .namespace(node)
            .unwrap()
            .sysctl("net/ipv4/tcp_fastopen", "3")
            .unwrap();
    }
    assert_swift("IPv4", transfer(&network, "10.8.1.2:5001", BYTES, ORDINARY));
    assert_swift("IPv6", transfer(&network, "[fd08::2]:5002", BYTES, ORDINARY));
    assert_swift("MPTCP", transfer(&network, "10.8.1.2:5003", BYTES, MULTIPATH));
    // The first gets the cookie that the second sends.
    for (port, kind) in [(5004, FAST_OPEN), (5005, FAST_OPEN_AGAIN)] {
        let to = format!("10.8.1.2:{port}");
        assert_swift("TCP Fast Open", transfer(&network, &to, BYTES, kind));
    }
    let took = transfer(&network, "10.8.1.2:5006", BYTES, LIMITED);
    assert!(
        took > IDEAL * 18 / 10 && took < IDEAL * 5 / 2,
        "half the rate: {took:?}"
    );
    program.run("down");
}

/// Whoever names destinations would get a slower start than whoever takes it for all: a connection takes it while it begins.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_is_as_swift_where_it_is_chosen_by_destination() {
    let network = network();
    let program = up(network.namespace("sender").unwrap());
    let first = 400_000;
    let for_all = transfer(&network, "10.8.1.2:5001", first, ORDINARY);
    program.configure("[pace]\nfor = [\"10.8.1.0/24\", \"fd08::/64\"]\n");
    program.run("up");
    for to in ["10.8.1.2:5002", "[fd08::2]:5003"] {
        let chosen = transfer(&network, to, first, ORDINARY);
        assert!(chosen < for_all * 11 / 10, "{to}: {chosen:?}, for all {for_all:?}");
    }
    program.run("down");
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_does_without_sack_and_timestamps() {
    let network = network();
    let program = up(network.namespace("sender").unwrap());
    let receiver = network.namespace("receiver").unwrap();
    let cases: [(_, _, fn(&TcpStream)); 2] = [
        ("tcp_sack", 5001, |socket| {
            assert_eq!(
                options(socket) & (TCPI_OPT_SACK | TCPI_OPT_TIMESTAMPS),
                TCPI_OPT_TIMESTAMPS
            );
        }),
        ("tcp_timestamps", 5002, |socket| {
            assert_eq!(options(socket) & (TCPI_OPT_SACK | TCPI_OPT_TIMESTAMPS), TCPI_OPT_SACK);
        }),
    ];
    for (without, port, check) in cases {
        receiver.sysctl(&format!("net/ipv4/{without}"), "0").unwrap();
        let took = transfer(&network, &format!("10.8.1.2:{port}"), BYTES, Kind { check, ..ORDINARY });
        assert_swift(without, took);
        receiver.sysctl(&format!("net/ipv4/{without}"), "1").unwrap();
    }
    program.run("down");
}

/// A receiver with room for a few packets gets them, a window at a time.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_keeps_a_receiver_s_window() {
    let network = network();
    let program = up(network.namespace("sender").unwrap());
    let receiver = network.namespace("receiver").unwrap();
    receiver.sysctl("net/ipv4/tcp_rmem", "4096 4096 4096").unwrap();
    let took = transfer(&network, "10.8.1.2:5001", 200_000, ORDINARY);
    // A window of about 2 kB each 20 ms.
    assert!(took < Duration::from_secs(8), "{took:?}");
    program.run("down");
}

/// A laptop that leaves the Wi-Fi and comes back goes on where it was, with the whole rate.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_goes_on_after_ten_seconds_without_a_packet() {
    let network = network();
    let sender = network.namespace("sender").unwrap();
    let program = up(sender);
    let took = thread::scope(|scope| {
        let transfer = scope.spawn(|| transfer(&network, "10.8.1.2:5001", 4 * BYTES, ORDINARY));
        thread::sleep(Duration::from_secs(3));
        sender.shape("eth", &link().loss_percent(100.0)).unwrap();
        thread::sleep(Duration::from_secs(10));
        sender.shape("eth", &link()).unwrap();
        transfer.join().unwrap()
    });
    // TCP asks again at 0.3, 0.6, ... 9.6 and 19.2 s of silence: at most ten more seconds pass.
    let most = 4 * IDEAL * 5 / 4 + Duration::from_secs(20);
    assert!(took > Duration::from_secs(20) && took < most, "{took:?}");
    program.run("down");
}

/// A clock that is set, by a day forward and back, is none of TCP's.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_does_not_go_by_the_wall_clock() {
    let network = network();
    let sender = network.namespace("sender").unwrap();
    let program = up(sender);
    let took = thread::scope(|scope| {
        let transfer = scope.spawn(|| transfer(&network, "10.8.1.2:5001", BYTES, ORDINARY));
        for day in ["tomorrow", "yesterday"] {
            thread::sleep(Duration::from_secs(1));
            sender.run("date", &["--set", day]).unwrap();
        }
        transfer.join().unwrap()
    });
    assert_swift("a day more and less", took);
    assert_eq!(program.command_line("tarn pace status").0, 0);
    program.run("down");
}
