//! A home router translates addresses: a connection that changes uplinks is lost.

use std::net::SocketAddr;
use std::time::Duration;

use super::scene::{BOTH, PORT, Scene, TARGETS};
use tarn_kernel::conntrack;
use tarn_lab::load::{Exchanges, Flow, UdpEcho, UdpRequests};
use tarn_lab::testing::Program;

const SOON: Duration = Duration::from_secs(10);
const MASK: u32 = 0xff00_0000;
const TABLE: &str = "list table inet tarn_paths";

/// The scene's configuration, and connections stay on their uplinks.
pub fn pinned() -> String {
    BOTH.replace("pin = false", "pin = true")
}

/// The same with the other uplink first.
fn in_another_order() -> String {
    let swapped =
        |text: String, (one, other): (&str, &str)| text.replace(one, "@").replace(other, one).replace('@', other);
    [("wan1", "wan2"), ("10.1.0.1", "10.2.0.1"), ("fd01::1", "fd02::1")]
        .into_iter()
        .fold(pinned(), swapped)
}

fn socket(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// One connection of the client's, with one request every 10 ms.
pub fn connection(scene: &Scene, target: &str, count: u32, meanwhile: impl FnOnce()) -> Exchanges {
    let target = socket(target, PORT);
    let _echo = UdpEcho::start(scene.node("far"), target).unwrap();
    scene.run("client", UdpRequests::new(Flow::to(target), count), meanwhile)
}

/// Round trips that took so long, in ms.
fn between(exchanges: &Exchanges, range: std::ops::Range<u32>) -> usize {
    let (from, to) = (f64::from(range.start) * 1e3, f64::from(range.end) * 1e3);
    let all = exchanges.round_trips_us();
    all.into_iter().filter(|us| (from..to).contains(us)).count()
}

/// How many connections have a mark of tarn's.
pub fn marked(scene: &Scene) -> usize {
    let mut count = 0;
    let look = || {
        conntrack::remark(MASK, |mark, _, _| {
            count += usize::from(mark != 0);
            mark
        })
    };
    scene.host().enter(look).unwrap();
    count
}

fn table(scene: &Scene) -> Option<String> {
    scene.host().run("nft", &TABLE.split(' ').collect::<Vec<_>>()).ok()
}

#[test]
#[ignore = "needs the lab"]
fn lab_paths_keep_translated_connections_on_their_uplink_until_it_dies() {
    for target in TARGETS {
        let scene = Scene::router([10, 30]);
        let program = scene.up_with(&pinned());
        std::thread::sleep(SOON);
        assert_eq!(scene.way(target), "wan1");
        let exchanges = connection(&scene, target, 800, || {
            std::thread::sleep(Duration::from_millis(500));
            scene.delay("wan1", 100);
            std::thread::sleep(Duration::from_secs(2));
            assert_eq!(scene.way(target), "wan2", "new connections go by the other uplink");
            std::thread::sleep(Duration::from_millis(500));
            scene.kill("wan1");
        });
        let (before, stayed) = (between(&exchanges, 9..20), between(&exchanges, 90..120));
        let (after, lost) = (
            between(&exchanges, 29..50),
            exchanges.sent_count() - exchanges.answered_count(),
        );
        let seen = format!("{target}: {before} before, {stayed} stayed, {after} after, {lost} lost");
        assert!(before >= 40 && stayed >= 230 && after >= 300, "{seen}");
        // For a second, the default timeout, answers might only be late.
        assert!((90..=200).contains(&lost), "{seen}");
        program.run("down");
    }
}

/// Without an agent's help: by which uplink a question came, the answer leaves.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_answer_by_the_uplink_that_asked() {
    let scene = Scene::router([10, 30]);
    let program = scene.up_with(&pinned());
    std::thread::sleep(SOON);
    for ((from, to), (node, at)) in [
        (("10.9.9.9", socket("10.2.0.2", PORT)), ("host", "10.2.0.2")),
        (("fd09::9", socket("fd02::2", PORT)), ("host", "fd02::2")),
        (("10.9.9.9", socket("10.2.0.2", 8)), ("client", "10.3.0.1")),
    ] {
        assert_eq!(scene.way(from), "wan1");
        let _echo = UdpEcho::start(scene.node(node), socket(at, PORT)).unwrap();
        let requests = UdpRequests::new(Flow::to(to).from(socket(from, 0)), 20);
        let exchanges = scene.run("far", requests, || {});
        assert_eq!(exchanges.answered_count(), 20, "{from} to {to}");
        assert_eq!(exchanges.not_from(to), 0);
    }
    // A neighbour needs no gateway, and might not be reached by it.
    scene.node("far").ip("address add 10.2.0.77/24 dev wan2").unwrap();
    let before = marked(&scene);
    let to = socket("10.2.0.2", PORT);
    let _echo = UdpEcho::start(scene.host(), to).unwrap();
    let requests = UdpRequests::new(Flow::to(to).from(socket("10.2.0.77", 0)), 20);
    let exchanges = scene.run("far", requests, || {});
    assert_eq!((exchanges.answered_count(), marked(&scene)), (20, before));
    program.run("down");
}

/// Who binds a socket to an uplink's address means that uplink.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_go_by_the_uplink_whose_address_a_socket_has() {
    let scene = Scene::router([10, 30]);
    let program = scene.up_with(&pinned());
    std::thread::sleep(SOON);
    for (target, own) in TARGETS.into_iter().zip(["10.2.0.2", "fd02::2"]) {
        assert_eq!(scene.way(target), "wan1");
        let _echo = UdpEcho::start(scene.node("far"), socket(target, PORT)).unwrap();
        let requests = UdpRequests::new(Flow::to(socket(target, PORT)).from(socket(own, 0)), 50);
        let exchanges = scene.run("host", requests, || {});
        assert_eq!(between(&exchanges, 29..50), 50, "{own}");
    }
    program.run("down");
}

/// The connections of a host that tarn comes to are not cut, nor those of one that it leaves.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_find_and_leave_translated_connections_as_they_are() {
    let scene = Scene::router([30, 10]);
    scene
        .host()
        .ip("route add default via 10.2.0.1 dev wan2 metric 50")
        .unwrap();
    let before = (scene.dump(), table(&scene), marked(&scene));
    let program = Program::new(scene.host(), &pinned());
    // From within to the outer address: an answer that left by the uplink would never come.
    let outer = socket("10.2.0.2", PORT);
    let _echo = UdpEcho::start(scene.host(), outer).unwrap();
    let mut out = None;
    let within = scene.run("client", UdpRequests::new(Flow::to(outer), 600), || {
        out = Some(connection(&scene, TARGETS[0], 500, || {
            std::thread::sleep(Duration::from_millis(500));
            program.run("up");
            assert_eq!(scene.way(TARGETS[0]), "wan1", "new connections go by the first uplink");
            std::thread::sleep(Duration::from_secs(1));
            assert!(marked(&scene) > 0);
            program.run("down");
            assert_eq!((scene.dump(), table(&scene), marked(&scene)), before);
        }));
    });
    let out = out.unwrap();
    // A program that starts beside it keeps the host busy for some milliseconds.
    let by_wan2 = between(&out, 9..29);
    assert!(out.answered_count() == 500 && by_wan2 >= 490, "{by_wan2} by wan2");
    assert_eq!(within.answered_count(), 600);
}

/// A firewall that is loaded anew begins with an empty ruleset.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_set_their_table_again_and_follow_addresses() {
    let scene = Scene::router([0, 0]);
    let program = scene.up_with(&pinned());
    let whole = table(&scene).unwrap();
    scene.host().run("nft", &["flush", "ruleset"]).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(table(&scene).as_ref(), Some(&whole));
    let has_chain = |table: &str, number: u32| table.contains(&format!("chain keep_{number} "));
    assert!(has_chain(&whole, 3), "{whole}");
    scene.host().ip("address add 10.7.0.2/24 dev wan1").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(table(&scene).unwrap().contains("ip saddr 10.7.0.0/24 return"));
    // What the file no longer asks for goes, group by group.
    program.configure(&BOTH.replacen("pin = false", "pin = true", 1));
    program.run("up");
    let only_ipv4 = table(&scene).unwrap();
    assert!(has_chain(&only_ipv4, 2) && !has_chain(&only_ipv4, 3), "{only_ipv4}");
    program.configure(BOTH);
    program.run("up");
    assert_eq!((table(&scene), marked(&scene)), (None, 0));
    program.run("down");
    let foreign = "add table inet tarn_paths { comment \"ours\"; }";
    scene.host().run("nft", &[foreign]).unwrap();
    let before = scene.dump();
    program.configure(&pinned());
    assert!(!program.succeeds("up"));
    assert_eq!(scene.dump(), before);
}

/// What an administrator's rules go by, as those of a container network, would be gone for good.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_leave_marks_that_others_gave_to_connections() {
    let scene = Scene::router([10, 30]);
    let give = |mark: u32| {
        let remark = || conntrack::remark(u32::MAX, |_, _, _| mark);
        scene.host().enter(remark).unwrap()
    };
    let with = |mark: u32| {
        let mut count = 0;
        let look = || {
            conntrack::remark(u32::MAX, |found, _, _| {
                count += usize::from(found & MASK == mark);
                found
            })
        };
        scene.host().enter(look).unwrap();
        count
    };
    scene
        .host()
        .ip("route add default via 10.2.0.1 dev wan2 metric 50")
        .unwrap();
    let program = Program::new(scene.host(), &pinned());
    connection(&scene, TARGETS[0], 20, || {});
    assert!(give(0x5500_0000) > 0);
    let complaint = program.complaint("up");
    assert!(complaint.contains("set mark_mask = 0xff0000"), "{complaint}");
    assert!(with(0x5500_0000) > 0 && table(&scene).is_none());
    // Bits that are free.
    program.configure(&pinned().replace("[paths]", "[paths]\nmark_mask = 0xff0000"));
    program.run("up");
    assert!(with(0x5500_0000) > 0);
    program.run("down");
    assert!(with(0x5500_0000) > 0);
    // Given while tarn is up.
    give(0);
    program.configure(&pinned());
    program.run("up");
    connection(&scene, TARGETS[0], 20, || {});
    assert!(marked(&scene) > 0 && give(0x5500_0000) > 0);
    program.run("up");
    assert!(with(0x5500_0000) > 0);
    program.run("down");
    assert!(with(0x5500_0000) > 0);
}

/// Who does not know of pins would lose every connection that moves.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_pin_by_themselves_where_addresses_are_translated() {
    let unsaid = BOTH.replace("pin = false\n", "");
    let scene = Scene::router([10, 30]);
    let program = Program::new(scene.host(), &unsaid);
    let up_said = |program: &Program<'_>| {
        let (code, text) = program.command_line(&format!("tarn up --dry-run -c {}", program.configuration().display()));
        assert_eq!(code, 0, "{text}");
        let is_said = text.contains("default: connections stay on the uplink");
        assert!(is_said || text.contains("default: connections move"), "{text}");
        program.run("up");
        assert_eq!(is_said, table(&scene).is_some());
        is_said
    };
    assert!(up_said(&program), "masquerade");
    program.run("down");
    scene.host().run("nft", &["flush ruleset"]).unwrap();
    assert!(!up_said(&program), "a router without translation");
    program.run("down");
    for name in ["net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0"] {
        scene.host().run("sysctl", &["-w", name]).unwrap();
    }
    assert!(up_said(&program), "a host with two addresses");
    program.run("down");
}

/// The marks of what is up keep their meaning, whatever order the file has by now.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_keep_connections_when_uplinks_are_named_in_another_order() {
    let scene = Scene::router([10, 30]);
    let program = scene.up_with(&pinned());
    std::thread::sleep(SOON);
    let exchanges = connection(&scene, TARGETS[0], 300, || {
        std::thread::sleep(Duration::from_millis(500));
        scene.delay("wan1", 100);
        std::thread::sleep(Duration::from_secs(1));
        program.configure(&in_another_order());
        program.run("up");
        assert_eq!(scene.way(TARGETS[0]), "wan2");
    });
    let stayed = between(&exchanges, 90..120);
    assert_eq!(exchanges.answered_count(), 300);
    assert!(stayed > 200, "{stayed} stayed");
    program.run("down");
}

/// An agent that begins just while a firewall is loaded anew would take the host for one that translates nothing, and lose every
/// connection that moves from then on.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_stay_pinned_when_the_agent_begins_during_a_firewall_s_reload() {
    let scene = Scene::router([0, 0]);
    let program = Program::new(scene.host(), &BOTH.replace("pin = false\n", ""));
    program.run("up");
    assert!(table(&scene).is_some());
    program.kill_agent();
    scene.host().run("nft", &["flush ruleset"]).unwrap();
    program.run("up");
    assert!(table(&scene).is_some(), "the agent finds no rule that translates");
    program.run("down");
    program.run("up");
    assert!(table(&scene).is_none(), "after `down` it looks anew");
    program.run("down");
}

/// Tailscale's rules go by packets' marks: packets of connections with tarn's in these bits would go past its tunnel.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_propose_no_bits_that_rules_go_by() {
    let scene = Scene::router([0, 0]);
    let host = scene.host();
    host.ip("route add default via 10.2.0.1 dev wan2 metric 50").unwrap();
    connection(&scene, TARGETS[0], 20, || {});
    let give = || conntrack::remark(u32::MAX, |_, _, _| 0x5500_0000);
    assert!(host.enter(give).unwrap() > 0);
    let program = Program::new(host, &pinned());
    let complaint = program.complaint("up");
    assert!(complaint.contains("set mark_mask = 0xff0000,"), "{complaint}");
    host.ip("rule add fwmark 0x80000/0xff0000 lookup 52").unwrap();
    let complaint = program.complaint("up");
    assert!(complaint.contains("set mark_mask = 0xff00,"), "{complaint}");
    // The same before there is any connection with such a mark: as the host starts, tarn may be the first.
    host.enter(|| conntrack::remark(u32::MAX, |_, _, _| 0)).unwrap();
    for rule in ["fwmark 0x80000000/0xf0000000", "fwmark 0/0x1000000"] {
        host.ip(&format!("rule add {rule} lookup 52")).unwrap();
        let complaint = program.complaint("up");
        assert!(complaint.contains("routing rules of another program"), "{complaint}");
        assert!(complaint.contains("set mark_mask = 0xff00,"), "{complaint}");
        host.ip(&format!("rule del {rule} lookup 52")).unwrap();
    }
    program.run("up");
    program.run("down");
}
