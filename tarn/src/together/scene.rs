//! The network of the experiment, and which stages are up in it.
//!
//! ```text
//!   client                 host                        server
//!   10.8.0.2 eth0 ──────── eth0 10.8.0.1, right ────── eth0 10.8.2.2        (tarn_poll::proof::rig)
//!   10.8.10.1 to .5 (lo)   wan1 10.20.1.1 ──────────── wan1 10.20.1.2  far, 198.51.100.1 (lo)
//!                          wan2 10.20.2.1 ──────────── wan2 10.20.2.2
//! ```
//! `eth0` are emulated cards, and a flood can come in there; the others are veth pairs. The host serves its clients, forwards to `far`
//! by one of two uplinks, and sends to it. An answer comes back by the uplink that the last request of its flow came by.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::unistd::gettid;
use tarn_lab::topology::{Namespace, Shape};
use tarn_poll::proof::rig::Rig;

/// The classes' targets, in percent; each has a client of its own.
pub const TARGETS: [u32; 5] = [90, 80, 70, 60, 50];
/// From a request's arrival at a client's own time to its answer's.
pub const DEADLINE: Duration = Duration::from_millis(100);
/// What the uplinks lead to.
pub const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The far end of the uplink that is the better one.
pub const NEAR_END: Ipv4Addr = Ipv4Addr::new(10, 20, 1, 2);
/// Bits a second of that uplink, and what becomes of them.
pub const RATE: u64 = 10_000_000;
pub const RATE_DROPPED: u64 = 5_000_000;
/// Each way, of each uplink.
const DELAYS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(20)];
/// Packets that are delayed or wait.
const QUEUE: u32 = 60;
/// The uplinks' network.
const NETWORK: &str = "198.51.100.0/24";

/// The game's port.
pub const GAME: u16 = 7000;
/// What is flooded.
pub const FLOODED: u16 = 9002;
/// Frames that circle: 1.5 times what one CPU can receive (`poll-storm`).
const FRAMES: u16 = 64;

/// The stages' names and sections, in packet order.
pub const STAGES: [(&str, &str); 6] = [
    ("poll", "[poll]\n"),
    (
        "redirect",
        "[[redirect.rule]]\nprotocol = \"udp\"\nfrom = \"10.8.0.1:9100\"\nto = \"10.8.2.2:9000\"\n",
    ),
    ("reassembly", "[reassembly]\n"),
    (
        "classes",
        r#"
[classes]
deadline = "100ms"

[[classes.service]]
ports = ["udp/8000"]
protocol = "datagram"
limit = 2
"#,
    ),
    ("pace", "[pace]\nfor = \"all\"\n"),
    (
        "paths",
        r#"
[[paths.group]]
to = "198.51.100.0/24"
targets = ["198.51.100.1"]
uplink = [{ device = "wan1", gateway = "10.20.1.2" }, { device = "wan2", gateway = "10.20.2.2" }]
"#,
    ),
];

/// Which stages are up, by their places in [`STAGES`].
pub type Up<'a> = &'a [usize];

/// The places of the stages that something else depends on.
pub const POLL: usize = 0;
pub const PATHS: usize = STAGES.len() - 1;

/// The network.
pub struct Scene {
    rig: Rig,
    far: Namespace,
}

impl Scene {
    /// Makes the network, and brings these stages up.
    ///
    /// # Errors
    /// A guest without cards, the kernel's, and what `tarn up` says.
    pub fn new(up: Up) -> Result<Self> {
        let scene = Self {
            rig: Rig::with_server()?,
            far: Namespace::new("far")?,
        };
        scene.rig.flood(false)?;
        scene.rig.begin(FRAMES, FLOODED)?;
        let client = scene.client()?;
        for class in 0..TARGETS.len() {
            client.ip(&format!("address add {}/32 dev lo", client_of(class)))?;
        }
        client.ip(&format!("route add {NETWORK} via 10.8.0.1"))?;
        scene.host()?.sysctl("net/ipv4/ip_forward", "1")?;
        scene.far.ip(&format!("address add {FAR}/32 dev lo"))?;
        for number in 1..=DELAYS.len() {
            scene.join(number)?;
        }
        scene.mirror()?;
        scene.bring_up(up)?;
        Ok(scene)
    }

    /// The host that has the stages.
    ///
    /// # Errors
    /// None: it is there.
    pub fn host(&self) -> Result<&Namespace> {
        self.rig.host()
    }

    /// Whose requests come by the card.
    ///
    /// # Errors
    /// None: it is there.
    pub fn client(&self) -> Result<&Namespace> {
        self.rig.client()
    }

    /// Where a port is redirected to.
    ///
    /// # Errors
    /// None: it is there.
    pub fn server(&self) -> Result<&Namespace> {
        self.rig.server()
    }

    /// What is behind the uplinks.
    pub fn far(&self) -> &Namespace {
        &self.far
    }

    /// The cards and the flood.
    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// Plugs an uplink in.
    fn join(&self, number: usize) -> Result<()> {
        let (host, device) = (self.host()?, format!("wan{number}"));
        let end = |side: u8| format!("name {device} address 02:20:00:00:0{number}:0{side}");
        self.far.enter(|| {
            let here = format!("/proc/{}/task/{}/ns/net", std::process::id(), gettid());
            host.ip(&format!("link add {} type veth peer {} netns {here}", end(1), end(2)))
        })?;
        for (namespace, side) in [(host, 1), (&self.far, 2)] {
            namespace.ip(&format!("address add 10.20.{number}.{side}/24 dev {device}"))?;
            namespace.ip(&format!("link set {device} up"))?;
            namespace.tc(&format!("qdisc add dev {device} root handle 1: netem"))?;
        }
        self.shape(number, RATE, 0.0)
    }

    /// What an uplink is like from now on, both ways.
    ///
    /// # Errors
    /// The kernel's.
    pub fn shape(&self, number: usize, rate: u64, loss_percent: f64) -> Result<()> {
        let shape = Shape::new()
            .delay(DELAYS[number - 1])
            .rate(rate)
            .limit(QUEUE)
            .loss_percent(loss_percent);
        for namespace in [self.host()?, &self.far] {
            namespace.shape(&format!("wan{number}"), &shape)?;
        }
        Ok(())
    }

    /// Sends answers back by the uplink that the request came by, and counts the game's requests.
    fn mirror(&self) -> Result<()> {
        let mut marks = String::new();
        for number in 1..=DELAYS.len() {
            marks += &format!("iifname \"wan{number}\" ct mark set {number}\n");
            self.far
                .ip(&format!("rule add fwmark {number} lookup {}", 100 + number))?;
            self.far.ip(&format!(
                "route add default via 10.20.{number}.1 table {}",
                100 + number
            ))?;
        }
        self.far.ip("route add default via 10.20.1.1")?;
        let table = format!(
            "table ip mirror {{\n\
             chain in {{\ntype filter hook prerouting priority -150;\n{marks}}}\n\
             chain out {{\ntype route hook output priority -150;\nmeta mark set ct mark\n}}\n}}\n"
        );
        self.far.run_with_input("nft", &["-f", "-"], &table)?;
        self.count("game", &format!("udp dport {GAME}"))
    }

    fn bring_up(&self, up: Up) -> Result<()> {
        let host = self.host()?;
        if !up.contains(&PATHS) {
            host.ip(&format!("route add {NETWORK} via {NEAR_END}"))?;
        }
        if up.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for place in up {
            let (name, section) = STAGES[*place];
            text += section;
            if name == "classes" {
                text += &classes();
            }
        }
        let file = "/tmp/together.toml";
        std::fs::write(file, text).with_context(|| format!("cannot write {file}"))?;
        host.tarn(&["up", "-c", file])?;
        self.rig.readdress()
    }

    /// Brings these stages down.
    ///
    /// # Errors
    /// What `tarn down` says.
    pub fn end(self, up: Up) -> Result<()> {
        if !up.is_empty() {
            self.host()?.tarn(&["down"])?;
        }
        Ok(())
    }

    /// Counts the packets of a name that come to the far end, by uplink, from now on: those that match an expression of nft's.
    ///
    /// # Errors
    /// nft's.
    pub fn count(&self, name: &str, matching: &str) -> Result<()> {
        let line = |number: usize| {
            format!(
                "add counter ip mirror {name}{number}\n\
                 add rule ip mirror in iifname \"wan{number}\" {matching} counter name {name}{number}\n"
            )
        };
        let lines: String = (1..=DELAYS.len()).map(line).collect();
        self.far.run_with_input("nft", &["-f", "-"], &lines).map(drop)
    }

    /// The number of the uplink that has brought more of the packets of a name to the far end, within a time.
    ///
    /// # Errors
    /// nft's, and none that has brought any.
    pub fn uplink_of(&self, name: &str, within: Duration) -> Result<usize> {
        let before = [self.counted(name, 1)?, self.counted(name, 2)?];
        std::thread::sleep(within);
        let come = |number: usize| -> Result<u64> { Ok(self.counted(name, number)? - before[number - 1]) };
        let come = [come(1)?, come(2)?];
        ensure!(come != [0, 0], "no uplink brings packets of the {name}");
        Ok(if come[1] > come[0] { 2 } else { 1 })
    }

    fn counted(&self, name: &str, uplink: usize) -> Result<u64> {
        let text = self
            .far
            .run("nft", &["list", "counter", "ip", "mirror", &format!("{name}{uplink}")])?;
        let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
        let count = words.nth(1).with_context(|| format!("nft lists no packets: {text}"))?;
        count.parse().with_context(|| format!("nft lists a counter of {count}"))
    }
}

/// The address of a class's client.
pub fn client_of(class: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 8, 10, class as u8 + 1)
}

/// The classes' part of the configuration.
fn classes() -> String {
    let class = |(number, target): (usize, &u32)| {
        format!(
            "\n[[classes.class]]\nname = \"class{number}\"\ntarget = {target}\nnetworks = [\"{}\"]\n",
            client_of(number)
        )
    };
    TARGETS.iter().enumerate().map(class).collect()
}
