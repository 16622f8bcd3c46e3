//! A host with two uplinks to one place.
//!
//! ```text
//!   host                                far
//!   10.1.0.2, fd01::2 wan1 ─────── wan1 10.1.0.1, fd01::1
//!   10.2.0.2, fd02::2 wan2 ─────── wan2 10.2.0.1, fd02::1    10.9.9.9, fd09::9 (lo)
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use tarn_lab::load::{Arrivals, Law};
use tarn_lab::load::{Exchanges, Flow, UdpEcho, UdpRequests};
use tarn_lab::testing::Program;
use tarn_lab::topology::{End, Namespace, Network, Node, Shape, Topology};

/// Who is spoken to, and asked by probes.
pub const TARGETS: [&str; 2] = ["10.9.9.9", "fd09::9"];
/// The port of an echo service there.
pub const PORT: u16 = 7;

/// `tarn.toml` for the scene, over IPv4 and IPv6.
pub const BOTH: &str = r#"
[paths]
stay = "2s"
hold = "1s"
back_after = "1s"

[[paths.group]]
pin = false
to = "default"
targets = ["10.9.9.9"]
uplink = [{ device = "wan1", gateway = "10.1.0.1" }, { device = "wan2", gateway = "10.2.0.1" }]

[[paths.group]]
pin = false
to = "::/0"
targets = ["fd09::9"]
uplink = [{ device = "wan1", gateway = "fd01::1" }, { device = "wan2", gateway = "fd02::1" }]
"#;

/// The same for uplinks whose answers come by another one, which do not show when an uplink dies: they are asked often.
pub fn asked_often() -> String {
    BOTH.replace("[paths]", "[paths]\nrate = 20")
}

/// What a home router does.
const TRANSLATION: &str = r#"
table inet home {
    chain arrivals {
        type nat hook prerouting priority dstnat;
        iifname "wan2" meta nfproto ipv4 udp dport 8 dnat ip to 10.3.0.1:7
    }
    chain leaving {
        type nat hook postrouting priority srcnat;
        oifname { "wan1", "wan2" } masquerade
    }
}
"#;

/// What providers do (RFC 2827).
const PROVIDERS: &str = r#"
table inet providers {
    chain arrivals {
        type filter hook prerouting priority raw;
        iifname "wan1" ip saddr != 10.1.0.0/24 drop
        iifname "wan2" ip saddr != 10.2.0.0/24 drop
        iifname "wan1" ip6 saddr != { fd01::/64, fe80::/10 } drop
        iifname "wan2" ip6 saddr != { fd02::/64, fe80::/10 } drop
    }
}
"#;

/// What comes through an uplink that is dead, by its device.
const DEAD: &str = r#"
table inet dead_DEVICE {
    chain arrivals { type filter hook prerouting priority raw - 1; iifname DEVICE drop; }
    chain leaving { type filter hook postrouting priority 500; oifname DEVICE drop; }
}
"#;

pub struct Scene {
    network: Network,
    /// Whether netem sits on the links: it does where they have any delay, and cannot where a test runs natively on a kernel without.
    is_shaped: bool,
}

impl Scene {
    /// Both uplinks take so long, there and back.
    pub fn new(round_trips_ms: [u64; 2]) -> Self {
        Self {
            is_shaped: is_shaped(round_trips_ms),
            ..Self::of(&topology(round_trips_ms, Node::new("host")))
        }
    }

    /// Any network in which the nodes `host` and `far` have several ways to one another.
    pub fn of(topology: &Topology) -> Self {
        let network = topology.build().unwrap();
        Self {
            network,
            is_shaped: true,
        }
    }

    /// The host is a router and translates addresses; providers take nothing but what has theirs.
    ///
    /// ```text
    ///   client                                    host
    ///   10.3.0.1, fd03::1 lan ─────────────── lan 10.3.0.2, fd03::2
    /// ```
    pub fn router(round_trips_ms: [u64; 2]) -> Self {
        let client = Node::new("client")
            .route("default", "10.3.0.2")
            .ip("route add ::/0 via fd03::2");
        let network = topology(round_trips_ms, Node::new("host").forwarding())
            .node(client)
            .link(
                End::new("client", "lan").address("10.3.0.1/24").address("fd03::1/64"),
                End::new("host", "lan").address("10.3.0.2/24").address("fd03::2/64"),
            )
            .build()
            .unwrap();
        let apply = |node: &str, script: &str| {
            let namespace = network.namespace(node).unwrap();
            namespace.run_with_input("nft", &["-f", "-"], script).unwrap();
        };
        apply("host", TRANSLATION);
        apply("far", PROVIDERS);
        Self {
            network,
            is_shaped: is_shaped(round_trips_ms),
        }
    }

    /// One of the hosts.
    pub fn node(&self, name: &str) -> &Namespace {
        self.network.namespace(name).unwrap()
    }

    pub fn host(&self) -> &Namespace {
        self.node("host")
    }

    /// tarn, which is up.
    pub fn up(&self) -> Program<'_> {
        self.up_with(BOTH)
    }

    /// tarn, which is up with this configuration.
    pub fn up_with(&self, text: &str) -> Program<'_> {
        let program = Program::new(self.host(), text);
        program.run("up");
        program
    }

    /// What comes back by an uplink takes so long from now on.
    pub fn delay(&self, device: &str, milliseconds: u64) {
        let far = self.network.namespace("far").unwrap();
        far.shape(device, &Shape::new().delay(Duration::from_millis(milliseconds)))
            .unwrap();
    }

    /// Nothing comes through an uplink any more, though its device carries.
    pub fn kill(&self, device: &str) {
        if !self.is_shaped {
            let table = DEAD.replace("DEVICE", device);
            self.node("far").run_with_input("nft", &["-f", "-"], &table).unwrap();
            return;
        }
        for node in ["host", "far"] {
            let dead = Shape::new().loss_percent(100.0);
            self.network.namespace(node).unwrap().shape(device, &dead).unwrap();
        }
    }

    /// It does again, with no delay.
    pub fn heal(&self, device: &str) {
        if !self.is_shaped {
            let table = format!("dead_{device}");
            self.node("far")
                .run("nft", &["delete", "table", "inet", &table])
                .unwrap();
            return;
        }
        for node in ["host", "far"] {
            self.network
                .namespace(node)
                .unwrap()
                .shape(device, &Shape::new())
                .unwrap();
        }
    }

    /// UDP requests from the host to the far side, one every 10 ms, while `meanwhile` runs.
    pub fn requests(&self, target: &str, count: u32, meanwhile: impl FnOnce()) -> Exchanges {
        self.requests_of(64, target, count, meanwhile)
    }

    /// The same with so many bytes in each.
    pub fn requests_of(&self, size: usize, target: &str, count: u32, meanwhile: impl FnOnce()) -> Exchanges {
        let target = SocketAddr::new(target.parse().unwrap(), PORT);
        let _echo = UdpEcho::start(self.node("far"), target).unwrap();
        let mut requests = UdpRequests::new(Flow::to(target), count);
        requests.size = size;
        self.run("host", requests, meanwhile)
    }

    /// Requests from a node, one every 10 ms, while `meanwhile` runs.
    pub fn run(&self, from: &str, mut requests: UdpRequests, meanwhile: impl FnOnce()) -> Exchanges {
        requests.arrivals = Arrivals::Open(Law::Every(Duration::from_millis(10)));
        requests.timeout = Duration::from_secs(1);
        let running = self.node(from).spawn("requests", move || requests.run()).unwrap();
        meanwhile();
        running.join().unwrap().unwrap()
    }

    /// By which device packets to a target leave, whose route is looked up anew.
    pub fn way(&self, target: &str) -> String {
        let text = self.host().ip(&format!("-j route get {target}")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()[0]["dev"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// What an administrator would lay side by side.
    pub fn dump(&self) -> BTreeMap<&'static str, String> {
        let host = self.host();
        let mut dump = BTreeMap::new();
        for command in [
            "-j nexthop",
            "-j route show table all",
            "-6 -j route show table all",
            "-j rule",
            "-6 -j rule",
        ] {
            dump.insert(command, host.ip(command).unwrap());
        }
        let filters = host
            .run("grep", &["", "-r", "/proc/sys/net/ipv4/conf", "--include=rp_filter"])
            .unwrap();
        dump.insert("rp_filter", filters);
        dump
    }
}

fn is_shaped(round_trips_ms: [u64; 2]) -> bool {
    round_trips_ms != [0, 0]
}

/// The network that every scene has.
fn topology(round_trips_ms: [u64; 2], host: Node) -> Topology {
    let end = |node, number: u8| {
        let here = if node == "host" { 2 } else { 1 };
        let end = End::new(node, &format!("wan{number}"))
            .address(&format!("10.{number}.0.{here}/24"))
            .address(&format!("fd0{number}::{here}/64"));
        // What comes back has the delay, and can be lost; what leaves can be, too.
        let delay = if node == "host" {
            0
        } else {
            round_trips_ms[usize::from(number) - 1]
        };
        match is_shaped(round_trips_ms) {
            true => end.shape(Shape::new().delay(Duration::from_millis(delay))),
            false => end,
        }
    };
    Topology::new()
        .node(host)
        .node(
            // What is asked for on the link itself is not there: probes have to go by their gateway.
            Node::new("far")
                .sysctl("net/ipv4/conf/all/arp_ignore", "1")
                .ip("address add 10.9.9.9/32 dev lo")
                .ip("address add fd09::9/128 dev lo nodad"),
        )
        .link(end("host", 1), end("far", 1))
        .link(end("host", 2), end("far", 2))
}

/// Waits for something that tarn, or another program, does in its own time: at most 100 s. In the lab, to look again and again costs
/// more than to wait.
pub fn await_calmly(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..200 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    panic!("{what} has not happened");
}

/// Waits until tarn has noticed that somebody else has changed a group.
pub fn await_left_alone(program: &Program<'_>) {
    await_calmly("tarn's notice", || {
        program.command_line("tarn paths status").1.contains("left alone")
    });
}

/// Waits until an uplink is in a state, at most 100 s. Nothing is sent meanwhile: what is in use does not move in peace.
pub fn await_state(program: &Program<'_>, to: &str, name: &str, state: &str) {
    for _ in 0..200 {
        if uplink(program, to, name)["state"] == state {
            return;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    let (_, history) = program.command_line("tarn paths history");
    panic!("{name} is never {state}: {}\n{history}", uplink(program, to, name));
}

/// The same of both groups, and until what was in use before has paused.
pub fn await_used(program: &Program<'_>, name: &str) {
    for to in ["default", "::/0"] {
        await_state(program, to, name, "used");
    }
    std::thread::sleep(Duration::from_secs(12));
}

/// A row of the uplinks in `tarn paths status`.
pub fn uplink(program: &Program<'_>, to: &str, name: &str) -> Value {
    figure(program, "uplinks", to, name)
}

/// The same of any table.
pub fn figure(program: &Program<'_>, table: &str, to: &str, name: &str) -> Value {
    row(program, table, |row| row["to"] == to && row["uplink"] == name)
}

/// The first row of a table that is meant.
pub fn row(program: &Program<'_>, table: &str, is_meant: impl Fn(&Value) -> bool) -> Value {
    let (code, text) = program.command_line("tarn paths status --json");
    assert_eq!(code, 0, "{text}");
    let status: Value = serde_json::from_str(&text).unwrap();
    let rows = status[table].as_array().unwrap();
    rows.iter()
        .find(|row| is_meant(row))
        .unwrap_or_else(|| panic!("{status}"))
        .clone()
}
