//! What a request is, by what a service speaks. The service has one place, so that who waits shows who holds it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::connections::{connected, listener};
use super::program::Server;
use super::scene::{PORT, SERVICE, Scene, are_measured, at, bound, client, counter, eventually, settings};
use crate::module::{Protocol, Settings};
use crate::watch::Watch;

/// Beginnings of a client's TLS records, as far as they are looked at, and of the service's.
pub(super) const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x00\x05\x01hello";
pub(super) const APPLICATION_DATA: &[u8] = b"\x17\x03\x03\x00\x26a request, and as short as they can be";
/// As long as one with the end of a connection by TLS 1.3.
const CLOSE_NOTIFY: &[u8] = b"\x17\x03\x03\x00\x13no more, the end is";
pub(super) const SERVER_HELLO: &[u8] = b"\x16\x03\x03\x00\x05\x02hello";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

/// A connection, from both ends.
pub(super) struct Pair {
    client: TcpStream,
    service: TcpStream,
}

impl Pair {
    pub(super) fn new(scene: &Scene, listener: &TcpListener, port: u16) -> Self {
        let client = connected(scene, port, None);
        let (service, _) = listener.accept().unwrap();
        for end in [&client, &service] {
            end.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            end.set_nodelay(true).unwrap();
        }
        Self { client, service }
    }

    /// The client says this, and the service hears it.
    pub(super) fn asks(&mut self, text: &[u8]) {
        self.sends(text);
        self.is_heard(text);
    }

    /// The client says this, whether or not it reaches the service.
    pub(super) fn sends(&mut self, text: &[u8]) {
        self.client.write_all(text).unwrap();
    }

    pub(super) fn is_heard(&mut self, text: &[u8]) {
        let mut heard = vec![0; text.len()];
        self.service.read_exact(&mut heard).unwrap();
        assert_eq!(heard, text);
    }

    /// The service says this, and the client hears it.
    pub(super) fn answers(&mut self, text: &[u8]) {
        self.answers_after(b"", text);
    }

    /// The same where something else is still on its way.
    fn answers_after(&mut self, before: &[u8], text: &[u8]) {
        self.service.write_all(text).unwrap();
        let mut heard = vec![0; before.len() + text.len()];
        self.client.read_exact(&mut heard).unwrap();
        assert_eq!(heard, [before, text].concat());
    }
}

/// A server of this protocol, with one place.
pub(super) fn served(protocol: Protocol) -> (Scene, TcpListener) {
    let scene = Scene::new();
    scene.set(&Settings {
        protocol: Some(protocol),
        patience: Some(Duration::from_secs(60)),
        ..settings(Duration::from_secs(10))
    });
    let listener = listener(&scene);
    (scene, listener)
}

/// So many requests of the client's class wait, and still do a moment later.
#[track_caller]
fn wait(scene: &Scene, expected: u32) {
    assert_eq!(scene.waiting(0, expected), expected);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(scene.counts()[0].waiting, expected);
}

/// Nothing is known any more of connections that are idle.
fn forget(scene: &Scene) {
    scene.set(&Settings {
        patience: Some(Duration::from_millis(1)),
        ..Settings::default()
    });
    assert_eq!(eventually(|| scene.state().in_flight, |in_flight| *in_flight == 0), 0);
    scene.set(&Settings {
        patience: Some(Duration::from_secs(60)),
        ..Settings::default()
    });
}

/// A browser's connection holds its place through the handshake and its request, not a part of it; and no longer.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_tls_connection_holds_its_place_until_it_is_closed() {
    for protocol in [Protocol::Auto, Protocol::Http, Protocol::Stream, Protocol::Connection] {
        let (scene, listener) = served(protocol);
        let mut one = Pair::new(&scene, &listener, 7000);
        let mut other = Pair::new(&scene, &listener, 7001);
        one.asks(CLIENT_HELLO);
        other.sends(CLIENT_HELLO);
        wait(&scene, 1);
        one.answers(SERVER_HELLO);
        wait(&scene, 1);
        one.asks(APPLICATION_DATA);
        one.answers(b"session tickets");
        one.answers(b"the answer itself");
        // A debug kernel takes so long for this that the connection is idle.
        if are_measured() {
            wait(&scene, 1);
        }
        // It gets no answer.
        one.asks(CLOSE_NOTIFY);
        if are_measured() {
            wait(&scene, 1);
        }
        drop(one);
        other.is_heard(CLIENT_HELLO);
        other.answers(SERVER_HELLO);
        let counts = eventually(|| scene.counts()[0], |counts| counts.in_flight == 1);
        assert_eq!(
            (counts.requests, counts.connections),
            (2, 2),
            "{protocol:?}: {counts:?}"
        );
        assert_eq!((counts.in_time, counts.unanswered), (2, 0), "{counts:?}");
        drop(other);
        assert_eq!(eventually(|| scene.state().in_flight, |in_flight| *in_flight == 0), 0);
    }
}

/// Between two clicks a page's connection keeps nobody from being served, and the second click does not wait.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_an_idle_connection_gives_its_place_back_and_does_not_wait_again() {
    let (scene, listener) = served(Protocol::Auto);
    let mut one = Pair::new(&scene, &listener, 7000);
    let mut other = Pair::new(&scene, &listener, 7001);
    one.asks(CLIENT_HELLO);
    one.answers(SERVER_HELLO);
    other.sends(CLIENT_HELLO);
    other.is_heard(CLIENT_HELLO);
    // It goes on while it is watched still: it is in service again, though there is no place.
    one.asks(APPLICATION_DATA);
    let state = scene.state();
    assert_eq!((state.in_flight, state.places, state.limit), (2, 2, 1));
    one.answers(b"an answer");
    other.answers(SERVER_HELLO);
    // Both are idle, so a third one is let in without that anything is closed.
    let mut third = Pair::new(&scene, &listener, 7002);
    third.sends(CLIENT_HELLO);
    third.is_heard(CLIENT_HELLO);
    assert_eq!(scene.state().places, 1);
    // It goes on when nothing is known of it any more, too.
    forget(&scene);
    let mut fourth = Pair::new(&scene, &listener, 7003);
    fourth.asks(CLIENT_HELLO);
    one.asks(APPLICATION_DATA);
    let (state, counts) = (scene.state(), scene.counts()[0]);
    assert_eq!((state.in_flight, state.places), (2, 2));
    assert_eq!(
        (counts.requests, counts.connections, counts.waiting),
        (4, 4, 0),
        "{counts:?}"
    );
}

/// An answer that comes long after the session tickets is the service's work, too: that is learned.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_pause_within_what_the_service_sends_is_no_rest() {
    let (scene, listener) = served(Protocol::Auto);
    for port in 7000..7006 {
        let mut one = Pair::new(&scene, &listener, port);
        one.asks(CLIENT_HELLO);
        one.answers(SERVER_HELLO);
        one.asks(APPLICATION_DATA);
        one.answers(b"tickets");
        std::thread::sleep(Duration::from_millis(200));
        one.answers(b"the answer");
    }
    let mut one = Pair::new(&scene, &listener, 7006);
    let mut other = Pair::new(&scene, &listener, 7007);
    eventually(|| scene.state().in_flight, |in_flight| *in_flight == 0);
    one.asks(CLIENT_HELLO);
    one.answers(SERVER_HELLO);
    one.asks(APPLICATION_DATA);
    one.answers(b"tickets");
    other.sends(CLIENT_HELLO);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(scene.counts()[0].waiting, 1);
    one.answers(b"the answer");
    drop(one);
    other.is_heard(CLIENT_HELLO);
}

/// `curl` with an upload: the 100 is not what it waits for.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_an_interim_answer_is_no_answer() {
    let (scene, listener) = served(Protocol::Http);
    let mut one = Pair::new(&scene, &listener, 7000);
    let mut other = Pair::new(&scene, &listener, 7001);
    one.asks(b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    other.sends(REQUEST);
    one.answers(b"HTTP/1.1 100 Continue\r\n\r\n");
    wait(&scene, 1);
    one.asks(b"body");
    one.answers(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n");
    wait(&scene, 1);
    one.answers(RESPONSE);
    other.is_heard(REQUEST);
    // With the answer in the same segment it is one.
    let mut third = Pair::new(&scene, &listener, 7002);
    third.sends(REQUEST);
    wait(&scene, 1);
    other.answers(&[b"HTTP/1.1 100 Continue\r\n\r\n", RESPONSE].concat());
    third.is_heard(REQUEST);
    assert_eq!((scene.counts()[0].requests, scene.counts()[0].in_time), (3, 2));
}

/// A chat's frames would wait, each for an answer that is none.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_websocket_leaves_the_scheduling() {
    let (scene, listener) = served(Protocol::Http);
    let mut chat = Pair::new(&scene, &listener, 7000);
    let mut other = Pair::new(&scene, &listener, 7001);
    chat.asks(b"GET /chat HTTP/1.1\r\nUpgrade: websocket\r\n\r\n");
    chat.answers(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
    other.asks(REQUEST);
    for _ in 0..10 {
        chat.asks(b"\x81\x85mask frame");
    }
    chat.answers(b"\x81\x05hello");
    let counts = scene.counts()[0];
    assert_eq!(
        (counts.requests, counts.in_flight, counts.waiting),
        (2, 1, 0),
        "{counts:?}"
    );
    other.answers(RESPONSE);
    // Another connection from the same port is none of it, however the first has ended.
    let Pair { client, service } = chat;
    drop(service);
    drop(client);
    let mut again = Pair::new(&scene, &listener, 7000);
    other.asks(REQUEST);
    again.sends(REQUEST);
    wait(&scene, 1);
}

/// One client that sends what looks like TLS does not change what others' requests are taken for, nor its own for longer than
/// until the service answers; a service that answers in TLS does. One that sends back what it gets says nothing.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_what_a_service_speaks_is_believed_of_the_service() {
    for (answer, waits) in [(&b"-ERR what do you mean"[..], 2), (CLIENT_HELLO, 2), (SERVER_HELLO, 1)] {
        let (scene, listener) = served(Protocol::Auto);
        let mut old = Pair::new(&scene, &listener, 7000);
        old.asks(b"*1 a request");
        old.answers(b"+OK");
        let mut odd = Pair::new(&scene, &listener, 7001);
        odd.asks(CLIENT_HELLO);
        odd.answers(answer);
        let mut third = Pair::new(&scene, &listener, 7002);
        third.client.write_all(b"*1 a request").unwrap();
        odd.sends(APPLICATION_DATA);
        old.sends(APPLICATION_DATA);
        wait(&scene, waits);
        let counts = scene.counts()[0];
        assert_eq!(counts.connections, u64::from(answer == SERVER_HELLO), "{counts:?}");
    }
}

/// Whoever has TLS at a port learns, once, that the figures there count connections.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_the_log_says_once_that_connections_are_scheduled_as_a_whole() {
    let scene = Scene::new();
    let program = Server::up(&scene);
    scene.set(&Settings {
        ports: settings(Duration::ZERO).ports,
        ..Settings::default()
    });
    let listener = listener(&scene);
    let mut watch = Watch::new(&program.state(), false);
    let mut seen = || scene.node("server").enter(|| watch.connections_seen()).unwrap();
    let mut plain = Pair::new(&scene, &listener, 7000);
    plain.asks(REQUEST);
    plain.answers(RESPONSE);
    assert_eq!(seen(), [""; 0]);
    let mut one = Pair::new(&scene, &listener, 7001);
    one.asks(CLIENT_HELLO);
    one.answers(SERVER_HELLO);
    let lines = seen();
    assert!(lines.len() == 1 && lines[0].contains("TLS"), "{lines:?}");
    assert_eq!(seen(), [""; 0]);
    program.down();
}

/// The beginning of HTTP/2, but for its end: it is a request of what the service speaks.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_half_a_preface_is_no_connection() {
    let (scene, listener) = served(Protocol::Auto);
    let mut one = Pair::new(&scene, &listener, 7000);
    one.asks(b"PRI");
    let counts = scene.counts_after(0, 1);
    assert_eq!(counts.connections, 0, "{counts:?}");
    one.answers(b"ERROR");
    one.asks(b"get key");
    assert_eq!(scene.counts_after(0, 2).in_flight, 1);
}

/// A client that begins its next request before the answer to the last one has it wait all the same.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_the_rest_of_a_request_that_was_begun_early_waits() {
    let (scene, listener) = served(Protocol::Http);
    let mut one = Pair::new(&scene, &listener, 7000);
    one.asks(&[REQUEST, b"GET "].concat());
    one.answers(RESPONSE);
    let mut other = Pair::new(&scene, &listener, 7001);
    other.asks(REQUEST);
    one.client.write_all(b"/2 HTTP/1.1\r\nHost: lab\r\n\r\n").unwrap();
    wait(&scene, 1);
    other.answers(RESPONSE);
    one.is_heard(b"/2 HTTP/1.1\r\nHost: lab\r\n\r\n");
}

/// A client that asks again as soon as it has its answer has a place with each of its requests, also when one took too long. Only
/// the first one says how long the service takes: the others come as often as the client likes.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_connection_that_is_never_idle_has_a_place_with_each_request() {
    let took = Duration::from_millis(10);
    let (scene, listener) = served(Protocol::Auto);
    scene.set(&Settings {
        overdue: Some(took),
        ..Settings::default()
    });
    let mut one = Pair::new(&scene, &listener, 7000);
    one.asks(CLIENT_HELLO);
    one.answers(SERVER_HELLO);
    for _ in 0..20 {
        one.asks(APPLICATION_DATA);
        std::thread::sleep(took);
        one.answers(b"an answer");
    }
    one.asks(APPLICATION_DATA);
    assert_eq!(scene.state().places, 1);
    let service = scene.state().service;
    assert!(service > took && service < took * 6, "{service:?}");
    // Another one waits, so that the first loses its place.
    std::thread::sleep(took * 2);
    let mut other = Pair::new(&scene, &listener, 7001);
    other.asks(CLIENT_HELLO);
    other.answers(SERVER_HELLO);
    let state = scene.state();
    assert_eq!((state.in_flight, state.places), (2, 1));
    one.answers(b"late");
    one.asks(APPLICATION_DATA);
    assert_eq!(scene.state().places, 2);
    for _ in 0..1000 {
        one.answers(b"at once");
        one.asks(APPLICATION_DATA);
    }
    assert_eq!(scene.state().service, service);
}

/// Whoever forges the beginning of a connection, or begins one with a service that stands still, makes nobody look served.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_connection_is_in_time_when_the_service_has_answered_it() {
    let (scene, listener) = served(Protocol::Auto);
    let mut one = Pair::new(&scene, &listener, 7000);
    one.asks(CLIENT_HELLO);
    assert_eq!((scene.counts()[0].requests, scene.counts()[0].in_time), (1, 0));
    drop(one.service);
    let counts = eventually(|| scene.counts()[0], |counts| counts.unanswered == 1);
    assert_eq!((counts.in_time, counts.unanswered), (0, 1), "{counts:?}");
    let mut other = Pair::new(&scene, &listener, 7001);
    other.asks(CLIENT_HELLO);
    other.answers(SERVER_HELLO);
    assert_eq!(eventually(|| scene.counts()[0].in_time, |in_time| *in_time == 1), 1);
}

/// An answer that was lost on its way, and is sent again, is none to what the client has asked since.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_what_tcp_sends_again_is_no_answer() {
    let (scene, listener) = served(Protocol::Auto);
    let mut one = Pair::new(&scene, &listener, 7000);
    let mut other = Pair::new(&scene, &listener, 7001);
    one.asks(CLIENT_HELLO);
    one.answers(SERVER_HELLO);
    let clients = scene.node("clients");
    let lossy = "table ip lossy {
        chain input {
            type filter hook input priority 0;
            tcp sport 80 tcp dport 7000 drop
        }
    }";
    clients.run("nft", &[lossy]).unwrap();
    one.service.write_all(b"lost").unwrap();
    let before = counter(scene.node("server"), "TcpRetransSegs");
    one.asks(APPLICATION_DATA);
    other.sends(CLIENT_HELLO);
    // Long enough for one that nothing is owed to to rest.
    std::thread::sleep(Duration::from_secs(3));
    assert!(counter(scene.node("server"), "TcpRetransSegs") > before);
    wait(&scene, 1);
    clients.run("nft", &["delete table ip lossy"]).unwrap();
    one.answers_after(b"lost", b"an answer");
    drop(one);
    other.is_heard(CLIENT_HELLO);
}

/// However many open connections go on, a new one is served: half of the limit is for those that wait.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_connections_that_go_on_keep_no_new_one_waiting() {
    const IDLE: u16 = 20;
    let (scene, listener) = served(Protocol::Auto);
    let idle = |port| {
        let mut pair = Pair::new(&scene, &listener, port);
        pair.asks(CLIENT_HELLO);
        pair.answers(SERVER_HELLO);
        pair
    };
    let mut pairs: Vec<_> = (7000..7000 + IDLE).map(idle).collect();
    forget(&scene);
    pairs.iter_mut().for_each(|pair| pair.asks(APPLICATION_DATA));
    let state = scene.state();
    assert_eq!((state.in_flight, state.places), (u32::from(IDLE), 1));
    let mut one = Pair::new(&scene, &listener, 8000);
    one.asks(CLIENT_HELLO);
    let mut other = Pair::new(&scene, &listener, 8001);
    other.sends(CLIENT_HELLO);
    wait(&scene, 1);
    // It has waited for its place; when it goes on, the next one is let in at once.
    one.answers(SERVER_HELLO);
    for _ in 0..3 {
        one.asks(APPLICATION_DATA);
        one.answers(b"an answer");
    }
    other.is_heard(CLIENT_HELLO);
}

/// A server that asks others itself gets their answers at its port: they are no requests.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_dns_response_is_no_request() {
    let (scene, _listener) = served(Protocol::Dns);
    let service = bound(&scene, "server", at(SERVICE, PORT));
    let one = bound(&scene, "clients", at(&client(0), 5000));
    let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00";
    let response = b"\x12\x34\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00";
    one.send_to(query, (SERVICE, PORT)).unwrap();
    one.send_to(query, (SERVICE, PORT)).unwrap();
    wait(&scene, 1);
    let mut buffer = [0; 16];
    service.recv_from(&mut buffer).unwrap();
    one.send_to(response, (SERVICE, PORT)).unwrap();
    let (length, from) = service.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], response);
    assert_eq!((scene.counts()[0].requests, scene.counts()[0].waiting), (2, 1));
    service.send_to(response, from).unwrap();
    assert_eq!(scene.waiting(0, 0), 0);
}

/// A name server that drops some queries would be taken for one that is late with all others: each response would count for an earlier
/// query of the same port.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_dns_response_answers_the_query_of_its_identifier() {
    let deadline = Duration::from_secs(5);
    let (scene, _listener) = served(Protocol::Dns);
    scene.set(&Settings {
        limit: Some(8),
        ..settings(deadline)
    });
    let service = bound(&scene, "server", at(SERVICE, PORT));
    let asking = bound(&scene, "clients", at(&client(0), 5000));
    let mut message = *b"\0\0\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00";
    let queries = 1..=4_u16;
    for query in queries.clone() {
        message[..2].copy_from_slice(&query.to_be_bytes());
        asking.send_to(&message, (SERVICE, PORT)).unwrap();
    }
    let mut buffer = [0; 16];
    let mut from = queries.map(|_| service.recv_from(&mut buffer).unwrap().1);
    let from = from.next_back().unwrap();
    let mut respond = |query: u16| {
        message[..2].copy_from_slice(&query.to_be_bytes());
        message[2] |= 0x80;
        service.send_to(&message, from).unwrap();
    };
    // The last first, the second never, and one that nobody has asked.
    for query in [4, 9, 1, 3, 3] {
        respond(query);
    }
    let counts = eventually(|| scene.counts()[0], |counts| counts.in_time >= 3);
    assert_eq!(
        (counts.requests, counts.in_time, counts.in_flight),
        (4, 3, 1),
        "{counts:?}"
    );
    std::thread::sleep(deadline);
    respond(2);
    let counts = eventually(|| scene.counts()[0], |counts| counts.in_flight == 0);
    assert_eq!((counts.in_time, counts.late, counts.in_flight), (3, 1, 0), "{counts:?}");
}

/// QUIC's first packet waits; what follows belongs to it, and what nobody has begun is left to the service.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_quic_connection_begins_with_its_first_packet() {
    let (scene, _listener) = served(Protocol::Connection);
    let service = bound(&scene, "server", at(SERVICE, PORT));
    let heard = || {
        let mut buffer = [0; 64];
        let (length, from) = service.recv_from(&mut buffer).unwrap();
        (buffer[..length].to_vec(), from)
    };
    let initial = b"\xc3\x00\x00\x00\x01 initial";
    let short = b"\x43 short header";
    let one = bound(&scene, "clients", at(&client(0), 5000));
    let other = bound(&scene, "clients", at(&client(0), 5001));
    one.send_to(initial, (SERVICE, PORT)).unwrap();
    let (_, from) = heard();
    other.send_to(initial, (SERVICE, PORT)).unwrap();
    wait(&scene, 1);
    other
        .send_to(b"\xc3\x6b\x33\x43\xcf version 2, another packet", (SERVICE, PORT))
        .unwrap();
    one.send_to(short, (SERVICE, PORT)).unwrap();
    assert_eq!(heard().0, short);
    let third = bound(&scene, "clients", at(&client(0), 5002));
    third.send_to(short, (SERVICE, PORT)).unwrap();
    assert_eq!(heard().0, short);
    service.send_to(short, from).unwrap();
    // Silent for long enough, it gives its place to the other, whose packets come in order.
    assert_eq!(heard().0, initial);
    assert!(heard().0.ends_with(b"another packet"));
    assert_eq!((scene.counts()[0].requests, scene.counts()[0].connections), (2, 2));
}
