//! Rules for tests.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::parse::{self, Written};

/// One rule from its text, of protocol `udp`.
pub fn udp(from: &str, to: &str, source: Option<&str>) -> Rule {
    rules(&["udp"], from, to, source).remove(0)
}

/// Rules from their text.
pub fn rules(protocols: &[&str], from: &str, to: &str, source: Option<&str>) -> Vec<Rule> {
    parse::rules(
        &Written {
            protocols,
            from,
            to,
            source,
            note: None,
        },
        Origin::Command,
    )
    .expect("a valid rule")
}

/// Any valid rule, with any address.
pub fn any_rule() -> impl Strategy<Value = Rule> {
    rule(any::<bool>(), any::<u128>(), 1..=u16::MAX, 0..=2000u16)
}

/// Valid rules with few addresses, ports and prefixes, so that they get in one another's way.
pub fn crowded_rule() -> impl Strategy<Value = Rule> {
    rule(Just(false), (0..4u128).prop_map(|host| host << 96), 1..=12u16, 0..=3u16)
}

fn rule(
    family: impl Strategy<Value = bool>,
    bits: impl Strategy<Value = u128> + Clone,
    ports: impl Strategy<Value = u16> + Clone,
    extra: impl Strategy<Value = u16>,
) -> impl Strategy<Value = Rule> {
    let ends = (family, bits.clone(), bits.clone(), bits, ports.clone(), extra, ports);
    let choices = (
        any::<bool>(),
        0..4u8,
        0..3u8,
        0..=128u8,
        prop::option::of("[a-z \"\\\\é]{0,20}"),
    );
    (ends, choices).prop_filter_map("a valid rule", |(ends, (tcp, address, target, length, note))| {
        let (v6, from, to, source, first, extra, to_first) = ends;
        let ip = |bits: u128| if v6 { v6_address(bits) } else { v4_address(bits) };
        let ports = PortRange {
            first,
            last: first.checked_add(extra)?,
        };
        let to_ports = match target {
            0 => ports,
            1 => PortRange::single(to_first),
            _ => PortRange {
                first: to_first,
                last: to_first.checked_add(extra)?,
            },
        };
        let rule = Rule {
            id: u32::from(first),
            protocol: if tcp { Protocol::Tcp } else { Protocol::Udp },
            source: (length > 0 && length % 3 > 0).then(|| Prefix::of(ip(source), length)),
            address: if address == 0 {
                Address::Any(Family::of(ip(from)))
            } else {
                Address::Ip(ip(from))
            },
            ports,
            to: ip(to),
            to_ports,
            origin: if length % 2 == 0 {
                Origin::Config
            } else {
                Origin::Command
            },
            note,
        };
        parse::agree(&rule).is_ok().then_some(rule)
    })
}

/// An address of 10.0.0.0/8.
fn v4_address(bits: u128) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 | (bits >> 96) as u32 & 0x00ff_ffff).into()
}

/// An address of 2001:db8::/32.
fn v6_address(bits: u128) -> IpAddr {
    Ipv6Addr::from_bits(0x2001_0db8 << 96 | bits >> 32).into()
}
