//! Routes and the rules that choose a table of them, over rtnetlink.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Deref;
use std::str::FromStr;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;
use serde::{Deserialize, Serialize};

use super::netlink::{Attributes, Message, Netlink, integer32, put, refusal};
use tarn_base::network::Prefix;
use tarn_base::wrong::Wrong;

pub use super::netlink::{address_bytes, address_of};

/// The protocol number of routes, rules and nexthops that tarn makes (`rtm_protocol`, `nh_protocol`, `FRA_PROTOCOL`). The kernel
/// gives numbers above 4 no meaning; iproute2's list of those in use (`/etc/iproute2/rt_protos`) has no 116.
pub const OWNER: u8 = 116;

/// `struct rtmsg`, and `struct fib_rule_hdr` of the same size.
pub const HEADER: usize = 12;

/// `enum rtattr_type_t`: the destination's address.
pub const RTA_DST: u16 = 1;
/// The index of the device that packets leave by.
pub const RTA_OIF: u16 = 4;
/// The gateway's address.
pub const RTA_GATEWAY: u16 = 5;
/// The metric.
pub const RTA_PRIORITY: u16 = 6;
/// The table.
pub const RTA_TABLE: u16 = 15;
/// A gateway of another family than the destination.
pub const RTA_VIA: u16 = 18;
/// The number of a nexthop object.
pub const RTA_NH_ID: u16 = 30;

const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_PROTOCOL: u16 = 21;
/// `FR_ACT_TO_TBL`
const TO_TABLE: u8 = 1;
/// The metric that the kernel gives an IPv6 route without one (`IP6_RT_PRIO_USER`).
pub const METRIC_IPV6: u32 = 1024;

/// Where a route leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination(Prefix);

/// A route by a nexthop object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where to.
    pub to: Destination,
    /// The table.
    pub table: u32,
    /// The route's metric, as it was written: the least one wins. 0 means 1024 to IPv6.
    pub metric: u32,
    /// The number of the nexthop or group.
    pub nexthop: u32,
}

/// A rule: packets that match all of it are routed by this table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Whether it is for IPv6.
    pub is_ipv6: bool,
    /// Rules are asked in this order, from 0 on.
    pub priority: u32,
    /// What the bits of `mask` are in a packet's mark.
    pub mark: u32,
    /// The bits looked at; 0: whatever the mark is.
    pub mask: u32,
    /// The table asked.
    pub table: u32,
    /// Only packets whose source address lies here,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Destination>,
    /// and whose destination does here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Destination>,
    /// Routes of the table with prefixes of this length, in bits, or shorter ones do not count: the next rule is asked then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress: Option<u8>,
}

/// A route that the kernel has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Who made it.
    pub protocol: u8,
    /// The nexthop object that it leads by, if it leads by one.
    pub nexthop: Option<u32>,
}

impl Destination {
    /// All addresses of a family.
    pub fn all(is_ipv6: bool) -> Self {
        let address = match is_ipv6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        Self(Prefix::of(address, 0))
    }
}

impl Deref for Destination {
    type Target = Prefix;

    fn deref(&self) -> &Prefix {
        &self.0
    }
}

impl FromStr for Destination {
    type Err = String;

    /// `default` is that of IPv4; IPv6's is `::/0`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "default" {
            return Ok(Self::all(false));
        }
        if !text.contains('/') {
            return Err(format!(
                "'{text}' is no destination; write default, ::/0, or a prefix as in 10.0.0.0/8"
            ));
        }
        text.parse().map(Self).map_err(|wrong: Wrong| wrong.to_string())
    }
}

impl Display for Destination {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match *self == Self::all(false) {
            true => formatter.write_str("default"),
            false => self.0.fmt(formatter),
        }
    }
}

impl TryFrom<String> for Destination {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Prefix> for Destination {
    fn from(prefix: Prefix) -> Self {
        Self(prefix)
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.to_string()
    }
}

/// A socket for routes, rules and nexthops.
///
/// # Errors
/// A process without a descriptor left.
pub fn open() -> Result<Netlink> {
    let netlink = Netlink::open(SockProtocol::NetlinkRoute, 0)?;
    netlink.filter_dumps()?;
    Ok(netlink)
}

impl Route {
    /// Adds the route; where one with the same destination, table and metric stands, that one is replaced if it is tarn's.
    ///
    /// # Errors
    /// [`super::netlink::Refusal`]; `EEXIST` when somebody else's route stands there.
    pub fn set(&self, netlink: &mut Netlink) -> Result<()> {
        let flags = match self.find(netlink)? {
            Some(found) if found.protocol == OWNER => libc::NLM_F_CREATE | libc::NLM_F_REPLACE,
            _ => libc::NLM_F_CREATE | libc::NLM_F_EXCL,
        };
        let mut message = self.header(OWNER);
        self.put_key(&mut message);
        put(&mut message, RTA_NH_ID, &self.nexthop.to_ne_bytes());
        netlink
            .request(libc::RTM_NEWROUTE, (flags | libc::NLM_F_ACK) as u16, &message)
            .map(drop)
    }

    /// Removes the route by this nexthop, if it is there. Returns whether it was.
    ///
    /// # Errors
    /// [`super::netlink::Refusal`].
    pub fn remove(&self, netlink: &mut Netlink) -> Result<bool> {
        let mut message = self.header(OWNER);
        self.put_key(&mut message);
        put(&mut message, RTA_NH_ID, &self.nexthop.to_ne_bytes());
        match netlink.request(libc::RTM_DELROUTE, libc::NLM_F_ACK as u16, &message) {
            Err(error) if matches!(refusal(&error), Some(Errno::ESRCH | Errno::ENOENT)) => Ok(false),
            // The nexthop object is gone, and with it every route by it.
            Err(error) if refusal(&error) == Some(Errno::EINVAL) => Ok(false),
            result => result.map(|_| true),
        }
    }

    /// The route that stands in this one's place: same destination, table and metric.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn find(&self, netlink: &mut Netlink) -> Result<Option<Found>> {
        self.find_of(netlink, libc::RTPROT_UNSPEC)
    }

    /// Whether the route stands as tarn has set it. The kernel looks for it among tarn's routes only: there may be a million others.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn stands(&self, netlink: &mut Netlink) -> Result<bool> {
        let found = self.find_of(netlink, OWNER)?;
        Ok(found.is_some_and(|found| found.nexthop == Some(self.nexthop)))
    }

    fn find_of(&self, netlink: &mut Netlink, protocol: u8) -> Result<Option<Found>> {
        let mut request = vec![0; HEADER];
        request[0] = self.family();
        request[5] = protocol;
        put(&mut request, RTA_TABLE, &self.table.to_ne_bytes());
        let mut found = None;
        let answer = netlink.stream(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16, &request, |_, payload| {
            found = found.take().or_else(|| self.decode(payload));
            Ok(())
        });
        match answer {
            Err(error) if refusal(&error) == Some(Errno::ENOENT) => Ok(None), // no such table yet
            answer => answer
                .with_context(|| format!("list the routes of table {}", self.table))
                .map(|_| found),
        }
    }

    /// `rtm_family`.
    pub fn family(&self) -> u8 {
        family(self.to.address.is_ipv6()) as u8
    }

    /// `struct rtmsg`, for a unicast route that `protocol` has made.
    pub fn header(&self, protocol: u8) -> Vec<u8> {
        // Behind the lengths: tos; a table that fits into its byte is written in its attribute all the same.
        let (table, scope, kind) = (libc::RT_TABLE_UNSPEC, libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST);
        let mut message = vec![self.family(), self.to.length, 0, 0, table, protocol, scope, kind];
        message.resize(HEADER, 0);
        message
    }

    /// Appends the attributes by which the kernel tells routes apart.
    pub fn put_key(&self, message: &mut Vec<u8>) {
        if self.to.length > 0 {
            put(message, RTA_DST, &address_bytes(self.to.address));
        }
        put(message, RTA_TABLE, &self.table.to_ne_bytes());
        if self.metric > 0 {
            put(message, RTA_PRIORITY, &self.metric.to_ne_bytes());
        }
    }

    fn decode(&self, payload: &[u8]) -> Option<Found> {
        let [_, length, _, tos, _, protocol, ..] = *payload.first_chunk::<HEADER>()?;
        let (mut to, mut table, mut metric, mut nexthop) = (None, 0, 0, None);
        for (kind, value) in Attributes(payload.get(HEADER..)?) {
            match kind {
                RTA_DST => to = address_of(value),
                RTA_TABLE => table = integer32(value)?,
                RTA_PRIORITY => metric = integer32(value)?,
                RTA_NH_ID => nexthop = integer32(value),
                _ => {}
            }
        }
        let is_ipv6 = self.to.address.is_ipv6();
        let address = to.unwrap_or(Destination::all(is_ipv6).address);
        let wanted = match (is_ipv6, self.metric) {
            (true, 0) => METRIC_IPV6,
            (_, metric) => metric,
        };
        let is_this = address == self.to.address && length == self.to.length && tos == 0;
        (is_this && table == self.table && metric == wanted).then_some(Found { protocol, nexthop })
    }
}

impl Rule {
    /// Adds the rule. Returns false when it is there already.
    ///
    /// # Errors
    /// [`super::netlink::Refusal`].
    pub fn set(&self, netlink: &mut Netlink) -> Result<bool> {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL | libc::NLM_F_ACK) as u16;
        match netlink.request(libc::RTM_NEWRULE, flags, &self.encode()) {
            Err(error) if refusal(&error) == Some(Errno::EEXIST) => Ok(false),
            result => result.map(|_| true),
        }
    }

    /// Has the kernel ask it after all other rules of its priority, if it is there. There is no moment without it.
    ///
    /// # Errors
    /// [`super::netlink::Refusal`].
    pub fn move_behind(&self, netlink: &mut Netlink) -> Result<()> {
        // The kernel adds another one, and removes the first. Of one that was not there, it is the one that was added.
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_ACK) as u16;
        netlink.request(libc::RTM_NEWRULE, flags, &self.encode())?;
        self.remove(netlink).map(drop)
    }

    /// Removes the rule, if it is there. Returns whether it was.
    ///
    /// # Errors
    /// [`super::netlink::Refusal`].
    pub fn remove(&self, netlink: &mut Netlink) -> Result<bool> {
        match netlink.request(libc::RTM_DELRULE, libc::NLM_F_ACK as u16, &self.encode()) {
            Err(error) if matches!(refusal(&error), Some(Errno::ENOENT | Errno::ESRCH)) => Ok(false),
            result => result.map(|_| true),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let length = |prefix: Option<Destination>| prefix.map_or(0, |prefix| prefix.length);
        let (to, from) = (length(self.to), length(self.from));
        let mut message = vec![family(self.is_ipv6) as u8, to, from, 0, 0, 0, 0, TO_TABLE];
        message.resize(HEADER, 0);
        for (kind, prefix) in [(FRA_DST, self.to), (FRA_SRC, self.from)] {
            if let Some(prefix) = prefix.filter(|prefix| prefix.length > 0) {
                put(&mut message, kind, &address_bytes(prefix.address));
            }
        }
        put(&mut message, FRA_PRIORITY, &self.priority.to_ne_bytes());
        if self.mask != 0 {
            put(&mut message, FRA_FWMARK, &self.mark.to_ne_bytes());
            put(&mut message, FRA_FWMASK, &self.mask.to_ne_bytes());
        }
        if let Some(length) = self.suppress {
            put(&mut message, FRA_SUPPRESS_PREFIXLEN, &u32::from(length).to_ne_bytes());
        }
        put(&mut message, FRA_TABLE, &self.table.to_ne_bytes());
        put(&mut message, FRA_PROTOCOL, &[OWNER]);
        message
    }
}

/// The bits of packet marks that rules of others go by, over IPv4 and IPv6. Of a rule for one whole mark, the bits of that one.
///
/// # Errors
/// A kernel that does not answer.
pub fn bits_of_rules(netlink: &mut Netlink) -> Result<u32> {
    let mut bits = 0;
    for is_ipv6 in [false, true] {
        let mut request = vec![family(is_ipv6) as u8];
        request.resize(HEADER, 0);
        let rules = netlink.request(libc::RTM_GETRULE, libc::NLM_F_DUMP as u16, &request);
        for message in rules.context("list the rules")? {
            bits |= bits_of(&message.payload).unwrap_or(0);
        }
    }
    Ok(bits)
}

fn bits_of(payload: &[u8]) -> Option<u32> {
    let attributes = || Some(Attributes(payload.get(HEADER..)?));
    let number = |kind| attributes()?.get(kind).and_then(integer32);
    if attributes()?.get(FRA_PROTOCOL) == Some(&[OWNER]) {
        return None;
    }
    // The kernel leaves out a mark of 0: the rule is for packets that have none of the mask's bits. Of a whole mark, nothing is left.
    match (number(FRA_FWMARK), number(FRA_FWMASK)) {
        (mark, None | Some(u32::MAX)) => mark,
        (_, mask) => mask,
    }
}

/// The index of the device by which packets to an address leave, by the routes and rules that there are; `None` where they lead
/// nowhere.
///
/// # Errors
/// A kernel that does not answer.
pub fn device_to(address: IpAddr, netlink: &mut Netlink) -> Result<Option<u32>> {
    let bytes = address_bytes(address);
    let mut request = vec![family(address.is_ipv6()) as u8, bytes.len() as u8 * 8];
    request.resize(HEADER, 0);
    put(&mut request, RTA_DST, &bytes);
    let answer = match netlink.request(libc::RTM_GETROUTE, libc::NLM_F_ACK as u16, &request) {
        Err(error) if refusal(&error).is_some() => return Ok(None),
        answer => answer.with_context(|| format!("look up the way to {address}"))?,
    };
    let device = |message: &Message| {
        Attributes(message.payload.get(HEADER..)?)
            .get(RTA_OIF)
            .and_then(integer32)
    };
    Ok(answer.iter().find_map(device))
}

/// Whether a message of the kernel's tells of a route that comes, goes or changes, to anything but all addresses.
pub fn is_of_another_than_default(message: &Message) -> bool {
    let is_route = [libc::RTM_NEWROUTE, libc::RTM_DELROUTE].contains(&message.kind);
    is_route && message.payload.get(1).is_some_and(|length| *length > 0)
}

/// `AF_INET` or `AF_INET6`.
pub fn family(is_ipv6: bool) -> i32 {
    if is_ipv6 { libc::AF_INET6 } else { libc::AF_INET }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who misses a default route's message loses its gateway; who takes every other's for one is busy with nothing else.
    #[test]
    fn messages_of_other_routes_are_told_from_those_of_default_routes_and_of_devices() {
        let message = |kind, to: &str| {
            let route = Route {
                to: to.parse().unwrap(),
                table: 254,
                metric: 0,
                nexthop: 1,
            };
            let payload = route.header(OWNER);
            is_of_another_than_default(&Message { kind, payload })
        };
        for kind in [libc::RTM_NEWROUTE, libc::RTM_DELROUTE] {
            assert_eq!(["default", "::/0"].map(|to| message(kind, to)), [false; 2]);
            assert_eq!(["10.0.0.0/8", "2001:db8::/32"].map(|to| message(kind, to)), [true; 2]);
        }
        assert!(!message(libc::RTM_NEWLINK, "10.0.0.0/8"));
    }

    #[test]
    fn destinations_are_read_and_shown_alike() {
        for text in ["default", "::/0", "10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
        }
        assert_eq!("0.0.0.0/0".parse::<Destination>().unwrap().to_string(), "default");
        for wrong in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.1/8", "internet", "::/129"] {
            assert!(wrong.parse::<Destination>().is_err(), "{wrong}");
        }
    }
}
