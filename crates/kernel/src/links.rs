//! The network devices of this namespace: what they are and who is at their other end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::netlink::{Attributes, Netlink, integer16, integer32, put, refusal, text_of};
use super::plain;

/// Multicast group `RTNLGRP_LINK`: devices that come, go and change.
pub const LINK_GROUP: u32 = libc::RTMGRP_LINK as u32;

const INTERFACE_HEADER: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_STATS64: u16 = 23;
/// Where `tx_bytes` begins in `struct rtnl_link_stats64`.
const SENT_BYTES: usize = 24;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
/// `IF_OPER_UP` (RFC 2863)
const OPERATES: u8 = 6;

/// One network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The interface index.
    pub index: u32,
    /// The interface name.
    pub name: String,
    /// The driver's kind: `veth`, `vlan`, `bridge`, ...; empty for hardware.
    pub kind: String,
    /// The hardware type: `ARPHRD_ETHER`, ...
    pub hardware: u16,
    /// The index of the device below or at the other end.
    pub lower: Option<u32>,
    /// Whether that device lies in another network namespace.
    pub other_namespace: bool,
    /// The index of the bridge, bond or VRF that it belongs to.
    pub master: Option<u32>,
    /// `IFF_LOOPBACK`
    pub is_loopback: bool,
    /// The id of its native XDP program.
    pub xdp_program: Option<u32>,
}

impl Link {
    /// Whether its packets begin with an Ethernet header.
    pub fn is_ethernet(&self) -> bool {
        self.hardware == libc::ARPHRD_ETHER
    }

    /// Whether its packets begin with an IP header: tunnels, PPP, WireGuard.
    pub fn is_ip_only(&self) -> bool {
        [
            libc::ARPHRD_NONE,
            libc::ARPHRD_PPP,
            libc::ARPHRD_TUNNEL,
            libc::ARPHRD_TUNNEL6,
            libc::ARPHRD_SIT,
        ]
        .contains(&self.hardware)
    }

    /// The bridges and bonds above it, by which the stack gets what comes in here, the lowest first.
    pub fn above<'a>(&self, links: &'a [Link]) -> impl Iterator<Item = &'a Link> {
        // No more steps than there are devices: a list read while devices change may go in circles.
        std::iter::successors(self.master_of_frames(links), |link| link.master_of_frames(links)).take(links.len())
    }

    /// VRFs and batman-adv are none: packets are the device's own there.
    fn master_of_frames<'a>(&self, links: &'a [Link]) -> Option<&'a Link> {
        let index = self.master?;
        let master = links.iter().find(|other| other.index == index)?;
        (!["vrf", "batadv"].contains(&master.kind.as_str())).then_some(master)
    }

    /// Whether it is one end of a pair whose other end lies in another namespace.
    pub fn has_peer_elsewhere(&self) -> bool {
        self.other_namespace && (self.kind == "veth" || self.kind == "netkit")
    }
}

/// How often a list is asked for that changes while it is sent.
const DUMPS: u32 = 5;

/// All devices of this namespace, by index, and their flags (`IFF_*`).
fn with_flags() -> Result<Vec<(Link, u32)>> {
    let mut netlink = Netlink::open(SockProtocol::NetlinkRoute, 0)?;
    let mut found = Vec::new();
    // A device that is missed by a dump, because others came and went meanwhile, would be taken for gone.
    for _ in 0..DUMPS {
        found.clear();
        let request = [0; INTERFACE_HEADER];
        let is_consistent = netlink
            .stream(libc::RTM_GETLINK, libc::NLM_F_DUMP as u16, &request, |_, payload| {
                let flags = payload.get(8..).and_then(integer32).unwrap_or(0);
                found.extend(parse(payload).map(|link| (link, flags)));
                Ok(())
            })
            .context("list the network devices")?;
        if is_consistent {
            break;
        }
    }
    found.sort_by_key(|(link, _)| link.index);
    Ok(found)
}

/// All devices of this namespace, by index.
///
/// # Errors
/// A kernel that does not answer.
pub fn all() -> Result<Vec<Link>> {
    Ok(with_flags()?.into_iter().map(|(link, _)| link).collect())
}

/// The devices of this namespace that can send now, up and with a carrier: name and index.
///
/// # Errors
/// A kernel that does not answer.
pub fn carrying() -> Result<HashMap<String, u32>> {
    // One that cannot tell its carrier counts as running (RFC 2863's "unknown").
    let carries = |flags: u32| flags & (libc::IFF_RUNNING | libc::IFF_LOWER_UP) as u32 != 0;
    let is_up = |flags: u32| flags & libc::IFF_UP as u32 != 0;
    let found = with_flags()?.into_iter();
    Ok(found
        .filter(|(_, flags)| carries(*flags) && is_up(*flags))
        .map(|(link, _)| (link.name, link.index))
        .collect())
}

/// The id of the native XDP program of a device; `None` when there is none, or the device is gone.
///
/// # Errors
/// A kernel that does not answer.
pub fn xdp_program(index: u32) -> Result<Option<u32>> {
    let mut netlink = Netlink::open(SockProtocol::NetlinkRoute, 0)?;
    let xdp = attribute(index, IFLA_XDP, &mut netlink)?;
    Ok(xdp.and_then(|xdp| native_program(&xdp)))
}

/// From `IFLA_XDP`.
fn native_program(xdp: &[u8]) -> Option<u32> {
    let id = Attributes(xdp).get(IFLA_XDP_DRV_PROG_ID).and_then(integer32);
    id.filter(|id| *id != 0)
}

/// What a device is set to, and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Whether it was set up.
    pub is_up: bool,
    /// Whether packets can leave by it.
    pub operates: bool,
}

/// The state of a device of this namespace.
///
/// # Errors
/// When there is none of this name.
pub fn state(name: &str) -> Result<State> {
    let mut netlink = Netlink::open(SockProtocol::NetlinkRoute, 0)?;
    let mut request = vec![0; INTERFACE_HEADER];
    put(&mut request, IFLA_IFNAME, format!("{name}\0").as_bytes());
    let answer = netlink
        .request(libc::RTM_GETLINK, libc::NLM_F_ACK as u16, &request)
        .with_context(|| format!("look at the network device {name}"))?;
    let state = answer.iter().find_map(|message| {
        let flags = integer32(message.payload.get(8..)?)?;
        let operational = Attributes(message.payload.get(INTERFACE_HEADER..)?).get(IFLA_OPERSTATE)?;
        Some(State {
            is_up: flags & libc::IFF_UP as u32 != 0,
            operates: operational == [OPERATES],
        })
    });
    state.with_context(|| format!("the kernel does not tell the state of {name}"))
}

/// Bytes that a device has sent since it was made; `None` when it is gone.
///
/// # Errors
/// A kernel that does not answer.
pub fn sent_bytes(index: u32, netlink: &mut Netlink) -> Result<Option<u64>> {
    let counters = attribute(index, IFLA_STATS64, netlink)?;
    Ok(counters.and_then(|counters| plain::from_bytes(counters.get(SENT_BYTES..)?)))
}

/// What devices of this network namespace have sent and received since they were made, in packets, without a lock of the kernel's
/// that others may hold for long.
#[derive(Debug)]
pub struct PacketCounters(File);

/// The counters of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packets {
    /// Sent.
    pub sent: u64,
    /// Received.
    pub received: u64,
}

impl PacketCounters {
    /// Of the calling thread's namespace.
    ///
    /// # Errors
    /// A host without /proc.
    pub fn open() -> Result<Self> {
        const PATH: &str = "/proc/thread-self/net/dev";
        File::open(PATH)
            .map(Self)
            .with_context(|| format!("cannot open {PATH}"))
    }

    /// Calls `each` with every device's name and counters. Returns how many there are.
    ///
    /// # Errors
    /// A kernel that does not tell.
    pub fn read(&mut self, mut each: impl FnMut(&str, Packets)) -> Result<usize> {
        // A name may hold any bytes but blanks and slashes: such a device must not hide the others.
        let mut bytes = Vec::new();
        self.0
            .rewind()
            .and_then(|()| self.0.read_to_end(&mut bytes))
            .context("cannot read the counters of the devices")?;
        let text = String::from_utf8_lossy(&bytes);
        let devices = text.lines().filter_map(packets);
        Ok(devices.map(|(name, packets)| each(name, packets)).count())
    }
}

/// A line of `/proc/net/dev`: the name, eight counters of what was received, eight of what was sent, the packets second of each.
fn packets(line: &str) -> Option<(&str, Packets)> {
    let (name, numbers) = line.rsplit_once(':')?;
    let mut numbers = numbers.split_whitespace().map(|number| number.parse().ok());
    let received = numbers.nth(1)??;
    let sent = numbers.nth(7)??;
    Some((name.trim(), Packets { sent, received }))
}

/// What the kernel tells of a device under this number; `None` when it tells nothing, or the device is gone.
fn attribute(index: u32, wanted: u16, netlink: &mut Netlink) -> Result<Option<Vec<u8>>> {
    let mut request = [0; INTERFACE_HEADER];
    request[4..8].copy_from_slice(&index.to_ne_bytes());
    let answer = match netlink.request(libc::RTM_GETLINK, libc::NLM_F_ACK as u16, &request) {
        Err(error) if refusal(&error) == Some(Errno::ENODEV) => return Ok(None),
        answer => answer?,
    };
    let found = answer
        .iter()
        .find_map(|message| Attributes(message.payload.get(INTERFACE_HEADER..)?).get(wanted));
    Ok(found.map(<[u8]>::to_vec))
}

/// A socket on which every change of a device arrives as a message, and what these groups tell, too.
pub fn monitor(groups: u32) -> Result<Netlink> {
    Netlink::open(SockProtocol::NetlinkRoute, LINK_GROUP | groups)
}

fn parse(payload: &[u8]) -> Option<Link> {
    let flags = integer32(payload.get(8..)?)?;
    let mut link = Link {
        index: integer32(payload.get(4..)?)?,
        name: String::new(),
        kind: String::new(),
        hardware: integer16(payload.get(2..)?)?,
        lower: None,
        other_namespace: false,
        master: None,
        is_loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
        xdp_program: None,
    };
    for (kind, value) in Attributes(payload.get(INTERFACE_HEADER..)?) {
        match kind {
            IFLA_IFNAME => link.name = text_of(value),
            IFLA_LINK => link.lower = integer32(value),
            IFLA_MASTER => link.master = integer32(value),
            IFLA_LINK_NETNSID => link.other_namespace = true,
            IFLA_LINKINFO => link.kind = Attributes(value).text(IFLA_INFO_KIND),
            IFLA_XDP => link.xdp_program = native_program(value),
            _ => {}
        }
    }
    Some(link)
}
