//! What is counted: of those requests that a share is of, and no others.

use std::net::UdpSocket;
use std::time::Duration;

use super::scene::{PORT, SERVICE, Scene, at, bound, client, eventually, settings};
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
