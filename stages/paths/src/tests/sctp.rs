//! SCTP (RFC 9260) follows, from one address and from several.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::socket::{Backlog, SockaddrStorage, connect, listen};

use super::protocols::{OWN, SENDER, moved, scene};
use super::scene::{PORT, Scene, TARGETS, asked_often};
use tarn_lab::topology::Namespace;

const SOON: Duration = Duration::from_secs(10);
const COUNT: usize = 400;
const EVERY: Duration = Duration::from_millis(10);
/// The host's addresses at its uplinks, over IPv4 and IPv6.
const UPLINKS: [[&str; 2]; 2] = [["10.1.0.2", "10.2.0.2"], ["fd01::2", "fd02::2"]];
/// Options of sockets, from the kernel's include/uapi/linux/sctp.h.
const SOL_SCTP: libc::c_int = 132;
const SCTP_NODELAY: libc::c_int = 3;
const SCTP_SOCKOPT_BINDX_ADD: libc::c_int = 100;

/// A socket for one association, with these addresses of one family at its end. The standard library's types for TCP fit it.
fn socket(addresses: &[&str], port: u16) -> Result<OwnedFd> {
    let address = |text: &&str| Ok(SocketAddr::new(text.parse()?, port));
    let addresses: Vec<SocketAddr> = addresses.iter().map(address).collect::<Result<_>>()?;
    let family = match addresses.iter().all(SocketAddr::is_ipv4) {
        true => libc::AF_INET,
        false => libc::AF_INET6,
    };
    // SAFETY: socket() takes three integers.
    let descriptor = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_SCTP) };
    if descriptor < 0 {
        return Err(std::io::Error::last_os_error()).context("cannot make an SCTP socket");
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let packed: Vec<u8> = addresses.into_iter().flat_map(bytes).collect();
    set_option(&socket, SCTP_SOCKOPT_BINDX_ADD, &packed).context("cannot bind to all addresses")?;
    set_option(&socket, SCTP_NODELAY, &[1_i32]).context("cannot switch Nagle's algorithm off")?;
    Ok(socket)
}

/// An address as the kernel has it: one stands behind another, each as long as its family's are.
fn bytes(address: SocketAddr) -> Vec<u8> {
    let head = |family: libc::c_int| [(family as u16).to_ne_bytes(), address.port().to_be_bytes()].concat();
    match address.ip() {
        IpAddr::V4(ip) => [&head(libc::AF_INET)[..], &ip.octets(), &[0; 8]].concat(),
        // Between a flow label and a scope.
        IpAddr::V6(ip) => [&head(libc::AF_INET6)[..], &[0; 4], &ip.octets(), &[0; 4]].concat(),
    }
}

/// Sets an option that is an array.
fn set_option<T: Copy>(socket: &OwnedFd, name: libc::c_int, value: &[T]) -> Result<()> {
    let length = size_of_val(value) as libc::socklen_t;
    // SAFETY: the kernel reads so many bytes from the slice, which lives through the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), SOL_SCTP, name, value.as_ptr().cast(), length) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

/// Returns every message of one association to where it came from.
fn echo(namespace: &Namespace, address: &str) -> std::thread::JoinHandle<Result<()>> {
    let listening = namespace.enter(|| {
        let socket = socket(&[address], PORT)?;
        listen(&socket, Backlog::new(1)?).context("cannot listen")?;
        Ok(TcpListener::from(socket))
    });
    let listening = listening.unwrap();
    let serve = move || {
        let (mut stream, _) = listening.accept()?;
        let mut message = [0; 64];
        while let Ok(length @ 1..) = stream.read(&mut message) {
            stream.write_all(&message[..length])?;
        }
        Ok(())
    };
    namespace.spawn("sctp-echo", serve).unwrap()
}

/// Sends messages, one every 10 ms, and takes the answers, which come in the same order. Returns how long each took.
fn exchange(addresses: &[&str], target: &str) -> Result<Vec<Duration>> {
    let socket = socket(addresses, 0)?;
    let target = SocketAddr::new(target.parse::<IpAddr>()?, PORT);
    connect(socket.as_raw_fd(), &SockaddrStorage::from(target)).context("there is no association")?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut sending = stream.try_clone()?;
    let begin = Instant::now();
    let due = move |number: usize| begin + EVERY * number as u32;
    let sender = std::thread::spawn(move || -> Result<()> {
        for number in 0..COUNT {
            std::thread::sleep(due(number).saturating_duration_since(Instant::now()));
            sending.write_all(&number.to_le_bytes())?;
        }
        Ok(())
    });
    let mut message = [0; size_of::<usize>()];
    let mut took = Vec::new();
    for number in 0..COUNT {
        stream.read_exact(&mut message).context("an answer is missing")?;
        assert_eq!(usize::from_le_bytes(message), number);
        took.push(due(number).elapsed());
    }
    sender.join().unwrap()?;
    Ok(took)
}

/// An association from these addresses is led from uplink to uplink. Returns the longest time that a message has waited for
/// its answer.
fn longest(scene: &Scene, target: &'static str, addresses: &'static [&'static str], matching: &str) -> Duration {
    let program = scene.up_with(&asked_often());
    std::thread::sleep(SOON);
    let echo = echo(scene.node("far"), target);
    let took = moved(scene, matching, |meanwhile| {
        let running = scene.host().spawn("sctp", || exchange(addresses, target)).unwrap();
        meanwhile();
        running.join().unwrap().unwrap()
    });
    echo.join().unwrap().unwrap();
    program.run("down");
    took.into_iter().max().unwrap()
}

/// Whether this kernel has SCTP, which distributions have as a module.
fn can_sctp() -> bool {
    let can = socket(&["127.0.0.1"], 0).is_ok();
    assert!(
        can || std::env::var_os("TARN_LAB_SUITE").is_none(),
        "every suite's image has the module sctp"
    );
    if !can {
        println!("SKIP: this kernel has no SCTP (module sctp)");
    }
    can
}

/// A telephone exchange would lose its signalling.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_lead_sctp_away_from_a_dead_uplink() {
    if !can_sctp() {
        return;
    }
    for (family, target) in TARGETS.into_iter().enumerate() {
        let own = &OWN[family..=family];
        let its_own = format!("{} {} meta l4proto sctp", SENDER[family], own[0]);
        let longest = longest(&scene(), target, own, &its_own);
        assert!(
            longest < Duration::from_secs(1),
            "{target}: a message waited for {longest:?}"
        );
    }
}

/// An association of both uplinks' addresses takes, with the route, the address of the uplink that it goes by: no provider has to
/// carry the other one's (RFC 2827).
#[test]
#[ignore = "needs the lab"]
fn lab_paths_lead_multihomed_sctp_away_from_a_dead_uplink() {
    if !can_sctp() {
        return;
    }
    for (family, target) in TARGETS.into_iter().enumerate() {
        let scene = Scene::new([10, 30]);
        for node in ["host", "far"] {
            impatient(scene.node(node));
        }
        let [one, other] = UPLINKS[family];
        let sender = SENDER[family];
        let its_own = format!("{sender} . iifname {{ {one} . wan1, {other} . wan2 }} meta l4proto sctp");
        let longest = longest(&scene, target, &UPLINKS[family], &its_own);
        assert!(
            longest < Duration::from_secs(2),
            "{target}: a message waited for {longest:?}"
        );
    }
}

/// To find out that one of the host's addresses is dead is the other end's business. By default that takes seconds; networks of
/// telephone exchanges have it in less.
fn impatient(namespace: &Namespace) {
    for (name, milliseconds) in [("min", "100"), ("initial", "200"), ("max", "400")] {
        namespace.sysctl(&format!("net/sctp/rto_{name}"), milliseconds).unwrap();
    }
}
