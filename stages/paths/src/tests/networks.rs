//! A router without translation, with an address of each provider's: each takes nothing but what has its own.

use std::net::{IpAddr, SocketAddr};

use super::scene::{BOTH, PORT, Scene, TARGETS, await_state};
use tarn_frame::testing::wait_until;
use tarn_lab::load::{Flow, UdpEcho, UdpRequests};

const REQUESTS: u32 = 30;
/// The router's addresses at both uplinks, over IPv4 and IPv6.
const OWN: [[&str; 2]; 2] = [["10.1.0.2", "10.2.0.2"], ["fd01::2", "fd02::2"]];

fn automatic() -> String {
    BOTH.replace("pin = false\n", "")
}

fn scene() -> Scene {
    let scene = Scene::router([0, 0]);
    scene.host().run("nft", &["flush", "ruleset"]).unwrap();
    scene
}

/// How many requests from beyond to an address of the router's are answered.
fn answered(scene: &Scene, own: &str, from: &str) -> u64 {
    let [own, from]: [IpAddr; 2] = [own, from].map(|address| address.parse().unwrap());
    let target = SocketAddr::new(own, PORT);
    let _echo = UdpEcho::start(scene.host(), target).unwrap();
    let flow = Flow::to(target).from(SocketAddr::new(from, 0));
    scene
        .run("far", UdpRequests::new(flow, REQUESTS), || {})
        .answered_count()
}

fn rules(scene: &Scene) -> String {
    ["rule", "-6 rule"].map(|list| scene.host().ip(list).unwrap()).join("")
}

/// Nobody could reach the router by the uplink that is not the calmest: its answers left by the other one.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_answer_by_the_uplink_whose_address_was_asked() {
    let scene = scene();
    let before = scene.dump();
    let program = scene.up_with(&automatic());
    for (own, from) in OWN.into_iter().zip(TARGETS) {
        let answered = own.map(|own| answered(&scene, own, from));
        assert_eq!(answered, [u64::from(REQUESTS); 2], "{own:?}");
    }
    program.kill_agent();
    program.run("up");
    assert_eq!(answered(&scene, OWN[1][1], TARGETS[1]), u64::from(REQUESTS));
    program.run("down");
    assert_eq!(scene.dump(), before);
    // Where the file says that its addresses are good for both, they are.
    let program = scene.up_with(BOTH);
    assert!(!rules(&scene).contains("10.2.0.0/24"), "{}", rules(&scene));
    assert_eq!(
        answered(&scene, OWN[1][1], TARGETS[1]),
        0,
        "as all were without the rules"
    );
    program.run("down");
}

/// Providers give other addresses now and then.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_follow_the_networks_of_uplinks() {
    let scene = scene();
    let before = rules(&scene);
    let program = scene.up_with(&automatic());
    await_state(&program, "::/0", "wan2", "standby");
    let whole = rules(&scene);
    let new = "from fd12::/64 lookup";
    scene.host().ip("address add fd12::2/64 dev wan2 nodad").unwrap();
    wait_until("the new network has its rules", || {
        rules(&scene).matches(new).count() == 2
    });
    scene.host().ip("address del fd02::2/64 dev wan2").unwrap();
    wait_until("the old network has none", || !rules(&scene).contains("from fd02::/64"));
    // What was changed since is known to the next agent, and put back.
    program.run("up");
    let left = rules(&scene);
    assert!(
        left.matches(new).count() == 2 && !left.contains("from fd02::/64"),
        "{left}"
    );
    scene.host().ip("address add fd02::2/64 dev wan2 nodad").unwrap();
    scene.host().ip("address del fd12::2/64 dev wan2").unwrap();
    wait_until("all is as before", || rules(&scene) == whole);
    program.kill_agent();
    program.run("down");
    assert_eq!(rules(&scene), before);
}
