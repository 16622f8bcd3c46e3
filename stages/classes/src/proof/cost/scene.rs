//! The network of a case, and what is set up on its server.
//!
//! ```text
//!   client                   server
//!   11.128.0.1 ──────────── 11.128.0.2:8080
//!          eth0        eth0
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};

use super::State;
use crate::clients::{Change, Client};
use crate::module::{MODULE, Module};
use crate::network;
use crate::proof::scene::up;
use tarn_kernel::modules;
use tarn_lab::exchange_cost::{Ends, ExchangeCost};
use tarn_lab::experiment::Check;
use tarn_lab::topology::{End, Namespace, Network, Node, Topology};

/// Prefixes of the case that has many.
pub const PREFIXES: u32 = 1_000_000;
/// The addresses of a prefix.
const PREFIX: u32 = 16;
/// Where the prefixes begin, and over how many addresses they are spread.
const FIRST: u32 = 0x0b00_0000;
const SPREAD: u32 = PREFIXES * PREFIX;

const CONFIGURATION: &str = "[classes]
ports = [\"udp/8080\", \"tcp/8080\"]
deadline = \"40ms\"

[[classes.class]]
name = \"A\"
target = 90
networks = [\"220.0.0.0/8\"]

[[classes.class]]
name = \"B\"
target = 80
networks = [\"CLIENT\"]

[[classes.class]]
name = \"C\"
target = 70
networks = [\"210.0.0.0/8\"]

[[classes.class]]
name = \"D\"
target = 60

[[classes.class]]
name = \"E\"
target = 50
";
/// The client's class above.
const CLASS: usize = 1;

/// A case, ready for its load.
pub struct Scene {
    network: Network,
    state: State,
    /// Where the client sends from.
    client: SocketAddr,
    /// Where the server listens.
    server: SocketAddr,
}

impl Scene {
    /// Makes the network and sets up the server.
    pub fn new(state: State) -> Result<Self> {
        let end = |node, address| {
            End::new(node, "eth0")
                .feature("tx-checksumming", false)
                .feature("gro", true)
                .address(address)
        };
        let network = Topology::new()
            .node(Node::new("client"))
            .node(Node::new("server"))
            .link(end("client", "11.128.0.1/24"), end("server", "11.128.0.2/24"))
            .permanent_neighbours()
            .build()?;
        let scene = Self {
            network,
            state,
            client: "11.128.0.1:5000".parse()?,
            server: "11.128.0.2:8080".parse()?,
        };
        scene.set_up()?;
        Ok(scene)
    }

    /// One of the hosts.
    fn namespace(&self, name: &str) -> Result<&Namespace> {
        self.network.namespace(name)
    }

    /// Who speaks to whom.
    pub fn ends(&self) -> Result<Ends<'_>> {
        Ok(Ends {
            client: self.namespace("client")?,
            from: self.client,
            server: self.namespace("server")?,
            to: self.server,
        })
    }

    /// What is set up, in a few words.
    pub fn title(&self) -> String {
        match self.state {
            State::Nothing => "without the module".into(),
            State::Loaded => "module loaded, nothing configured".into(),
            State::Classes { prefixes: 0 } => "five classes, nothing waits".into(),
            State::Address => "five classes, another client has logged in".into(),
            State::Classes { .. } => "five classes, 1,000,000 prefixes of clients".into(),
        }
    }

    fn set_up(&self) -> Result<()> {
        match self.state {
            State::Nothing => Ok(()),
            State::Loaded => modules::load(MODULE.name),
            State::Classes { prefixes: 0 } => self.up("11.128.0.0/24"),
            State::Classes { prefixes } => {
                // The client's prefix is one of them.
                self.up("192.0.0.0/8")?;
                self.namespace("server")?
                    .enter(|| Module::loaded()?.change_clients(&many(prefixes).into_entries(), 2 * PREFIXES))
            }
            State::Address => {
                self.up("11.128.0.0/24")?;
                self.tarn(&["classes", "add", "11.128.0.77", "A", "--for", "30m"])
            }
        }
    }

    fn up(&self, network: &str) -> Result<()> {
        up(self.namespace("server")?, &CONFIGURATION.replace("CLIENT", network))
    }

    /// Whether the client's requests were served by its class: what is cheap because it does nothing is no measure.
    pub fn check(&self, figures: &ExchangeCost) -> Result<Option<Check>> {
        let what = match self.state {
            State::Nothing | State::Loaded => return Ok(None),
            State::Classes { prefixes } => format!("{prefixes} prefixes"),
            State::Address => "one address".to_owned(),
        };
        let state = self
            .namespace("server")?
            .enter(|| Module::find()?.context("the module has gone")?.state())?
            .context("no classes run")?;
        let counts = state.counts[CLASS];
        let others: u64 = state.counts.iter().map(|counts| counts.requests).sum::<u64>() - counts.requests;
        let asked = figures.requests();
        Ok(Some(Check {
            name: format!("{what}: every request was counted in the client's class, and answered in time"),
            passed: (counts.requests, counts.in_time, others) == (asked, asked, 0),
            detail: format!(
                "{asked} requests, {} counted, {} in time, {others} in other classes",
                counts.requests, counts.in_time
            ),
        }))
    }

    /// Takes what was set up away again; the network goes with the scene.
    pub fn end(self) -> Result<()> {
        match self.state {
            State::Nothing => Ok(()),
            State::Loaded => modules::unload(MODULE.name).map(drop),
            State::Classes { .. } | State::Address => self.tarn(&["down"]),
        }
    }

    fn tarn(&self, arguments: &[&str]) -> Result<()> {
        self.namespace("server")?.tarn(arguments).map(drop)
    }
}

/// So many prefixes, evenly spread; all of class B.
fn many(count: u32) -> Change {
    let address = |bits| IpAddr::V4(Ipv4Addr::from_bits(bits));
    let client = |index| {
        let first = FIRST + index * (SPREAD / count / PREFIX * PREFIX);
        let network = network::Network {
            first: address(first),
            last: address(first + PREFIX - 1),
        };
        Client::of_file((network, CLASS))
    };
    let mut change = Change::default();
    (0..count).for_each(|index| change.add(&client(index)));
    change
}
