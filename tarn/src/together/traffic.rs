//! What runs in the network all at once, and what came of it.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket};
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_lab::busy::{go_first, monotonic_ns, sleep_until};
use tarn_lab::experiment::Metrics;
use tarn_lab::load::{
    Arrivals, Exchange, Exchanges, Flow, Fragment, Law, Ping, TcpBulk, TcpSink, UdpEcho, UdpRequests, Wire,
};
use tarn_lab::stats::Sample;
use tarn_lab::topology::{Namespace, join};
use tarn_poll::proof::rig::{HOST, SERVER};

use super::scene::{
    DEADLINE, FAR, FLOODED, GAME, NEAR_END, PATHS, POLL, RATE, RATE_DROPPED, Scene, TARGETS, Up, client_of,
};

/// Ports of the host: redirected to the server's, of who answers datagrams in fragments, of the overloaded service, and of who is asked
/// beside the flood.
const REDIRECTED: u16 = 9100;
const LARGE_PORT: u16 = 9200;
const SERVICE: u16 = 8000;
const ASKED: u16 = 9001;
/// The server's.
const SERVED: u16 = 9000;
/// Of what is behind the uplinks.
const BULK: u16 = 5001;

/// For so long uplinks have been measured, and hostile fragments come, when the rest begins.
const BEFORE: Duration = Duration::from_secs(10);
const HOSTILE_BEFORE: Duration = Duration::from_secs(4);
/// How long all of it goes on; in its middle, the better uplink loses half of its rate.
const LENGTH: Duration = Duration::from_secs(12);
/// From when classes are judged: their queues have filled by then.
const FROM: Duration = Duration::from_secs(2);
/// For so long, the game's packets are counted by uplink: the one that brings more dies then.
const LOOKS_BEFORE: Duration = Duration::from_millis(200);
/// How long it is dead.
const DEAD: Duration = Duration::from_secs(3);
/// How long a request takes the service, which works on one at a time, and what all clients together ask of it.
const SERVICE_TIME: Duration = Duration::from_millis(5);
const PERCENT: u32 = 140;
/// Of the requests that come in fragments.
const LARGE: usize = 4000;
/// A hostile first fragment, of which no second ever comes; how many come at a time, and how often.
const HOSTILE: usize = 1400;
const HOSTILE_AT_A_TIME: u32 = 10;
const HOSTILE_EVERY: Duration = Duration::from_millis(10);
/// From a flood's beginning until it is judged, and for how long.
const ONSET: Duration = Duration::from_millis(400);
const FLOOD: Duration = Duration::from_millis(500);
/// Requests to the flooded host, so far apart.
const ASKS: u32 = 12;
const ASK_EVERY: Duration = Duration::from_millis(75);
const PATIENCE: Duration = Duration::from_millis(100);
/// How often a server of ours looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// The priority of who measures under the flood.
const MEASURING: i32 = 50;

/// A server of ours on the host: a thread that takes datagrams.
struct Server {
    ended: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    thread: JoinHandle<Result<()>>,
}

impl Server {
    /// Takes datagrams at a port, and does something with each.
    fn start(
        host: &Namespace,
        port: u16,
        serve: impl Fn(&UdpSocket, &[u8], SocketAddr) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (ended, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, count) = (Arc::clone(&ended), Arc::clone(&served));
        let thread = host.spawn("server", move || {
            let socket = UdpSocket::bind((HOST, port)).with_context(|| format!("cannot bind to port {port}"))?;
            socket.set_read_timeout(Some(LOOK)).context("cannot set a timeout")?;
            let mut buffer = [0; 65_536];
            while !told.load(Ordering::Relaxed) {
                match socket.recv_from(&mut buffer) {
                    Ok((length, from)) => {
                        serve(&socket, &buffer[..length], from)?;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    Err(error) => return Err(error).context("cannot receive"),
                }
            }
            Ok(())
        })?;
        Ok(Self { ended, served, thread })
    }

    fn end(self) -> Result<()> {
        self.ended.store(true, Ordering::Relaxed);
        join(self.thread.join())
    }
}

/// Runs all of it with these stages up, and returns the figures: only `poll` does something about a flood, only `paths` leaves an
/// uplink.
///
/// # Errors
/// What cannot be started, and a figure of nothing.
pub fn run(scene: &Scene, up: Up, seed: u64) -> Result<Metrics> {
    let mut figures = Metrics::new();
    calm(scene, up, seed, &mut figures)?;
    if up.is_empty() || up.contains(&POLL) {
        storm(scene, seed, &mut figures)?;
    }
    Ok(figures)
}

/// Everything but the flood.
fn calm(scene: &Scene, up: Up, seed: u64, figures: &mut Metrics) -> Result<()> {
    let (host, client, far) = (scene.host()?, scene.client()?, scene.far());
    let echo = |namespace: &Namespace, address, port| {
        namespace.enter(|| go_first().and_then(|()| UdpEcho::start(namespace, at(address, port))))
    };
    // Who answers where nobody redirects.
    let unredirected = echo(host, HOST, REDIRECTED)?;
    let rebuilt = echo(host, HOST, LARGE_PORT)?;
    let redirected = echo(scene.server()?, SERVER, SERVED)?;
    let game_server = echo(far, FAR, GAME)?;
    let sink = TcpSink::start(far, at(FAR, BULK))?;
    let service = Server::start(host, SERVICE, |socket, request, from| {
        std::thread::sleep(SERVICE_TIME);
        // A client that has gone is none of a service's business.
        let _ = socket.send_to(request, from);
        Ok(())
    })?;

    std::thread::sleep(BEFORE - HOSTILE_BEFORE);
    let hostile = client.spawn("hostile", || send_hostile(HOSTILE_BEFORE + LENGTH))?;
    std::thread::sleep(HOSTILE_BEFORE);
    let began = monotonic_ns();
    let asks = |requests: UdpRequests| client.spawn("client", move || go_first().and_then(|()| requests.run()));
    let classes = (0..TARGETS.len())
        .map(|class| asks(class_requests(class, seed)))
        .collect::<Result<Vec<_>>>()?;
    let small = asks(requests(at(HOST, REDIRECTED), 64, Duration::from_millis(10), LENGTH))?;
    let large = asks(requests(at(HOST, LARGE_PORT), LARGE, Duration::from_millis(50), LENGTH))?;
    let game = asks(requests(at(FAR, GAME), 100, Duration::from_millis(16), LENGTH + DEAD))?;
    let ping = Ping {
        count: (LENGTH.as_millis() / 50) as u32,
        arrivals: Arrivals::Open(Law::Every(Duration::from_millis(50))),
        ..Ping::new(IpAddr::V4(NEAR_END))
    };
    let ping = host.spawn("ping", move || go_first().and_then(|()| ping.run()))?;
    let bulk = TcpBulk {
        flow: Flow::to(at(FAR, BULK)),
        duration: LENGTH,
        congestion: None,
    };
    let bulk = host.spawn("bulk", move || bulk.run())?;

    let until = |time: Duration| sleep_until(began + time.as_nanos() as u64);
    until(LENGTH / 2)?;
    scene.shape(1, RATE_DROPPED, 0.0)?;
    until(LENGTH - LOOKS_BEFORE)?;
    let dying = scene.uplink_of("game", LOOKS_BEFORE)?;
    // What comes later is no part of it.
    let bytes: u64 = sink.stop()?.iter().map(|report| report.bytes).sum();
    ensure!(bytes > 0, "nothing was sent by TCP");
    scene.shape(dying, RATE_DROPPED, 100.0)?;
    let died = monotonic_ns();
    until(LENGTH + DEAD)?;
    scene.shape(dying, RATE, 0.0)?;

    join(hostile.join())?;
    for (class, asked) in classes.into_iter().enumerate() {
        let share = in_time(&join(asked.join())?, began);
        figures.insert(format!("in_time_{class}"), share);
    }
    let (small, large) = (join(small.join())?, join(large.join())?);
    let mut note = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    note(
        "redirected_p50_us",
        Sample::new(small.round_trips_us())?.percentile(50.0),
    );
    note("redirected_share", answered(&small));
    note("large_share", answered(&large));
    let game = join(game.join())?;
    note("game_lost", lost_after(&game, died));
    if up.contains(&PATHS) {
        note("left_after_ms", left_after(&game, died));
    }
    let pings = join(ping.join())?;
    note(
        "uplink_p95_ms",
        Sample::new(pings.round_trips_us())?.percentile(95.0) / 1e3,
    );
    // The sink has ended its connection, in the middle of something as a rule.
    let _ = join(bulk.join());
    note("bulk_mbit_s", bytes as f64 * 8.0 / 1e6 / LENGTH.as_secs_f64());
    note("by_server", redirected.stop()? as f64);
    unredirected.stop()?;
    rebuilt.stop()?;
    game_server.stop()?;
    service.end()
}

/// A flood on the card.
fn storm(scene: &Scene, seed: u64, figures: &mut Metrics) -> Result<()> {
    let (host, client, rig) = (scene.host()?, scene.client()?, scene.rig());
    let sink = Server::start(host, FLOODED, |_, _, _| Ok(()))?;
    let echo = UdpEcho::start(host, at(HOST, ASKED))?;
    // Who measures is not to wait behind the flood.
    set_policy(0, Policy::Fifo(MEASURING)).context("cannot measure under a flood")?;
    rig.flood(true)?;
    std::thread::sleep(ONSET);
    let before = sink.served.load(Ordering::Relaxed);
    std::thread::sleep(FLOOD);
    let after = sink.served.load(Ordering::Relaxed);
    let asks = UdpRequests {
        arrivals: Arrivals::Open(Law::Poisson { mean: ASK_EVERY, seed }),
        timeout: PATIENCE,
        ..UdpRequests::new(Flow::to(at(HOST, ASKED)), ASKS)
    };
    let asked = client.spawn("client", move || go_first().and_then(|()| asks.run()))?;
    let asked = join(asked.join())?;
    rig.flood(false)?;
    set_policy(0, Policy::Ordinary).context("cannot end measuring")?;
    echo.stop()?;
    sink.end()?;
    let mut note = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    note("flood_served_per_s", (after - before) as f64 / FLOOD.as_secs_f64());
    let waited = |exchange: &Exchange| exchange.round_trip_ns().unwrap_or(PATIENCE.as_nanos() as u64) as f64 / 1e3;
    note(
        "flood_p50_us",
        Sample::new(asked.list().iter().map(waited))?.percentile(50.0),
    );
    note("flood_lost_share", 100.0 - answered(&asked));
    Ok(())
}

fn at(address: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(address), port)
}

/// Requests at equal distances.
fn requests(target: SocketAddr, size: usize, every: Duration, length: Duration) -> UdpRequests {
    UdpRequests {
        size,
        arrivals: Arrivals::Open(Law::Every(every)),
        ..UdpRequests::new(Flow::to(target), (length.as_micros() / every.as_micros()) as u32)
    }
}

/// A class's part of the overload.
fn class_requests(class: usize, seed: u64) -> UdpRequests {
    let mean = SERVICE_TIME * TARGETS.len() as u32 * 100 / PERCENT;
    let seed = seed.wrapping_mul(16).wrapping_add(class as u64);
    let flow = Flow::to(at(HOST, SERVICE)).from(at(client_of(class), 0));
    UdpRequests {
        arrivals: Arrivals::Open(Law::Poisson { mean, seed }),
        ..UdpRequests::new(flow, (LENGTH.as_micros() / mean.as_micros()) as u32)
    }
}

/// Percent of the requests of a class that were answered within the deadline.
fn in_time(exchanges: &Exchanges, began: u64) -> f64 {
    let from = began + FROM.as_nanos() as u64;
    let judged: Vec<&Exchange> = exchanges
        .list()
        .iter()
        .filter(|exchange| exchange.due_ns >= from)
        .collect();
    let deadline = DEADLINE.as_nanos() as u64;
    let is_in_time = |exchange: &&&Exchange| exchange.latency_ns().is_some_and(|latency| latency <= deadline);
    judged.iter().filter(is_in_time).count() as f64 * 100.0 / judged.len().max(1) as f64
}

/// Percent of the requests that were answered.
fn answered(exchanges: &Exchanges) -> f64 {
    exchanges.answered_count() as f64 * 100.0 / exchanges.list().len().max(1) as f64
}

/// Requests after a moment that were not answered.
fn lost_after(exchanges: &Exchanges, moment: u64) -> f64 {
    let is_lost = |exchange: &&Exchange| exchange.sent_ns >= moment && exchange.answer.is_none();
    exchanges.list().iter().filter(is_lost).count() as f64
}

/// From a moment to when the first request was sent behind the last of those after it that was lost, in ms.
fn left_after(exchanges: &Exchanges, moment: u64) -> f64 {
    let list = exchanges.list();
    let is_lost = |exchange: &Exchange| exchange.sent_ns >= moment && exchange.answer.is_none();
    let Some(last) = list.iter().rposition(is_lost) else {
        return 0.0;
    };
    let back = list
        .get(last + 1)
        .map_or(list[last].sent_ns, |exchange| exchange.sent_ns);
    (back - moment) as f64 / 1e6
}

/// First fragments of datagrams that never become whole, each from an address of its own.
fn send_hostile(length: Duration) -> Result<()> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Raw,
    )
    .context("cannot make a raw socket")?;
    let bytes = [0x5a; HOSTILE];
    let target = SockaddrIn::new(10, 8, 0, 1, 0);
    let times = (length.as_micros() / HOSTILE_EVERY.as_micros()) as u32;
    let began = monotonic_ns();
    for number in 0..times {
        sleep_until(began + (HOSTILE_EVERY * number).as_nanos() as u64)?;
        for packet in number * HOSTILE_AT_A_TIME..(number + 1) * HOSTILE_AT_A_TIME {
            let [_, b, c, d] = packet.to_be_bytes();
            let fragment = Fragment {
                source: IpAddr::V4(Ipv4Addr::new(10, 64 + b, c, d)),
                target: IpAddr::V4(HOST),
                identifier: packet,
                offset: 0,
                more: true,
                bytes: &bytes,
            };
            let frame = fragment.frame(Wire {
                from: [0; 6],
                to: [0; 6],
            });
            // A raw socket takes what is behind the header of Ethernet.
            sendto(socket.as_raw_fd(), &frame[14..], &target, MsgFlags::empty()).context("cannot send a fragment")?;
        }
    }
    Ok(())
}
