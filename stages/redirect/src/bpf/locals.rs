//! The addresses of this host: what a zero address in a rule stands for. No helper tells the programs, so they are told
//! here, when the programs start and whenever addresses change.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::maps::{Maps, delete_others, is_empty, write_all};
use super::skeleton::types;
use super::tables;
use crate::rule::Prefix;
use tarn_kernel::addresses;
use tarn_kernel::netlink::{Attributes, Message, Netlink, Refusal};
use tarn_kernel::plain::bytes_of;

/// Multicast groups `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`: addresses that come and go.
pub const ADDRESS_GROUPS: u32 = (libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;

/// `struct rtmsg`.
const ROUTE_HEADER: usize = 12;
const RTA_DST: u16 = 1;

/// The addresses of all devices, and the prefixes that routes of the table `local` deliver here as well, but for those
/// that no other host can mean: loopback and IPv6 link-local addresses.
///
/// # Errors
/// A kernel that does not say.
pub fn all() -> Result<HashSet<Prefix>> {
    let mut locals: HashSet<Prefix> = addresses::local()?.into_iter().map(whole).collect();
    for family in [libc::AF_INET, libc::AF_INET6] {
        locals.extend(local_routes(family)?);
    }
    locals.retain(|prefix| can_be_meant(prefix.address));
    Ok(locals)
}

fn whole(address: IpAddr) -> Prefix {
    Prefix::of(address, u8::MAX)
}

fn can_be_meant(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_loopback(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    }
}

fn local_routes(family: i32) -> Result<Vec<Prefix>> {
    let mut netlink = Netlink::open(SockProtocol::NetlinkRoute, 0)?;
    netlink.filter_dumps()?;
    let mut request = [0; ROUTE_HEADER];
    request[0] = family as u8;
    request[4] = libc::RT_TABLE_LOCAL;
    match netlink.request(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16, &request) {
        Ok(answer) => Ok(answer.iter().filter_map(parse).collect()),
        Err(error) if is_missing(&error) => Ok(Vec::new()), // no table: no address was ever given
        Err(error) => Err(error).context("list the routes of the table `local`"),
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<Refusal>();
    refusal.is_some_and(|refusal| refusal.errno == Errno::ENOENT)
}

fn parse(message: &Message) -> Option<Prefix> {
    let [family, length, _, _, table, _, _, kind] = *message.payload.first_chunk::<8>()?;
    if message.kind != libc::RTM_NEWROUTE || table != libc::RT_TABLE_LOCAL || kind != libc::RTN_LOCAL {
        return None;
    }
    let destination = Attributes(message.payload.get(ROUTE_HEADER..)?).find(|(kind, _)| *kind == RTA_DST);
    let bytes = destination.map_or(&[][..], |(_, value)| value);
    let address = if i32::from(family) == libc::AF_INET {
        IpAddr::from(
            bytes
                .first_chunk()
                .map_or(Ipv4Addr::UNSPECIFIED, |four: &[u8; 4]| (*four).into()),
        )
    } else {
        IpAddr::from(
            bytes
                .first_chunk()
                .map_or(Ipv6Addr::UNSPECIFIED, |all: &[u8; 16]| (*all).into()),
        )
    };
    Some(Prefix::of(address, length))
}

/// Makes the map hold exactly these.
///
/// # Errors
/// A map that cannot be written.
pub fn set(maps: &Maps, locals: &HashSet<Prefix>) -> Result<()> {
    let was_empty = is_empty(&maps.locals);
    let entries: Vec<(Vec<u8>, u32)> = locals.iter().map(|prefix| (key(*prefix), 1)).collect();
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
        assert_eq!(of(local, libc::RTN_LOCAL), Some(expected));
        assert_eq!(of(local, libc::RTN_BROADCAST), None);
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
            assert_eq!(can_be_meant(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    #[ignore = "needs the lab"]
    fn lab_addresses_and_local_routes_are_found() {
        tarn_kernel::netns::testing::in_new_namespace(|| {
            assert_eq!(all().unwrap(), HashSet::new());
            let namespace = |command: &str| {
                let done = std::process::Command::new("ip").args(command.split(' ')).status();
                assert!(done.unwrap().success(), "ip {command}");
            };
            namespace("link set lo up");
            namespace("address add 192.0.2.1/32 dev lo");
            namespace("address add 2001:db8::1/64 dev lo nodad");
            namespace("route add local 198.51.100.0/24 dev lo");
            let expected = [("192.0.2.1", 32), ("2001:db8::1", 128), ("198.51.100.0", 24)];
            let expected = expected.map(|(address, length)| Prefix::of(address.parse().unwrap(), length));
            assert_eq!(all().unwrap(), HashSet::from(expected));
        });
    }
}
