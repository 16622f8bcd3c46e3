//! Connections that are under way when the table is made: which uplink each is on, told by its addresses.

use std::collections::HashMap;
use std::net::IpAddr;

use anyhow::Result;

use super::Pin;
use tarn_kernel::addresses::Address;
use tarn_kernel::conntrack::{self, Ends};
use tarn_kernel::netlink::Netlink;
use tarn_kernel::{links, route};

/// Marks all of them by their addresses; those that have a mark of an uplink keep it, and those that have one that is none of `ours`
/// keep it, too: somebody else has given it. Returns how many have got another mark.
/// `is_inner` tells of a host whether it is within, and not beyond an uplink.
///
/// # Errors
/// A kernel without ctnetlink.
pub fn mark(
    mask: u32,
    ours: &[u32],
    pins: &[Pin],
    addresses: &[Address],
    mut is_inner: impl FnMut(IpAddr) -> bool,
) -> Result<u64> {
    conntrack::remark(mask, |mark, original, reply| {
        if mark != 0 && !ours.contains(&mark) {
            return mark;
        }
        let known = pins.iter().find(|pin| pin.keeps && pin.mark == mark);
        let pin = known.or_else(|| uplink(original, reply, pins, addresses, &mut is_inner));
        pin.map_or(0, |pin| pin.mark)
    })
}

/// So many adjacent bits that none of these marks has, the highest there are.
pub fn free_bits(used: u32, count: u32) -> Option<u32> {
    let row = u32::MAX.checked_shr(u32::BITS - count.clamp(1, u32::BITS))?;
    let places = (0..=u32::BITS - count.clamp(1, u32::BITS)).rev();
    places.map(|shift| row << shift).find(|mask| used & mask == 0)
}

/// The uplink whose address one side of a connection has, if the other side is beyond it.
fn uplink<'a>(
    original: Ends,
    reply: Ends,
    pins: &'a [Pin],
    addresses: &[Address],
    is_inner: &mut impl FnMut(IpAddr) -> bool,
) -> Option<&'a Pin> {
    let device = |own: IpAddr| {
        let found = addresses.iter().find(|address| address.address == own)?;
        let is_uplink = pins.iter().any(|pin| pin.device == found.device);
        is_uplink.then_some(found.device.as_str())
    };
    // Answers to what this host has sent, or translated, come to its address; so does what others have begun, who may be within,
    // too: then their answers must not leave by the uplink.
    let (device, peer, may_be_inner) = match (device(reply.destination), device(original.destination)) {
        (Some(device), _) => (device, reply.source, false),
        (None, Some(device)) => (device, original.source, true),
        (None, None) => return None,
    };
    let is_neighbour = addresses
        .iter()
        .any(|address| address.network.contains(peer) && address.network.length > 0);
    if is_neighbour || peer.is_multicast() || may_be_inner && is_inner(peer) {
        return None;
    }
    let pin = pins.iter().find(|pin| pin.device == device && pin.to.contains(peer));
    pin.filter(|pin| pin.keeps)
}

/// Who is within, as the kernel's routes tell, and not beyond an uplink.
pub struct Inner {
    netlink: Netlink,
    uplinks: Vec<u32>,
    known: HashMap<IpAddr, bool>,
}

impl Inner {
    /// Beyond these uplinks.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn of(pins: &[Pin]) -> Result<Self> {
        let carrying = links::carrying()?;
        Ok(Self {
            netlink: route::open()?,
            uplinks: pins
                .iter()
                .filter_map(|pin| carrying.get(&pin.device).copied())
                .collect(),
            known: HashMap::new(),
        })
    }

    /// Whether packets to this host leave by another device.
    pub fn has(&mut self, peer: IpAddr) -> bool {
        let (netlink, uplinks) = (&mut self.netlink, &self.uplinks);
        *self.known.entry(peer).or_insert_with(|| {
            let device = route::device_to(peer, netlink).ok().flatten();
            device.is_some_and(|device| !uplinks.contains(&device))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_bits_are_those_that_no_mark_has() {
        assert_eq!(free_bits(0xff00_0000, 8), Some(0x00ff_0000));
        assert_eq!(free_bits(0xffff_0010, 8), Some(0x0000_ff00));
        assert_eq!(free_bits(0x8080_8080, 8), None);
        assert_eq!(free_bits(0, 32), Some(u32::MAX));
    }

    fn ends((source, destination): (&str, &str)) -> Ends {
        Ends {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        }
    }

    fn pin(mark: u32, device: &str, to: &str, keeps: bool) -> Pin {
        Pin {
            mark,
            device: device.to_owned(),
            gateway: None,
            is_known: true,
            to: to.parse().unwrap(),
            keeps,
            is_given_up: false,
        }
    }

    fn address(device: &str, address: &str, network: &str) -> Address {
        Address {
            device: device.to_owned(),
            address: address.parse().unwrap(),
            network: network.parse().unwrap(),
        }
    }

    /// Who has a connection when tarn comes up must not lose it, and one that needs no gateway must not get one.
    #[test]
    fn connections_are_told_by_their_addresses() {
        let pins = [pin(1, "wan0", "default", true), pin(2, "wan1", "default", true)];
        let addresses = [
            address("wan0", "192.0.2.7", "192.0.2.0/24"),
            address("wan1", "198.51.100.7", "198.51.100.0/24"),
            address("lan", "10.0.0.1", "10.0.0.0/24"),
        ];
        let (client, router, far) = ("10.0.0.5", "192.0.2.7", "203.0.113.1");
        let (other, inner) = ("198.51.100.7", "10.5.0.5");
        for (what, original, reply, expected) in [
            ("translated", (client, far), (far, other), Some(2)),
            ("the host's own", (router, far), (far, router), Some(1)),
            ("to a server within", (far, other), (client, far), Some(2)),
            ("with a neighbour", (router, "192.0.2.9"), ("192.0.2.9", router), None),
            ("within", (client, "10.0.1.5"), ("10.0.1.5", client), None),
            (
                "to the router's outer address",
                (client, router),
                (router, client),
                None,
            ),
            ("out and in again", (client, router), ("10.0.0.9", client), None),
            ("from behind a router within", (inner, router), (router, inner), None),
        ] {
            let is_inner = |peer: IpAddr| peer.to_string() == inner;
            let found = uplink(ends(original), ends(reply), &pins, &addresses, &mut { is_inner });
            assert_eq!(found.map(|pin| pin.mark), expected, "{what}");
        }
    }

    #[test]
    fn another_group_s_connections_are_left_alone() {
        let pins = [pin(1, "wan0", "10.0.0.0/8", false), pin(2, "wan0", "default", true)];
        let addresses = [address("wan0", "192.0.2.7", "192.0.2.0/24")];
        for (peer, expected) in [("10.5.0.5", None), ("203.0.113.1", Some(2))] {
            let (original, reply) = (ends(("192.0.2.7", peer)), ends((peer, "192.0.2.7")));
            let found = uplink(original, reply, &pins, &addresses, &mut |_| false);
            assert_eq!(found.map(|pin| pin.mark), expected, "{peer}");
        }
    }
}
