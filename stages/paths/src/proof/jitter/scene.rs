//! The network of a case, and how its router chooses.
//!
//! ```text
//!   client              router                    far                 server
//!   10.0.0.2 ─ 10.0.0.1      ╒═ 10.1.0.2 ─ 10.1.0.1 ═╕  10.9.0.1 ─ 10.9.0.2
//!        lan   lan      wan1 ╞═ 10.2.0.2 ─ 10.2.0.1 ═╡ wan1     lan   lan
//!                       ...  ╘═ 10.3.0.2 ─ 10.3.0.1 ═╛ ...
//! ```
//! Half of an uplink's round trip is on each of its ways. An answer comes back by the uplink that the last request of its flow
//! came by: `far` marks connections with it, as a provider's own routing or a tunnel would see to.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::published::Published;
use super::scenario::{Event, JITTER, Quality, SPIKE_MS, Scenario, disturbances};
use crate::history::Entry;
use crate::proof::{bring_up, nexthops};
use tarn_frame::state::StateDirectory;
use tarn_lab::topology::{End, Namespace, Network, Node, Shape, Topology};

/// Fast enough that nothing queues, and a queue that keeps packets in order: netem with a rate does.
const RATE: u64 = 100_000_000;
/// What TCP may have under way: it is to share the uplinks, not to fill them.
const WINDOW: &str = "4096 8192 8192";
/// The destination.
const NETWORK: &str = "10.9.0.0/24";
/// The client's first address.
pub const CLIENT: &str = "10.0.0.2";
/// The server's address.
pub const SERVER: &str = "10.9.0.2";
/// The client's addresses: ECMP by addresses puts each on one of the uplinks.
const CLIENTS: u8 = 16;

/// Who chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// The kernel, by a hash of the addresses.
    EcmpAddresses,
    /// The kernel, by a hash of addresses and ports.
    EcmpPorts,
    /// One uplink for the whole time: the best, if the future were known.
    Oracle,
    /// The rule of the blog post: the greatest weight wins.
    Published,
    /// The same with the aim that it had: the least wins.
    PublishedLowest,
    /// tarn, `policy = "calmest"`.
    Calmest,
    /// tarn, `policy = "proportional"`.
    Proportional,
}

impl Contender {
    /// What the name of its cases begins with.
    pub fn name(self) -> &'static str {
        match self {
            Self::EcmpAddresses => "ecmp-addresses",
            Self::EcmpPorts => "ecmp-ports",
            Self::Oracle => "oracle",
            Self::Published => "published",
            Self::PublishedLowest => "published-lowest",
            Self::Calmest => "calmest",
            Self::Proportional => "proportional",
        }
    }

    /// Who that is.
    pub fn title(self) -> &'static str {
        match self {
            Self::EcmpAddresses => "the kernel, by addresses",
            Self::EcmpPorts => "the kernel, by addresses and ports",
            Self::Oracle => "the best uplink, if one knew",
            Self::Published => "the published rule, the greatest weight wins",
            Self::PublishedLowest => "the published rule, the least wins",
            Self::Calmest => "tarn, calmest",
            Self::Proportional => "tarn, proportional",
        }
    }

    /// Whether it is tarn.
    pub fn is_tarn(self) -> bool {
        matches!(self, Self::Calmest | Self::Proportional)
    }
}

/// A case, ready for its load.
pub struct Scene {
    network: Network,
    /// What the uplinks are like.
    pub scenario: &'static Scenario,
    contender: Contender,
    published: Option<Published>,
}

fn shape(quality: &Quality, round_trip_ms: u64) -> Shape {
    Shape::new()
        .delay(Duration::from_micros(round_trip_ms * 500))
        .jitter(JITTER)
        .loss_percent(quality.loss_percent)
        .rate(RATE)
        .limit(10_000)
}

impl Scene {
    /// Makes the network and has the router choose.
    pub fn new(scenario: &'static Scenario, contender: Contender) -> Result<Self> {
        let mut scene = Self {
            network: network(scenario)?,
            scenario,
            contender,
            published: None,
        };
        scene.mirror()?;
        scene.choose()?;
        Ok(scene)
    }

    /// One of the hosts.
    pub fn namespace(&self, name: &str) -> Result<&Namespace> {
        self.network.namespace(name)
    }

    /// Sends answers back by the uplink that the request came by.
    fn mirror(&self) -> Result<()> {
        let far = self.namespace("far")?;
        let mut rules = String::new();
        let mut routes = Vec::new();
        for number in 1..=self.scenario.uplinks.len() {
            rules += &format!("iifname \"wan{number}\" ct mark set {number}\n");
            routes.push(format!("rule add fwmark {number} lookup {}", 100 + number));
            routes.push(format!(
                "route add 10.0.0.0/24 via 10.{number}.0.2 table {}",
                100 + number
            ));
        }
        let chain = "type filter hook prerouting priority -150;";
        let table =
            format!("table ip mirror {{\nchain in {{\n{chain}\n{rules}iifname \"lan\" meta mark set ct mark\n}}\n}}\n");
        far.run_with_input("nft", &["-f", "-"], &table)?;
        far.ip_batch(&routes)
    }

    fn choose(&mut self) -> Result<()> {
        let router = self.network.namespace("router")?;
        let policy = if self.contender == Contender::EcmpAddresses {
            "0"
        } else {
            "1"
        };
        router.sysctl("net/ipv4/fib_multipath_hash_policy", policy)?;
        let count = self.scenario.uplinks.len();
        let route = |nexthops: String| router.ip(&format!("route add {NETWORK} {nexthops}")).map(drop);
        let up = |policy: &str| bring_up(router, count, (NETWORK, SERVER), &format!("policy = \"{policy}\""), "");
        match self.contender {
            Contender::EcmpAddresses | Contender::EcmpPorts => route(nexthops(1..=count)),
            Contender::Oracle => route(nexthops(std::iter::once(self.scenario.oracle + 1))),
            Contender::Published | Contender::PublishedLowest => {
                let way = |number: usize| Ok((format!("wan{number}"), format!("10.{number}.0.1").parse()?));
                let ways: Vec<_> = (1..=count).map(way).collect::<Result<_>>()?;
                let greatest_wins = self.contender == Contender::Published;
                self.published = Some(Published::rule(router, &ways, greatest_wins)?);
                Ok(())
            }
            Contender::Calmest => up("calmest"),
            Contender::Proportional => up("proportional"),
        }
    }

    /// Lets the uplinks be as they are for a while, from now on; the spikes are those of this stream of the seed.
    pub fn disturb(&self, seed: u64, stream: &str, length: Duration) -> Result<()> {
        let mut changes = Vec::new();
        for (index, quality) in self.scenario.uplinks.iter().enumerate() {
            for (from, to) in disturbances(quality.event, index, seed, stream, length) {
                changes.extend([(from, index, true), (to, index, false)]);
            }
        }
        changes.sort();
        let began = Instant::now();
        for (at, index, is_begin) in changes {
            std::thread::sleep(at.saturating_sub(began.elapsed()));
            self.change(index, is_begin)?;
        }
        std::thread::sleep(length.saturating_sub(began.elapsed()));
        Ok(())
    }

    fn change(&self, index: usize, is_begin: bool) -> Result<()> {
        let quality = &self.scenario.uplinks[index];
        let shape = match (is_begin, quality.event) {
            (true, Event::Dies) => shape(quality, quality.round_trip_ms).loss_percent(100.0),
            (true, Event::Spikes | Event::Worsens) => shape(quality, SPIKE_MS),
            _ => shape(quality, quality.round_trip_ms),
        };
        for node in ["router", "far"] {
            self.namespace(node)?.shape(&format!("wan{}", index + 1), &shape)?;
        }
        Ok(())
    }

    /// The client's address and port of a UDP flow to the server. ECMP puts it where it has bad luck, if the hash does so for any.
    pub fn client(&self, port: u16) -> Result<SocketAddr> {
        let bad = format!("wan{}", self.scenario.bad + 1);
        let candidates: Vec<(u8, u16)> = match self.contender {
            Contender::EcmpAddresses => (2..2 + CLIENTS).map(|host| (host, port)).collect(),
            Contender::EcmpPorts => (0..64).map(|offset| (2, port + offset)).collect(),
            _ => vec![(2, port)],
        };
        for (host, port) in &candidates {
            let arguments = format!("route get {SERVER} from 10.0.0.{host} iif lan ipproto 17 sport {port} dport 7000");
            if candidates.len() == 1 || self.namespace("router")?.ip(&arguments)?.contains(&bad) {
                return Ok(format!("10.0.0.{host}:{port}").parse()?);
            }
        }
        bail!("the hash puts no flow on {bad}")
    }

    /// How often the router has changed the path, the first choice left out: of all new flows, or where each packet has its own
    /// choice, from one packet to the next.
    pub fn changes(&self) -> Result<u64> {
        if let Some(published) = &self.published {
            return published.changes();
        }
        if !self.contender.is_tarn() {
            return Ok(0);
        }
        let read = || crate::history::load(&StateDirectory::of_this_namespace()?);
        let entries = self.namespace("router")?.enter(read)?;
        let is_move = |entry: &Entry| entry.from.as_ref().is_some_and(|from| *from != entry.to);
        Ok(entries.into_iter().filter(is_move).count() as u64)
    }

    /// Takes what was set up away again; the network goes with the scene.
    pub fn end(self) -> Result<()> {
        match self.contender.is_tarn() {
            true => self.namespace("router")?.tarn(&["down"]).map(drop),
            false => Ok(()),
        }
    }
}

fn network(scenario: &Scenario) -> Result<Network> {
    let lan = |node: &str, address: &str| End::new(node, "lan").address(address);
    let window = |node: Node| node.sysctl("net/ipv4/tcp_rmem", WINDOW);
    let mut client = window(Node::new("client").route("default", "10.0.0.1"));
    for host in 3..2 + CLIENTS {
        client = client.ip(&format!("address add 10.0.0.{host}/24 dev lan"));
    }
    let mut topology = Topology::new()
        .node(client)
        .node(Node::new("router").forwarding())
        .node(Node::new("far").forwarding())
        .node(window(Node::new("server").route("default", "10.9.0.1")))
        .link(lan("client", &format!("{CLIENT}/24")), lan("router", "10.0.0.1/24"))
        .link(lan("far", "10.9.0.1/24"), lan("server", "10.9.0.2/24"));
    for (index, quality) in scenario.uplinks.iter().enumerate() {
        let number = index + 1;
        let end = |node: &str, host: u8| {
            End::new(node, &format!("wan{number}"))
                .address(&format!("10.{number}.0.{host}/24"))
                .shape(shape(quality, quality.round_trip_ms))
        };
        topology = topology.link(end("router", 2), end("far", 1));
    }
    topology.permanent_neighbours().build()
}
