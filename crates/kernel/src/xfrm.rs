//! The IPsec policies of this network namespace (xfrm), over netlink. Numbers are those of `linux/xfrm.h`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::netlink::{Attributes, Message, Netlink};

/// `XFRM_MSG_NEWPOLICY`, `XFRM_MSG_GETPOLICY`, `XFRM_MSG_GETDEFAULT`
const NEW_POLICY: u16 = 0x13;
const GET_POLICY: u16 = 0x15;
const GET_DEFAULT: u16 = 0x28;
/// `XFRMNLGRP_POLICY`, as a bit.
const GROUP: u32 = 1 << 3;

/// `struct xfrm_userpolicy_id`, and `struct xfrm_userpolicy_info`, which attributes follow.
const IDENTITY: usize = 64;
const POLICY: usize = 168;
/// Where a policy's direction stands, and its action.
const DIRECTION: usize = 160;
const ACTION: usize = 161;
/// Directions from here on are of a socket's own policies.
const DIRECTIONS: u8 = 3;
/// `XFRM_POLICY_BLOCK`, `XFRMA_TMPL`
const BLOCK: u8 = 1;
const TEMPLATES: u16 = 5;
/// `XFRM_USERPOLICY_BLOCK`: of `struct xfrm_userpolicy_default`, for packets that no policy is for.
const DEFAULT_BLOCK: u8 = 1;

/// Whether a policy asks for more than to let packets pass: to encrypt or to drop them. Policies of single sockets do not
/// count: no forwarded packet meets them.
///
/// # Errors
/// No rights; a kernel that does not say.
pub fn has_policies() -> Result<bool> {
    if !is_loaded()? {
        return Ok(false);
    }
    let mut netlink = Netlink::open_number(libc::NETLINK_XFRM, 0)?;
    let dump = libc::NLM_F_DUMP as u16;
    let mut is_any = false;
    netlink
        .stream(GET_POLICY, dump, &[0; IDENTITY], |kind, payload| {
            is_any |= kind == NEW_POLICY && binds(payload).unwrap_or(false);
            Ok(())
        })
        .context("list the IPsec policies")?;
    let defaults = netlink.request(GET_DEFAULT, libc::NLM_F_ACK as u16, &[0; 4]);
    let blocks = |message: &Message| message.payload.iter().take(3).any(|action| *action == DEFAULT_BLOCK);
    // A kernel that has no defaults to tell lets pass what no policy is for.
    Ok(is_any || defaults.is_ok_and(|defaults| defaults.iter().any(blocks)))
}

/// A socket on which every change of the policies arrives as a message; `None` as long as nothing in this kernel can make
/// one.
///
/// # Errors
/// No rights; too many open files.
pub fn monitor() -> Result<Option<Netlink>> {
    if !is_loaded()? {
        return Ok(None);
    }
    Netlink::open_number(libc::NETLINK_XFRM, GROUP).map(Some)
}

/// Whether what makes policies is loaded, `xfrm_user` or `af_key`. To ask the kernel would load it.
fn is_loaded() -> Result<bool> {
    let sockets = fs::read_to_string("/proc/thread-self/net/netlink").context("list the netlink protocols")?;
    Ok(lists_xfrm(&sockets) || Path::new("/proc/thread-self/net/pfkey").exists())
}

/// The kernel has a socket of its own for every protocol; the second column is the protocol's number.
fn lists_xfrm(sockets: &str) -> bool {
    let number = libc::NETLINK_XFRM.to_string();
    sockets
        .lines()
        .any(|line| line.split_whitespace().nth(1) == Some(number.as_str()))
}

fn binds(policy: &[u8]) -> Option<bool> {
    let (direction, action) = (*policy.get(DIRECTION)?, *policy.get(ACTION)?);
    let has_templates = Attributes(policy.get(POLICY..)?).any(|(kind, _)| kind == TEMPLATES);
    Some(direction < DIRECTIONS && (action == BLOCK || has_templates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_is_found_by_its_number_alone() {
        let head = "sk               Eth Pid        Groups   Rmem\n";
        assert!(lists_xfrm(&format!(
            "{head}0000000067a2d6ae 6   0          00000000 0\n"
        )));
        assert!(!lists_xfrm(&format!(
            "{head}0000000067a2d6ae 16  6          00000006 6\n"
        )));
    }
}
