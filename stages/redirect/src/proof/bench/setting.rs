//! What the programs are measured in: a network of their own, and tables full of rules.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};

use super::programs::{Hook, Programs, Traffic, Which};
use crate::bpf::devices::exit_to_peer;
use crate::bpf::load::{self, Framing, Limits, Loaded};
use crate::bpf::synchronise;
use crate::rule::{Address, Origin, PortRange, Protocol, Rule};
use tarn_kernel::links;
use tarn_kernel::plain::bytes_of;
use tarn_lab::topology::{End, Network, Node, Topology};

/// As in bench.bpf.c: rule i is for this address plus i % `ADDRESSES`, this port plus i / `ADDRESSES`.
const FIRST_ADDRESS: u32 = 0xc612_0000;
const ADDRESSES: u32 = 1 << 17;
const FIRST_PORT: u16 = 10_000;
/// Rule i leads to this address plus i: a million rules have a million targets.
const FIRST_TARGET: u32 = 0x0a00_0001;
const TARGET_PORT: u16 = 8083;
/// As many rules as targets of their own fit into 10.0.0.0/8.
pub const MOST_RULES: u32 = 1 << 23;

/// Flows in progress where their number shall not matter: they fit into a CPU's own cache.
pub const FEW_FLOWS: u32 = 1000;
/// The flow table for packets that each open a flow. It is full all the time: entries make room for others.
const NEW_FLOWS: u32 = 65_536;

/// A network of its own, and the index of the device in it by which packets arrive.
pub struct TestNetwork {
    /// Lives as long as the measurement.
    pub network: Network,
    /// The device towards the clients.
    pub ifindex: u32,
    server: u32,
}

/// ```text
///   client            host                          server
///   172.16.0.0/12 ─── client, server ─── 10.0.0.0/8
/// ```
pub fn place() -> Result<TestNetwork> {
    let network = Topology::new()
        .node(Node::new("client"))
        .node(
            Node::new("host")
                .forwarding()
                .route("172.16.0.0/12", "100.64.0.2")
                .route("10.0.0.0/8", "100.64.1.2"),
        )
        .node(Node::new("server"))
        .link(
            End::new("client", "eth0").address("100.64.0.2/24"),
            End::new("host", "client").address("100.64.0.1/24"),
        )
        .link(
            End::new("host", "server").address("100.64.1.1/24"),
            End::new("server", "eth0").address("100.64.1.2/24"),
        )
        .permanent_neighbours()
        .build()
        .context("cannot make a network of network namespaces to measure in")?;
    let links = network.namespace("host")?.enter(links::all)?;
    let index = |name: &str| {
        links
            .iter()
            .find(|link| link.name == name)
            .map(|link| link.index)
            .context("a device of the network is missing")
    };
    Ok(TestNetwork {
        ifindex: index("client")?,
        server: index("server")?,
        network,
    })
}

/// The programs over tables with a number of rules.
pub struct Tables {
    /// How many rules.
    pub rules: u32,
    /// Flows in progress in the case of one for every rule.
    pub flows: u32,
    /// How long it took to load the rules.
    pub loading: Duration,
    /// With a flow table for the flows in progress.
    pub known: Programs,
    /// With one for flows that come and go.
    pub first: Programs,
    _loaded: Loaded,
}

impl Tables {
    /// Fills them. The calling thread must be in the namespace `host` of the place.
    pub fn load(place: &TestNetwork, rules: u32) -> Result<Self> {
        let limits = Limits {
            rules,
            flows: 1024,
            xdp: true,
        };
        let loaded = load::load(limits, Framing::Ethernet, None)?;
        let server = bytes_of(&place.server);
        let exit = exit_to_peer();
        loaded
            .maps
            .exits
            .update(server, bytes_of(&exit), MapFlags::ANY)
            .context("tell a device to the programs")?;
        loaded
            .maps
            .xdp_devices
            .update(server, server, MapFlags::ANY)
            .context("tell a device to the XDP program")?;
        let list: Vec<Rule> = (0..rules).map(rule).collect();
        let started = Instant::now();
        synchronise(&loaded.maps, &list)?;
        let loading = started.elapsed();
        let flows = rules.max(FEW_FLOWS);
        // A flow has two entries, and a table that is nearly full may make room early.
        let known = Programs::load(&loaded.maps, rules, flows.saturating_mul(2) + flows / 4 + 65_536)?;
        let first = Programs::load(&loaded.maps, rules, NEW_FLOWS)?;
        let tables = Self {
            rules,
            flows,
            loading,
            known,
            first,
            _loaded: loaded,
        };
        tables.open_flows(place, FEW_FLOWS)?;
        tables.open_flows(place, flows)?;
        Ok(tables)
    }

    /// Lets the programs decide about each of the flows in progress.
    fn open_flows(&self, place: &TestNetwork, flows: u32) -> Result<()> {
        self.known.set_traffic(Traffic::KnownFlow(flows), self.rules, true)?;
        self.known
            .run(Which::Redirect(Hook::Tc), flows, place.ifindex)
            .map(drop)
    }
}

fn rule(id: u32) -> Rule {
    Rule {
        id,
        protocol: Protocol::Udp,
        source: None,
        address: Address::Ip(IpAddr::V4(Ipv4Addr::from_bits(FIRST_ADDRESS + id % ADDRESSES))),
        ports: PortRange::single(FIRST_PORT + (id / ADDRESSES) as u16),
        to: IpAddr::V4(Ipv4Addr::from_bits(FIRST_TARGET + id)),
        to_ports: PortRange::single(TARGET_PORT),
        origin: Origin::Command,
        note: None,
    }
}
