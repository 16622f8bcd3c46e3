//! The addresses of this host: what a zero address in a rule stands for. No helper tells the programs, so they are told
//! here, when the programs start and whenever addresses change.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use anyhow::{Context, Result};
use nix::errno::Errno;

use super::maps::{Maps, delete_others, is_empty, write_all};
use super::skeleton::types;
use super::tables;
use crate::rule::{Address, Prefix};
use tarn_kernel::addresses;
use tarn_kernel::netlink::{Attributes, Message, address_of, refusal};
use tarn_kernel::plain::bytes_of;
use tarn_kernel::route::{self, Destination, HEADER, RTA_DST};

/// Multicast groups `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`: addresses that come and go.
pub const ADDRESS_GROUPS: u32 = (libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;

/// What an address is to this host: as in shared.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its own.
    Address = 1,
    /// For all hosts of one of its networks.
    Broadcast = 2,
}

/// Prefixes, and what they are.
pub type Locals = HashMap<Prefix, Kind>;

/// The addresses of all devices, and the prefixes that routes of the table `local` deliver here as well, but for those
/// that no other host can mean: loopback and IPv6 link-local addresses.
///
/// # Errors
/// A kernel that does not say.
pub fn all() -> Result<Locals> {
    let mut locals = Locals::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        locals.extend(local_routes(family)?);
    }
    locals.extend(
        addresses::local()?
            .into_iter()
            .map(|address| (whole(address), Kind::Address)),
    );
    locals.retain(|prefix, _| Address::any_may_be(prefix.address));
    Ok(locals)
}

fn whole(address: IpAddr) -> Prefix {
    Prefix::of(address, u8::MAX)
}

fn local_routes(family: i32) -> Result<Vec<(Prefix, Kind)>> {
    let mut request = [0; HEADER];
    request[0] = family as u8;
    request[4] = libc::RT_TABLE_LOCAL;
    match route::open()?.request(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16, &request) {
        Ok(answer) => Ok(answer.iter().filter_map(parse).collect()),
        Err(error) if refusal(&error) == Some(Errno::ENOENT) => Ok(Vec::new()), // no table: no address was ever given
        Err(error) => Err(error).context("list the routes of the table `local`"),
    }
}

fn parse(message: &Message) -> Option<(Prefix, Kind)> {
    let [family, length, _, _, table, _, _, kind] = *message.payload.first_chunk::<8>()?;
    if message.kind != libc::RTM_NEWROUTE || table != libc::RT_TABLE_LOCAL {
        return None;
    }
    let kind = match kind {
        libc::RTN_LOCAL => Kind::Address,
        libc::RTN_BROADCAST => Kind::Broadcast,
        _ => return None,
    };
    let destination = Attributes(message.payload.get(HEADER..)?).get(RTA_DST);
    let all = Destination::all(i32::from(family) == libc::AF_INET6).address;
    let prefix = Prefix::of(destination.and_then(address_of).unwrap_or(all), length);
    Some((prefix, kind))
}

/// Makes the map hold exactly these.
///
/// # Errors
/// A map that cannot be written.
pub fn set(maps: &Maps, locals: &Locals) -> Result<()> {
    let was_empty = is_empty(&maps.locals);
    let entries: Vec<(Vec<u8>, u32)> = locals
        .iter()
        .map(|(prefix, kind)| (key(*prefix), *kind as u32))
        .collect();
    write_all(&maps.locals, &entries).context("tell the programs this host's addresses")?;
    let kept: HashSet<&[u8]> = entries.iter().map(|(key, _)| key.as_slice()).collect();
    delete_others(&maps.locals, was_empty, |key| kept.contains(key))?;
    maps.next_generation()
}

fn key(prefix: Prefix) -> Vec<u8> {
    let key: types::local_key = tables::local_key(prefix);
    bytes_of(&key).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(family: i32, length: u8, table: u8, kind: u8, destination: &[u8]) -> Message {
        let mut payload = vec![family as u8, length, 0, 0, table, 0, 0, kind, 0, 0, 0, 0];
        tarn_kernel::netlink::put(&mut payload, RTA_DST, destination);
        Message {
            kind: libc::RTM_NEWROUTE,
            payload,
        }
    }

    #[test]
    fn routes_that_deliver_here_count_and_others_do_not() {
        let (local, main) = (libc::RT_TABLE_LOCAL, libc::RT_TABLE_MAIN);
        let of = |table, kind| parse(&message(libc::AF_INET, 8, table, kind, &[10, 0, 0, 0]));
        let expected = Prefix::of("10.0.0.0".parse().unwrap(), 8);
        assert_eq!(of(local, libc::RTN_LOCAL), Some((expected, Kind::Address)));
        assert_eq!(of(local, libc::RTN_BROADCAST), Some((expected, Kind::Broadcast)));
        assert_eq!(of(local, libc::RTN_MULTICAST), None);
        assert_eq!(of(main, libc::RTN_LOCAL), None);
    }

    #[test]
    fn addresses_that_only_this_host_or_link_can_mean_are_left_out() {
        for (address, expected) in [
            ("192.0.2.1", true),
            ("127.0.0.1", false),
            ("2001:db8::1", true),
            ("::1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(Address::any_may_be(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    #[ignore = "needs the lab"]
    fn lab_addresses_and_local_routes_are_found() {
        tarn_kernel::netns::testing::in_new_namespace(|| {
            assert_eq!(all().unwrap(), Locals::new());
            let namespace = |command: &str| {
                let done = std::process::Command::new("ip").args(command.split(' ')).status();
                assert!(done.unwrap().success(), "ip {command}");
            };
            namespace("link set lo up");
            namespace("address add 192.0.2.1/32 dev lo");
            namespace("address add 2001:db8::1/64 dev lo nodad");
            namespace("route add local 198.51.100.0/24 dev lo");
            let expected = [("192.0.2.1", 32), ("2001:db8::1", 128), ("198.51.100.0", 24)];
            let expected =
                expected.map(|(address, length)| (Prefix::of(address.parse().unwrap(), length), Kind::Address));
            assert_eq!(all().unwrap(), Locals::from(expected));
        });
    }
}
