//! Loads of five classes.

use std::time::{Duration, Instant};

use super::scene::{PORT, SERVICE, Scene, at, client};
use tarn_lab::load::{Arrivals, Exchanges, Flow, Law, TcpRequests, UdpRequests};

/// A generator of one class's requests.
fn udp(class: usize, count: u32, arrivals: Arrivals) -> UdpRequests {
    UdpRequests {
        arrivals,
        timeout: Duration::from_secs(5),
        ..UdpRequests::new(Flow::to(at(SERVICE, PORT)).from(at(&client(class), 5000)), count)
    }
}

/// Runs a generator a class at a time with the others.
fn together(scene: &Scene, generate: impl Fn(usize) -> Exchanges + Sync) -> Vec<Exchanges> {
    let generate = &generate;
    std::thread::scope(|scope| {
        let start = |class| scope.spawn(move || scene.node("clients").enter(|| Ok(generate(class))).unwrap());
        let threads: Vec<_> = (0..5).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// What the service can do: the mean time between two answers when it always has something to do.
pub fn service_time(scene: &Scene) -> Duration {
    let began = Instant::now();
    let answers = together(scene, |class| udp(class, 40, Arrivals::WhenAnswered).run().unwrap());
    let answered: u64 = answers.iter().map(Exchanges::answered_count).sum();
    assert_eq!(answered, 200);
    began.elapsed() / 200
}

/// Equal loads of all classes over UDP, `percent` of what the service can do in all, for as long as it takes to serve so
/// many requests a class.
pub fn offer_udp(scene: &Scene, service_time: Duration, percent: u32, count: u32) -> Vec<Exchanges> {
    let mean = service_time * 5 * 100 / percent;
    let end = (service_time * 5 * count).as_nanos() as u64;
    together(scene, |class| {
        let law = Law::Poisson {
            mean,
            seed: class as u64,
        };
        let until_end = law
            .schedule(count * percent / 50)
            .iter()
            .filter(|due| **due < end)
            .count();
        udp(class, until_end as u32, Arrivals::Open(law)).run().unwrap()
    })
}

/// Four connections a class, so many requests a class, each when the one before is answered.
pub fn closed_tcp(scene: &Scene, count: u32) -> Vec<Exchanges> {
    together(scene, |class| {
        TcpRequests {
            connections: 4,
            ..TcpRequests::new(Flow::to(at(SERVICE, PORT)).from(at(&client(class), 6000)), count)
        }
        .run()
        .unwrap()
    })
}
