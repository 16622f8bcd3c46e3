//! What TCP connections of the host see is shown, by the uplink that they go by.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use libbpf_rs::libbpf_sys as sys;
use serde_json::Value;

use super::scene::{BOTH, PORT, Scene, TARGETS};
use crate::tcp::TcpMeter;
use tarn_frame::testing::wait_until;
use tarn_kernel::cgroup;
use tarn_kernel::links;
use tarn_lab::load::{Arrivals, Flow, Law, TcpAnswerer, TcpRequests};
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

/// One connection of the host's, on which it asks something every 50 ms, while `meanwhile` runs.
fn requests(scene: &Scene, target: &str, count: u32, meanwhile: impl FnOnce()) {
    let target = SocketAddr::new(target.parse().unwrap(), PORT);
    let mut plan = TcpRequests::new(Flow::to(target), count);
    plan.arrivals = Arrivals::Open(Law::Every(Duration::from_millis(50)));
    let _answerer = TcpAnswerer::start(scene.node("far"), target, plan.request, plan.answer).unwrap();
    let running = scene.host().spawn("requests", move || plan.run()).unwrap();
    meanwhile();
    let exchanges = running.join().unwrap().unwrap();
    assert_eq!(exchanges.answered_count(), u64::from(count));
}

/// A row of `tarn status`: the round trips by an uplink.
fn round_trips(program: &Program<'_>, name: &str) -> Value {
    let (code, text) = program.command_line("tarn paths status --json");
    assert_eq!(code, 0, "{text}");
    let status: Value = serde_json::from_str(&text).unwrap();
    let rows = status["tcp"].as_array().unwrap_or_else(|| panic!("{status}"));
    assert_eq!(rows.len(), 2, "a row for each device, not for each group: {status}");
    rows.iter().find(|row| row["uplink"] == name).unwrap().clone()
}

/// How many programs follow connections in the root of the control groups.
fn programs() -> u32 {
    let group = File::open(cgroup::root().unwrap()).unwrap();
    let mut options = sys::bpf_prog_query_opts {
        sz: size_of::<sys::bpf_prog_query_opts>() as sys::size_t,
        ..Default::default()
    };
    // SAFETY: the descriptor is open, and the options live for the call; no list is asked for.
    let result = unsafe { sys::bpf_prog_query_opts(group.as_raw_fd(), sys::BPF_CGROUP_SOCK_OPS, &raw mut options) };
    assert_eq!(result, 0);
    // SAFETY: the call has written it, and both names of it are of one type.
    unsafe { options.__bindgen_anon_1.count }
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_paths_tcp_round_trips_count_where_they_went() {
    let scene = Scene::new([30, 60]);
    let before = programs();
    let program = scene.up_with(&BOTH.replace("[paths]", "[paths]\ntcp = true"));
    assert_eq!(programs(), before + 1);
    std::thread::sleep(Duration::from_secs(5));
    requests(&scene, TARGETS[0], 600, || {
        std::thread::sleep(Duration::from_secs(15));
        let row = round_trips(&program, "wan1");
        assert!(row["samples"].as_u64().unwrap() > 50, "{row}");
        for figure in ["mean", "min", "median", "p95", "p99"] {
            let ms = row[figure].as_f64().unwrap();
            assert!((30.0..32.0).contains(&ms), "{figure}: {row}");
        }
        let row = round_trips(&program, "wan2");
        assert_eq!((&row["samples"], &row["median"]), (&0.into(), &Value::Null), "{row}");
        // The connection leaves by the other uplink from now on, with the address of this one, by which answers come.
        scene.delay("wan1", 300);
    });
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(scene.way(TARGETS[0]), "wan2");
    let row = round_trips(&program, "wan2");
    assert!(row["samples"].as_u64().unwrap() > 20, "{row}");
    assert!(row["min"].as_f64().unwrap() > 299.0, "{row}");
    // A new one has the address of the other uplink.
    requests(&scene, TARGETS[1], 1500, || ());
    let row = round_trips(&program, "wan2");
    assert!(row["samples"].as_u64().unwrap() > 300, "IPv6, too: {row}");
    assert!((60.0..65.0).contains(&row["median"].as_f64().unwrap()), "{row}");
    let row = round_trips(&program, "wan1");
    assert_eq!(row["samples"], 0, "a minute has passed: {row}");
    program.run("down");
    wait_until("no program is left", || programs() == before);
}

#[test]
#[ignore = "needs the lab"]
fn lab_paths_tcp_of_another_namespace_is_not_counted() {
    let scene = Scene::new([30, 30]);
    scene.host().ip("route add default via 10.1.0.1").unwrap();
    let carrying = scene.host().enter(links::carrying).unwrap();
    let devices = [carrying["wan1"], carrying["wan2"]];
    let elsewhere = Namespace::new("elsewhere").unwrap();
    let meter = |namespace: &Namespace| {
        let mut meter = namespace.enter(|| TcpMeter::attach(2)).unwrap();
        meter.follow(&devices, Duration::ZERO).unwrap();
        meter
    };
    let (mut here, mut stranger) = (meter(scene.host()), meter(&elsewhere));
    requests(&scene, TARGETS[0], 100, || ());
    let later = Duration::from_secs(10);
    here.follow(&devices, later).unwrap();
    stranger.follow(&devices, later).unwrap();
    let found = here.read(devices[0]).unwrap();
    assert!(found.samples > 50, "{found:?}");
    assert!((30_000..32_000).contains(&found.min_us), "the handshake: {found:?}");
    assert_eq!(here.read(devices[1]).unwrap().samples, 0);
    for device in devices {
        assert_eq!(
            stranger.read(device).unwrap().samples,
            0,
            "another namespace's device with the same index"
        );
    }
    // The slot of a device that has gone is another's, and begins anew.
    here.follow(&devices[1..], later).unwrap();
    assert_eq!(here.read(devices[0]), None);
    here.follow(&devices, later).unwrap();
    assert_eq!(here.read(devices[0]).unwrap().samples, 0);
}
