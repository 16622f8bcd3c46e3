//! Connections whose segments are more than a plain header and data: extension headers of IPv6, handshakes by cookies,
//! signatures, data in a SYN.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, bind as bind_to, connect, sendto, socket,
};

use super::connections::{connected, listener};
use super::scene::{PORT, SERVICE, Scene, at, bound, client, counter, eventually, occupied, settings};
use super::segments::{FIRST, FROM, lose_first, send_segment_with};
use tarn_lab::debug;

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

/// A client's connection whose segments are signed; `prepare` its socket first.
fn connect_signed(scene: &Scene, prepare: impl FnOnce(&OwnedFd) + Send) -> TcpStream {
    let connect_signed = || {
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        bind_to(socket.as_raw_fd(), &SockaddrStorage::from(at(&client(0), 7000)))?;
        prepare(&socket);
        sign(&socket, at(SERVICE, PORT));
        connect(socket.as_raw_fd(), &SockaddrStorage::from(at(SERVICE, PORT)))?;
        Ok(TcpStream::from(socket))
    };
    scene.node("clients").enter(connect_signed).unwrap()
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
    let mut asking = connect_signed(&scene, |_| ());
    let (mut served, _) = listener.accept().unwrap();
    for number in 1..=3 {
        asking.write_all(b"question").unwrap();
        assert_served(&mut asking, &mut served);
        let counts = eventually(|| scene.counts()[0], |counts| counts.unscheduled == number);
        assert_eq!((counts.unscheduled, counts.requests), (number, 0), "{counts:?}");
    }
    assert_eq!(counter(scene.node("server"), "TcpExtTCPMD5Failure"), 0);
}

/// So does one whose handshake ends with data: its server has no socket yet that knows of the signature. Acknowledged in the
/// client's place, without one, it would only be refused.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_signed_handshake_that_ends_with_data_passes() {
    let scene = Scene::new();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    sign(&listener, at(&client(0), 0));
    let _answer = occupied(&scene, &datagrams);
    // The client's own end of the handshake is put off until there is data.
    let put_off = |socket: &OwnedFd| set(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &1_u32.to_ne_bytes());
    let mut asking = connect_signed(&scene, put_off);
    asking.write_all(b"question").unwrap();
    let counts = eventually(
        || scene.counts()[0],
        |counts| counts.unscheduled + u64::from(counts.waiting) > 0,
    );
    assert_eq!((counts.unscheduled, counts.waiting), (1, 0), "{counts:?}");
    let (mut served, _) = listener.accept().unwrap();
    assert_served(&mut asking, &mut served);
    assert_eq!(counter(scene.node("server"), "TcpExtTCPMD5Failure"), 0);
}

/// Who puts a signature's option into segments of a connection that is not signed gets nothing past those that wait: TCP drops
/// what has one and should not; an option that this kernel's TCP does not know makes no difference.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_an_unexpected_signature_gets_nobody_past() {
    let md5 = [&[19, 18][..], &[0x5a; 16], &[1, 1]].concat();
    let ao = [&[29, 16, 1, 1][..], &[0x5a; 12]].concat();
    let overlooked = [&[19, 4, 0, 0][..], &[29, 2, 1, 1]].concat();
    for options in [md5, ao, overlooked] {
        let scene = Scene::new();
        let datagrams = bound(&scene, "server", at(SERVICE, PORT));
        scene.set(&settings(Duration::from_secs(10)));
        let listener = listener(&scene);
        let _asking = connected(&scene, FROM, Some(FIRST - 1));
        let (mut served, _) = listener.accept().unwrap();
        let _answer = occupied(&scene, &datagrams);
        send_segment_with(&scene, FIRST, &options, b"question");
        served.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(served.read(&mut [0; 8]).is_err(), "{options:?}: it did not wait");
    }
}

/// TCP Fast Open hands data to the service with a client's first packet. It is a request as others, and waits.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_data_in_a_syn_waits_as_others() {
    let scene = Scene::new();
    let server = scene.node("server");
    // Both sides as they are without cookies: so each connection may begin with data.
    server.sysctl("net/ipv4/tcp_fastopen", "1539").unwrap();
    scene.node("clients").sysctl("net/ipv4/tcp_fastopen", "5").unwrap();
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    let answer = occupied(&scene, &datagrams);
    let open = || {
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        bind_to(socket.as_raw_fd(), &SockaddrStorage::from(at(&client(0), 7000)))?;
        let service = SockaddrStorage::from(at(SERVICE, PORT));
        let fast_open = MsgFlags::from_bits_retain(libc::MSG_FASTOPEN);
        assert_eq!(sendto(socket.as_raw_fd(), b"question", &service, fast_open)?, 8);
        Ok(TcpStream::from(socket))
    };
    let mut asking = scene.node("clients").enter(open).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    assert_eq!(scene.waiting(0, 1), 1, "it did not wait: {:?}", scene.counts()[0]);
    served.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(served.read(&mut [0; 8]).is_err(), "it did not wait");
    answer();
    assert_served(&mut asking, &mut served);
    let counts = eventually(|| scene.counts()[0], |counts| counts.in_time == 1);
    assert_eq!((counts.requests, counts.in_time), (1, 1), "{counts:?}");
    assert_eq!(counter(server, "TcpInCsumErrors"), 0);
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

/// Has both ends send everything of TCP in ESP, and take nothing else.
fn require_esp(scene: &Scene) {
    let [asking, asked] = [client(0), SERVICE.to_owned()];
    let ip = |node: &str, command: &str, rest: &[&str]| {
        let words: Vec<&str> = command.split(' ').chain(rest.iter().copied()).collect();
        scene.node(node).run("ip", &words).unwrap();
    };
    let key = "0x0102030405060708090a0b0c0d0e0f1011121314";
    let algorithms = ["enc", "ecb(cipher_null)", "", "auth", "hmac(sha1)", key];
    for (node, own, other) in [("clients", &asking, &asked), ("server", &asked, &asking)] {
        for (from, to, spi) in [(&asking, &asked, 257), (&asked, &asking, 258)] {
            let state = format!("xfrm state add src {from} dst {to} proto esp spi {spi} mode transport");
            ip(node, &state, &algorithms);
        }
        for (from, to, direction) in [(own, other, "out"), (other, own, "in")] {
            let template = format!("tmpl src {from} dst {to} proto esp mode transport level required");
            let policy = format!("xfrm policy add src {from} dst {to} proto 6 dir {direction} {template}");
            ip(node, &policy, &[]);
        }
    }
}

/// Where everything has to come by ESP, the acknowledgement made in the client's place has, too: otherwise the service's host would miss
/// it, and send its last answer again and again while the client's next request waits.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_requests_by_ipsec_wait_and_are_acknowledged() {
    if debug::is_here() {
        println!("SKIP: the debug kernel has no algorithms for ESP");
        return;
    }
    let scene = Scene::new();
    require_esp(&scene);
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = listener(&scene);
    let mut asking = connected(&scene, FROM, None);
    let (mut served, _) = listener.accept().unwrap();
    let answer = occupied(&scene, &datagrams);
    let sent_again = || counter(scene.node("server"), "TcpRetransSegs");
    let before = sent_again();
    // An answer that the client acknowledges by its next request alone.
    set(&asking, libc::IPPROTO_TCP, libc::TCP_QUICKACK, &0_i32.to_ne_bytes());
    served.write_all(b"a long time ago").unwrap();
    asking.read_exact(&mut [0; 15]).unwrap();
    asking.write_all(b"question").unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(sent_again(), before);
    answer();
    assert_served(&mut asking, &mut served);
}
