//! Nexthop objects and resilient groups of them, over rtnetlink (`include/uapi/linux/nexthop.h`; groups of the type
//! `resilient` since Linux 5.13, see `Documentation/networking/nexthop-group-resilient.rst`).
//!
//! A resilient group is a table of buckets. A flow's hash chooses a bucket, and the bucket holds a nexthop. A change of weights
//! moves buckets only when they have been idle for a while, unless their nexthop is no longer in the group: those move at once.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;

use tarn_kernel::genl::refusal;
use tarn_kernel::netlink::{Attributes, Netlink, integer16, integer32, put, put_nested};
use tarn_kernel::route::{OWNER, address_bytes, address_of, family};

const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_GETNEXTHOP: u16 = 106;
/// `struct nhmsg`: family, scope, protocol, reserved, flags.
const HEADER: usize = 8;
const FLAGS: usize = 4;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_RES_GROUP: u16 = 12;
/// Within `NHA_RES_GROUP`.
const BUCKETS: u16 = 1;
const IDLE_TIMER: u16 = 2;
const UNBALANCED_TIMER: u16 = 3;
/// `NEXTHOP_GRP_TYPE_RES`
const RESILIENT: u16 = 1;
/// `struct nexthop_grp`: number, weight (low byte), weight (high byte, since Linux 6.12; reserved before), reserved.
const MEMBER: usize = 8;
/// The unit of timers on the wire: `USER_HZ`, which is 100 on every architecture that tarn is for.
const TICK: Duration = Duration::from_millis(10);

/// `RTNH_F_ONLINK`: the gateway is reached by the device, whatever addresses that has. Other flags tell of a state.
pub const ONLINK: u8 = 4;

/// The greatest weight.
pub const WEIGHT_MOST: u32 = 65_535;
/// The greatest weight of a kernel that has only the low byte.
pub const WEIGHT_MOST_OLD: u32 = 256;

/// Multicast group `RTNLGRP_NEXTHOP` (32), as a bit: nexthops that come, go and change.
pub const NEXTHOP_GROUP: u32 = 1 << 31;

/// A way out of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nexthop {
    /// Its number, unique in the namespace.
    pub id: u32,
    /// The device's index.
    pub device: u32,
    /// The router behind the device; without one, the device's other end is it.
    pub gateway: Option<IpAddr>,
    /// Whether it is for IPv6 routes. A gateway says so itself.
    pub is_ipv6: bool,
    /// Whether the gateway is reached by the device whatever addresses that has.
    pub is_onlink: bool,
}

/// A nexthop in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The nexthop's number.
    pub id: u32,
    /// Its share, over the sum of all: 1 to [`WEIGHT_MOST_OLD`], or to [`WEIGHT_MOST`] where the kernel takes that.
    pub weight: u32,
}

impl Member {
    /// As a kernel with weights up to `most` means it: where newer ones have the high byte of a weight, those before 6.1.103 tell
    /// whatever was in their memory.
    pub fn weighed(self, most: u32) -> Self {
        Self {
            weight: self.weight.saturating_sub(1) % most.max(1) + 1,
            ..self
        }
    }
}

/// A resilient group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its number, of those of nexthops.
    pub id: u32,
    /// At least one.
    pub members: Vec<Member>,
    /// Buckets; fixed once the group is made.
    pub buckets: u16,
    /// For how long nothing was sent through a bucket that may move. In hundredths of a second.
    pub idle: Duration,
}

/// What the kernel has under a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Who made it: [`OWNER`] is tarn.
    pub protocol: u8,
    /// The device and the gateway of a single nexthop.
    pub device: Option<u32>,
    /// The router.
    pub gateway: Option<IpAddr>,
    /// `RTNH_F_*`, the low ones.
    pub flags: u8,
    /// Whether packets get another header on the way.
    pub encapsulates: bool,
    /// The members of a group.
    pub members: Vec<Member>,
    /// The buckets of a resilient group.
    pub buckets: Option<u16>,
}

impl Found {
    /// Whether tarn made it.
    pub fn is_ours(&self) -> bool {
        self.protocol == OWNER
    }
}

/// Makes a nexthop, or changes it; routes and groups that use it follow at once.
///
/// # Errors
/// [`tarn_kernel::netlink::Refusal`]: a device that is down, a gateway that is not behind it.
pub fn set(netlink: &mut Netlink, nexthop: &Nexthop) -> Result<()> {
    request(netlink, RTM_NEWNEXTHOP, create(), &encode(nexthop))
}

/// Makes a group, or gives it other members and weights. A number of buckets other than what it was made with is refused.
///
/// # Errors
/// [`tarn_kernel::netlink::Refusal`].
pub fn set_group(netlink: &mut Netlink, group: &Group) -> Result<()> {
    request(netlink, RTM_NEWNEXTHOP, create(), &encode_group(group))
}

/// Removes a nexthop or group, and every route that uses it. Returns whether there was one.
///
/// # Errors
/// [`tarn_kernel::netlink::Refusal`].
pub fn remove(netlink: &mut Netlink, id: u32) -> Result<bool> {
    match request(netlink, RTM_DELNEXTHOP, 0, &by_number(id)) {
        Err(error) if refusal(&error) == Some(Errno::ENOENT) => Ok(false),
        result => result.map(|()| true),
    }
}

/// What has this number.
///
/// # Errors
/// A kernel that does not answer.
pub fn find(netlink: &mut Netlink, id: u32) -> Result<Option<Found>> {
    let answer = match netlink.request(RTM_GETNEXTHOP, libc::NLM_F_ACK as u16, &by_number(id)) {
        Err(error) if refusal(&error) == Some(Errno::ENOENT) => return Ok(None),
        answer => answer.with_context(|| format!("look at nexthop {id}"))?,
    };
    Ok(answer.iter().find_map(|message| decode(&message.payload)))
}

/// Whether weights above [`WEIGHT_MOST_OLD`] are taken, which the kernel's version does not tell: the change was given to some
/// older ones, too. It is tried on a group that no route uses, under these two numbers, and both are removed again.
///
/// # Errors
/// When they cannot be removed.
pub fn takes_great_weights(netlink: &mut Netlink, scratch: [u32; 2]) -> Result<bool> {
    let [single, group] = scratch;
    let mut message = header(libc::AF_INET, OWNER);
    put(&mut message, NHA_ID, &single.to_ne_bytes());
    put(&mut message, NHA_BLACKHOLE, &[]);
    let member = Member {
        id: single,
        weight: WEIGHT_MOST,
    };
    let tried = Group {
        id: group,
        members: vec![member],
        buckets: 1,
        idle: Duration::ZERO,
    };
    let taken = request(netlink, RTM_NEWNEXTHOP, create(), &message).and_then(|()| set_group(netlink, &tried));
    remove(netlink, group)?;
    remove(netlink, single)?;
    Ok(taken.is_ok())
}

fn create() -> u16 {
    (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16
}

fn request(netlink: &mut Netlink, kind: u16, flags: u16, payload: &[u8]) -> Result<()> {
    netlink.request(kind, flags | libc::NLM_F_ACK as u16, payload).map(drop)
}

fn header(family: i32, protocol: u8) -> Vec<u8> {
    vec![family as u8, 0, protocol, 0, 0, 0, 0, 0]
}

fn by_number(id: u32) -> Vec<u8> {
    let mut message = header(libc::AF_UNSPEC, 0);
    put(&mut message, NHA_ID, &id.to_ne_bytes());
    message
}

fn encode(nexthop: &Nexthop) -> Vec<u8> {
    let is_ipv6 = nexthop.gateway.map_or(nexthop.is_ipv6, |gateway| gateway.is_ipv6());
    let mut message = header(family(is_ipv6), OWNER);
    if nexthop.is_onlink {
        message[FLAGS..HEADER].copy_from_slice(&u32::from(ONLINK).to_ne_bytes());
    }
    put(&mut message, NHA_ID, &nexthop.id.to_ne_bytes());
    put(&mut message, NHA_OIF, &nexthop.device.to_ne_bytes());
    if let Some(gateway) = nexthop.gateway {
        put(&mut message, NHA_GATEWAY, &address_bytes(gateway));
    }
    message
}

fn encode_group(group: &Group) -> Vec<u8> {
    let mut message = header(libc::AF_UNSPEC, OWNER);
    let members: Vec<u8> = group.members.iter().flat_map(encode_member).collect();
    put(&mut message, NHA_ID, &group.id.to_ne_bytes());
    put(&mut message, NHA_GROUP, &members);
    put(&mut message, NHA_GROUP_TYPE, &RESILIENT.to_ne_bytes());
    put_nested(&mut message, NHA_RES_GROUP, |nested| {
        put(nested, BUCKETS, &group.buckets.to_ne_bytes());
        put(nested, IDLE_TIMER, &ticks(group.idle).to_ne_bytes());
        // 0: a bucket that is in use is never moved for the sake of balance.
        put(nested, UNBALANCED_TIMER, &0_u32.to_ne_bytes());
    });
    message
}

/// On the wire a weight is one less than what it means, in two bytes that are not beside each other.
fn encode_member(member: &Member) -> [u8; MEMBER] {
    let [low, high, ..] = member.weight.saturating_sub(1).to_le_bytes();
    let [a, b, c, d] = member.id.to_ne_bytes();
    [a, b, c, d, low, high, 0, 0]
}

fn decode_member(bytes: &[u8]) -> Option<Member> {
    let (low, high) = (*bytes.get(4)?, *bytes.get(5)?);
    Some(Member {
        id: integer32(bytes)?,
        weight: u32::from(u16::from_le_bytes([low, high])) + 1,
    })
}

fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX)
}

fn decode(payload: &[u8]) -> Option<Found> {
    let mut found = Found {
        protocol: *payload.get(2)?,
        device: None,
        gateway: None,
        flags: integer32(payload.get(FLAGS..)?)? as u8,
        encapsulates: false,
        members: Vec::new(),
        buckets: None,
    };
    for (kind, value) in Attributes(payload.get(HEADER..)?) {
        match kind {
            NHA_ENCAP_TYPE => found.encapsulates = true,
            NHA_OIF => found.device = integer32(value),
            NHA_GATEWAY => found.gateway = address_of(value),
            NHA_GROUP => found.members = value.chunks_exact(MEMBER).filter_map(decode_member).collect(),
            NHA_RES_GROUP => {
                let buckets = Attributes(value).find(|(kind, _)| *kind == BUCKETS);
                found.buckets = buckets.and_then(|(_, value)| integer16(value));
            }
            _ => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests;
