//! Beginning and end, under load: nothing is lost, nothing stays behind.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::load::offer_udp;
use super::scene::{PORT, SERVICE, Scene, at, counter, eventually, load, load_again, settings, unload};
use super::service::sleepers;
use crate::module::Module;
use tarn_kernel::netns::testing::in_new_namespace;
use tarn_lab::debug;
use tarn_lab::load::Exchanges;
use tarn_lab::testing::{is_thorough, kernel_log, sign_of_life};
use tarn_lab::topology::{Namespace, bring_loopback_up};

const SLEEP: Duration = Duration::from_millis(1);
/// Where a load goes on for long: what the guest has to emulate is requests, not time.
const LONG_SLEEP: Duration = Duration::from_millis(4);

/// Does `work` until a load that the service can just bear is over. Returns how many requests were not answered, without
/// those that found the service's socket full.
fn under_load(scene: &Scene, sleep: Duration, count: u32, work: impl Fn() + Sync) -> u64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                work();
            }
        });
        let answers = offer_udp(scene, sleep, 85, count);
        over.store(true, Ordering::Relaxed);
        let lost = |answers: &Exchanges| answers.sent_count() - answers.answered_count();
        answers.iter().map(lost).sum::<u64>() - counter(scene.node("server"), "UdpRcvbufErrors")
    })
}

/// What waits when the stage stops goes on to the service.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_stopped_and_begun_under_load_lose_nothing() {
    let scene = Scene::new();
    let _service = sleepers(scene.node("server"), at(SERVICE, PORT), 1, SLEEP);
    let lost = under_load(&scene, SLEEP, 200, || {
        scene.set(&settings(Duration::from_millis(20)));
        std::thread::sleep(Duration::from_millis(5));
        assert!(scene.module(|module| module.stop()).unwrap());
    });
    assert_eq!(lost, 0);
}

/// So it does when the module is taken out.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_the_module_is_taken_out_again_and_again_under_load() {
    let scene = Scene::new();
    let _service = sleepers(scene.node("server"), at(SERVICE, PORT), 1, LONG_SLEEP);
    let done = std::sync::atomic::AtomicU32::new(0);
    let times = if is_thorough() { 200 } else { 40 };
    // As many as are asked for meanwhile.
    let count = times * (if debug::is_here() { 45 } else { 12 }) / 2;
    let lost = under_load(&scene, LONG_SLEEP, count, || {
        let round = done.fetch_add(1, Ordering::Relaxed);
        if round >= times {
            std::thread::sleep(Duration::from_millis(10));
            return;
        }
        sign_of_life(round);
        scene.set(&settings(Duration::from_millis(20)));
        std::thread::sleep(Duration::from_millis(2));
        unload();
        load_again();
    });
    unload();
    let done = done.into_inner();
    assert!(done >= times, "only {done} times");
    assert_eq!(lost, 0);
}

/// Namespaces with packets that wait come and go; the kernel would complain of a device that is still held.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_namespaces_go_200_times_with_packets_waiting() {
    load();
    for round in 0..200 {
        in_new_namespace(|| {
            bring_loopback_up().unwrap();
            let mut module = Module::find().unwrap().unwrap();
            module.set(&settings(Duration::from_millis(20))).unwrap();
            // Nobody answers: the first is in service until patience ends, the others wait.
            let deaf = UdpSocket::bind(("127.0.0.1", PORT)).unwrap();
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..10 {
                client.send_to(b"is anyone there?", deaf.local_addr().unwrap()).unwrap();
            }
            assert_eq!(eventually(module_waits, |waiting| *waiting == 9), 9, "round {round}");
        });
    }
    unload();
}

/// What waits in a namespace that goes is lost, and its counters with it. So the kernel's log has it.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_packets_lost_with_their_namespace_are_told_of() {
    load();
    in_new_namespace(|| {
        bring_loopback_up().unwrap();
        let mut module = Module::find().unwrap().unwrap();
        module.set(&settings(Duration::from_millis(20))).unwrap();
        let deaf = UdpSocket::bind(("127.0.0.1", PORT)).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..124 {
            client.send_to(b"is anyone there?", deaf.local_addr().unwrap()).unwrap();
        }
        assert_eq!(eventually(module_waits, |waiting| *waiting == 123), 123);
    });
    let told = "tarn_classes: 123 waiting packets dropped with their network namespace";
    let log = eventually(kernel_log, |log| log.contains(told));
    assert!(log.contains(told), "{log}");
    unload();
}

/// Requests that wait in the calling thread's namespace.
fn module_waits() -> u32 {
    let state = Module::find().unwrap().unwrap().state().unwrap().unwrap();
    state.counts.iter().map(|counts| counts.waiting).sum()
}

/// A device goes while packets that came in by it wait: they go on, and nobody holds it any more.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_device_goes_and_its_packets_go_on() {
    let scene = Scene::new();
    scene.set(&settings(Duration::from_millis(20)));
    let service = scene
        .node("server")
        .enter(|| Ok(std::net::UdpSocket::bind((SERVICE, PORT))?))
        .unwrap();
    service.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let client = scene
        .node("clients")
        .enter(|| Ok(std::net::UdpSocket::bind("10.0.0.1:0")?))
        .unwrap();
    for number in 0..10_u8 {
        client.send_to(&[number], (SERVICE, PORT)).unwrap();
    }
    assert_eq!(scene.waiting(0, 9), 9);
    remove_device(scene.node("server"));
    assert_eq!(scene.counts()[0].waiting, 0);
    let mut buffer = [0; 16];
    for number in 0..10_u8 {
        assert_eq!(
            service
                .recv(&mut buffer)
                .map(|length| buffer[..length].to_vec())
                .unwrap(),
            [number]
        );
    }
    scene.module(|module| module.stop()).unwrap();
    unload();
}

fn remove_device(namespace: &Namespace) {
    namespace.ip("link del eth0").unwrap();
}
