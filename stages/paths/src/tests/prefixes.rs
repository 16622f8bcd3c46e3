//! Two providers, each with an IPv6 prefix of its own for the clients of a home router. Nothing is translated.
//!
//! ```text
//!   client                        host                        far
//!   fd0a::1, fd0b::1 lan ──── lan fd0a::2, fd0b::2     wan1 takes fd0a::/64 only, wan2 fd0b::/64 only
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use super::scene::{BOTH, PORT, Scene, TARGETS};
use tarn_lab::load::{Flow, UdpEcho, UdpRequests};
use tarn_lab::testing::Program;

/// A client has an address of each provider's.
const CLIENTS: [&str; 2] = ["fd0a::1", "fd0b::1"];
const REQUESTS: u32 = 30;

const PROVIDERS: &str = r#"
flush ruleset
table inet providers {
    chain arrivals {
        type filter hook prerouting priority raw;
        iifname "wan1" ip6 saddr != { fd01::/64, fd0a::/64, fe80::/10 } drop
        iifname "wan2" ip6 saddr != { fd02::/64, fd0b::/64, fe80::/10 } drop
    }
}
"#;

fn scene() -> Scene {
    let scene = Scene::router([0, 0]);
    scene.host().run("nft", &["flush", "ruleset"]).unwrap();
    for (node, commands) in [
        (
            "client",
            [
                "address add fd0a::1/64 dev lan nodad",
                "address add fd0b::1/64 dev lan nodad",
            ],
        ),
        (
            "host",
            [
                "address add fd0a::2/64 dev lan nodad",
                "address add fd0b::2/64 dev lan nodad",
            ],
        ),
        (
            "far",
            ["route add fd0a::/64 via fd01::2", "route add fd0b::/64 via fd02::2"],
        ),
    ] {
        for command in commands {
            scene.node(node).ip(command).unwrap();
        }
    }
    scene
        .node("far")
        .run_with_input("nft", &["-f", "-"], PROVIDERS)
        .unwrap();
    scene
}

/// The scene's configuration, in which each uplink has its prefix.
fn with_prefixes() -> String {
    [("fd01::1", "fd0a::/64"), ("fd02::1", "fd0b::/64")]
        .into_iter()
        .fold(BOTH.to_owned(), |text, (gateway, prefix)| {
            let named = format!("gateway = \"{gateway}\"");
            text.replace(&named, &format!("{named}, prefixes = [\"{prefix}\"]"))
        })
}

/// How many requests of each of the client's addresses are answered.
fn answered(scene: &Scene) -> [u64; 2] {
    let target = SocketAddr::new(TARGETS[1].parse().unwrap(), PORT);
    let _echo = UdpEcho::start(scene.node("far"), target).unwrap();
    CLIENTS.map(|client| {
        let flow = Flow::to(target).from(SocketAddr::new(client.parse().unwrap(), 0));
        scene
            .run("client", UdpRequests::new(flow, REQUESTS), || {})
            .answered_count()
    })
}

/// By which device the router sends what comes from a client.
fn way(scene: &Scene, client: &str, to: &str) -> String {
    let text = scene
        .host()
        .ip(&format!("-6 -j route get {to} from {client} iif lan"))
        .unwrap();
    let ways: Value = serde_json::from_str(&text).unwrap();
    ways[0]["dev"].as_str().unwrap().to_owned()
}

fn rules(scene: &Scene) -> String {
    scene.host().ip("-6 rule").unwrap()
}

/// Whoever has an address of the provider that is not the calmest now would have no network at all.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_serve_clients_of_every_provider_s_prefix() {
    let scene = scene();
    let before = scene.dump();
    let all = [u64::from(REQUESTS); 2];
    let program = scene.up();
    // By the calmest uplink alone: 0 of the other prefix's on 6.12 and 6.18.
    assert_eq!(answered(&scene)[0], all[0]);
    program.run("down");
    for pin in ["false", "true"] {
        let text = with_prefixes().replace("pin = false", &format!("pin = {pin}"));
        let program = scene.up_with(&text);
        assert_eq!(answered(&scene), all, "pin = {pin}");
        // Other networks of the router's own are where they were.
        scene.host().ip("-6 route add fd0c::/64 dev lan").unwrap();
        assert_eq!(CLIENTS.map(|client| way(&scene, client, "fd0c::1")), ["lan"; 2]);
        scene.host().ip("-6 route del fd0c::/64 dev lan").unwrap();
        program.kill_agent();
        assert_eq!(answered(&scene), all, "without an agent");
        program.run("down");
        assert_eq!(scene.dump(), before);
    }
}

/// What a prefix has no longer, goes; what somebody flushes comes back, in its order.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_keep_the_rules_of_prefixes_as_the_file_has_them() {
    let scene = scene();
    let before = rules(&scene);
    let program = scene.up_with(&with_prefixes());
    let whole = rules(&scene);
    for what in [
        "from fd0b::/64 lookup main suppress_prefixlength 0",
        &format!("from fd0a::/64 lookup {}", 0x7461_0181),
    ] {
        scene.host().ip(&format!("-6 rule del {what}")).unwrap();
    }
    assert_ne!(rules(&scene), whole);
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(
        rules(&scene).lines().count(),
        whole.lines().count(),
        "{}",
        rules(&scene)
    );
    scene.host().ip("-6 route add fd0c::/64 dev lan").unwrap();
    assert_eq!(CLIENTS.map(|client| way(&scene, client, "fd0c::1")), ["lan"; 2]);
    program.configure(BOTH);
    program.run("up");
    let left = rules(&scene);
    assert!(!left.contains("fd0a::") && !left.contains("fd0b::"), "{left}");
    program.run("down");
    assert_eq!(rules(&scene), before);
}

/// A company's networks have a group of their own beside the default route's: also there, what comes from a provider's prefix
/// leaves by that provider, whichever group is first in the file, and after somebody has flushed rules.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_send_a_prefix_by_its_provider_to_every_group() {
    let scene = scene();
    let before = rules(&scene);
    let narrower = with_prefixes();
    let (_, default) = narrower.rsplit_once("[[paths.group]]").unwrap();
    let narrower = format!("{narrower}\n[[paths.group]]{}", default.replace("::/0", "fd09::/16"));
    let program = scene.up_with(&narrower);
    let ways = || CLIENTS.map(|client| way(&scene, client, TARGETS[1]));
    assert_eq!(ways(), ["wan1", "wan2"]);
    for what in [
        "from fd0b::/64 to fd09::/16 lookup main suppress_prefixlength 16",
        "from fd0a::/64 lookup main suppress_prefixlength 0",
    ] {
        scene.host().ip(&format!("-6 rule del {what}")).unwrap();
        std::thread::sleep(Duration::from_secs(6));
        assert_eq!(ways(), ["wan1", "wan2"], "{}", rules(&scene));
    }
    program.run("down");
    assert_eq!(rules(&scene), before);
}

/// A tunnel that some clients are to go by must not be overruled, whether it was there first or not; nor a rule be taken away that
/// only looks like tarn's.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_let_an_administrator_s_rules_for_a_prefix_win() {
    let scene = scene();
    let host = scene.host();
    let same = "-6 rule add priority 32765 from fd0a::/64 lookup main suppress_prefixlength 0";
    let own = "-6 rule add from fd0b::/64 lookup 77";
    host.ip("-6 route add default via fd01::1 dev wan1 table 77").unwrap();
    let program = Program::new(host, &with_prefixes());
    for is_first in [true, false] {
        let begin = || drop([same, own].map(|rule| host.ip(rule).unwrap()));
        if is_first {
            begin();
        }
        program.run("up");
        let ours = CLIENTS.map(|client| way(&scene, client, TARGETS[1]));
        assert_eq!(ours, ["wan1", if is_first { "wan1" } else { "wan2" }]);
        if !is_first {
            begin();
        }
        assert_eq!(CLIENTS.map(|client| way(&scene, client, TARGETS[1])), ["wan1"; 2]);
        program.run("down");
        let left = rules(&scene);
        assert!(left.contains("lookup 77") && left.contains("from fd0a::/64"), "{left}");
        assert_eq!(left.lines().count(), 4, "{left}");
        for rule in [same, own] {
            host.ip(&rule.replace(" add ", " del ")).unwrap();
        }
    }
}

/// Where the routes themselves are for source addresses, as OpenWrt makes them, the kernel does it, and tarn leaves it so.
#[test]
#[ignore = "needs the lab"]
fn lab_oldest_paths_leave_routes_for_source_addresses_in_force() {
    let scene = scene();
    for number in [1, 2] {
        let prefix = CLIENTS[number - 1].replace("::1", "::/64");
        let route =
            format!("-6 route add default from {prefix} via fd0{number}::1 dev wan{number} proto static metric 512");
        scene.host().ip(&route).unwrap();
    }
    let before = scene.dump();
    let all = [u64::from(REQUESTS); 2];
    assert_eq!(answered(&scene), all);
    for (gateways, pin) in [
        ("auto", "false"),
        ("auto", "true"),
        ("named", "false"),
        ("named", "true"),
    ] {
        let text = BOTH.replace("pin = false", &format!("pin = {pin}"));
        let program = scene.up_with(&match gateways {
            "auto" => text.replace("fd01::1", "auto").replace("fd02::1", "auto"),
            _ => text,
        });
        assert_eq!(answered(&scene), all, "gateways {gateways}, pin = {pin}");
        program.run("down");
        assert_eq!(scene.dump(), before);
    }
}
