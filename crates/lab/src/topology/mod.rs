//! Networks for tests and experiments: namespaces joined by veth pairs, or by network cards, declared and then built.
//!
//! ```text
//!   client            router             server
//!   10.0.1.1 ──────── 10.0.1.2
//!            eth0 left  10.0.2.1 ──────── 10.0.2.2
//!                        right     eth0
//! ```
//! ```ignore
//! let network = Topology::new()
//!     .node(Node::new("client").route("default", "10.0.1.2"))
//!     .node(Node::new("router").forwarding())
//!     .node(Node::new("server").route("default", "10.0.2.1"))
//!     .link(End::new("client", "eth0").address("10.0.1.1/24"),
//!           End::new("router", "left").address("10.0.1.2/24").shape(Shape::new().delay(Duration::from_millis(10))))
//!     .link(End::new("router", "right").address("10.0.2.1/24"), End::new("server", "eth0").address("10.0.2.2/24"))
//!     .permanent_neighbours()
//!     .build()?;
//! network.namespace("client")?.enter(|| ...)?;
//! ```
//!
//! The namespaces have no names in /run/netns: they are held by descriptors only, so that nothing clashes with what
//! the host has, and nothing is left when the process ends, however it ends. Everything is made inside of them, by
//! iproute2. MAC addresses are fixed (02:00:00:00:link:end), so that a network is the same every time. Only cards have others in
//! every network, see [`crate::cards`].
//!
//! Where an end has an IPv6 address, the kernel reports its multicast groups (MLD) a few times during the first three
//! seconds. What must not meet these packets waits that long, which costs nothing in the lab; an end without an IPv6
//! address sends nothing of its own.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use tarn_kernel::links;

pub use self::cards::Storm;
pub use self::namespace::join;
pub use self::namespace::{Namespace, bring_loopback_up};
pub use self::shape::Shape;

mod cards;
#[cfg(test)]
mod cards_tests;
mod namespace;
mod shape;

/// How often a new link is looked at, and how long after each look, before it is given up.
const LINK_LOOKS: u32 = 500;
const LINK_PAUSE: Duration = Duration::from_millis(10);

/// Below this many bytes of MTU the kernel gives an interface no IPv6 at all (RFC 8200, section 5).
const IPV6_MIN_MTU: u32 = 1280;

/// The declaration of a network; see the [module](self).
#[derive(Debug, Clone, Default)]
pub struct Topology {
    nodes: Vec<Node>,
    links: Vec<[End; 2]>,
    /// Which of the links is the cards' wire.
    wire: Option<usize>,
    permanent_neighbours: bool,
}

/// A host of the network: a namespace of its own.
#[derive(Debug, Clone)]
pub struct Node {
    name: String,
    sysctls: Vec<(String, String)>,
    commands: Vec<String>,
}

/// One end of a link: an interface of a node. What is set here holds for packets that leave by it.
#[derive(Debug, Clone)]
pub struct End {
    node: String,
    interface: String,
    addresses: Vec<String>,
    mtu: Option<u32>,
    features: Vec<(String, bool)>,
    shape: Option<Shape>,
    vlans: Vec<Vlan>,
}

/// A VLAN on an end, or on another VLAN of it.
#[derive(Debug, Clone)]
pub struct Vlan {
    parent: Option<u16>,
    id: u16,
    addresses: Vec<String>,
}

impl Topology {
    /// A network of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host.
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// Joins two nodes by a veth pair.
    pub fn link(mut self, one: End, other: End) -> Self {
        self.links.push([one, other]);
        self
    }

    /// Joins two nodes by the guest's network cards: see [`crate::cards`]. There is one such pair.
    pub fn wire(mut self, one: End, other: End) -> Self {
        self.wire = Some(self.links.len());
        self.link(one, other)
    }

    /// Enters the addresses of each end into the neighbour table of the other for good, so that no ARP or neighbour
    /// discovery disturbs what is measured.
    pub fn permanent_neighbours(mut self) -> Self {
        self.permanent_neighbours = true;
        self
    }

    /// Makes the network; it lasts as long as the returned value. Needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN).
    ///
    /// # Errors
    /// With the command that failed and what it said. Nothing is left then.
    pub fn build(&self) -> Result<Network> {
        let namespaces: Vec<_> = self
            .nodes
            .iter()
            .map(|node| Namespace::new(&node.name))
            .collect::<Result<_>>()?;
        let addresses = (0..self.links.len()).map(|link| match self.wire {
            Some(wire) if wire == link => cards::new_addresses(),
            _ => [0, 1].map(|side| hardware_address(link, side)),
        });
        let network = Network {
            namespaces,
            addresses: addresses.collect(),
        };
        for node in &self.nodes {
            let namespace = network.namespace(&node.name)?;
            namespace.sysctl("net/ipv6/conf/default/accept_dad", "0")?;
            namespace.sysctl("net/ipv6/conf/default/router_solicitations", "0")?;
        }
        for (index, ends) in self.links.iter().enumerate() {
            if self.wire == Some(index) {
                take_cards(&network, index, ends)?;
            } else {
                make_link(&network, index, ends)?;
            }
        }
        for node in &self.nodes {
            self.configure(node, &network)?;
        }
        for end in self.links.iter().flatten() {
            let mut interfaces = end.interfaces(&end.interface);
            let wait = || interfaces.try_for_each(|(name, _)| wait_until_it_carries(&name));
            network
                .namespace(&end.node)?
                .enter(wait)
                .with_context(|| format!("namespace {:?}", end.node))?;
        }
        Ok(network)
    }

    /// Sets up what a node has, with as few processes as can be: in an emulated guest each costs more than what it does.
    fn configure(&self, node: &Node, network: &Network) -> Result<()> {
        let namespace = network.namespace(&node.name)?;
        let (mut addresses, mut neighbours, mut qdiscs) = (Vec::new(), Vec::new(), Vec::new());
        for (index, ends) in self.links.iter().enumerate() {
            for (side, end) in ends.iter().enumerate().filter(|(_, end)| end.node == node.name) {
                let peer = &ends[1 - side];
                end.switch_features(namespace)?;
                addresses.extend(end.address_commands());
                qdiscs.extend(end.shape.iter().map(|shape| shape.command("add", &end.interface)));
                if self.permanent_neighbours {
                    neighbours.extend(end.neighbours(peer, &network.mac_address(index, 1 - side)));
                }
            }
        }
        for (key, value) in &node.sysctls {
            namespace.sysctl(key, value)?;
        }
        namespace.ip_batch(&[addresses, neighbours, node.commands.clone()].concat())?;
        namespace.tc_batch(&qdiscs)
    }
}

fn make_link(network: &Network, index: usize, [one, other]: &[End; 2]) -> Result<()> {
    let (here, there) = (network.namespace(&one.node)?, network.namespace(&other.node)?);
    here.ip(&format!(
        "link add {} type veth peer {} netns /proc/{}/fd/{}",
        one.link_options(&network.mac_address(index, 0)),
        other.link_options(&network.mac_address(index, 1)),
        std::process::id(),
        there.as_fd().as_raw_fd(),
    ))
    .map(drop)
}

fn take_cards(network: &Network, index: usize, ends: &[End; 2]) -> Result<()> {
    for (card, end) in (0..).zip(ends) {
        let namespace = network.namespace(&end.node)?;
        cards::give(card, namespace, &end.interface)?;
        let mtu = end.mtu.map_or(String::new(), |mtu| format!(" mtu {mtu}"));
        let (name, address) = (&end.interface, network.mac_address(index, usize::from(card)));
        // QEMU's card forgets an address that it is given before it is up; IPv6 has none made of the one before.
        let disable_ipv6 = format!("net/ipv6/conf/{name}/disable_ipv6");
        namespace.sysctl(&disable_ipv6, "1")?;
        namespace.ip_batch(&[
            format!("link set {name} up{mtu}"),
            format!("link set {name} address {address}"),
        ])?;
        namespace.sysctl(&disable_ipv6, "0")?;
    }
    Ok(())
}

impl Node {
    /// A host with this name; its loopback is up.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            sysctls: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// Lets the node forward packets, IPv4 and IPv6.
    pub fn forwarding(self) -> Self {
        self.sysctl("net/ipv4/ip_forward", "1")
            .sysctl("net/ipv6/conf/all/forwarding", "1")
    }

    /// Sets a sysctl of the namespace, with its path below /proc/sys: `net/ipv4/ip_forward`.
    pub fn sysctl(mut self, path: &str, value: &str) -> Self {
        self.sysctls.push((path.to_owned(), value.to_owned()));
        self
    }

    /// Routes a prefix (or `default`) by a gateway. The gateway's family is the route's.
    pub fn route(self, prefix: &str, gateway: &str) -> Self {
        self.ip(&format!("route add {prefix} via {gateway}"))
    }

    /// Runs `ip` with these arguments in the namespace, after all links are there.
    pub fn ip(mut self, arguments: &str) -> Self {
        self.commands.push(arguments.to_owned());
        self
    }
}

impl End {
    /// The interface of a node; at most 15 characters.
    pub fn new(node: &str, interface: &str) -> Self {
        Self {
            node: node.to_owned(),
            interface: interface.to_owned(),
            addresses: Vec::new(),
            mtu: None,
            features: Vec::new(),
            shape: None,
            vlans: Vec::new(),
        }
    }

    /// Gives it an address with its prefix length: `10.0.1.1/24`, `fd00:1::1/64`. IPv6 is off where an end has none.
    pub fn address(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }

    /// Sets the MTU in bytes (68 or more; IPv6 needs 1280). 1500 otherwise.
    pub fn mtu(mut self, bytes: u32) -> Self {
        self.mtu = Some(bytes);
        self
    }

    /// Switches an offload by its ethtool name: `tso`, `gso`, `gro`, `tx`.
    pub fn feature(mut self, name: &str, on: bool) -> Self {
        self.features.push((name.to_owned(), on));
        self
    }

    /// Shapes what leaves here.
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = Some(shape);
        self
    }

    /// Adds a VLAN; its interface is called `NAME.ID`, one inside of another `NAME.OUTER.ID`.
    pub fn vlan(mut self, vlan: Vlan) -> Self {
        self.vlans.push(vlan);
        self
    }

    /// What `ip link add` is told of this end: with one queue each way, whatever the number of CPUs.
    fn link_options(&self, mac: &str) -> String {
        let mtu = self.mtu.map_or(String::new(), |mtu| format!(" mtu {mtu}"));
        format!("name {} address {mac}{mtu} numtxqueues 1 numrxqueues 1", self.interface)
    }

    fn switch_features(&self, namespace: &Namespace) -> Result<()> {
        let name = &self.interface;
        let has_too_small_an_mtu = self.mtu.is_some_and(|mtu| mtu < IPV6_MIN_MTU);
        if !self.has_ipv6() && !has_too_small_an_mtu {
            namespace.sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1")?;
        }
        if self.features.is_empty() {
            return Ok(());
        }
        let switches = self.features.iter();
        let switches = switches.flat_map(|(feature, on)| [feature.as_str(), if *on { "on" } else { "off" }]);
        let arguments: Vec<&str> = ["-K", name].into_iter().chain(switches).collect();
        namespace.run("ethtool", &arguments).map(drop)
    }

    /// What follows `ip`: VLANs, addresses, and that all of them go up.
    fn address_commands(&self) -> Vec<String> {
        let mut commands = self.vlan_commands();
        for (name, addresses) in self.interfaces(&self.interface) {
            commands.extend(addresses.iter().map(|address| add_address(address, &name)));
            commands.push(format!("link set {name} up"));
        }
        commands
    }

    /// Its interfaces, each with its addresses: its own, here called `name`, and those of the VLANs on it, outer before
    /// inner.
    fn interfaces(&self, name: &str) -> impl Iterator<Item = (String, &[String])> {
        let own = (name.to_owned(), &self.addresses[..]);
        let tagged = self
            .vlans
            .iter()
            .map(move |vlan| (vlan.interface(name), &vlan.addresses[..]));
        std::iter::once(own).chain(tagged)
    }

    fn vlan_commands(&self) -> Vec<String> {
        let add = |vlan: &Vlan| {
            let parent = vlan
                .parent
                .map_or(self.interface.clone(), |outer| format!("{}.{outer}", self.interface));
            format!(
                "link add link {parent} name {} type vlan id {}",
                vlan.interface(&self.interface),
                vlan.id
            )
        };
        self.vlans.iter().map(add).collect()
    }

    fn has_ipv6(&self) -> bool {
        self.interfaces(&self.interface)
            .any(|(_, addresses)| addresses.iter().any(|address| address.contains(':')))
    }

    /// The neighbour entries that this end needs of its peer.
    fn neighbours(&self, peer: &End, mac: &str) -> Vec<String> {
        let entries = |(interface, addresses): (String, &[String])| {
            let entry = |address: &String| {
                let address = address.split('/').next().unwrap_or(address);
                format!("neigh replace {address} lladdr {mac} dev {interface} nud permanent")
            };
            addresses.iter().map(entry).collect::<Vec<_>>()
        };
        peer.interfaces(&self.interface).flat_map(entries).collect()
    }
}

impl Vlan {
    /// An 802.1Q VLAN with this tag, 1..=4094.
    pub fn new(id: u16) -> Self {
        Self {
            parent: None,
            id,
            addresses: Vec::new(),
        }
    }

    /// Puts it inside another VLAN of the same end, which must be declared before: two tags.
    pub fn inside(mut self, outer: u16) -> Self {
        self.parent = Some(outer);
        self
    }

    /// Gives its interface an address with its prefix length.
    pub fn address(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }

    fn interface(&self, end: &str) -> String {
        match self.parent {
            Some(outer) => format!("{end}.{outer}.{}", self.id),
            None => format!("{end}.{}", self.id),
        }
    }
}

/// The kernel begins to send on a new link a moment after it was set up, from a worker (net/core/link_watch.c); what is
/// sent before is lost without a trace.
fn wait_until_it_carries(interface: &str) -> Result<()> {
    for _ in 0..LINK_LOOKS {
        let state = links::state(interface)?;
        // A link that a command of the declaration has set down will not carry anything.
        if state.operates || !state.is_up {
            return Ok(());
        }
        std::thread::sleep(LINK_PAUSE);
    }
    bail!("interface {interface} does not come up")
}

/// The hardware address of an end of a veth pair, in the order in which links were declared; side 0 is the one named first.
pub fn hardware_address(link: usize, side: usize) -> [u8; 6] {
    [2, 0, 0, (link >> 8) as u8, link as u8, side as u8]
}

fn add_address(address: &str, interface: &str) -> String {
    let nodad = if address.contains(':') { " nodad" } else { "" };
    format!("address add {address} dev {interface}{nodad}")
}

/// A network that exists. Dropping it takes it down.
#[derive(Debug)]
pub struct Network {
    namespaces: Vec<Namespace>,
    /// The hardware addresses of each link's ends.
    addresses: Vec<[[u8; 6]; 2]>,
}

impl Network {
    /// The hardware address of an end, in the order in which links were declared; side 0 is the one named first.
    pub fn hardware_address(&self, link: usize, side: usize) -> [u8; 6] {
        self.addresses[link][side]
    }

    /// The same as text.
    fn mac_address(&self, link: usize, side: usize) -> String {
        let bytes = self.hardware_address(link, side);
        bytes.map(|byte| format!("{byte:02x}")).join(":")
    }

    /// The namespace of a node.
    ///
    /// # Errors
    /// When no node has this name.
    pub fn namespace(&self, name: &str) -> Result<&Namespace> {
        self.namespaces
            .iter()
            .find(|namespace| namespace.name() == name)
            .with_context(|| {
                let names: Vec<_> = self.namespaces.iter().map(Namespace::name).collect();
                format!("the network has no node {name:?}, only {}", names.join(", "))
            })
    }
}

#[cfg(test)]
mod tests;
