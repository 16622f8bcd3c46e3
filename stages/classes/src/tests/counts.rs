//! What is counted: of those requests that a share is of, and no others.

use std::net::UdpSocket;
use std::time::Duration;

use super::scene::{PORT, SERVICE, Scene, at, bound, client, eventually, occupied, settings};
use crate::module::{Counts, Module, Settings};

/// Three requests of class 0 can be in service.
fn scene() -> (Scene, UdpSocket) {
    let scene = Scene::new();
    scene.set(&Settings {
        limit: Some(3),
        window: Some(Duration::from_millis(160)),
        ..settings(Duration::from_secs(10))
    });
    let service = bound(&scene, "server", at(SERVICE, PORT));
    (scene, service)
}

/// A request from this port reaches the service; the answer is for later.
fn request(scene: &Scene, service: &UdpSocket, port: u16) -> impl FnOnce() {
    let asking = bound(scene, "clients", at(&client(0), port));
    asking.send_to(b"ask", (SERVICE, PORT)).unwrap();
    let (_, from) = service.recv_from(&mut [0; 16]).unwrap();
    let service = service.try_clone().unwrap();
    move || {
        service.send_to(b"answer", from).unwrap();
        drop(asking);
    }
}

fn counts_when(scene: &Scene, is_expected: impl Fn(&Counts) -> bool) -> Counts {
    eventually(|| scene.counts()[0], is_expected)
}

/// Answers that come when the window has forgotten their requests would show a class at more than 100 %, and hide what was
/// late.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_share_of_the_window_is_of_the_requests_in_it() {
    let (scene, service) = scene();
    let before = [5000, 5001].map(|port| request(&scene, &service, port));
    std::thread::sleep(Duration::from_millis(200));
    let after = request(&scene, &service, 5002);
    before.into_iter().for_each(|answer| answer());
    let counts = counts_when(&scene, |counts| counts.in_time == 2);
    assert_eq!(
        (counts.in_time, counts.window_requests, counts.window_in_time),
        (2, 1, 0),
        "{counts:?}"
    );
    after();
    let counts = counts_when(&scene, |counts| counts.in_time == 3);
    assert_eq!((counts.window_requests, counts.window_in_time), (1, 1), "{counts:?}");
}

/// So would those of requests that are in service at a reset.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_what_was_here_at_a_reset_counts_no_more() {
    let (scene, service) = scene();
    let before = [5000, 5001].map(|port| request(&scene, &service, port));
    scene.module(Module::reset).unwrap();
    before.into_iter().for_each(|answer| answer());
    let counts = counts_when(&scene, |counts| counts.in_flight == 0);
    assert_eq!(
        (counts.requests, counts.in_time, counts.window_in_time, counts.in_flight),
        (0, 0, 0, 0),
        "{counts:?}"
    );
    assert!(
        scene
            .module(|module| module.times(0))
            .unwrap()
            .iter()
            .all(|count| *count == 0)
    );
    request(&scene, &service, 5002)();
    let counts = counts_when(&scene, |counts| counts.in_time == 1);
    assert_eq!((counts.requests, counts.in_time), (1, 1), "{counts:?}");
}

/// A client that has been moved to another class asks again, and its old request makes room for the new one: each class has as many answers
/// as requests at most.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_request_that_its_own_flow_makes_room_for_is_counted_in_its_class() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    let mut set = settings(Duration::from_secs(10));
    let classes = set.classes.as_mut().unwrap();
    classes[3].cap = 1;
    classes[3].deadline = 1_000_000;
    scene.set(&set);
    let answer = occupied(&scene, &service);
    let moved = bound(&scene, "clients", at(&client(3), 5000));
    let gold = bound(&scene, "clients", at(&client(0), 5000));
    moved.send_to(b"late", (SERVICE, PORT)).unwrap();
    assert_eq!(scene.waiting(3, 1), 1);
    gold.send_to(b"gold", (SERVICE, PORT)).unwrap();
    assert_eq!(scene.waiting(0, 1), 1);
    std::thread::sleep(Duration::from_millis(5));
    answer();
    let mut buffer = [0; 16];
    let (_, from) = service.recv_from(&mut buffer).unwrap();
    assert_eq!(eventually(|| scene.counts()[3].aside, |aside| *aside == 1), 1);
    let change =
        "delete element inet classes clients4 { 10.0.0.4 }; add element inet classes clients4 { 10.0.0.4 : 7461:1 }";
    scene.node("server").run("nft", &[change]).unwrap();
    moved.send_to(b"new", (SERVICE, PORT)).unwrap();
    let dropped = eventually(|| scene.counts()[3].dropped_cap, |dropped| *dropped == 1);
    assert_eq!(dropped, 1);
    service.send_to(b"answer", from).unwrap();
    let (length, from) = service.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"new");
    service.send_to(b"answer", from).unwrap();
    let counts = eventually(|| scene.counts(), |counts| counts[1].in_time == 1);
    assert_eq!((counts[1].requests, counts[1].in_time), (1, 1), "{counts:?}");
    assert_eq!((counts[3].requests, counts[3].in_time), (1, 0), "{counts:?}");
}
