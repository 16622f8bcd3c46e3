//! As many classes, and as many waiting packets, as there may be.

use std::net::UdpSocket;
use std::time::Duration;

use super::scene::{PORT, SERVICE, Scene, at, bound, client, eventually, load, occupied, settings};
use crate::module::{Module, Settings, Target};
use tarn_lab::topology::Namespace;

/// `TARN_CLASSES_MOST`
const MOST: usize = 64;

/// So many classes with this cap.
fn classes(count: usize, cap: u32) -> Settings {
    let target = Target {
        deadline: Duration::from_secs(60).as_nanos() as u64,
        target: 9000,
        cap,
    };
    Settings {
        classes: Some(vec![target; count]),
        // Requests stay where they are, however slow this kernel is.
        patience: Some(Duration::from_secs(60)),
        ..settings(Duration::from_secs(60))
    }
}

/// With 64 classes each has its own clients: none is another's, and the last takes those who are not known.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_sixty_four_are_told_apart() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&classes(MOST, 1024));
    let server = scene.node("server");
    let answer = occupied(&scene, &service);
    let asking = bound(&scene, "clients", at(&client(0), 5000));
    for class in 0..MOST {
        // One client, which is put into one class after the other; each request is a flow of its own.
        let other = bound(&scene, "clients", at(&client(0), 6000 + class as u16));
        let change = format!(
            "delete element inet classes clients4 {{ 10.0.0.1 }}; \
             add element inet classes clients4 {{ 10.0.0.1 : 7461:{class:x} }}"
        );
        server.run("nft", &[&change]).unwrap();
        other.send_to(b"which class am I?", (SERVICE, PORT)).unwrap();
        assert_eq!(scene.waiting(class, 1), 1, "class {class}");
    }
    // A class that there is not, and a client without one.
    let nobody = "delete element inet classes clients4 { 10.0.0.1 }";
    let wrong = format!("{nobody}; add element inet classes clients4 {{ 10.0.0.1 : 7461:40 }}");
    for (already, change) in [(1, wrong.as_str()), (2, nobody)] {
        server.run("nft", &[change]).unwrap();
        asking.send_to(b"who am I?", (SERVICE, PORT)).unwrap();
        assert_eq!(scene.waiting(MOST - 1, already + 1), already + 1, "{change}");
    }
    let counts = scene.counts();
    assert_eq!(counts.len(), MOST);
    assert!(
        counts[..MOST - 1].iter().all(|counts| counts.waiting == 1),
        "{counts:?}"
    );
    assert!(scene.module(|module| module.times(MOST as u32 - 1)).is_ok());
    assert!(scene.module(|module| module.times(MOST as u32)).is_err());
    answer();
    scene.module(Module::stop).unwrap();
}

/// A cap of one lets one wait; the greatest is taken, one more is not.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_the_least_and_the_greatest_cap_hold() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&classes(5, 1));
    let answer = occupied(&scene, &service);
    let asking = bound(&scene, "clients", at(&client(0), 5000));
    let send = |count: u32| {
        for _ in 0..count {
            asking.send_to(b"1", (SERVICE, PORT)).unwrap();
        }
    };
    send(2);
    let counts = scene.counts_after(0, 2);
    assert_eq!((counts.waiting, counts.dropped_cap), (1, 1), "{counts:?}");

    let refused = scene
        .module(|module| module.set(&classes(5, (1 << 20) + 1)))
        .unwrap_err();
    assert!(format!("{refused:#}").contains("a cap must be"), "{refused:#}");
    scene.set(&classes(5, 1 << 20));
    assert_eq!(scene.state().settings.classes.unwrap()[0].cap, 1 << 20);
    send(1500);
    let counts = scene.counts_after(0, 1502);
    assert_eq!(
        (counts.waiting, counts.dropped_cap),
        (1501, 1),
        "more than the default cap wait"
    );
    // A cap that is below what waits already drops nothing of that.
    scene.set(&classes(5, 1));
    send(1);
    let counts = scene.counts_after(0, 1503);
    assert_eq!((counts.waiting, counts.dropped_cap), (1501, 2), "{counts:?}");
    answer();
    scene.module(Module::stop).unwrap();
}

/// Lower classes fill the memory: that drops theirs, what came last first, and not what a better class sends.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_full_memory_has_room_for_a_better_class() {
    let scene = Scene::new();
    let service = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&Settings {
        bytes: Some(64 << 10),
        ..classes(5, 1024)
    });
    let answer = occupied(&scene, &service);
    let send = |class: usize, number: u8| {
        let asking = bound(&scene, "clients", at(&client(class), 5000));
        asking.send_to(&[number], (SERVICE, PORT)).unwrap();
    };
    // One of class 2 among them, which is lower than some and higher than others.
    for number in 0..200_u8 {
        send(if number == 0 { 2 } else { 4 }, number);
    }
    let before = eventually(|| scene.counts(), |counts| counts[4].requests == 200);
    assert!(before[4].dropped_memory > 0, "{:?}", before[4]);
    let (dropped, waiting) = (before[4].dropped_memory, before[4].waiting);
    for number in 0..3_u8 {
        send(0, number);
        assert_eq!(scene.waiting(0, u32::from(number) + 1), u32::from(number) + 1);
    }
    let counts = scene.counts();
    assert_eq!(
        (counts[0].dropped_memory, counts[2].dropped_memory),
        (0, 0),
        "{counts:?}"
    );
    assert_eq!(
        (counts[4].dropped_memory, counts[4].waiting, counts[2].waiting),
        (dropped + 3, waiting - 3, 1),
        "{counts:?}"
    );
    // Nobody makes room for who is no better.
    send(4, 0);
    let after = eventually(|| scene.counts()[4], |counts| counts.requests == 201);
    assert_eq!((after.dropped_memory, after.waiting), (dropped + 4, waiting - 3));
    answer();
    scene.module(Module::stop).unwrap();
    let mut buffer = [0; 16];
    let arrived: Vec<u8> = (0..waiting + 1)
        .map(|_| service.recv(&mut buffer).map(|_| buffer[0]).unwrap())
        .collect();
    // The oldest of class 4 are still there.
    assert!((1..20).all(|number| arrived.contains(&number)), "{arrived:?}");
}

/// The host's memory, in bytes.
fn host_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|line| line.split_whitespace().next()).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Whatever is configured, and in however many namespaces: packets that wait leave the host most of its memory.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_waiting_packets_leave_the_host_its_memory() {
    const LENGTH: usize = 60_000;
    load();
    let ceiling = host_memory() / 8;
    let greedy = Settings {
        bytes: Some(4 << 30),
        patience: Some(Duration::from_secs(3600)),
        ..classes(1, 1 << 20)
    };
    let namespaces = [Namespace::new("one").unwrap(), Namespace::new("other").unwrap()];
    let held: u64 = namespaces
        .iter()
        .map(|namespace| {
            let flood = || {
                let mut module = Module::find()?.expect("the module is loaded");
                module.set(&greedy)?;
                let given = module.state()?.unwrap().settings.bytes.unwrap();
                assert!(given <= ceiling, "{given} bytes of at most {ceiling}");
                let deaf = UdpSocket::bind(("127.0.0.1", PORT))?;
                let asking = UdpSocket::bind("127.0.0.1:0")?;
                // Twice as many as there may be.
                for _ in 0..2 * ceiling / LENGTH as u64 {
                    asking.send_to(&[0; LENGTH], deaf.local_addr()?)?;
                }
                Ok(module.state()?.unwrap().counts[0])
            };
            let counts = namespace.enter(flood).unwrap();
            assert!(counts.dropped_memory > 0, "{counts:?}");
            assert_eq!(counts.dropped_cap, 0, "{counts:?}");
            u64::from(counts.waiting_packets) * LENGTH as u64
        })
        .sum();
    println!("{held} bytes wait, of at most {ceiling}");
    assert!(
        held > ceiling / 4 && held <= ceiling,
        "{held} bytes of at most {ceiling}"
    );
    for namespace in &namespaces {
        let stop = || Module::loaded()?.stop();
        assert!(namespace.enter(stop).unwrap());
    }
}
