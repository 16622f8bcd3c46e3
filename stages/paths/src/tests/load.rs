//! What uplinks send is measured, and gone by where that is wanted.

use std::time::Duration;

use super::scene::{BOTH, Scene, TARGETS, await_state, figure, uplink};
use crate::load::LoadMeter;
use tarn_kernel::links;
use tarn_lab::topology::Namespace;

/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

/// A meter of these devices, on behalf of a namespace.
fn meter(namespace: &Namespace, gain: u32, devices: &[u32]) -> LoadMeter {
    let attached = namespace.enter(|| LoadMeter::attach(gain));
    let mut meter = attached.unwrap();
    meter.follow(devices).unwrap();
    meter
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_paths_load_is_what_a_device_sends() {
    let scene = Scene::new([10, 10]);
    let carrying = scene.host().enter(links::carrying).unwrap();
    let devices = [carrying["wan1"], carrying["wan2"]];
    scene.host().ip("route add default via 10.1.0.1").unwrap();
    let elsewhere = Namespace::new("elsewhere").unwrap();
    // The slower average is the smoother one.
    let mut meter_here = meter(scene.host(), 32, &devices);
    let stranger = meter(&elsewhere, 32, &devices);
    let size = 1000;
    scene.requests_of(size, TARGETS[0], 300, || {
        std::thread::sleep(Duration::from_millis(2500));
        let loads = devices.map(|device| meter_here.read(device).unwrap().unwrap());
        let sent = (size + HEADERS) as f64 * 100.0;
        assert!(
            (loads[0].busy / sent - 1.0).abs() < 0.05,
            "{loads:?}, sent {sent} a second"
        );
        // A packet comes two or three jiffies of 4 ms after the one before.
        assert!((0.1..0.3).contains(&(loads[0].uneven / sent)), "{loads:?}");
        assert!(loads[1].weight() < 1000.0, "{loads:?}");
        for device in devices {
            let weight = stranger.read(device).unwrap().unwrap().weight();
            assert_eq!(weight, 0.0, "another namespace's device with the same index");
        }
    });
    std::thread::sleep(Duration::from_secs(3));
    let load = meter_here.read(devices[0]).unwrap().unwrap();
    assert!(load.weight() < 1000.0, "idle again: {load:?}");
    meter_here.follow(&devices[1..]).unwrap();
    assert_eq!(meter_here.read(devices[0]).unwrap(), None);
}

/// New flows go where less is sent; the one that is under way stays.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_paths_by_load_go_by_the_idle_uplink() {
    let scene = Scene::new([10, 10]);
    let before = scene.dump();
    let program = scene.up_with(&BOTH.replace("[paths]", "[paths]\nmeasure = \"load\""));
    assert_eq!(scene.way(TARGETS[0]), "wan1");
    scene.requests_of(1000, TARGETS[0], 400, || {
        await_state(&program, "default", "wan2", "used");
        assert_eq!(scene.way("10.77.0.1"), "wan2", "a new flow");
        assert_eq!(scene.way(TARGETS[0]), "wan1", "what is under way");
        let row = uplink(&program, "default", "wan1");
        let traffic = figure(&program, "traffic", "default", "wan1");
        let value = |name: &str| traffic[name].as_f64().unwrap();
        assert!((80.0..130.0).contains(&value("sends")), "{traffic}");
        assert!(value("carries") > 90.0, "{traffic}");
        // It knows little more than the last second.
        assert!((50.0..200.0).contains(&value("load")), "{traffic}");
        assert!((5.0..100.0).contains(&value("uneven")), "{traffic}");
        assert!(row["score"].as_f64().unwrap() > 80.0, "{row}");
    });
    let (_, history) = program.command_line("tarn paths history");
    assert!(history.contains("wan2 is less busy: 10.0 kB/s, wan1 has"), "{history}");
    scene.kill("wan2");
    await_state(&program, "default", "wan2", "silent");
    assert_eq!(
        scene.way(TARGETS[0]),
        "wan1",
        "a dead uplink is idle, and left all the same"
    );
    program.run("down");
    assert_eq!(scene.dump(), before);
}
