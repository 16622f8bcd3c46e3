//! Elements, and where they are looked up, in the language of nft.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Element, Key, Place, Role, Shape};
use crate::rule::{Family, Prefix};
use tarn_kernel::nft::MARK;

impl Shape {
    /// The expression looked up for the source: the address, or its first bits.
    fn source_expression(self, address: &str) -> String {
        if self.source == self.family.bits() {
            return address.to_owned();
        }
        let ones = match self.family {
            Family::V4 => IpAddr::from(Ipv4Addr::BROADCAST),
            Family::V6 => IpAddr::from(Ipv6Addr::from_bits(u128::MAX)),
        };
        format!("({address} & {})", Prefix::of(ones, self.source).address)
    }

    fn port_expression(self, port: &str) -> String {
        match self.block {
            0 => port.to_owned(),
            _ => format!("({port} & {:#x})", self.port_mask()),
        }
    }
}

impl Place {
    /// The expression that is looked up in it.
    pub fn expression(self) -> String {
        let Shape {
            family, any, source, ..
        } = self.shape;
        let ip = network(family);
        let original = match self.role {
            Role::Count => "ct original ",
            Role::To | Role::Keep => "",
        };
        let mut parts = vec!["meta l4proto".to_owned()];
        if source > 0 {
            parts.push(self.shape.source_expression(&format!("{original}{ip} saddr")));
        }
        if !any {
            parts.push(format!("{original}{ip} daddr"));
        }
        parts.push(self.shape.port_expression(match self.role {
            Role::Count => "ct original proto-dst",
            Role::To | Role::Keep => "th dport",
        }));
        if self.role == Role::Count {
            parts.push(format!("{ip} daddr"));
        }
        parts.join(" . ")
    }

    /// `map` or `set`, as nft calls it.
    pub fn kind(self) -> &'static str {
        match self.role {
            Role::To | Role::Keep => "map",
            Role::Count => "set",
        }
    }

    /// The types of key and data: `inet_proto . ipv4_addr . inet_service : ipv4_addr . inet_service`.
    pub fn types(self) -> String {
        let address = match self.shape.family {
            Family::V4 => " . ipv4_addr",
            Family::V6 => " . ipv6_addr",
        };
        let source = if self.shape.source > 0 { address } else { "" };
        let destination = if self.shape.any { "" } else { address };
        let key = format!("inet_proto{source}{destination} . inet_service");
        let data = address.trim_start_matches(" . ");
        match self.role {
            Role::To => format!("{key} : {data} . inet_service"),
            Role::Keep => format!("{key} : {data}"),
            Role::Count => format!("{key}{address}"),
        }
    }

    /// The place that has this name, if it is one of ours.
    pub fn named(name: &str) -> Option<Self> {
        let mut words = name.split('_');
        let (role, family) = match words.next()? {
            "to4" => (Role::To, Family::V4),
            "to6" => (Role::To, Family::V6),
            "keep4" => (Role::Keep, Family::V4),
            "keep6" => (Role::Keep, Family::V6),
            "count4" => (Role::Count, Family::V4),
            "count6" => (Role::Count, Family::V6),
            _ => return None,
        };
        let mut shape = Shape {
            family,
            any: false,
            source: 0,
            block: 0,
        };
        for word in words {
            if let Some(bits) = word.strip_prefix("from") {
                shape.source = bits.parse().ok()?;
            } else if let Some(ports) = word.strip_prefix("ports") {
                shape.block = ports
                    .parse::<u16>()
                    .ok()
                    .filter(|ports| ports.is_power_of_two())?
                    .ilog2() as u8;
            } else {
                shape.any = word == "any";
            }
        }
        let place = Place { role, shape };
        (place.to_string() == name).then_some(place)
    }
}

/// The name of a map or set: `to4`, `keep6_any_from64_ports1024`.
impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape {
            family,
            any,
            source,
            block,
        } = self.shape;
        formatter.write_str(match self.role {
            Role::To => "to",
            Role::Keep => "keep",
            Role::Count => "count",
        })?;
        formatter.write_str(if family == Family::V4 { "4" } else { "6" })?;
        formatter.write_str(if any { "_any" } else { "" })?;
        if source > 0 {
            write!(formatter, "_from{source}")?;
        }
        if block > 0 {
            write!(formatter, "_ports{}", 1u32 << block)?;
        }
        Ok(())
    }
}

impl Element {
    /// The key as nft writes it.
    fn key_text(&self) -> String {
        let Key {
            protocol,
            source,
            address,
            port,
            target,
        } = self.key;
        let Shape { any, source: bits, .. } = self.place.shape;
        // By number: nft finds names in /etc/protocols, which a small system does not have.
        let mut text = protocol.number().to_string();
        for part in [(bits > 0).then_some(source), (!any).then_some(address)]
            .into_iter()
            .flatten()
        {
            text.push_str(&format!(" . {part}"));
        }
        text.push_str(&format!(" . {port}"));
        if self.place.role == Role::Count {
            text.push_str(&format!(" . {target}"));
        }
        text
    }

    fn data_text(&self) -> String {
        match self.place.role {
            Role::To => format!(" : {} . {}", self.to, self.to_port),
            Role::Keep => format!(" : {}", self.to),
            Role::Count => String::new(),
        }
    }

    /// The element as nft deletes it.
    pub fn deletion(&self) -> String {
        format!("{}{}", self.key_text(), self.data_text())
    }
}

/// The element as nft adds it, its comment naming tarn and the rule.
impl fmt::Display for Element {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} comment \"{}\"{}",
            self.key_text(),
            comment(self.id),
            self.data_text()
        )
    }
}

/// The comment of the elements of rule `id`.
pub fn comment(id: u32) -> String {
    format!("{} {id}", MARK)
}

/// The rule's id in an element's comment; `None` when the element is someone else's.
pub fn id_of(comment: &str) -> Option<u32> {
    comment.strip_prefix(MARK)?.strip_prefix(' ')?.parse().ok()
}

/// The name of the network header's expressions in nft.
pub fn network(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}
