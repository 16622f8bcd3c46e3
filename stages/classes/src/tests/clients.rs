//! Who is of which class: the module's table of prefixes.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;

use super::scene::{PORT, SERVICE, Scene, at, bound, client, eventually, load, load_again, settings, unload};
use crate::module::{Entry, Module, Origin, Settings};
use tarn_base::network::Prefix;
use tarn_kernel::netlink::refusal;
use tarn_lab::debug;
use tarn_lab::random::Random;
use tarn_lab::testing::is_thorough;

/// Changes that are made one after the other.
const ROUNDS: u32 = 100;
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
    // Who logs in again has it for longer, or for less; and asks on.
    change(&scene, &[lasts(500)]).unwrap();
    assert_eq!(class_of(&scene, &client(0), &service), 0);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(class_of(&scene, &client(0), &service), 2);
    assert_eq!(find().prefix.to_string(), "10.0.0.0/24");
    assert_eq!(scene.module(Module::clients).unwrap(), [entry("10.0.0.0/24", Some(2))]);
    scene.module(Module::stop).unwrap();
}

/// Prefixes around the clients, one in the other.
const NESTED: [&str; 12] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.0.0.0/30",
    "10.0.0.1/32",
    "10.0.0.4/31",
    "10.0.0.5/32",
    "::/0",
    "a00:1::/32",
    "a00:1::/128",
    "fd00::/64",
    "fd00::2/127",
    "fd00::3/128",
];

/// Whoever asks all the time is remembered: who has logged in would be an unknown client still, and who has logged out be served as gold.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_who_keeps_asking_has_the_class_of_now() {
    let (scene, service) = scene();
    // Where it is remembered, an address of IPv4 is the one of IPv6 that begins with it.
    for (node, address) in [("clients", "a00:1::/64"), ("server", "a00:1::100/64")] {
        let add = ["addr", "add", address, "dev", "eth0", "nodad"];
        scene.node(node).run("ip", &add).unwrap();
    }
    let services = ["fd00::100", "a00:1::100"].map(|address| bound(&scene, "server", at(address, PORT)));
    let service_of = |address: &str| match address.split_once("::") {
        Some((network, _)) => &services[usize::from(network != "fd00")],
        None => &service,
    };
    let mut random = Random::new(1, "clients");
    let mut known = BTreeMap::new();
    for round in 0..ROUNDS {
        let prefix = NESTED[random.below(NESTED.len() as u64) as usize];
        let goes = random.below(3) == 0;
        let class = (!goes).then(|| random.below(5) as u16);
        change(&scene, &[entry(prefix, class)]).unwrap();
        match class {
            Some(class) => known.insert(prefix.parse::<Prefix>().unwrap(), class),
            None => known.remove(&prefix.parse::<Prefix>().unwrap()),
        };
        for address in ["10.0.0.1", "10.0.0.2", "10.0.0.5", "a00:1::", "fd00::2", "fd00::3"] {
            let around = known
                .iter()
                .filter(|(prefix, _)| prefix.contains(address.parse().unwrap()));
            let longest = around.max_by_key(|(prefix, _)| prefix.length);
            let expected = longest.map_or(4, |(_, class)| usize::from(*class));
            let found = class_of(&scene, address, service_of(address));
            assert_eq!(found, expected, "{address} in round {round}, with {known:?}");
        }
    }
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

/// What is taken out and added by one change is there, and the other way round.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_change_is_carried_out_in_order() {
    let (scene, _service) = scene();
    let (gold, none) = (entry("10.0.0.1/32", Some(0)), entry("10.0.0.1/32", None));
    change(&scene, &[none, gold]).unwrap();
    assert_eq!(scene.module(Module::clients).unwrap(), [gold]);
    change(&scene, &[none, entry("10.0.0.1/32", Some(2)), none, gold]).unwrap();
    assert_eq!(scene.module(Module::clients).unwrap(), [gold]);
    change(&scene, &[gold, none, none]).unwrap();
    assert_eq!(scene.module(Module::clients).unwrap(), []);
    // The limit is lower than what is there: it may become less, and stay as much, but not more.
    change(&scene, &many(10, Some(1))).unwrap();
    let with_limit = |entries: &[Entry]| scene.module(|module| module.change_clients(entries, 5));
    with_limit(&many(1, None)).unwrap();
    with_limit(&many(9, Some(2))[1..]).unwrap();
    assert_eq!(refusal(&with_limit(&[gold]).unwrap_err()), Some(Errno::ENOSPC));
    with_limit(&many(10, None)).unwrap();
    // A refused change leaves the limit as it was; what is over is no reason for a refusal.
    with_limit(&[gold]).unwrap();
    let lasts = |entry: &Entry| Entry {
        timeout: Some(Duration::from_millis(1)),
        ..*entry
    };
    with_limit(&many(4, Some(1)).iter().map(lasts).collect::<Vec<_>>()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    with_limit(&[entry("192.0.2.1/32", Some(1))]).unwrap();
    scene.module(Module::stop).unwrap();
}

/// A part of somebody else's change would be carried out as if it were all of one's own.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_changes_of_two_programs_do_not_mix() {
    let (scene, _service) = scene();
    scene
        .node("server")
        .enter(|| {
            let (mut one, mut other) = (Module::loaded()?, Module::loaded()?);
            one.begin_change(&[entry("10.0.0.1/32", Some(0))])?;
            other.change_clients(&[entry("10.0.0.2/32", Some(1))], MOST)?;
            let refused = one.end_change(&[entry("10.0.0.3/32", Some(0))]).unwrap_err();
            assert_eq!(refusal(&refused), Some(Errno::EBUSY));
            assert_eq!(other.clients()?, [entry("10.0.0.2/32", Some(1))]);
            one.begin_change(&[entry("10.0.0.1/32", Some(0))])?;
            one.end_change(&[entry("10.0.0.3/32", Some(0))])?;
            assert_eq!(one.clients()?.len(), 3);
            Ok(())
        })
        .unwrap();
    scene.module(Module::stop).unwrap();
}

/// Who reads the list slowly, while the table becomes another one, would read freed memory, or miss clients that are there all the time.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_list_survives_what_changes_meanwhile() {
    let (scene, _service) = scene();
    let (count, rounds) = if is_thorough() && !debug::is_here() {
        (20_000, 3)
    } else {
        (4000, 1)
    };
    let stays: Vec<Entry> = many(count, Some(1));
    let lasts = |number: u32| Entry {
        prefix: Prefix::of(std::net::IpAddr::V4((0x2800_0000 + number).into()), 32),
        timeout: Some(Duration::from_millis(300)),
        ..entry("0.0.0.0/0", Some(0))
    };
    let going: Vec<Entry> = (0..4 * count).map(lasts).collect();
    let ends = AtomicBool::new(false);
    change(&scene, &stays).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut lists = 0;
            while !ends.load(Ordering::Relaxed) || lists == 0 {
                let listed = scene.module(Module::clients).unwrap();
                let there = listed.iter().filter(|entry| entry.timeout.is_none()).count();
                assert_eq!(there, stays.len(), "list {lists}");
                lists += 1;
                // Emulated time in which something runs is dear.
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        for _ in 0..rounds {
            change(&scene, &going).unwrap();
            // All of them at once, by the sweep, and the table shrinks.
            std::thread::sleep(Duration::from_secs(31));
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert_eq!(scene.module(Module::clients).unwrap(), stays);
    scene.module(Module::clear_clients).unwrap();
    assert_eq!(scene.module(Module::clients).unwrap(), []);
    scene.module(Module::stop).unwrap();
}

/// The only one logged in renews his login, while his requests come: none of them is an unknown client's.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_who_renews_is_known_all_the_time() {
    let (scene, _service) = scene();
    change(&scene, &[entry("10.0.0.1/32", Some(0))]).unwrap();
    let (ends, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let asking = bound(&scene, "clients", at(&client(0), 0));
            while !ends.load(Ordering::Relaxed) {
                if asking.send_to(b"who am I?", (SERVICE, PORT)).is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let lasts = Entry {
            timeout: Some(Duration::from_secs(60)),
            ..entry("10.0.0.1/32", Some(0))
        };
        while sent.load(Ordering::Relaxed) < 5000 {
            change(&scene, &[lasts]).unwrap();
        }
        ends.store(true, Ordering::Relaxed);
    });
    let others: u64 = scene.counts()[1..].iter().map(|counts| counts.requests).sum();
    assert_eq!(others, 0);
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
fn lab_classes_clients_change_under_load() {
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
