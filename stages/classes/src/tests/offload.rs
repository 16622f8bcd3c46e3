//! Packets that the kernel has made of several (GRO): one of them is several segments of a request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::scene::{PORT, SERVICE, Scene, at, bound, counter, eventually, occupied, settings};
use tarn_lab::topology::Namespace;

/// Bytes of a request: nine segments, which the client sends at once.
const REQUEST: usize = 9 * 1400;

/// Has the server merge what arrives within a millisecond, and the client send every segment by itself.
fn merge(scene: &Scene) {
    let [clients, server] = ["clients", "server"].map(|node| scene.node(node));
    clients
        .run("ethtool", &["-K", "eth0", "tso", "off", "gso", "off"])
        .unwrap();
    server.run("ethtool", &["-K", "eth0", "gro", "on"]).unwrap();
    let set = "mount -t sysfs sysfs /sys && cd /sys/class/net/eth0 && \
               echo 1 >napi_defer_hard_irqs && echo 1000000 >gro_flush_timeout";
    server.run("unshare", &["--mount", "bash", "-c", set]).unwrap();
}

/// Frames that have come in by the server's device.
fn frames(server: &Namespace) -> u64 {
    let shown = server.run("ip", &["-stats", "-json", "link", "show", "eth0"]).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

/// Segments that were merged wait and arrive as one, whole and in their order.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_merged_segments_wait_and_arrive_in_order() {
    let scene = Scene::new();
    merge(&scene);
    let server = scene.node("server");
    let datagrams = bound(&scene, "server", at(SERVICE, PORT));
    scene.set(&settings(Duration::from_secs(10)));
    let listener = server.enter(|| Ok(TcpListener::bind((SERVICE, PORT))?)).unwrap();
    let connect = || Ok(TcpStream::connect((SERVICE, PORT))?);
    let mut asking = scene.node("clients").enter(connect).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    let answer = occupied(&scene, &datagrams);
    let request: Vec<u8> = (0..REQUEST).map(|index| (index % 251) as u8).collect();
    let before = frames(server);
    asking.write_all(&request).unwrap();
    let came = eventually(|| frames(server) - before, |frames| *frames >= 9);
    assert!(came >= 9, "{came} frames");
    std::thread::sleep(Duration::from_millis(10));
    let counts = scene.counts()[0];
    println!("{came} frames, {counts:?}");
    assert_eq!(counts.waiting, 1);
    assert!(u64::from(counts.waiting_packets) < came, "nothing was merged");

    answer();
    served.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut arrived = vec![0; REQUEST];
    served.read_exact(&mut arrived).unwrap();
    assert!(arrived == request, "the request has arrived in another form");
    served.write_all(b"answer").unwrap();
    let mut text = [0; 6];
    asking.read_exact(&mut text).unwrap();
    assert_eq!(counter(server, "TcpExtTCPOFOQueue"), 0);
    let counts = eventually(|| scene.counts()[0], |counts| counts.in_time == 1);
    assert_eq!(
        (counts.requests, counts.in_time, counts.waiting),
        (1, 1, 0),
        "{counts:?}"
    );
}
