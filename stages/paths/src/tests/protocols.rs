//! Every protocol follows, because the route does.
//!
//! The host has an address that is nobody's uplink's, as behind a tunnel on each. What is for it comes back by wan2, as
//! providers may choose: only what the host sends has to move.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::Value;

use super::scene::{PORT, Scene, TARGETS, asked_often};
use tarn_lab::load::{Arrivals, Exchanges, Law};
use tarn_lab::load::{Flow, Ping, TcpAnswerer, TcpRequests, UdpEcho, UdpRequests};

const SOON: Duration = Duration::from_secs(10);
/// The host's own address, over IPv4 and IPv6.
pub const OWN: [&str; 2] = ["10.8.8.8", "fd08::8"];
/// What nftables calls the address of who has sent a packet, over IPv4 and IPv6.
pub const SENDER: [&str; 2] = ["ip saddr", "ip6 saddr"];
/// How many requests a flow has, one every 10 ms.
const COUNT: u32 = 300;
const EVERY: Arrivals = Arrivals::Open(Law::Every(Duration::from_millis(10)));

/// What the far side counts.
const TABLE: &str = r#"
table inet seen {
    counter wan1 { }
    counter wan2 { }
    chain arrivals {
        type filter hook prerouting priority raw;
        iifname wan1 MATCHING counter name wan1
        iifname wan2 MATCHING counter name wan2
    }
}
"#;

/// Both uplinks work, and the host has an address that is reached by either.
pub fn scene() -> Scene {
    let scene = Scene::new([10, 30]);
    for address in OWN {
        let length = if address.contains(':') { "128 nodad" } else { "32" };
        scene
            .host()
            .ip(&format!("address add {address}/{length} dev lo"))
            .unwrap();
    }
    let far = scene.node("far");
    far.ip("route add 10.8.8.8 via 10.2.0.2").unwrap();
    far.ip("route add fd08::8 via fd02::2").unwrap();
    scene
}

/// What the far side has got from the host's own address so far, in packets of a protocol: by wan1, and by wan2.
struct Counters<'a> {
    scene: &'a Scene,
}

impl<'a> Counters<'a> {
    /// Counts what matches, from now on.
    fn begin(scene: &'a Scene, matching: &str) -> Self {
        let table = TABLE.replace("MATCHING", matching);
        scene.node("far").run_with_input("nft", &["-f", "-"], &table).unwrap();
        Self { scene }
    }

    /// The packets of each uplink.
    fn packets(&self) -> [u64; 2] {
        ["wan1", "wan2"].map(|device| {
            let shown = ["-j", "list", "counter", "inet", "seen", device];
            let text = self.scene.node("far").run("nft", &shown).unwrap();
            let list: Value = serde_json::from_str(&text).unwrap();
            let list = list["nftables"].as_array().unwrap();
            let counter = list.iter().find_map(|entry| entry.get("counter"));
            counter.unwrap()["packets"].as_u64().unwrap()
        })
    }
}

/// Runs a flow whose packets match, from uplink to uplink: wan1 dies while it is under way, and its device stays up.
pub fn moved<T>(scene: &Scene, matching: &str, flow: impl FnOnce(&dyn Fn()) -> T) -> T {
    let counters = Counters::begin(scene, matching);
    let outcome = flow(&|| {
        std::thread::sleep(Duration::from_millis(500));
        let [by_wan1, by_wan2] = counters.packets();
        assert!(
            by_wan1 >= 20 && by_wan2 == 0,
            "{matching}: {by_wan1} by wan1, {by_wan2} by wan2"
        );
        scene.kill("wan1");
    });
    let [_, by_wan2] = counters.packets();
    assert!(by_wan2 >= 100, "{matching}: {by_wan2} by wan2 in the end");
    outcome
}

/// Runs the flow of one protocol over both families of addresses, on hosts that were prepared for it before tarn came.
fn over_both(
    protocol: [&str; 2],
    prepare: impl Fn(&Scene, IpAddr, IpAddr),
    flow: impl Fn(&Scene, IpAddr, IpAddr, &dyn Fn()) -> Exchanges,
    judge: impl Fn(&Exchanges),
) {
    for (family, (target, own)) in TARGETS.iter().zip(OWN).enumerate() {
        let (scene, [target, own]) = (scene(), [*target, own].map(|address| address.parse().unwrap()));
        prepare(&scene, target, own);
        let program = scene.up_with(&asked_often());
        std::thread::sleep(SOON);
        let matching = format!("{} {own} meta l4proto {}", SENDER[family], protocol[family]);
        let exchanges = moved(&scene, &matching, |meanwhile| flow(&scene, target, own, meanwhile));
        judge(&exchanges);
        program.run("down");
    }
}

/// Most protocols need no more than addresses.
fn nothing(_: &Scene, _: IpAddr, _: IpAddr) {}

/// What a protocol without a memory loses: everything until the dead uplink is left, within 200 ms.
fn lost_little(exchanges: &Exchanges) {
    let lost = exchanges.sent_count() - exchanges.answered_count();
    assert_eq!(exchanges.sent_count(), u64::from(COUNT));
    assert!((1..=20).contains(&lost), "{lost} requests lost, one every 10 ms");
}

/// A connection goes on where it was, and the least time after which TCP sends a segment again is 200 ms.
fn lost_nothing(exchanges: &Exchanges) {
    let longest = exchanges.latencies_us().into_iter().fold(0.0, f64::max);
    assert_eq!(exchanges.answered_count(), u64::from(COUNT));
    assert!((100e3..700e3).contains(&longest), "an answer took {longest} us");
}

/// UDP requests from one address to another.
pub fn udp(scene: &Scene, target: IpAddr, own: IpAddr, meanwhile: &dyn Fn()) -> Exchanges {
    let target = SocketAddr::new(target, PORT);
    let _echo = UdpEcho::start(scene.node("far"), target).unwrap();
    let flow = Flow::to(target).from(SocketAddr::new(own, 0));
    scene.run("host", UdpRequests::new(flow, COUNT), meanwhile)
}

fn tcp(scene: &Scene, target: IpAddr, own: IpAddr, meanwhile: &dyn Fn()) -> Exchanges {
    let target = SocketAddr::new(target, PORT);
    let _answerer = TcpAnswerer::start(scene.node("far"), target, 64, 64).unwrap();
    let mut requests = TcpRequests::new(Flow::to(target).from(SocketAddr::new(own, 0)), COUNT);
    requests.arrivals = EVERY;
    let running = scene.host().spawn("requests", move || requests.run()).unwrap();
    meanwhile();
    running.join().unwrap().unwrap()
}

fn icmp(scene: &Scene, target: IpAddr, own: IpAddr, meanwhile: &dyn Fn()) -> Exchanges {
    let ping = Ping {
        source: Some(own),
        count: COUNT,
        ..Ping::new(target)
    };
    let running = scene.host().spawn("pings", move || ping.run()).unwrap();
    meanwhile();
    running.join().unwrap().unwrap()
}

/// Every download, login and page would break off.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_lead_tcp_away_from_a_dead_uplink() {
    over_both(["tcp", "tcp"], nothing, tcp, lost_nothing);
}

/// Games, calls and tunnels would stand still.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_lead_udp_away_from_a_dead_uplink() {
    over_both(["udp", "udp"], nothing, udp, lost_little);
}

/// Whoever watches the host by pings would take it for dead.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_lead_icmp_away_from_a_dead_uplink() {
    over_both(["icmp", "icmpv6"], nothing, icmp, lost_little);
}

/// A key for AES-GCM and its salt; in both directions the same, which only a test may do.
const KEY: &str = "0x000102030405060708090a0b0c0d0e0f10111213";

/// What one end needs to know to encrypt all that is between two addresses.
fn protect(own: IpAddr, other: IpAddr) -> Vec<String> {
    let length = if own.is_ipv6() { 128 } else { 32 };
    let state = |from: IpAddr, to: IpAddr, spi: u32| {
        format!(
            "xfrm state add src {from} dst {to} proto esp spi {spi} mode transport aead rfc4106(gcm(aes)) {KEY} 128"
        )
    };
    let policy = |from: IpAddr, to: IpAddr, direction: &str| {
        format!(
            "xfrm policy add src {from}/{length} dst {to}/{length} dir {direction} tmpl src {from} dst {to} proto esp mode transport"
        )
    };
    let (least, greatest) = (own.min(other), own.max(other));
    vec![
        state(least, greatest, 0x100),
        state(greatest, least, 0x200),
        policy(own, other, "out"),
        policy(other, own, "in"),
    ]
}

/// A network between offices would be cut in two.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_lead_esp_away_from_a_dead_uplink() {
    let prepare = |scene: &Scene, target, own| {
        scene.host().ip_batch(&protect(own, target)).unwrap();
        scene.node("far").ip_batch(&protect(target, own)).unwrap();
    };
    over_both(["esp", "esp"], prepare, udp, lost_little);
}
