//! Routes that somebody else has made, with all that it takes to make them again as they were.

use std::collections::HashSet;
use std::net::IpAddr;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::net::if_::{if_indextoname, if_nametoindex};
use serde::{Deserialize, Serialize};

use crate::nexthop::{self, ONLINK};
use tarn_kernel::genl::refusal;
use tarn_kernel::netlink::{Attributes, Netlink, integer16, integer32, put};
use tarn_kernel::route::{
    Destination, HEADER, OWNER, RTA_DST, RTA_GATEWAY, RTA_NH_ID, RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTA_VIA, Route,
    address_bytes, address_of, family,
};

/// The table that routes are in unless they are given another one.
pub const MAIN_TABLE: u32 = libc::RT_TABLE_MAIN as u32;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
/// Where `struct rta_cacheinfo` has how long the route lives; 0: for ever.
const EXPIRES: usize = 8;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
/// Where `struct rtmsg` has how far the destination is.
const SCOPE: usize = 6;
/// `struct rtnexthop`: length, flags, weight less one, the device's index.
const HOP_HEADER: usize = 8;

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
    /// Whether it goes by itself after a while, unless whoever made it makes it again.
    pub expires: bool,
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
/// for one type of service, or for source addresses, are left out: they are no place for a nexthop object.
///
/// # Errors
/// A kernel that does not answer.
pub fn all(to: Destination, device: Option<u32>, netlink: &mut Netlink) -> Result<Vec<ForeignRoute>> {
    let found = from_anywhere(to, device, netlink)?.into_iter();
    Ok(found
        .filter(|(source, _)| *source == 0)
        .map(|(_, route)| route)
        .collect())
}

/// The same, and those for source addresses: the length of the prefix of these comes with each, in bits, 0 for all of them.
fn from_anywhere(to: Destination, device: Option<u32>, netlink: &mut Netlink) -> Result<Vec<(u8, ForeignRoute)>> {
    let mut found = Vec::new();
    dump(to, device, netlink, |payload| found.extend(decode(to, payload)))?;
    for (_, route) in &mut found {
        if let Some(id) = route.nexthop {
            route.hops = hops_of(id, netlink)?;
        }
    }
    Ok(found)
}

/// Calls `each` with every route of the main table, or with those by a device.
fn dump(to: Destination, device: Option<u32>, netlink: &mut Netlink, mut each: impl FnMut(&[u8])) -> Result<()> {
    let mut request = vec![family(to.address.is_ipv6()) as u8];
    request.resize(HEADER, 0);
    put(&mut request, RTA_TABLE, &MAIN_TABLE.to_ne_bytes());
    if let Some(device) = device {
        put(&mut request, RTA_OIF, &device.to_ne_bytes());
    }
    let answer = netlink.stream(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16, &request, |_, payload| {
        each(payload);
        Ok(())
    });
    match answer {
        Err(error) if refusal(&error) == Some(Errno::ENOENT) => Ok(()), // no such table yet
        answer => answer.with_context(|| format!("list the routes to {to}")).map(drop),
    }
}

/// The way by a device that the default route of somebody else has, of several the one with the least metric. One for the source
/// addresses of the uplink only, as OpenWrt makes them for IPv6, knows the router just as well where there is no other.
///
/// # Errors
/// A kernel that does not answer.
pub fn default_way(device: u32, is_ipv6: bool, netlink: &mut Netlink) -> Result<Option<Hop>> {
    let routes = match from_anywhere(Destination::all(is_ipv6), Some(device), netlink) {
        Err(error) if refusal(&error) == Some(Errno::ENODEV) => return Ok(None),
        routes => routes?,
    };
    let Some(name) = name(device) else { return Ok(None) };
    let by_device = |(source, route): (u8, ForeignRoute)| {
        let hop = route.hops.into_iter().find(|hop| hop.device == name)?;
        Some(((source > 0, route.metric), hop))
    };
    let found = routes.into_iter().filter_map(by_device).min_by_key(|(rank, _)| *rank);
    Ok(found.map(|(_, hop)| hop))
}

/// How many routes stand in a route's place, of whatever kind and whoever made them: same destination, table and metric.
///
/// # Errors
/// A kernel that does not answer.
pub fn count_at(place: &Route, netlink: &mut Netlink) -> Result<usize> {
    let mut count = 0;
    dump(place.to, None, netlink, |payload| {
        let is_there = || {
            let length = *payload.get(1)?;
            let attributes = || Some(Attributes(payload.get(HEADER..)?));
            let number = |kind| attributes()?.get(kind).and_then(integer32);
            let address = attributes()?.get(RTA_DST).and_then(address_of);
            let address = address.unwrap_or(Destination::all(place.to.address.is_ipv6()).address);
            let found = (address, length, number(RTA_TABLE)?, number(RTA_PRIORITY).unwrap_or(0));
            Some(found == (place.to.address, place.to.length, MAIN_TABLE, place.metric))
        };
        count += usize::from(is_there() == Some(true));
    })?;
    Ok(count)
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
        // Such a route is put back by the object's number; of weights that differ, the low byte does.
        let weight = member.weighed(nexthop::WEIGHT_MOST_OLD).weight.saturating_sub(1) as u8;
        match nexthop::find(netlink, member.id)?.and_then(|found| single(&found, weight)) {
            Some(hop) => hops.push(hop),
            None => return Ok(Vec::new()), // it leads nowhere
        }
    }
    Ok(hops)
}

fn single(found: &nexthop::Found, weight: u8) -> Option<Hop> {
    Some(Hop {
        device: name(found.device?)?,
        gateway: found.gateway,
        flags: found.flags & ONLINK,
        weight,
        attributes: found
            .encapsulates
            .then(|| (RTA_ENCAP, Vec::new()))
            .into_iter()
            .collect(),
    })
}

fn name(device: u32) -> Option<String> {
    if_indextoname(device).ok()?.into_string().ok()
}

/// A route to there, and the length of the prefix of its source addresses.
fn decode(to: Destination, payload: &[u8]) -> Option<(u8, ForeignRoute)> {
    let [_, length, source, tos, _, protocol, scope, kind, ..] = *payload.first_chunk::<HEADER>()?;
    // There may be a million of others.
    if (length, tos, kind) != (to.length, 0, libc::RTN_UNICAST) || protocol == OWNER {
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
        expires: false,
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
            RTA_MULTIPATH => route.hops = hops(value)?,
            // The kernel tells it, and does not want to be told.
            RTA_CACHEINFO => route.expires = value.get(EXPIRES..).and_then(integer32).is_some_and(|left| left != 0),
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
    ((address, table) == (to.address, MAIN_TABLE)).then_some((source, route))
}

/// All of them, or none: a way whose device has just gone is not left out silently.
fn hops(mut bytes: &[u8]) -> Option<Vec<Hop>> {
    let mut hops = Vec::new();
    while !bytes.is_empty() {
        let (hop, rest) = hop(bytes)?;
        hops.push(hop);
        bytes = rest;
    }
    Some(hops)
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
    /// [`tarn_kernel::netlink::Refusal`].
    pub fn lead_by(&self, ours: &Route, netlink: &mut Netlink) -> Result<()> {
        let mut message = ours.header(OWNER);
        ours.put_key(&mut message);
        put(&mut message, RTA_NH_ID, &ours.nexthop.to_ne_bytes());
        self.send(message, libc::NLM_F_REPLACE, netlink)
    }

    /// Puts it back in the place of ours, or where nothing is any more. Ways that cannot be any more are left out: their device has
    /// gone, or the kernel does not take them now, because their gateway is in no network of the host's. Returns their devices.
    ///
    /// # Errors
    /// [`tarn_kernel::netlink::Refusal`], when no way can be; nothing has changed then.
    pub fn put_back(&self, ours: &Route, netlink: &mut Netlink) -> Result<Vec<String>> {
        self.forget_tried(ours, netlink);
        let here: Vec<&Hop> = self.hops.iter().filter(|hop| hop.is_here()).collect();
        let mut kept = here.clone();
        if let Err(error) = self.put_back_by(&kept, ours, netlink) {
            kept.retain(|hop| self.nexthop.is_none() && self.takes(hop, ours, netlink));
            if kept.is_empty() || kept.len() == here.len() {
                return Err(error);
            }
            self.put_back_by(&kept, ours, netlink)?;
        }
        let is_left_out = |hop: &&Hop| self.nexthop.is_none() && !kept.contains(hop);
        let left_out = self.hops.iter().filter(is_left_out);
        Ok(left_out.map(|hop| hop.device.clone()).collect())
    }

    fn put_back_by(&self, hops: &[&Hop], ours: &Route, netlink: &mut Netlink) -> Result<()> {
        let message = self.message(hops, ours);
        // What else has come to stand there would be replaced in the stead of ours: IPv6 takes the first that can have several
        // ways, IPv4 the first. Behind them, IPv6 makes one route of those that can, as it would have done without tarn.
        let is_first = !self.to.address.is_ipv6() && ours.find(netlink)?.is_some_and(|found| found.protocol == OWNER);
        if is_first || count_at(ours, netlink)? <= 1 {
            return self.send(message, libc::NLM_F_REPLACE, netlink);
        }
        self.send(message, libc::NLM_F_APPEND, netlink)?;
        ours.remove(netlink).map(drop)
    }

    /// Whether the kernel takes a way, tried in a table that nobody asks.
    fn takes(&self, hop: &Hop, ours: &Route, netlink: &mut Netlink) -> bool {
        let message = self.message(&[hop], &scratch(ours));
        let is_taken = self.send(message, libc::NLM_F_EXCL, netlink).is_ok();
        self.forget_tried(ours, netlink);
        is_taken
    }

    /// Takes the way out that was tried last, if it is there: who was killed meanwhile has left it.
    fn forget_tried(&self, ours: &Route, netlink: &mut Netlink) {
        let message = self.place(&scratch(ours));
        // It goes with its device at the latest.
        let _ = netlink.request(libc::RTM_DELROUTE, libc::NLM_F_ACK as u16, &message);
    }

    /// Where it stands, without where it leads.
    fn place(&self, place: &Route) -> Vec<u8> {
        let mut message = place.header(self.protocol);
        message[SCOPE] = self.scope;
        place.put_key(&mut message);
        message
    }

    fn message(&self, hops: &[&Hop], place: &Route) -> Vec<u8> {
        let mut message = self.place(place);
        match self.nexthop {
            Some(id) => put(&mut message, RTA_NH_ID, &id.to_ne_bytes()),
            None => put(&mut message, RTA_MULTIPATH, &encode(hops, self.to.address.is_ipv6())),
        }
        message
    }

    fn send(&self, mut message: Vec<u8>, flags: i32, netlink: &mut Netlink) -> Result<()> {
        for (kind, value) in &self.attributes {
            put(&mut message, *kind, value);
        }
        let flags = flags | libc::NLM_F_CREATE | libc::NLM_F_ACK;
        netlink.request(libc::RTM_NEWROUTE, flags as u16, &message).map(drop)
    }

    /// Whether it stands as it was read.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn stands(&self, netlink: &mut Netlink) -> Result<bool> {
        Ok(all(self.to, None, netlink)?.contains(self))
    }

    /// Whether it can never be put back, once [`Self::put_back`] has failed: its devices, or its nexthop object, are gone, or
    /// another route has come that leads one of its ways. Else it can be when its devices have their addresses again.
    pub fn is_impossible(&self, error: &anyhow::Error) -> bool {
        let is_twin = refusal(error) == Some(Errno::EEXIST);
        is_twin || self.nexthop.is_some() || !self.hops.iter().any(Hop::is_here)
    }

    /// A device that several ways lead by.
    pub fn shared_device(&self) -> Option<&str> {
        let mut seen = HashSet::new();
        let again = self.hops.iter().find(|hop| !seen.insert(&hop.device));
        again.map(|hop| hop.device.as_str())
    }
}

impl Hop {
    /// Whether there is such a device.
    fn is_here(&self) -> bool {
        if_nametoindex(self.device.as_str()).is_ok()
    }
}

/// The same place in a table that nobody asks: that of the number of our group.
fn scratch(ours: &Route) -> Route {
    Route {
        table: ours.nexthop,
        ..*ours
    }
}

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
