//! Connections whose segments are more than a plain header and data: extension headers of IPv6, handshakes by cookies,
//! signatures.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind as bind_to, connect, socket};

use super::connections::{connected, listener};
use super::scene::{PORT, SERVICE, Scene, at, bound, client, counter, eventually, occupied, settings};
use super::segments::lose_first;

/// `struct tcp_md5sig` of linux/tcp.h: an address of 128 bytes, then flags, prefix, length of the key, interface, key.
const MD5SIG: usize = 216;
const MD5SIG_LENGTH: usize = 130;
const MD5SIG_KEY: usize = 136;
const KEY: &[u8] = b"a key of both";

fn set(socket: &impl AsRawFd, level: i32, option: i32, value: &[u8]) {
    let length = value.len() as u32;
    // SAFETY: the value lives for the call, and its length is told.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    assert_eq!(result, 0, "{option}: {}", std::io::Error::last_os_error());
}

/// Receives a request that has waited, and answers it; the client has the answer.
fn assert_served(asking: &mut TcpStream, served: &mut TcpStream) {
    served.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    asking.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut text = [0; 8];
    served.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"question");
    served.write_all(b"answered").unwrap();
    asking.read_exact(&mut text).unwrap();
}

/// The acknowledgement made in the client's place has the client's extension headers: IPv6 reads them first, as it does those
/// of the request, and TCP has its acknowledgement.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_requests_with_extension_headers_wait_and_are_acknowledged() {
    const SERVICE6: &str = "fd00::100";
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let server = scene.node("server");
    let listener = server.enter(|| Ok(TcpListener::bind((SERVICE6, PORT))?)).unwrap();
    let connect = || Ok(TcpStream::connect((SERVICE6, PORT))?);
    let mut asking = scene.node("clients").enter(connect).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    // Destination options (RFC 8200, section 4.6): 8 bytes of padding.
    set(
        &asking,
        libc::IPPROTO_IPV6,
        libc::IPV6_DSTOPTS,
        &[0, 0, 1, 4, 0, 0, 0, 0],
    );
    let answer = occupied(&scene, &datagrams);
    // An answer that the client acknowledges by its next request alone.
    served.write_all(b"a long time ago").unwrap();
    let mut text = [0; 15];
    asking.read_exact(&mut text).unwrap();
    let (before, received) = (counter(server, "Icmp6OutParmProblems"), counter(server, "TcpInSegs"));
    asking.write_all(b"question").unwrap();
    assert_eq!(scene.counts().iter().map(|counts| counts.waiting).sum::<u32>(), 1);
    assert!(
        counter(server, "TcpInSegs") > received,
        "no acknowledgement has come up"
    );
    assert_eq!(counter(server, "Icmp6OutParmProblems"), before);
    answer();
    assert_served(&mut asking, &mut served);
}

/// A handshake by cookies whose last acknowledgement is lost is completed by the request, whose sequence number the cookie is
/// made for. With another, the server would reset the connection.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_request_that_completes_a_handshake_by_cookies_waits() {
    let scene = Scene::new();
    scene.node("server").sysctl("net/ipv4/tcp_syncookies", "2").unwrap();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    let answer = occupied(&scene, &datagrams);
    lose_first(&scene, "tcp dport 80 tcp flags & (syn | ack) == ack");
    let mut asking = connected(&scene, 7000, None);
    asking.write_all(b"question").unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    std::thread::sleep(Duration::from_millis(10));
    answer();
    listener.set_nonblocking(true).unwrap();
    let accepted = eventually(|| listener.accept().ok(), Option::is_some);
    let (mut served, _) = accepted.expect("the connection was reset");
    served.set_nonblocking(false).unwrap();
    assert_served(&mut asking, &mut served);
    assert_eq!(counter(scene.node("server"), "TcpExtSyncookiesRecv"), 1);
}

/// Nobody can sign an acknowledgement in the client's place: a signed request passes, and is counted.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_signed_requests_pass_and_are_counted() {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    sign(&listener, at(&client(0), 0));
    let _answer = occupied(&scene, &datagrams);
    let connect_signed = || {
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        bind_to(socket.as_raw_fd(), &SockaddrStorage::from(at(&client(0), 7000)))?;
        sign(&socket, at(SERVICE, PORT));
        connect(socket.as_raw_fd(), &SockaddrStorage::from(at(SERVICE, PORT)))?;
        Ok(TcpStream::from(socket))
    };
    let mut asking = scene.node("clients").enter(connect_signed).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    for number in 1..=3 {
        asking.write_all(b"question").unwrap();
        assert_served(&mut asking, &mut served);
        let counts = eventually(|| scene.counts()[0], |counts| counts.unscheduled == number);
        assert_eq!((counts.unscheduled, counts.requests), (number, 0), "{counts:?}");
    }
    assert_eq!(counter(scene.node("server"), "TcpExtTCPMD5Failure"), 0);
}

/// Has a socket sign what it sends to this address, and expect what comes from there to be signed (RFC 2385).
fn sign(socket: &impl AsRawFd, peer: SocketAddr) {
    let SocketAddr::V4(peer) = peer else {
        panic!("{peer} is not of IPv4")
    };
    let mut value = [0; MD5SIG];
    value[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    value[4..8].copy_from_slice(&peer.ip().octets());
    value[MD5SIG_LENGTH..MD5SIG_LENGTH + 2].copy_from_slice(&(KEY.len() as u16).to_ne_bytes());
    value[MD5SIG_KEY..MD5SIG_KEY + KEY.len()].copy_from_slice(KEY);
    set(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &value);
}
