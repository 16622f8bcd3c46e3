//! Namespaces, devices and the module go while fragments arrive: nothing stays behind, and the kernel does not complain.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::packet::{self, Ip, payload};
use super::rig::{FAMILIES, RECEIVER_MAC, Rig, SENDER_MAC, eventually, load, load_again, module_of, unload};
use super::wire::Wire;
use crate::module::tests::SETTINGS;
use crate::module::{Datagrams, Module, Settings};
use tarn_kernel::links;
use tarn_lab::testing::{is_thorough, sign_of_life};
use tarn_lab::topology::{End, Namespace, Node, Topology};

/// How often something goes.
fn times() -> u32 {
    if is_thorough() { 200 } else { 8 }
}

/// How long it runs before it goes.
const LIFE: Duration = Duration::from_millis(20);

/// All that can be held: whole datagrams, and parts of them.
const EVERYTHING: Settings = Settings {
    datagrams: Datagrams::All,
    ..SETTINGS
};

/// The frames of some datagrams of both families, of which every other is never complete.
fn frames(round: u32) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for family in FAMILIES {
        for number in 0..4 {
            let ip = Ip {
                identification: round * 16 + number,
                ..family.ip()
            };
            let mut fragments = ip.fragments(&family.udp(&payload(3000, number)), 800);
            fragments.rotate_left(number as usize);
            fragments.truncate(if number % 2 == 0 { 3 } else { 4 });
            frames.extend(
                fragments
                    .iter()
                    .map(|packet| packet::frame(RECEIVER_MAC, SENDER_MAC, packet)),
            );
        }
    }
    frames
}

/// Sends fragments for as long as `work` runs.
fn under_load(wire: &Wire, work: impl FnOnce()) {
    let (over, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let round = rounds.fetch_add(1, Ordering::Relaxed);
                // The receiver may be gone.
                frames(round).iter().for_each(|frame| _ = wire.try_send(frame));
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let two_rounds = || {
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) < before + 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        two_rounds();
        work();
        two_rounds();
        over.store(true, Ordering::Relaxed);
    });
}

/// The module is taken out, and comes back, again and again.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_the_module_goes_under_load() {
    let rig = Rig::with(&EVERYTHING);
    under_load(&rig.wire, || {
        for _ in 0..times() {
            unload();
            load_again();
            module_of(rig.receiver()).set(&EVERYTHING).unwrap();
            std::thread::sleep(LIFE);
        }
    });
    let mut module = module_of(rig.receiver());
    assert!(module.state().unwrap().unwrap().held.memory > 0, "there was load");
    module.stop().unwrap();
    unload();
}

/// The same with its configuration, as `tarn up` and `tarn down` do.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_begins_and_ends_under_load() {
    let rig = Rig::with(&EVERYTHING);
    under_load(&rig.wire, || {
        for _ in 0..times() {
            std::thread::sleep(LIFE);
            assert!(rig.module(Module::stop).unwrap());
            rig.module(|module| module.set(&EVERYTHING)).unwrap();
        }
    });
    assert!(rig.module(Module::stop).unwrap());
    unload();
}

/// Containers come and go. A namespace that is held by a fragment would never go, and the kernel would say so.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_namespaces_go_under_load() {
    load();
    for round in 0..times() {
        sign_of_life(round);
        let sender = Namespace::new("sender").unwrap();
        let receiver = Namespace::new("receiver").unwrap();
        add_link(&sender, &receiver);
        module_of(&receiver).set(&EVERYTHING).unwrap();
        let wire = Wire::open(&sender, "eth0", 0);
        let mut module = module_of(&receiver);
        under_load(&wire, || {
            let mut held = || module.state().unwrap().unwrap().held.datagrams;
            assert!(eventually(&mut held, |held| *held > 0) > 0, "there is load");
            drop(module);
            drop(receiver);
        });
    }
    unload();
}

fn add_link(sender: &Namespace, receiver: &Namespace) {
    use std::os::fd::{AsFd, AsRawFd};
    let place = format!("/proc/{}/fd/{}", std::process::id(), receiver.as_fd().as_raw_fd());
    sender
        .ip(&format!(
            "link add eth0 address 02:00:00:00:00:00 type veth peer eth0 address 02:00:00:00:00:01 netns {place}"
        ))
        .unwrap();
    for (namespace, number) in [(sender, 1), (receiver, 2)] {
        namespace
            .ip_batch(&[
                format!("address add 10.0.0.{number}/24 dev eth0"),
                format!("address add fd00::{number}/64 dev eth0 nodad"),
                "link set eth0 up".to_owned(),
            ])
            .unwrap();
    }
    for namespace in [sender, receiver] {
        let carries = || Ok(links::state("eth0")?.operates);
        assert!(eventually(|| namespace.enter(carries).unwrap(), |carries| *carries));
    }
}

/// A device goes while fragments that came by it are held: it must be free at once, and what is held is given up in time.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_devices_go_under_load() {
    load();
    let sender = Namespace::new("sender").unwrap();
    let receiver = Namespace::new("receiver").unwrap();
    let mut module = module_of(&receiver);
    let second = Duration::from_secs(1);
    let settings = Settings {
        timeout4: second / 10,
        timeout6: second / 2,
        ..EVERYTHING
    };
    module.set(&settings).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    for round in 0..times() {
        sign_of_life(round);
        add_link(&sender, &receiver);
        let wire = Wire::open(&sender, "eth0", 0);
        let end = if round % 2 == 0 { &receiver } else { &sender };
        let before = module.state().unwrap().unwrap().ipv4.fragments;
        under_load(&wire, || {
            let mut taken = || module.state().unwrap().unwrap().ipv4.fragments - before;
            assert!(eventually(&mut taken, |taken| *taken > 0) > 0, "there is load");
            end.ip("link del eth0").unwrap();
        });
    }
    // Nobody can be told, and nobody is looked for.
    std::thread::sleep(2 * second);
    let state = module.state().unwrap().unwrap();
    assert_eq!((state.held.memory, state.held.datagrams), (0, 0), "{state:?}");
    assert!(state.ipv4.timeout > 0 && state.ipv6.timeout > 0, "{state:?}");
    module.stop().unwrap();
    unload();
}

/// Two CPUs take fragments from two senders, while the memory is full and values change. With one CPU they take turns.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_reassembly_two_senders_at_once_lose_nothing() {
    const DATAGRAMS: u32 = 300;
    let topology = Topology::new()
        .node(Node::new("one"))
        .node(Node::new("other"))
        .node(Node::new("receiver"))
        .link(
            End::new("one", "eth0").address("10.0.0.1/24").address("fd00::1/64"),
            End::new("receiver", "eth0")
                .address("10.0.0.2/24")
                .address("fd00::2/64"),
        )
        .link(
            End::new("other", "eth0").address("10.0.1.1/24"),
            End::new("receiver", "eth1").address("10.0.1.2/24"),
        );
    let network = topology.build().unwrap();
    let receiver = network.namespace("receiver").unwrap();
    let mut module = super::rig::begin(receiver, &EVERYTHING);
    let socket = super::rig::bound(receiver, "0.0.0.0:2000".parse().unwrap());
    let send = |name: &str, link: u8| {
        let wire = Wire::open(network.namespace(name).unwrap(), "eth0", 0);
        let address = |host: u8| std::net::IpAddr::from([10, 0, link, host]);
        for number in 0..DATAGRAMS {
            let ip = Ip {
                identification: number,
                ..Ip::between(address(1), address(2))
            };
            let (from, to) = ((address(1), 1000).into(), (address(2), 2000).into());
            let udp = packet::udp(from, to, &payload(3000, number));
            for fragment in ip.fragments(&udp, 800).iter().rev() {
                wire.send(&packet::frame([2, 0, 0, 0, link, 1], [2, 0, 0, 0, link, 0], fragment));
            }
            // Another one that never completes.
            let lost = Ip {
                identification: 0x8000 + number,
                ..ip
            };
            wire.send(&packet::frame(
                [2, 0, 0, 0, link, 1],
                [2, 0, 0, 0, link, 0],
                &lost.fragment(800, true, &[0; 800]),
            ));
        }
    };
    std::thread::scope(|scope| {
        let senders = [("one", 0), ("other", 1)].map(|(name, link)| scope.spawn(move || send(name, link)));
        for round in 0..20 {
            let memory = if round % 2 == 0 { 256 << 10 } else { 64 << 20 };
            module.set(&Settings { memory, ..EVERYTHING }).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
    let completed = super::rig::eventually(
        || module.state().unwrap().unwrap().ipv4.completed,
        |completed| *completed == u64::from(2 * DATAGRAMS),
    );
    assert_eq!(completed, u64::from(2 * DATAGRAMS));
    let received = std::iter::from_fn(|| super::rig::taken(&socket)).count();
    assert_eq!(received, 2 * DATAGRAMS as usize);
    module.stop().unwrap();
}
