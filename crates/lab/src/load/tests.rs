//! Generators against their servers over a network whose delay, loss and rate are known. A probe that measured anything
//! else than what the network does would make every experiment wrong.
//!
//! ```text
//!   client                      server
//!   10.7.0.1, fd07::1 ───────── 10.7.0.2, fd07::2
//!                eth0       eth0
//! ```

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::*;
use crate::busy::Meter;
use crate::stats::Sample;
use crate::topology::{End, Network, Node, Shape, Topology};

const SERVER: ([u8; 4], u16) = ([10, 7, 0, 2], 7000);

/// Both ends shaped alike.
fn network(shape: &Shape) -> Network {
    let end = |node: &str, number: u8| {
        End::new(node, "eth0")
            .address(&format!("10.7.0.{number}/24"))
            .address(&format!("fd07::{number}/64"))
            .shape(shape.clone())
    };
    let network = Topology::new()
        .node(Node::new("client"))
        .node(Node::new("server"))
        .link(end("client", 1), end("server", 2))
        .permanent_neighbours()
        .build()
        .unwrap();
    // What the test before has left to free would delay a packet of this one.
    Meter::new().unwrap().settle(Duration::from_secs(60)).unwrap();
    network
}

fn ten_ms() -> Shape {
    Shape::new().delay(Duration::from_millis(10))
}

fn assert_near(values: Vec<f64>, expected_us: f64, within_us: f64) {
    let summary = Sample::new(values).unwrap().summary();
    let near = |value: f64| value >= expected_us && value <= expected_us + within_us;
    assert!(
        near(summary.min) && near(summary.max),
        "expected {expected_us} us to {within_us} us more: {summary:?}"
    );
}

#[test]
#[ignore = "needs the lab"]
fn lab_udp_round_trip_is_twice_the_delay() {
    let network = network(&ten_ms());
    for target in [
        SocketAddr::from(SERVER),
        SocketAddr::from(([0xfd07, 0, 0, 0, 0, 0, 0, 2], 7000)),
    ] {
        let server = UdpEcho::start(network.namespace("server").unwrap(), target).unwrap();
        let requests = UdpRequests::new(Flow::to(target), 20);
        let exchanges = network.namespace("client").unwrap().enter(|| requests.run()).unwrap();
        assert_eq!((exchanges.sent_count(), exchanges.answered_count()), (20, 20));
        assert_eq!(
            (
                exchanges.not_from(target),
                exchanges.damaged_count(),
                exchanges.duplicate_count()
            ),
            (0, 0, 0)
        );
        assert_near(exchanges.round_trips_us(), 20_000.0, 300.0);
        assert_eq!(server.stop().unwrap(), 20);
    }
}

#[test]
#[ignore = "needs the lab"]
fn lab_udp_open_loop_does_not_wait_for_answers() {
    let network = network(&ten_ms());
    let _server = UdpEcho::start(network.namespace("server").unwrap(), SERVER.into()).unwrap();
    let arrivals = Arrivals::Open(Law::Every(Duration::from_millis(1)));
    let requests = UdpRequests {
        arrivals,
        ..UdpRequests::new(Flow::to(SERVER.into()), 100)
    };
    let exchanges = network.namespace("client").unwrap().enter(|| requests.run()).unwrap();
    assert_eq!(exchanges.answered_count(), 100);
    assert_near(exchanges.round_trips_us(), 20_000.0, 300.0);
    let first_and_last = exchanges.list()[99].sent_ns - exchanges.list()[0].sent_ns;
    assert!(
        (99_000_000..99_200_000).contains(&first_and_last),
        "{first_and_last} ns"
    );
}

#[test]
#[ignore = "needs the lab"]
fn lab_loss_is_counted() {
    let network = network(&Shape::new().loss_percent(20.0));
    let server = UdpEcho::start(network.namespace("server").unwrap(), SERVER.into()).unwrap();
    let arrivals = Arrivals::Open(Law::Every(Duration::from_micros(200)));
    let requests = UdpRequests {
        arrivals,
        ..UdpRequests::new(Flow::to(SERVER.into()), 1000)
    };
    let exchanges = network.namespace("client").unwrap().enter(|| requests.run()).unwrap();
    let received = server.stop().unwrap();
    // 1000 * 0.8 = 800 and 1000 * 0.64 = 640; five standard deviations are 63 and 76.
    assert!((737..=863).contains(&received), "{received}");
    assert!(
        (564..=716).contains(&exchanges.answered_count()),
        "{}",
        exchanges.answered_count()
    );
    assert!(exchanges.answered_count() < received);
}

#[test]
#[ignore = "needs the lab"]
fn lab_tcp_requests_are_answered_on_kept_connections() {
    let network = network(&ten_ms());
    let open = Arrivals::Open(Law::Poisson {
        mean: Duration::from_millis(5),
        seed: 1,
    });
    for (connections, arrivals) in [(1, Arrivals::WhenAnswered), (5, Arrivals::WhenAnswered), (3, open)] {
        let server = TcpAnswerer::start(network.namespace("server").unwrap(), SERVER.into(), 100, 3000).unwrap();
        let flow = Flow::to(SERVER.into());
        let requests = TcpRequests {
            connections,
            request: 100,
            answer: 3000,
            arrivals,
            ..TcpRequests::new(flow, 60)
        };
        let exchanges = network.namespace("client").unwrap().enter(|| requests.run()).unwrap();
        assert_eq!(
            (
                exchanges.sent_count(),
                exchanges.answered_count(),
                exchanges.damaged_count()
            ),
            (60, 60, 0)
        );
        assert_near(exchanges.round_trips_us(), 20_000.0, 2_000.0);
        assert_eq!(server.stop().unwrap(), 60);
    }
}

#[test]
#[ignore = "needs the lab"]
fn lab_tcp_bulk_reaches_the_rate_of_the_link() {
    let network = network(&Shape::new().delay(Duration::from_millis(5)).rate(20_000_000).limit(100));
    let sink = TcpSink::start(network.namespace("server").unwrap(), SERVER.into()).unwrap();
    let bulk = TcpBulk {
        flow: Flow::to(SERVER.into()),
        duration: Duration::from_secs(3),
        congestion: None,
    };
    let sent = network.namespace("client").unwrap().enter(|| bulk.run()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let received = sink.stop().unwrap();
    // A segment of 1448 bytes of payload takes 1514 on the wire.
    let possible = 20e6 * 1448.0 / 1514.0;
    let goodput = received[0].bytes as f64 * 8.0 / received[0].duration.as_secs_f64();
    assert!(
        (0.95..1.01).contains(&(goodput / possible)),
        "{goodput} of {possible} bit/s"
    );
    assert!(received[0].bytes <= sent, "{} of {sent} bytes", received[0].bytes);
}

#[test]
#[ignore = "needs the lab"]
fn lab_ping_measures_the_delay_over_both_protocols() {
    let network = network(&ten_ms());
    for target in [IpAddr::from([10, 7, 0, 2]), IpAddr::from([0xfd07, 0, 0, 0, 0, 0, 0, 2])] {
        let exchanges = network
            .namespace("client")
            .unwrap()
            .enter(|| Ping::new(target).run())
            .unwrap();
        assert_eq!((exchanges.answered_count(), exchanges.damaged_count()), (10, 0));
        assert_eq!(exchanges.not_from(SocketAddr::new(target, 0)), 0);
        assert_near(exchanges.round_trips_us(), 20_000.0, 300.0);
    }
}

#[test]
#[ignore = "needs the lab"]
fn lab_a_dead_network_is_a_figure_and_not_an_error() {
    let network = network(&Shape::new());
    let client = network.namespace("client").unwrap();
    client.ip("link set eth0 down").unwrap();
    let requests = UdpRequests {
        timeout: Duration::from_millis(10),
        ..UdpRequests::new(Flow::to(SERVER.into()), 3)
    };
    let exchanges = client.enter(|| requests.run()).unwrap();
    assert_eq!((exchanges.sent_count(), exchanges.answered_count()), (0, 0));
    assert!(
        exchanges
            .list()
            .iter()
            .all(|exchange| exchange.refused == libc::ENETUNREACH)
    );
}

#[test]
#[ignore = "needs the lab"]
fn lab_a_client_that_is_bound_speaks_from_there() {
    let network = network(&Shape::new());
    let client = network.namespace("client").unwrap();
    client.ip("address add 10.7.0.77/24 dev eth0").unwrap();
    let source = SocketAddr::from(([10, 7, 0, 77], 4711));
    let mut requests = UdpRequests::new(Flow::to(SERVER.into()).from(source), 2);
    let server = network.namespace("server").unwrap();
    let echo = UdpEcho::start(server, SERVER.into()).unwrap();
    assert_eq!(client.enter(|| requests.run()).unwrap().answered_count(), 2);
    drop(echo);
    let witness = server.enter(|| Ok(UdpSocket::bind(SocketAddr::from(SERVER))?)).unwrap();
    requests.timeout = Duration::from_millis(10);
    assert_eq!(client.enter(|| requests.run()).unwrap().sent_count(), 2);
    assert_eq!(witness.recv_from(&mut [0; 64]).unwrap(), (64, source));
}
