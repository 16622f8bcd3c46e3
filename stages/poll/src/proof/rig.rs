//! The host that is flooded, who speaks to it from outside, and the flood.
//!
//! ```text
//!   host                    client
//!   10.8.0.1 eth0 ──────── eth0 10.8.0.2
//!   10.8.1.1 veth0 ─────── veth0 10.8.1.2    (with_veth)
//!                           server
//!   10.8.2.1 right ─────── eth0 10.8.2.2     (with_server)
//!              ▲ a ring of frames "from 10.2.3.16", see tarn_lab::cards
//! ```

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use nix::sys::socket::SockProtocol;
use tarn_kernel::netlink::{Netlink, put};
use tarn_lab::load::{Fragment, Wire, udp};
use tarn_lab::topology::{End, Namespace, Network, Node, Storm, Topology};

/// The host's address.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
/// Of the server behind it.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 8, 2, 2);
/// Its address on a veth pair.
pub const VETH: Ipv4Addr = Ipv4Addr::new(10, 8, 1, 1);
/// The client's.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
/// Who sends the flood, as its packets say.
const FLOODER: Ipv4Addr = Ipv4Addr::new(10, 2, 3, 16);
/// Bytes that a packet of the flood carries.
const PAYLOAD: usize = 18;
/// The first source port; each frame has the next.
const FIRST_PORT: u16 = 20_000;

/// A flooded host.
pub struct Rig {
    network: Network,
    storm: Storm,
    /// How many floods have begun here.
    floods: Cell<u8>,
}

impl Rig {
    /// Two hosts, and nothing that circles.
    ///
    /// # Errors
    /// A guest without cards.
    pub fn new() -> Result<Self> {
        Self::build(|topology| topology)
    }

    /// The same, with a veth pair besides.
    ///
    /// # Errors
    /// Those of [`Rig::new`].
    pub fn with_veth() -> Result<Self> {
        Self::build(|topology| {
            topology.link(
                End::new("host", "veth0").address("10.8.1.1/24"),
                End::new("client", "veth0").address("10.8.1.2/24"),
            )
        })
    }

    /// The same, with a server that the host forwards to. Both ends of its link take frames from XDP programs, and checksums are whole there,
    /// as on a wire.
    ///
    /// # Errors
    /// Those of [`Rig::new`].
    pub fn with_server() -> Result<Self> {
        Self::build(|topology| {
            let end = |node, device| End::new(node, device).feature("gro", true).feature("tx", false);
            topology.node(Node::new("server").route("default", "10.8.2.1")).link(
                end("host", "right").address("10.8.2.1/24"),
                end("server", "eth0").address("10.8.2.2/24"),
            )
        })
    }

    fn build(more: impl FnOnce(Topology) -> Topology) -> Result<Self> {
        let storm = Storm::new()?;
        let topology = Topology::new()
            .node(Node::new("host").route("default", "10.8.0.2"))
            .node(Node::new("client"))
            .wire(
                End::new("host", "eth0").address("10.8.0.1/24"),
                End::new("client", "eth0").address("10.8.0.2/24"),
            )
            .permanent_neighbours();
        let network = more(topology).build()?;
        let floods = Cell::new(0);
        Ok(Self { network, storm, floods })
    }

    /// The flooded host.
    ///
    /// # Errors
    /// None: it is declared.
    pub fn host(&self) -> Result<&Namespace> {
        self.network.namespace("host")
    }

    /// The server behind it, of [`Rig::with_server`].
    ///
    /// # Errors
    /// It is not there.
    pub fn server(&self) -> Result<&Namespace> {
        self.network.namespace("server")
    }

    /// Who speaks to it from outside.
    ///
    /// # Errors
    /// None: it is declared.
    pub fn client(&self) -> Result<&Namespace> {
        self.network.namespace("client")
    }

    /// Has the flood reach the host from now on, or not: its packets bear a hardware address that the host's card has meanwhile, and
    /// circle on where it has another.
    ///
    /// Needed as well after a program was attached to the card or taken from it: the driver resets it, and QEMU's vmxnet3 forgets its
    /// address then. The kernel tells the card nothing where the address stays the same, so this has to be a change. No program is
    /// started for it, which would take the CPU from those who are measured.
    ///
    /// # Errors
    /// The kernel's.
    pub fn flood(&self, reaches: bool) -> Result<()> {
        let mut address = self.flooded();
        if !reaches {
            address[5] ^= 0x80;
        }
        self.receive_at(address)
    }

    fn receive_at(&self, address: [u8; 6]) -> Result<()> {
        let peer = self.network.hardware_address(0, 1);
        self.client()?.enter(|| set_neighbour(HOST, address))?;
        self.host()?.enter(|| {
            set_address(address)?;
            // The kernel has forgotten it.
            set_neighbour(CLIENT, peer)
        })
    }

    /// Has the client cut what it sends by TCP itself: QEMU's vmxnet3 would cut it into IP fragments.
    ///
    /// # Errors
    /// The kernel's.
    pub fn segment_in_software(&self) -> Result<()> {
        self.client()?.run("ethtool", &["-K", "eth0", "tso", "off"]).map(drop)
    }

    /// Gives the host's card its address again after its program has changed, while no flood is to reach it: see [`Rig::flood`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn readdress(&self) -> Result<()> {
        let mut other = self.flooded();
        other[4] = 1;
        self.receive_at(other)?;
        self.flood(false)
    }

    /// The hardware address that the last flood bears: each has one of its own, since what circles in a guest does so until its end.
    fn flooded(&self) -> [u8; 6] {
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        [2, 0xf1, high, low, 0, self.floods.get() & 0x7f]
    }

    /// Has so many packets circle, each to this port from a port of its own, for as long as the guest runs. They take the place of
    /// what was begun before.
    ///
    /// # Errors
    /// One that is not sent.
    pub fn begin(&self, packets: u16, port: u16) -> Result<()> {
        self.begin_with(packets, |wire, number| flooding(wire, number, FLOODER, port))
    }

    /// The same, each from an address of its own.
    ///
    /// # Errors
    /// One that is not sent.
    pub fn begin_from_many(&self, packets: u16, port: u16) -> Result<()> {
        let [a, b, ..] = FLOODER.octets();
        self.begin_with(packets, |wire, number| {
            let [c, d] = number.to_be_bytes();
            flooding(wire, number, Ipv4Addr::new(a, b, c, d), port)
        })
    }

    /// The same with frames that are made for a wire, by their number.
    ///
    /// # Errors
    /// One that is not sent.
    pub fn begin_with(&self, packets: u16, frame: impl Fn(Wire, u16) -> Vec<u8>) -> Result<()> {
        self.floods.set(self.floods.get() + 1);
        let wire = Wire {
            from: [2, 0xff, 0, 0, 0, 1],
            to: self.flooded(),
        };
        let frames: Vec<Vec<u8>> = (0..packets).map(|number| frame(wire, number)).collect();
        self.storm.begin(frames.iter().map(Vec::as_slice))
    }
}

impl Drop for Rig {
    /// What circles does so until the guest's end, and would flood whoever has the card next, after a test that failed.
    fn drop(&mut self) {
        let _ = self.flood(false);
    }
}

/// A packet of a flood.
fn flooding(wire: Wire, number: u16, source: Ipv4Addr, port: u16) -> Vec<u8> {
    let source = SocketAddr::new(IpAddr::V4(source), FIRST_PORT + number);
    let target = SocketAddr::new(IpAddr::V4(HOST), port);
    let datagram = udp(source, target, number.into(), PAYLOAD, true);
    let whole = Fragment {
        source: source.ip(),
        target: target.ip(),
        identifier: number.into(),
        offset: 0,
        more: false,
        bytes: &datagram,
    };
    whole.frame(wire)
}

/// `RTM_NEWLINK`: gives this namespace's eth0 a hardware address.
fn set_address(address: [u8; 6]) -> Result<()> {
    let mut request = vec![0; 16]; // struct ifinfomsg
    request[4..8].copy_from_slice(&index()?.to_ne_bytes());
    put(&mut request, libc::IFLA_ADDRESS, &address);
    Netlink::open(SockProtocol::NetlinkRoute, 0)?
        .request(libc::RTM_NEWLINK, libc::NLM_F_ACK as u16, &request)
        .context("cannot give a card an address")
        .map(drop)
}

/// `RTM_NEWNEIGH`: enters a neighbour of this namespace's eth0 for good.
fn set_neighbour(neighbour: Ipv4Addr, address: [u8; 6]) -> Result<()> {
    let mut request = vec![libc::AF_INET as u8, 0, 0, 0]; // struct ndmsg
    request.extend(index()?.to_ne_bytes());
    request.extend(libc::NUD_PERMANENT.to_ne_bytes());
    request.extend([0, 0]);
    put(&mut request, libc::NDA_DST, &neighbour.octets());
    put(&mut request, libc::NDA_LLADDR, &address);
    let flags = (libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
    Netlink::open(SockProtocol::NetlinkRoute, 0)?
        .request(libc::RTM_NEWNEIGH, flags, &request)
        .context("cannot enter a neighbour")
        .map(drop)
}

fn index() -> Result<u32> {
    let links = tarn_kernel::links::all()?;
    let link = links.iter().find(|link| link.name == "eth0");
    Ok(link.context("there is no eth0")?.index)
}
