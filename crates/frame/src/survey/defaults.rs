//! The default routes of this network namespace.

use anyhow::{Context, Result};
use nix::errno::Errno;
use tarn_kernel::netlink::{Attributes, Netlink, integer32, put, refusal};
use tarn_kernel::route::{self, HEADER, OWNER, RTA_OIF, RTA_PRIORITY, RTA_TABLE};

const RTA_MULTIPATH: u16 = 9;
/// `struct rtnexthop`: length, flags, weight less one, the device's index.
const HOP_HEADER: usize = 8;

/// A default route of the main table that leads somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultRoute {
    /// Whether it is for IPv6.
    pub is_ipv6: bool,
    /// Its metric: the least one wins.
    pub metric: u32,
    /// Whether tarn has made it.
    pub is_ours: bool,
    /// The indices of the devices that it leads by, more than one for a multipath route.
    pub devices: Vec<u32>,
}

/// Those of both families, in the kernel's order.
///
/// # Errors
/// A kernel that does not answer.
pub fn all() -> Result<Vec<DefaultRoute>> {
    let mut netlink = route::open()?;
    let mut found = Vec::new();
    for is_ipv6 in [false, true] {
        dump(is_ipv6, &mut netlink, &mut found)?;
    }
    Ok(found)
}

fn dump(is_ipv6: bool, netlink: &mut Netlink, found: &mut Vec<DefaultRoute>) -> Result<()> {
    let mut request = vec![route::family(is_ipv6) as u8];
    request.resize(HEADER, 0);
    put(&mut request, RTA_TABLE, &u32::from(libc::RT_TABLE_MAIN).to_ne_bytes());
    let answer = netlink.stream(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16, &request, |_, payload| {
        found.extend(decode(is_ipv6, payload));
        Ok(())
    });
    match answer {
        Err(error)
            if matches!(
                refusal(&error),
                Some(Errno::ENOENT | Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP)
            ) =>
        {
            Ok(())
        }
        answer => answer.context("list the default routes").map(drop),
    }
}

/// A `struct rtmsg` with attributes. Routes that refuse packets, and those for some source addresses, are none.
fn decode(is_ipv6: bool, payload: &[u8]) -> Option<DefaultRoute> {
    let &[_, destination, source, _, _, protocol, _, kind] = payload.first_chunk::<8>()?;
    if (destination, source, kind) != (0, 0, libc::RTN_UNICAST) {
        return None;
    }
    let attributes = || Some(Attributes(payload.get(HEADER..)?));
    let number = |kind| attributes()?.get(kind).and_then(integer32);
    let devices = match (number(RTA_OIF), attributes()?.get(RTA_MULTIPATH)) {
        (Some(device), _) => vec![device],
        (None, Some(hops)) => hops_of(hops),
        (None, None) => return None,
    };
    Some(DefaultRoute {
        is_ipv6,
        metric: number(RTA_PRIORITY).unwrap_or(0),
        is_ours: protocol == OWNER,
        devices,
    })
}

/// The devices of a list of `struct rtnexthop`.
fn hops_of(mut hops: &[u8]) -> Vec<u32> {
    let mut devices = Vec::new();
    while let Some(header) = hops.first_chunk::<HOP_HEADER>() {
        devices.extend(header.get(4..).and_then(integer32));
        // Each is aligned to four bytes.
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]])).max(HOP_HEADER);
        hops = hops.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A route of IPv4: the length of its destination's prefix, its kind and its attributes.
    fn message(destination: u8, kind: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = vec![libc::AF_INET as u8, destination, 0, 0, 254, 3, 0, kind];
        message.resize(HEADER, 0);
        for (attribute, value) in attributes {
            put(&mut message, *attribute, value);
        }
        message
    }

    #[test]
    fn default_routes_are_those_that_lead_somewhere() {
        let (device, metric) = (7_u32.to_ne_bytes(), 100_u32.to_ne_bytes());
        let by_one = message(0, libc::RTN_UNICAST, &[(RTA_PRIORITY, &metric), (RTA_OIF, &device)]);
        let found = decode(false, &by_one).unwrap();
        assert_eq!(
            (found.metric, &found.devices[..], found.is_ours),
            (100, &[7][..], false)
        );
        // `ip route add unreachable default`, as a guard for the time without a VPN.
        assert_eq!(
            decode(false, &message(0, libc::RTN_UNREACHABLE, &[(RTA_OIF, &device)])),
            None
        );
        assert_eq!(
            decode(false, &message(8, libc::RTN_UNICAST, &[(RTA_OIF, &device)])),
            None
        );
        for length in 0..by_one.len() {
            decode(false, &by_one[..length]);
        }
    }

    #[test]
    fn a_multipath_route_leads_by_several() {
        let hop = |device: u32| {
            let mut hop = vec![16, 0, 0, 0];
            hop.extend(device.to_ne_bytes());
            hop.extend([8, 0, 5, 0, 10, 0, 0, 1]); // RTA_GATEWAY
            hop
        };
        let hops = [hop(3), hop(4)].concat();
        let route = message(0, libc::RTN_UNICAST, &[(RTA_MULTIPATH, &hops)]);
        assert_eq!(decode(false, &route).unwrap().devices, [3, 4]);
        assert!(hops_of(&[0; 8]).len() == 1 && hops_of(&[255; 9]).len() == 1);
    }
}
