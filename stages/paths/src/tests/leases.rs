//! A DHCP client and its servers (dhcpcd, and udhcpd of busybox), as they are.

use std::fs::{self, File};

use super::scene::{BOTH, Scene, TARGETS, await_calmly, await_state};
use tarn_lab::testing::software::Running;

/// How long a lease holds, in seconds: the client asks again after half of it.
const LEASE_S: u32 = 20;

/// Gives the host's address on an uplink to it, with this gateway.
fn server(scene: &Scene, number: u8, gateway: &str) -> Running {
    let leases = format!("/tmp/leases-{number}");
    let file = format!("/tmp/udhcpd-{number}.conf");
    File::options().create(true).append(true).open(&leases).unwrap();
    let text = format!(
        "interface wan{number}\nmax_leases 1\nstart 10.{number}.0.2\nend 10.{number}.0.2\nlease_file {leases}\npidfile /tmp/udhcpd-{number}.pid\n\
         min_lease {LEASE_S}\noption lease {LEASE_S}\noption subnet 255.255.255.0\noption router {gateway}\n"
    );
    fs::write(&file, text).unwrap();
    Running::serve(scene.node("far"), "busybox", &["udhcpd", "-f", &file])
}

/// Whoever has a lease at home has no other gateway than the one that the lease tells, as long as it does.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_follow_the_leases_of_a_dhcp_client() {
    let scene = Scene::new([10, 30]);
    let (host, far) = (scene.host(), scene.node("far"));
    for device in ["wan1", "wan2"] {
        host.ip(&format!("-4 address flush dev {device}")).unwrap();
    }
    let first = server(&scene, 1, "10.1.0.1");
    let _second = server(&scene, 2, "10.2.0.1");
    let options = [
        "--nobackground",
        "--nodev",
        "--ipv4only",
        "--noarp",
        "--noipv4ll",
        "--config",
        "/dev/null",
        "--script",
        "/bin/true",
    ];
    let client = Running::serve(host, "dhcpcd", &[&options[..], &["wan1", "wan2"]].concat());
    let text = ["10.1.0.1", "10.2.0.1"]
        .iter()
        .fold(BOTH.to_owned(), |text, gateway| text.replace(gateway, "auto"));
    let program = scene.up_with(&text);
    await_state(&program, "default", "wan1", "used");
    await_state(&program, "default", "wan2", "standby");
    let route = |device: &str| host.ip(&format!("-4 route show default dev {device}")).unwrap();
    assert!(route("wan1").contains("via 10.1.0.1 proto dhcp"), "{}", route("wan1"));

    // The provider moves its customers to another router; the client learns it when it asks again.
    far.ip("address add 10.1.0.77/24 dev wan1").unwrap();
    drop(first);
    let third = server(&scene, 1, "10.1.0.77");
    let exchanges = scene.requests(TARGETS[0], 100 * LEASE_S, || {
        await_calmly("the new gateway", || {
            host.ip("nexthop").unwrap().contains("via 10.1.0.77 dev wan1")
        });
    });
    assert!(route("wan1").contains("via 10.1.0.77 proto dhcp"), "{}", route("wan1"));
    assert_eq!(exchanges.answered_count(), exchanges.sent_count());
    assert_eq!(scene.way(TARGETS[0]), "wan1");

    // Nobody renews the lease: with it, the address goes.
    drop(third);
    await_state(&program, "default", "wan1", "gone");
    assert_eq!(scene.way(TARGETS[0]), "wan2");
    let _fourth = server(&scene, 1, "10.1.0.1");
    await_state(&program, "default", "wan1", "standby");

    program.run("down");
    assert_eq!(host.ip("nexthop").unwrap(), "");
    let left = ["wan1", "wan2"].map(route);
    assert!(left.iter().all(|route| route.contains("proto dhcp")), "{left:?}");
    drop(client);
}
