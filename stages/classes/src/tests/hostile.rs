//! Clients over TCP that do what TCP lets them, against those who share a service with them.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};

use super::connections::listener;
use super::scene::{PORT, SERVICE, Scene, are_measured, at, client, settings};
use crate::module::{Settings, State};

/// What the service, which works on one request at a time, needs for each.
const SERVICE_TIME: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_millis(200);
/// Between an answer to gold and its next request.
const PAUSE: Duration = Duration::from_millis(100);
/// A request; an answer is as long.
const QUESTION: &[u8; 8] = b"question";
/// What is open at a time of those who do not wait for an answer.
const OPEN: usize = 200;
const PATIENCE: Duration = Duration::from_secs(30);

/// How a client opens its connection, and the service takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handshake {
    Usual,
    /// The client ends it with its first data.
    WithData,
    /// The service hears of it when there are data (`TCP_DEFER_ACCEPT`).
    Deferred,
}

fn set_deferred(socket: &impl AsRawFd) {
    let seconds: libc::c_int = 10;
    // SAFETY: the option's value is an int, which lives, and its length is given.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of_val(&seconds) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
}

/// A connection from an address of this thread's namespace.
fn open(from: &str, handshake: Handshake) -> Result<TcpStream> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(at(from, 0)))?;
    if handshake == Handshake::WithData {
        set_deferred(&socket);
    }
    connect(socket.as_raw_fd(), &SockaddrStorage::from(at(SERVICE, PORT)))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Works on whole questions in the order in which they were read, one at a time; a thread a connection reads them.
fn serve(listener: &TcpListener, ended: &AtomicBool) {
    let (sender, receiver) = mpsc::channel::<TcpStream>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Ok(mut stream) = receiver.recv() {
                if !ended.load(Ordering::Relaxed) {
                    std::thread::sleep(SERVICE_TIME);
                    let _ = stream.write_all(QUESTION);
                }
            }
        });
        listener.set_nonblocking(true).unwrap();
        while !ended.load(Ordering::Relaxed) {
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let sender = sender.clone();
            let reader = std::thread::Builder::new().stack_size(64 << 10);
            reader.spawn_scoped(scope, move || read(stream, &sender)).unwrap();
        }
        drop(sender);
    });
}

fn read(mut stream: TcpStream, sender: &mpsc::Sender<TcpStream>) {
    stream.set_nonblocking(false).unwrap();
    stream.set_nodelay(true).unwrap();
    while stream.read_exact(&mut [0; QUESTION.len()]).is_ok() {
        let Ok(answering) = stream.try_clone() else { return };
        if sender.send(answering).is_err() {
            return;
        }
    }
}

/// One after the other, on one connection: how long each answer took.
fn ask(scene: &Scene, count: u32) -> Vec<Duration> {
    let ask = || {
        let mut stream = open(&client(0), Handshake::Usual)?;
        let mut times = Vec::new();
        for _ in 0..count {
            std::thread::sleep(PAUSE);
            let began = Instant::now();
            stream.write_all(QUESTION)?;
            stream.read_exact(&mut [0; QUESTION.len()])?;
            times.push(began.elapsed());
        }
        Ok(times)
    };
    scene.node("clients").enter(ask).unwrap()
}

/// What gold has seen, and how things stood then, with a limit of one request and somebody who attacks, in the lowest class.
fn beside(
    handshake: Handshake,
    count: u32,
    attack: impl Fn(&AtomicBool) -> Result<()> + Send + Sync,
) -> (Vec<Duration>, State) {
    let scene = Scene::new();
    scene.set(&Settings {
        overdue: Some(Duration::ZERO),
        limit: Some(1),
        ..settings(DEADLINE)
    });
    let listener = listener(&scene);
    if handshake == Handshake::Deferred {
        set_deferred(&listener);
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &ended));
        ask(&scene, 10);
        scope.spawn(|| scene.node("clients").enter(|| attack(&ended)));
        let mut times = ask(&scene, count);
        let state = scene.state();
        ended.store(true, Ordering::Relaxed);
        times.sort();
        println!("{handshake:?}: {times:?}, service {:?}", state.service);
        (times, state)
    })
}

/// So often a second, a connection each, and what becomes of it then.
fn again_and_again(rate: u64, ended: &AtomicBool, mut once: impl FnMut() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    for number in 1_u64.. {
        if ended.load(Ordering::Relaxed) {
            break;
        }
        once()?;
        let due = Duration::from_nanos(1_000_000_000 / rate * number);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    Ok(())
}

/// The oldest is closed where there are too many.
fn keep(connections: &mut VecDeque<TcpStream>, stream: TcpStream) {
    connections.push_back(stream);
    if connections.len() > OPEN {
        connections.pop_front();
    }
}

/// Who asks, and resets the connection while the service works, again and again, would have it work on more and more requests at a time.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_resets_do_not_lift_the_limit() {
    let attack = |ended: &AtomicBool| {
        again_and_again(100, ended, || {
            let mut stream = open(&client(4), Handshake::Usual)?;
            stream.write_all(QUESTION)?;
            std::thread::sleep(Duration::from_micros(500));
            let at_once = libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            Ok(setsockopt(&stream, sockopt::Linger, &at_once)?)
        })
    };
    let (times, state) = beside(Handshake::Usual, 40, attack);
    assert!(
        !are_measured() || times[times.len() - 1] <= 4 * SERVICE_TIME,
        "{times:?}"
    );
    assert_eq!(state.counts[4].suspected, 0, "{:?}", state.counts[4]);
}

/// Who sends the rest of each request later and later would teach that the service is slow, so that nothing is overdue any more.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_slow_senders_do_not_make_the_service_seem_slow() {
    let slow = |ended: &AtomicBool| -> Result<()> {
        let mut stream = open(&client(4), Handshake::Usual)?;
        let mut wait = Duration::from_millis(30);
        while !ended.load(Ordering::Relaxed) {
            stream.write_all(&QUESTION[..1])?;
            std::thread::sleep(wait);
            stream.write_all(&QUESTION[1..])?;
            stream.read_exact(&mut [0; QUESTION.len()])?;
            wait = wait.mul_f64(1.05).min(Duration::from_secs(1));
        }
        Ok(())
    };
    let attack = |ended: &AtomicBool| {
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| slow(ended)))));
        Ok(())
    };
    let (times, state) = beside(Handshake::Usual, 60, attack);
    assert!(state.service <= 2 * SERVICE_TIME, "{:?}", state.service);
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    assert!(median <= 4 * SERVICE_TIME && most <= 2 * DEADLINE, "{times:?}");
}

/// Who never sends the rest of a request is suspected, however the handshake ends.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_halves_of_requests_are_held_against_their_client_after_any_handshake() {
    for handshake in [Handshake::Usual, Handshake::WithData, Handshake::Deferred] {
        let attack = |ended: &AtomicBool| {
            let mut connections = VecDeque::new();
            again_and_again(50, ended, || {
                let mut stream = open(&client(4), handshake)?;
                stream.write_all(&QUESTION[..3])?;
                keep(&mut connections, stream);
                Ok(())
            })
        };
        let (times, state) = beside(handshake, 60, attack);
        assert!(
            !are_measured() || times[times.len() - 1] <= 3 * SERVICE_TIME,
            "{times:?}"
        );
        assert!(state.counts[4].suspected > 0, "{:?}", state.counts[4]);
    }
}

/// A class of one client, which waits for a late answer and asks for nothing else, is served, however many others ask.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_who_waits_for_a_late_answer_is_served_beside_a_flood() {
    // Of the second, what can be served is less than what all are promised.
    for (rate, promised) in [(70, 90), (100, 65)] {
        let attack = |ended: &AtomicBool| {
            let mut connections = VecDeque::new();
            again_and_again(rate, ended, || {
                let mut stream = open(&client(4), Handshake::Usual)?;
                stream.write_all(QUESTION)?;
                keep(&mut connections, stream);
                Ok(())
            })
        };
        let (times, state) = beside(Handshake::Usual, 20, attack);
        assert!(times[times.len() - 1] <= Duration::from_secs(2), "{times:?}");
        let in_time = times.iter().filter(|time| **time <= DEADLINE).count();
        assert!(!are_measured() || in_time * 100 >= times.len() * promised, "{times:?}");
        assert!(state.counts[4].in_time > 0, "{:?}", state.counts[4]);
    }
}
