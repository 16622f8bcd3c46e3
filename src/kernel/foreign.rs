//! Routes that somebody else has made, with all that it takes to make them again as they were.

use std::collections::HashSet;
use std::net::IpAddr;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::net::if_::{if_indextoname, if_nametoindex};
use serde::{Deserialize, Serialize};

use super::genl::refusal;
use super::netlink::{Attributes, Netlink, integer16, integer32, put};
use super::route::{
    Destination, HEADER, OWNER, RTA_DST, RTA_GATEWAY, RTA_NH_ID, RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTA_VIA, Route,
    address_bytes, address_of, family,
};
use super::{links, nexthop};

/// `RT_TABLE_MAIN`
pub const MAIN_TABLE: u32 = 254;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
/// What the kernel tells of the state of a route or way, and does not want to be told.
const TOLD: [u16; 1] = [RTA_CACHEINFO];
/// `struct rtnexthop`: length, flags, weight less one, the device's index.
const HOP_HEADER: usize = 8;
/// `RTNH_F_ONLINK`: the gateway is reached by the device, whatever addresses that has. Other flags tell of a state.
pub const ONLINK: u8 = 4;

/// A route of the main table, for packets of any type of service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignRoute {
    /// Where to.
    pub to: Destination,
    /// Its metric, as the kernel shows it.
    pub metric: u32,
    /// Who made it.
    pub protocol: u8,
    /// How far the destination is (`RT_SCOPE_*`).
    pub scope: u8,
    /// The nexthop object that it leads by.
    pub nexthop: Option<u32>,
    /// Its ways; those of the nexthop object where there is one.
    pub hops: Vec<Hop>,
    /// Everything else: preferred source address, metrics of TCP, preference.
    pub attributes: Vec<Attribute>,
}

/// One way of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hop {
    /// The device's name: its index is another one when it is made anew.
    pub device: String,
    /// The router behind it.
    pub gateway: Option<IpAddr>,
    /// [`ONLINK`] or 0.
    pub flags: u8,
    /// Its weight less one.
    pub weight: u8,
    /// Everything else.
    pub attributes: Vec<Attribute>,
}

/// A netlink attribute: its type and value.
pub type Attribute = (u16, Vec<u8>);

/// The routes to a destination that others have made, in the kernel's order; where a device is named, those that lead by it. Routes
/// that no program of today makes are left out: for one type of service, or for source addresses.
///
/// # Errors
/// A kernel that does not answer.
pub fn all(to: Destination, device: Option<u32>, netlink: &mut Netlink) -> Result<Vec<ForeignRoute>> {
    let mut request = vec![family(to.address.is_ipv6()) as u8];
    request.resize(HEADER, 0);
    put(&mut request, RTA_TABLE, &MAIN_TABLE.to_ne_bytes());
    if let Some(device) = device {
        put(&mut request, RTA_OIF, &device.to_ne_bytes());
    }
    let mut found = Vec::new();
    netlink
        .stream(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16, &request, |_, payload| {
            found.extend(decode(to, payload));
            Ok(())
        })
        .with_context(|| format!("list the routes to {to}"))?;
    for route in &mut found {
        if let Some(id) = route.nexthop {
            route.hops = hops_of(id, netlink)?;
        }
    }
    Ok(found)
}

/// The router by a device that the default route of somebody else has, of several the one with the least metric: `Some(None)` for a
/// route that needs none.
///
/// # Errors
/// A kernel that does not answer.
pub fn default_gateway(device: u32, is_ipv6: bool, netlink: &mut Netlink) -> Result<Option<Option<IpAddr>>> {
    let routes = match all(Destination::all(is_ipv6), Some(device), netlink) {
        Err(error) if refusal(&error) == Some(Errno::ENODEV) => return Ok(None),
        routes => routes?,
    };
    let Some(name) = name(device) else { return Ok(None) };
    let by_device =
        |route: &ForeignRoute| Some((route.metric, route.hops.iter().find(|hop| hop.device == name)?.gateway));
    let found = routes.iter().filter_map(by_device).min_by_key(|(metric, _)| *metric);
    Ok(found.map(|(_, gateway)| gateway))
}

/// The ways of a nexthop object.
fn hops_of(id: u32, netlink: &mut Netlink) -> Result<Vec<Hop>> {
    let Some(found) = nexthop::find(netlink, id)? else {
        return Ok(Vec::new());
    };
    if found.members.is_empty() {
        return Ok(single(&found, 0).into_iter().collect());
    }
    let mut hops = Vec::new();
    for member in found.members {
        let weight = u8::try_from(member.weight.saturating_sub(1)).unwrap_or(u8::MAX);
        hops.extend(nexthop::find(netlink, member.id)?.and_then(|found| single(&found, weight)));
    }
    Ok(hops)
}

fn single(found: &nexthop::Found, weight: u8) -> Option<Hop> {
    Some(Hop {
        device: name(found.device?)?,
        gateway: found.gateway,
        flags: found.flags & ONLINK,
        weight,
        attributes: Vec::new(),
    })
}

fn name(device: u32) -> Option<String> {
    if_indextoname(device).ok()?.into_string().ok()
}

fn decode(to: Destination, payload: &[u8]) -> Option<ForeignRoute> {
    let [_, length, source, tos, _, protocol, scope, kind, ..] = *payload.first_chunk::<HEADER>()?;
    // There may be a million of others.
    if (length, source, tos, kind) != (to.length, 0, 0, libc::RTN_UNICAST) || protocol == OWNER {
        return None;
    }
    let (mut table, mut address) = (0, Destination::all(to.address.is_ipv6()).address);
    let mut alone = (None, None);
    let mut route = ForeignRoute {
        to,
        metric: 0,
        protocol,
        scope,
        nexthop: None,
        hops: Vec::new(),
        attributes: Vec::new(),
    };
    for (kind, value) in Attributes(payload.get(HEADER..)?) {
        match kind {
            RTA_DST => address = address_of(value)?,
            RTA_TABLE => table = integer32(value)?,
            RTA_PRIORITY => route.metric = integer32(value)?,
            RTA_NH_ID => route.nexthop = integer32(value),
            RTA_OIF => alone.0 = integer32(value),
            RTA_GATEWAY => alone.1 = address_of(value),
            RTA_VIA => alone.1 = address_of(value.get(2..)?),
            RTA_MULTIPATH => route.hops = hops(value),
            kind if TOLD.contains(&kind) => {}
            kind => route.attributes.push((kind, value.to_vec())),
        }
    }
    if let (Some(device), []) = (alone.0.and_then(name), &route.hops[..]) {
        let flags = integer32(payload.get(8..)?)? as u8 & ONLINK;
        route.hops.push(Hop {
            device,
            gateway: alone.1,
            flags,
            weight: 0,
            attributes: Vec::new(),
        });
    }
    ((address, table) == (to.address, MAIN_TABLE)).then_some(route)
}

fn hops(mut bytes: &[u8]) -> Vec<Hop> {
    let mut hops = Vec::new();
    while let Some((hop, rest)) = hop(bytes) {
        hops.push(hop);
        bytes = rest;
    }
    hops
}

fn hop(bytes: &[u8]) -> Option<(Hop, &[u8])> {
    let length = usize::from(integer16(bytes)?);
    let [_, _, flags, weight, ..] = *bytes.first_chunk::<HOP_HEADER>()?;
    let mut hop = Hop {
        device: name(integer32(bytes.get(4..)?)?)?,
        gateway: None,
        flags: flags & ONLINK,
        weight,
        attributes: Vec::new(),
    };
    for (kind, value) in Attributes(bytes.get(HOP_HEADER..length)?) {
        match kind {
            RTA_GATEWAY => hop.gateway = address_of(value),
            RTA_VIA => hop.gateway = address_of(value.get(2..)?),
            kind => hop.attributes.push((kind, value.to_vec())),
        }
    }
    Some((hop, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

impl ForeignRoute {
    /// Whether packets get another header on a way: nothing but the very route does that.
    pub fn encapsulates(&self) -> bool {
        let of_hops = self.hops.iter().flat_map(|hop| &hop.attributes);
        let mut all = of_hops.chain(&self.attributes);
        all.any(|(kind, _)| [RTA_ENCAP, RTA_ENCAP_TYPE].contains(kind))
    }

    /// Puts a route by a nexthop in its place, for the same packets and with the same properties. No packet meets neither.
    ///
    /// # Errors
    /// [`super::netlink::Refusal`].
    pub fn lead_by(&self, ours: &Route, netlink: &mut Netlink) -> Result<()> {
        let mut message = ours.header(OWNER);
        ours.put_key(&mut message);
        put(&mut message, RTA_NH_ID, &ours.nexthop.to_ne_bytes());
        self.replace(message, netlink)
    }

    /// Puts it back in the place of ours. Ways whose device cannot send any more are left out where the kernel wants that; returns
    /// their devices.
    ///
    /// # Errors
    /// [`super::netlink::Refusal`].
    pub fn put_back(&self, ours: &Route, netlink: &mut Netlink) -> Result<Vec<String>> {
        let message = |hops: &[&Hop]| {
            let mut message = ours.header(self.protocol);
            message[6] = self.scope;
            ours.put_key(&mut message);
            match self.nexthop {
                Some(id) => put(&mut message, RTA_NH_ID, &id.to_ne_bytes()),
                None => put(&mut message, RTA_MULTIPATH, &encode(hops, self.to.address.is_ipv6())),
            }
            message
        };
        let all: Vec<&Hop> = self.hops.iter().collect();
        let Err(error) = self.replace(message(&all), netlink) else {
            return Ok(Vec::new());
        };
        let carrying = links::carrying()?;
        let (able, unable): (Vec<&Hop>, Vec<&Hop>) = all.iter().partition(|hop| carrying.contains_key(&hop.device));
        if able.is_empty() || unable.is_empty() || self.nexthop.is_some() {
            return Err(error);
        }
        self.replace(message(&able), netlink)?;
        Ok(unable.into_iter().map(|hop| hop.device.clone()).collect())
    }

    fn replace(&self, mut message: Vec<u8>, netlink: &mut Netlink) -> Result<()> {
        for (kind, value) in &self.attributes {
            put(&mut message, *kind, value);
        }
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE | libc::NLM_F_ACK;
        netlink.request(libc::RTM_NEWROUTE, flags as u16, &message).map(drop)
    }

    /// Whether it stands as it was read.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn stands(&self, netlink: &mut Netlink) -> Result<bool> {
        Ok(all(self.to, None, netlink)?.contains(self))
    }

    /// Whether an error of [`Self::put_back`] tells that it cannot be any more: its devices, or its nexthop object, are gone.
    pub fn is_impossible(error: &anyhow::Error) -> bool {
        refusal(error).is_some_and(|errno| {
            matches!(
                errno,
                Errno::ENODEV | Errno::ENETDOWN | Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EINVAL
            )
        })
    }

    /// A device that several ways lead by.
    pub fn shared_device(&self) -> Option<&str> {
        let mut seen = HashSet::new();
        let again = self.hops.iter().find(|hop| !seen.insert(&hop.device));
        again.map(|hop| hop.device.as_str())
    }
}

/// A device that is gone has index 0, which the kernel refuses.
fn encode(hops: &[&Hop], is_ipv6: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for hop in hops {
        let mut attributes = Vec::new();
        match hop.gateway {
            // Over an IPv6 router (RFC 8950).
            Some(gateway) if gateway.is_ipv6() != is_ipv6 => {
                let family = (family(gateway.is_ipv6()) as u16).to_ne_bytes();
                put(
                    &mut attributes,
                    RTA_VIA,
                    &[&family[..], &address_bytes(gateway)].concat(),
                );
            }
            Some(gateway) => put(&mut attributes, RTA_GATEWAY, &address_bytes(gateway)),
            None => {}
        }
        for (kind, value) in &hop.attributes {
            put(&mut attributes, *kind, value);
        }
        let index = if_nametoindex(hop.device.as_str()).unwrap_or(0);
        bytes.extend_from_slice(&((HOP_HEADER + attributes.len()) as u16).to_ne_bytes());
        bytes.extend_from_slice(&[hop.flags, hop.weight]);
        bytes.extend_from_slice(&index.to_ne_bytes());
        bytes.extend(attributes);
    }
    bytes
}
