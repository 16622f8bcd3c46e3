//! A network with rules carried out on its host, services that answer, and clients that ask.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::serve;
use super::way::Way;
use super::wire::Wire;
use crate::carrier::{Carrier, Counters};
use crate::rule::samples::rules;
use crate::rule::{Protocol, Rule};
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_kernel::links;
use tarn_lab::topology::{End, Namespace, Network, Node, Topology};

/// How long a client waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// How a question begins that services answer with their name; anything else they send back as it is.
pub const WHO: &[u8] = b"who?";

pub const BOTH: [Protocol; 2] = [Protocol::Udp, Protocol::Tcp];

/// The addresses of one family, as drawn in the [module](super).
#[derive(Debug, Clone, Copy)]
pub struct Family {
    pub client: &'static str,
    pub other_client: &'static str,
    pub host: &'static str,
    pub host_inside: &'static str,
    pub server: &'static str,
    pub other_server: &'static str,
}

pub const V4: Family = Family {
    client: "192.168.64.1",
    other_client: "192.168.64.130",
    host: "192.168.64.2",
    host_inside: "10.0.1.1",
    server: "10.0.1.2",
    other_server: "10.0.1.3",
};
pub const V6: Family = Family {
    client: "fd64::1",
    other_client: "fd64::130",
    host: "fd64::2",
    host_inside: "fd01::1",
    server: "fd01::2",
    other_server: "fd01::3",
};
pub const FAMILIES: [Family; 2] = [V4, V6];

/// An address and port from their text.
pub fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// Rules for both protocols, with ids from `first` on.
pub fn both_from(first: u32, pairs: &[(SocketAddr, SocketAddr)]) -> Vec<Rule> {
    let each = pairs
        .iter()
        .flat_map(|(from, to)| rules(&["udp", "tcp"], &from.to_string(), &to.to_string(), None));
    numbered(first, each)
}

pub fn both(pairs: &[(SocketAddr, SocketAddr)]) -> Vec<Rule> {
    both_from(0, pairs)
}

/// Gives rules their slots.
pub fn numbered(first: u32, rules: impl IntoIterator<Item = Rule>) -> Vec<Rule> {
    (first..).zip(rules).map(|(id, rule)| Rule { id, ..rule }).collect()
}

/// An end of a link; `offload` says whether senders leave checksums and segmentation to it.
pub fn end(way: Way, offload: bool, node: &str, interface: &str) -> End {
    let end = End::new(node, interface).feature("tx", offload);
    // A veth takes frames from XDP programs when its peer polls: with GRO, or with an XDP program of its own.
    if way == Way::XdpRedirect && node != "host" {
        end.feature("gro", true)
    } else {
        end
    }
}

/// Client, host and server.
pub fn near(way: Way, offload: bool) -> Topology {
    let left = end(way, offload, "host", "left")
        .address("192.168.64.2/24")
        .address("fd64::2/64");
    near_with(way, offload, Node::new("host").forwarding(), left)
}

/// The same with another host, and the end of its link to the client.
pub fn near_with(way: Way, offload: bool, host: Node, left: End) -> Topology {
    let end = |node, interface| end(way, offload, node, interface);
    Topology::new()
        .node(Node::new("client").route("default", V4.host).route("default", V6.host))
        .node(host)
        .node(
            Node::new("server")
                .route("default", V4.host_inside)
                .route("default", V6.host_inside),
        )
        .link(
            end("client", "eth0")
                .address("192.168.64.1/24")
                .address("192.168.64.130/24")
                .address("fd64::1/64")
                .address("fd64::130/64"),
            left,
        )
        .link(
            end("host", "right").address("10.0.1.1/24").address("fd01::1/64"),
            end("server", "eth0")
                .address("10.0.1.2/24")
                .address("10.0.1.3/24")
                .address("fd01::2/64")
                .address("fd01::3/64"),
        )
}

/// What puts the host's end of the client's link behind a bridge.
pub const BRIDGE: [&str; 5] = [
    "link add bridge type bridge",
    "link set left master bridge",
    "address add 192.168.64.2/24 dev bridge",
    "address add fd64::2/64 dev bridge nodad",
    "link set bridge up",
];

/// The same with that bridge.
pub fn bridged(way: Way) -> Topology {
    let host = BRIDGE
        .iter()
        .fold(Node::new("host").forwarding(), |host, command| host.ip(command));
    near_with(way, false, host, end(way, false, "host", "left"))
}

/// What makes a bond of the host's end of the client's link, and `above` on it: nothing, `bridge`, or `vlan`, which the client has, too.
pub fn bond(mode: &str, above: &str) -> Vec<String> {
    let (device, over) = match above {
        "bridge" => (
            "bridge",
            &["link add bridge type bridge", "link set bond master bridge"][..],
        ),
        "vlan" => ("vlan", &["link add link bond name vlan type vlan id 7"][..]),
        _ => ("bond", &[][..]),
    };
    let commands = [
        &format!("link add bond type bond mode {mode} miimon 20"),
        // Only a link that is down becomes a port of a bond, which sets it up.
        "link set left down",
        "link set left master bond",
        "link set bond up",
    ];
    let addresses = [
        &format!("address add 192.168.64.2/24 dev {device}"),
        &format!("address add fd64::2/64 dev {device} nodad"),
        &format!("link set {device} up"),
    ];
    let addresses = addresses.map(String::as_str);
    let all = commands.iter().chain(over).chain(&addresses);
    all.map(|command| (*command).to_owned()).collect()
}

/// The same with that bond.
pub fn bonded(way: Way, mode: &str, above: &str) -> Topology {
    let commands = bond(mode, above);
    let host = commands
        .iter()
        .fold(Node::new("host").forwarding(), |host, command| host.ip(command));
    near_with(way, false, host, end(way, false, "host", "left"))
}

/// The same with both of the host's links in a VRF, the client's by the link itself, `left`, or by a `bridge` over it.
pub fn in_a_vrf(way: Way, device: &str) -> Topology {
    let mut left = end(way, false, "host", "left");
    let mut host = Node::new("host").forwarding();
    if device == "bridge" {
        host = BRIDGE.iter().fold(host, |host, command| host.ip(command));
    } else {
        left = left.address("192.168.64.2/24").address("fd64::2/64");
    }
    host = host
        .ip("link add red type vrf table 10")
        .ip("link set red up")
        .ip(&format!("link set {device} master red"))
        .ip("link set right master red");
    // A link that is put into a VRF loses its addresses of IPv6.
    for (address, device) in [("fd64::2/64", device), ("fd01::1/64", "right")] {
        host = host.ip(&format!("address replace {address} dev {device} nodad"));
    }
    near_with(way, false, host, left)
}

/// The hardware addresses of the ends, as the topology gives them: 02:00:00:00:link:end.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
pub const HOST_LEFT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A network, the rules on its host, and services that end with it.
pub struct Scene {
    pub way: Way,
    pub network: Network,
    directory: tempfile::TempDir,
    ended: Arc<AtomicBool>,
    most_rules: u32,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl Scene {
    /// Client, host and server, with checksums whole on the wire, so that XDP has something to do.
    pub fn new(way: Way) -> Self {
        Self::of(way, &near(way, false))
    }

    pub fn of(way: Way, topology: &Topology) -> Self {
        Scene {
            way,
            network: topology.build().unwrap(),
            directory: tempfile::tempdir().unwrap(),
            ended: Arc::default(),
            most_rules: 1024,
        }
    }

    pub fn with_room_for(mut self, rules: u32) -> Self {
        self.most_rules = rules;
        self
    }

    pub fn namespace(&self, node: &str) -> &Namespace {
        self.network.namespace(node).unwrap()
    }

    pub fn within<T: Send>(&self, node: &str, work: impl FnOnce() -> T + Send) -> T {
        self.namespace(node).enter(|| Ok(work())).unwrap()
    }

    pub fn wire(&self, node: &str, interface: &str) -> Wire {
        Wire::open(self.namespace(node), interface)
    }

    fn state(&self) -> StateDirectory {
        StateDirectory::at(self.directory.path(), "state")
    }

    fn carrier(&self) -> Box<dyn Carrier> {
        self.way.carrier(&self.state(), self.most_rules)
    }

    pub fn up(&self, rules: &[Rule]) {
        self.within("host", || {
            let state = self.state();
            state.create().unwrap();
            let mut journal = Journal::open(&state).unwrap();
            self.carrier().up(&mut journal, rules, &[]).unwrap();
        });
    }

    /// Brings the rules up, lets devices come and go, and does what the agent does then.
    pub fn up_before(&self, rules: &[Rule], devices: impl FnOnce()) {
        let state = self.state();
        let Some(bpf) = self.way.bpf(&state, self.most_rules) else {
            self.up(rules);
            return devices();
        };
        let journal = || Journal::open(&state).unwrap();
        let mut loaded = self.within("host", || {
            state.create().unwrap();
            bpf.start(&mut journal(), rules).unwrap()
        });
        devices();
        self.within("host", || {
            bpf.follow(&links::all().unwrap(), &mut loaded, &mut journal()).unwrap();
        });
    }

    pub fn change(&self, add: &[Rule], remove: &[Rule]) {
        self.within("host", || self.carrier().change(add, remove).unwrap());
    }

    pub fn counters(&self, rules: &[Rule]) -> Vec<Counters> {
        self.within("host", || self.carrier().counters(rules).unwrap())
    }

    /// How often something happened that is not about one rule, by the name that `tarn status` shows.
    pub fn event(&self, name: &str) -> u64 {
        let events = self.within("host", || self.carrier().events().unwrap());
        let found = events.into_iter().find(|(shown, _)| *shown == name);
        found.unwrap_or_else(|| panic!("no event is called '{name}'")).1
    }

    /// Answers on this address, over UDP and TCP, until the scene ends.
    pub fn serve(&self, node: &str, address: SocketAddr) {
        let name = format!("{node} {address}");
        let (datagrams, listener) = self.within(node, || serve::bind(address));
        serve::datagrams(datagrams, name.clone(), Arc::clone(&self.ended));
        serve::connections(listener, name, Arc::clone(&self.ended));
    }

    /// A client's UDP socket, bound but not connected: it hears whoever answers.
    pub fn udp(&self, node: &str, from: SocketAddr) -> UdpSocket {
        self.within(node, || {
            let socket = UdpSocket::bind(from).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        })
    }

    /// Who answers a new client, over one protocol. Panics when the answer comes from another address than was asked.
    pub fn who(&self, protocol: Protocol, node: &str, from: &str, to: SocketAddr) -> String {
        match protocol {
            Protocol::Udp => {
                let socket = self.udp(node, at(from, 0));
                super::errors::listen(&socket);
                ask(&socket, to, WHO).map_or_else(serve::failure, serve::text)
            }
            Protocol::Tcp => self.within(node, || serve::ask_over_tcp(at(from, 0), to, WHO)),
        }
    }

    /// Panics unless a new client of `from` is answered by `expected`, over both protocols.
    pub fn expect(&self, from: &str, to: SocketAddr, expected: &str) {
        for protocol in BOTH {
            let answer = self.who(protocol, "client", from, to);
            assert_eq!(answer, expected, "{protocol} from {from} to {to}");
        }
    }
}

/// Whether the kernel can make such a device (`ip link add ...`). Those of the lab can, or the test must fail.
pub fn can_add(device: &str) -> bool {
    let made = |namespace: Namespace| namespace.ip(&format!("link add {device}")).is_ok();
    std::env::var_os("TARN_LAB_SUITE").is_some() || made(Namespace::new("probe").unwrap())
}

/// Sends a datagram and returns the answer's payload.
///
/// # Panics
/// When the answer is from another address than was asked: the client's program would throw it away.
pub fn ask(socket: &UdpSocket, to: SocketAddr, payload: &[u8]) -> std::io::Result<Vec<u8>> {
    socket.send_to(payload, to)?;
    answer(socket, to)
}

/// Waits for the answer of `of`.
pub fn answer(socket: &UdpSocket, of: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    let (length, from) = socket.recv_from(&mut buffer)?;
    assert_eq!(from, of, "the answer's source address");
    buffer.truncate(length);
    Ok(buffer)
}

/// The name of a service, as it answers.
pub fn named(node: &str, address: SocketAddr) -> String {
    format!("{node} {address}")
}

pub fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}
