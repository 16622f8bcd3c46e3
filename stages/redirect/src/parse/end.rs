//! One end of a rule: an address and ports.

use std::net::{IpAddr, Ipv6Addr};

use crate::rule::PortRange;
use tarn_base::wrong::Wrong;

/// What would be right instead of a link-local address.
pub const GLOBAL: &str = "name a global or unique local (fd00::/8) address";

/// `ADDRESS`, `ADDRESS:PORT` or `ADDRESS:FIRST-LAST`.
pub fn end(text: &str) -> Result<(IpAddr, Option<PortRange>), Wrong> {
    let (address, ports) = split(text)?;
    if address == "*" || address.is_empty() {
        let ports = ports.unwrap_or("53");
        let message = format!("'{text}' names no address");
        let remedy = format!("for any address of this host write 0.0.0.0:{ports} (IPv4) or [::]:{ports} (IPv6)");
        return Err(Wrong::new(message, remedy));
    }
    Ok((address_of(address)?, ports.map(str::parse).transpose()?))
}

/// The address without brackets, and what follows the colon.
fn split(text: &str) -> Result<(&str, Option<&str>), Wrong> {
    if let Some(rest) = text.strip_prefix('[') {
        let bracket = || {
            Wrong::new(
                format!("'{text}' is not an address and a port"),
                "write it like [2001:db8::1]:53",
            )
        };
        let (address, rest) = rest.split_once(']').ok_or_else(bracket)?;
        return match rest.strip_prefix(':') {
            Some(ports) => Ok((address, Some(ports))),
            None if rest.is_empty() => Ok((address, None)),
            None => Err(bracket()),
        };
    }
    match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => may_have_port(text).map_or(Ok((text, None)), Err),
        Some((address, ports)) => Ok((address, Some(ports))),
        None => Ok((text, None)),
    }
}

/// The mistake in an IPv6 address without brackets whose end may be meant as a port: `2001:db8::2:53`.
fn may_have_port(text: &str) -> Option<Wrong> {
    let (address, ports) = text.rsplit_once(':')?;
    if address.parse::<Ipv6Addr>().is_err() || ports.parse::<PortRange>().is_err() {
        return None;
    }
    let remedy = match text.parse::<Ipv6Addr>() {
        Ok(_) => format!("write [{address}]:{ports}, or [{text}] if that is all address"),
        Err(_) => format!("write [{address}]:{ports}"),
    };
    Some(Wrong::new(
        format!("'{text}' has no brackets around its IPv6 address"),
        remedy,
    ))
}

/// An IP address without brackets.
fn address_of(text: &str) -> Result<IpAddr, Wrong> {
    if let Some((address, zone)) = text.split_once('%') {
        let message = format!("'{text}' has a zone ('%{zone}')");
        let is_of_one_link = address
            .parse()
            .is_ok_and(|address: Ipv6Addr| address.is_unicast_link_local());
        let remedy = match is_of_one_link {
            true => GLOBAL.to_owned(),
            false => format!("rules hold for all interfaces: write {address}"),
        };
        return Err(Wrong::new(message, remedy));
    }
    text.parse().map_err(|_| {
        Wrong::new(
            format!("'{text}' is no IP address"),
            "write one like 192.0.2.1 or [2001:db8::1]; names are not looked up",
        )
    })
}
