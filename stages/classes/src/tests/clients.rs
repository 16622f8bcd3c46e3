//! Who is of which class: the module's table of prefixes.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;

use super::scene::{PORT, SERVICE, Scene, at, bound, client, eventually, load, load_again, settings, unload};
use crate::module::{Entry, Module, Origin, Settings};
use tarn_base::network::Prefix;
use tarn_kernel::netlink::refusal;
use tarn_lab::debug;

/// The highest number of prefixes in these tests.
const MOST: u32 = 100_000;

fn entry(prefix: &str, class: Option<u16>) -> Entry {
    Entry {
        prefix: prefix.parse().unwrap(),
        class,
        origin: Origin::Command,
        timeout: None,
    }
}

fn change(scene: &Scene, entries: &[Entry]) -> anyhow::Result<()> {
    scene.module(|module| module.change_clients(entries, MOST))
}

/// A scene without a map of its own: only the module says of which class a client is.
fn scene() -> (Scene, UdpSocket) {
    let scene = Scene::new();
    scene.node("server").run("nft", &["delete table inet classes"]).unwrap();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&Settings {
        limit: Some(1000),
        ..settings(Duration::from_secs(1))
    });
    (scene, service)
}

/// The class in which a request from this address counts.
fn class_of(scene: &Scene, address: &str, service: &UdpSocket) -> usize {
    scene.module(|module| module.reset()).unwrap();
    let to = service.local_addr().unwrap();
    bound(scene, "clients", at(address, 0))
        .send_to(b"who am I?", to)
        .unwrap();
    let counted = || scene.counts().iter().position(|counts| counts.requests > 0);
    let found = eventually(counted, Option::is_some).expect("the request has come");
    let mut buffer = [0; 16];
    let (_, from) = service.recv_from(&mut buffer).unwrap();
    service.send_to(b"somebody", from).unwrap();
    found
}

/// A customer in an office of silver's would be served as silver, or silver's office as unknown.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_the_longest_prefix_decides() {
    let (scene, service) = scene();
    let service6 = bound(&scene, "server", at("fd00::100", PORT));
    assert_eq!(
        class_of(&scene, &client(0), &service),
        4,
        "the last takes those who are not known"
    );
    change(
        &scene,
        &[
            entry("10.0.0.0/8", Some(3)),
            entry("10.0.0.0/30", Some(1)),
            entry("10.0.0.1/32", Some(0)),
        ],
    )
    .unwrap();
    assert_eq!(
        [0, 1, 3].map(|number| class_of(&scene, &client(number), &service)),
        [0, 1, 3]
    );
    change(&scene, &[entry("10.0.0.1/32", None), entry("10.0.0.0/30", Some(2))]).unwrap();
    assert_eq!(
        [0, 1, 3].map(|number| class_of(&scene, &client(number), &service)),
        [2, 2, 3]
    );
    change(
        &scene,
        &[
            entry("10.0.0.0/30", None),
            entry("10.0.0.0/8", None),
            entry("0.0.0.0/0", Some(1)),
        ],
    )
    .unwrap();
    assert_eq!(class_of(&scene, &client(0), &service), 1);
    assert_eq!(class_of(&scene, "fd00::1", &service6), 4, "IPv4's are not IPv6's");
    let prefixes = ["::/0", "fd00::/63", "fd00::/64", "fd00::/127", "fd00::2/128"];
    let entries: Vec<Entry> = (0..)
        .zip(prefixes)
        .map(|(class, prefix)| entry(prefix, Some(class)))
        .collect();
    change(&scene, &entries).unwrap();
    for (address, class) in [("fd00::1", 3), ("fd00::2", 4), ("fd00::3", 2)] {
        assert_eq!(class_of(&scene, address, &service6), class, "{address}");
    }
    change(&scene, &[entry("fd00::/64", None), entry("fd00::/127", None)]).unwrap();
    assert_eq!(class_of(&scene, "fd00::1", &service6), 1);
    // A class that this service does not have.
    change(&scene, &[entry("fd00::1/128", Some(40))]).unwrap();
    assert_eq!(class_of(&scene, "fd00::1", &service6), 4);
    scene.module(Module::stop).unwrap();
}

/// Who logged in for half an hour would be gold for ever.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_class_is_lost_in_time() {
    let (scene, service) = scene();
    let lasts = |milliseconds| Entry {
        timeout: Some(Duration::from_millis(milliseconds)),
        ..entry("10.0.0.1/32", Some(0))
    };
    change(&scene, &[lasts(60_000), entry("10.0.0.0/24", Some(2))]).unwrap();
    assert_eq!(class_of(&scene, &client(0), &service), 0);
    let find = || {
        scene
            .module(|module| module.find_client("10.0.0.1/32".parse().unwrap()))
            .unwrap()
            .unwrap()
    };
    let left = find().timeout.unwrap();
    assert!(
        left > Duration::from_secs(50) && left <= Duration::from_secs(60),
        "{left:?}"
    );
    // Who logs in again has it for longer, or for less.
    change(&scene, &[lasts(50)]).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(class_of(&scene, &client(0), &service), 2);
    assert_eq!(find().prefix.to_string(), "10.0.0.0/24");
    assert_eq!(scene.module(Module::clients).unwrap(), [entry("10.0.0.0/24", Some(2))]);
    scene.module(Module::stop).unwrap();
}

fn many(count: u32, class: Option<u16>) -> Vec<Entry> {
    let prefix = |number: u32| Prefix::of(std::net::IpAddr::V4((0x1400_0000 + number * 16).into()), 28);
    let one = |number| Entry {
        prefix: prefix(number),
        ..entry("0.0.0.0/0", class)
    };
    (0..count).map(one).collect()
}

/// A table of customers is taken over whole, or not at all; every one of them is listed once.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_many_clients_change_together() {
    let (scene, service) = scene();
    let count = if debug::is_here() { 7001 } else { 70_001 };
    change(&scene, &many(count, Some(1))).unwrap();
    assert_eq!(scene.module(Module::clients).unwrap(), many(count, Some(1)));
    // One too many at the end of several messages: nothing has changed.
    let mut more = many(count, Some(2));
    more.push(entry("10.0.0.1/32", Some(0)));
    let refused = scene.module(|module| module.change_clients(&more, count)).unwrap_err();
    assert_eq!(refusal(&refused), Some(Errno::ENOSPC));
    assert_eq!(scene.module(Module::clients).unwrap(), many(count, Some(1)));
    // As many may come as go.
    more.drain(..count as usize - 1);
    more[0].class = None;
    scene.module(|module| module.change_clients(&more, count)).unwrap();
    assert_eq!(class_of(&scene, &client(0), &service), 0);
    assert_eq!(scene.module(Module::clients).unwrap().len(), count as usize);
    scene
        .module(|module| module.change_clients(&many(count, None), MOST))
        .unwrap();
    assert_eq!(scene.module(Module::clients).unwrap(), [entry("10.0.0.1/32", Some(0))]);
    scene.module(Module::clear_clients).unwrap();
    assert_eq!(scene.module(Module::clients).unwrap(), []);
    scene.module(Module::stop).unwrap();
}

/// Clients are known without any service, stay when one ends, and go with `tarn down`.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_clients_stay_when_services_end() {
    let (scene, service) = scene();
    change(&scene, &[entry("10.0.0.1/32", Some(0))]).unwrap();
    assert!(scene.module(Module::stop_services).unwrap());
    assert!(!scene.module(Module::stop_services).unwrap());
    assert_eq!(scene.module(Module::clients).unwrap().len(), 1);
    scene.set(&Settings {
        limit: Some(1000),
        ..settings(Duration::from_secs(1))
    });
    assert_eq!(class_of(&scene, &client(0), &service), 0);
    assert!(scene.module(Module::stop).unwrap());
    assert_eq!(scene.module(Module::clients).unwrap(), []);
    assert!(!scene.module(Module::stop).unwrap());
    change(&scene, &[entry("10.0.0.1/32", Some(0))]).unwrap();
    assert!(scene.module(Module::stop).unwrap(), "clients are something to end");
    // The module goes with clients in the table, and comes again without.
    change(&scene, &many(1000, Some(1))).unwrap();
    unload();
    load_again();
    assert_eq!(scene.module(Module::clients).unwrap(), []);
    change(&scene, &many(1000, Some(1))).unwrap();
    // So does the namespace.
    drop((service, scene));
    load();
    unload();
    load();
}

/// Logins and lists while requests come in, and `tarn down` in the middle of a list.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_clients_change_under_load() {
    let (scene, service) = scene();
    let ends = AtomicBool::new(false);
    let rounds = if debug::is_here() { 20 } else { 100 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let asking = bound(&scene, "clients", at(&client(0), 0));
            while !ends.load(Ordering::Relaxed) {
                let _ = asking.send_to(b"who am I?", (SERVICE, PORT));
            }
        });
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let clients = scene.module(Module::clients).unwrap();
                assert!(clients.len() <= 3001, "{}", clients.len());
            }
        });
        for round in 0..rounds {
            let class = Some(round % 4);
            change(&scene, &many(3000, class)).unwrap();
            change(&scene, &[entry("10.0.0.1/32", class)]).unwrap();
            match round % 3 {
                0 => change(&scene, &many(3000, None)).unwrap(),
                1 => scene.module(Module::clear_clients).unwrap(),
                _ => drop(scene.module(Module::stop).unwrap()),
            }
            scene.set(&settings(Duration::from_secs(1)));
        }
        ends.store(true, Ordering::Relaxed);
    });
    scene.module(Module::stop).unwrap();
    drop(service);
}
