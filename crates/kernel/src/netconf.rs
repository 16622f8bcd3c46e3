//! What the kernel's parameters of IPv4 say of each device, over rtnetlink: one question for all of them.

use std::collections::HashMap;

use anyhow::{Context, Result};
use nix::sys::socket::SockProtocol;

use super::netlink::{Attributes, Message, Netlink, integer32};

/// The multicast group of changes to these parameters, for [`crate::links::monitor`].
pub const GROUP: u32 = 1 << (libc::RTNLGRP_IPV4_NETCONF - 1);

/// `struct netconfmsg`, with what aligns it.
const HEADER: usize = 4;
/// `NETCONFA_IFINDEX`, `NETCONFA_RP_FILTER`
const INDEX: u16 = 1;
const REVERSE_PATH: u16 = 3;
/// `NETCONFA_IFINDEX_ALL`
const ALL: i32 = -1;

/// `rp_filter` of every device by its index, as the kernel uses it: the higher value of the device's and that of `all`.
/// 0: none; 1: strict; 2: loose.
///
/// # Errors
/// A kernel that does not say.
pub fn reverse_paths() -> Result<HashMap<u32, u32>> {
    let mut netlink = Netlink::open(SockProtocol::NetlinkRoute, 0)?;
    let mut request = [0; HEADER];
    request[0] = libc::AF_INET as u8;
    let answer = netlink
        .request(libc::RTM_GETNETCONF, libc::NLM_F_DUMP as u16, &request)
        .context("ask for rp_filter of the network devices")?;
    let told: HashMap<i32, u32> = answer.iter().filter_map(parse).collect();
    let of_all = told.get(&ALL).copied().unwrap_or(0);
    let of_devices = told.into_iter().filter_map(|(index, value)| {
        let index = u32::try_from(index).ok()?;
        Some((index, value.max(of_all)))
    });
    Ok(of_devices.collect())
}

fn parse(message: &Message) -> Option<(i32, u32)> {
    if message.kind != libc::RTM_NEWNETCONF {
        return None;
    }
    let attributes = Attributes(message.payload.get(HEADER..)?);
    let number = |kind| attributes.get(kind).and_then(integer32);
    Some((number(INDEX)? as i32, number(REVERSE_PATH)?))
}
