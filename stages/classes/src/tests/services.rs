//! Several services of a host: each for itself.

use std::net::UdpSocket;
use std::time::Duration;

use super::scene::{PORT, SERVICE, Scene, at, bound, client, eventually, occupied, settings};
use crate::module::{Module, SERVICES_MOST, Settings, State};

const DEADLINE: Duration = Duration::from_secs(10);
const OTHER_PORT: u16 = 53;

/// The settings of a service at another port.
fn other() -> Settings {
    let mut settings = settings(DEADLINE);
    for ports in settings.ports.as_mut().unwrap() {
        (ports.first, ports.last) = (OTHER_PORT, OTHER_PORT);
    }
    settings
}

fn set(scene: &Scene, number: usize, settings: &Settings) {
    scene.module(|module| module.service(number).set(settings)).unwrap();
}

fn state(scene: &Scene, number: usize) -> Option<State> {
    scene.module(|module| module.service(number).state()).unwrap()
}

fn requests(scene: &Scene, number: usize) -> u64 {
    state(scene, number)
        .unwrap()
        .counts
        .iter()
        .map(|counts| counts.requests)
        .sum()
}

fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 16];
    let (length, _) = socket.recv_from(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

/// The web would wait for a DNS server that is stuck.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_service_that_stands_still_keeps_no_other_waiting() {
    let scene = Scene::new();
    let stuck = bound(&scene, "server", at(SERVICE, PORT));
    let well = bound(&scene, "server", at(SERVICE, OTHER_PORT));
    set(&scene, 0, &settings(DEADLINE));
    set(&scene, 5, &other());
    let _answer = occupied(&scene, &stuck);
    let one = bound(&scene, "clients", at(&client(0), 5000));
    one.send_to(b"waits", (SERVICE, PORT)).unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    one.send_to(b"passes", (SERVICE, OTHER_PORT)).unwrap();
    assert_eq!(received(&well), b"passes");
    assert_eq!((requests(&scene, 0), requests(&scene, 5)), (2, 1));

    scene.module(|module| module.service(5).reset()).unwrap();
    assert_eq!((requests(&scene, 0), requests(&scene, 5)), (2, 0));
    scene.module(|module| module.service(0).stop_service()).unwrap();
    assert_eq!([received(&stuck)], [b"waits"]);
    assert!(state(&scene, 0).is_none() && state(&scene, 5).is_some());
    assert!(scene.module(Module::stop).unwrap() && state(&scene, 5).is_none());
    assert!(!scene.module(Module::stop).unwrap());
}

/// The administrator gives a port to another service: what waits goes on, and what comes counts there.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_port_becomes_that_of_another_service() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    set(&scene, 0, &settings(DEADLINE));
    set(&scene, 1, &other());
    let _answer = occupied(&scene, &service);
    let one = bound(&scene, "clients", at(&client(0), 5000));
    one.send_to(b"before", (SERVICE, PORT)).unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    set(&scene, 1, &settings(DEADLINE));
    one.send_to(b"after", (SERVICE, PORT)).unwrap();
    assert_eq!(received(&service), b"after");
    // The port that it had before is nobody's, and that of the first service is not taken away with it.
    one.send_to(b"nobody's", (SERVICE, OTHER_PORT)).unwrap();
    assert_eq!((requests(&scene, 0), requests(&scene, 1)), (2, 1));
    set(&scene, 0, &other());
    assert_eq!(
        eventually(|| state(&scene, 0).unwrap().counts[0].waiting, |waiting| *waiting == 1),
        1
    );
    scene.module(|module| module.service(0).stop_service()).unwrap();
    assert_eq!(received(&service), b"before");
    scene.module(Module::stop).unwrap();
}

/// All that a host may have, begun and ended while others run; the number after the last is refused.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_sixteen_services_come_and_go() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    let refused = scene.module(|module| module.service(SERVICES_MOST).set(&settings(DEADLINE)));
    assert!(refused.is_err() && state(&scene, 0).is_none());
    let at_port = |number: usize| {
        let mut settings = settings(DEADLINE);
        for ports in settings.ports.as_mut().unwrap() {
            ports.first = PORT + number as u16;
            ports.last = ports.first;
        }
        settings
    };
    for number in 0..SERVICES_MOST {
        set(&scene, number, &at_port(number));
    }
    let one = bound(&scene, "clients", at(&client(0), 5000));
    for round in 1..=20_u64 {
        for number in 1..SERVICES_MOST {
            scene.module(|module| module.service(number).stop_service()).unwrap();
        }
        one.send_to(b"1", (SERVICE, PORT)).unwrap();
        let (_, from) = service.recv_from(&mut [0; 16]).unwrap();
        service.send_to(b"2", from).unwrap();
        one.recv_from(&mut [0; 16]).unwrap();
        assert_eq!(requests(&scene, 0), round);
        for number in 1..SERVICES_MOST {
            set(&scene, number, &at_port(number));
        }
    }
    scene.module(Module::stop).unwrap();
    assert!((0..SERVICES_MOST).all(|number| state(&scene, number).is_none()));
}
