//! Rules as people write them, on the command line and in `tarn.toml`.
//!
//! An end is `ADDRESS:PORT` or `ADDRESS:FIRST-LAST`, an IPv6 address in brackets, as everywhere else. As the match,
//! `0.0.0.0` and `[::]` stand for any address of this host, as they do for sockets. A target without a port keeps
//! the port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::rule::{Address, Family, Origin, PortRange, Prefix, Protocol, Rule, endpoint_text};
use tarn_base::wrong::Wrong;

/// The longest note, in bytes.
const NOTE_MAX: usize = 200;

/// What would be right as protocols, in `tarn.toml`.
pub const PROTOCOLS: &str = "write \"tcp\", \"udp\" or [\"tcp\", \"udp\"]";

mod end;
mod json;

use end::{GLOBAL, end};

/// The part of a rule that a mistake is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// `protocol`
    Protocol,
    /// `from`
    From,
    /// `to`
    To,
    /// `source`
    Source,
    /// `note`
    Note,
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Field::Protocol => "protocol",
            Field::From => "from",
            Field::To => "to",
            Field::Source => "source",
            Field::Note => "note",
        })
    }
}

/// What is wrong with one part of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}; {remedy}")]
pub struct Mistake {
    /// Where.
    pub field: Field,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub remedy: String,
}

impl Field {
    /// What is wrong with this part.
    fn mistake(self, Wrong { message, remedy }: Wrong) -> Mistake {
        Mistake {
            field: self,
            message,
            remedy,
        }
    }
}

/// A rule as written, before it was looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written<'a> {
    /// `tcp`, `udp` or both.
    pub protocols: &'a [&'a str],
    /// `192.168.64.2:8080`, `0.0.0.0:53`, `[::]:8000-8100`.
    pub from: &'a str,
    /// `10.0.1.2:8083`, `10.0.1.2`, `[2001:db8::2]:9000-9100`.
    pub to: &'a str,
    /// `10.0.0.0/8`, `10.1.2.3`.
    pub source: Option<&'a str>,
    /// Free text.
    pub note: Option<&'a str>,
}

/// The rules that `written` asks for: one a protocol, id 0 until the store has given one.
///
/// # Errors
/// Every mistake found, in the order of the fields.
pub fn rules(written: &Written<'_>, origin: Origin) -> Result<Vec<Rule>, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    let protocols = keep(Field::Protocol, protocols(written.protocols), &mut mistakes);
    let matched = keep(Field::From, from(written.from), &mut mistakes);
    let target = keep(Field::To, to(written.to), &mut mistakes);
    let prefix = keep(Field::Source, written.source.map_or(Ok(None), source), &mut mistakes);
    let note = keep(Field::Note, written.note.map(note).transpose(), &mut mistakes);
    let (Some(protocols), Some((address, ports)), Some((to, to_ports)), Some(source), Some(note)) =
        (protocols, matched, target, prefix, note)
    else {
        return Err(mistakes);
    };
    let to_ports = to_ports.unwrap_or(ports);
    let rule = |protocol| Rule {
        id: 0,
        protocol,
        source,
        address,
        ports,
        to,
        to_ports,
        origin,
        note: note.clone(),
    };
    let rules: Vec<Rule> = protocols.into_iter().map(rule).collect();
    match rules.iter().try_for_each(agree) {
        Ok(()) => Ok(rules),
        Err(mistake) => Err(vec![mistake]),
    }
}

fn keep<T>(field: Field, parsed: Result<T, Wrong>, mistakes: &mut Vec<Mistake>) -> Option<T> {
    parsed.map_err(|wrong| mistakes.push(field.mistake(wrong))).ok()
}

/// The protocols of a rule, each once.
fn protocols(words: &[&str]) -> Result<Vec<Protocol>, Wrong> {
    let mut found = Vec::new();
    for word in words {
        let protocol = Protocol::named(word).ok_or_else(|| no_protocol(word))?;
        if found.contains(&protocol) {
            return Err(Wrong::new(format!("'{protocol}' is named twice"), PROTOCOLS));
        }
        found.push(protocol);
    }
    match found.is_empty() {
        true => Err(Wrong::new("no protocol is named", PROTOCOLS)),
        false => Ok(found),
    }
}

fn no_protocol(word: &str) -> Wrong {
    let small = word.to_ascii_lowercase();
    if Protocol::named(&small).is_some() {
        return Wrong::new(format!("'{word}' is written in capitals"), format!("write {small}"));
    }
    if word.contains(['.', ':']) {
        return Wrong::new(
            format!("'{word}' is an address"),
            "the protocol comes first: udp ADDRESS:PORT TARGET",
        );
    }
    Wrong::new(format!("'{word}' is not a protocol that can be redirected"), PROTOCOLS)
}

/// The match: an address, which may stand for any, and ports.
///
/// # Errors
/// Text that is no such end, and addresses that no packet to be redirected can have as destination.
pub fn from(text: &str) -> Result<(Address, PortRange), Wrong> {
    let (ip, ports) = end(text)?;
    let Some(ports) = ports else {
        let example = endpoint_text(ip, PortRange::single(53));
        return Err(Wrong::new(
            format!("'{text}' has no port"),
            format!("write one, as in {example}"),
        ));
    };
    if ip.is_unspecified() {
        return Ok((Address::Any(Family::of(ip)), ports));
    }
    if ip.is_loopback() {
        let message = format!("{ip} is a loopback address, which no packet from outside can have");
        let any = endpoint_text(Address::Any(Family::of(ip)).ip(), ports);
        return Err(Wrong::new(
            message,
            format!("name the address that clients speak to, or any of this host: {any}"),
        ));
    }
    unicast(ip, "redirected")?;
    Ok((Address::Ip(ip), ports))
}

/// The target: an address that something can be sent to from here, and ports unless those of the match are kept.
fn to(text: &str) -> Result<(IpAddr, Option<PortRange>), Wrong> {
    let (ip, ports) = end(text)?;
    if ip.is_unspecified() {
        return Err(Wrong::new(
            format!("{ip} is no address to send to"),
            "name the server's own address",
        ));
    }
    if ip.is_loopback() {
        let message = format!("{ip} is a loopback address, which the kernel accepts from this host alone");
        let remedy = "let the server listen on an address of the network too, and name that";
        return Err(Wrong::new(message, remedy));
    }
    unicast(ip, "a target")?;
    Ok((ip, ports))
}

/// Refuses addresses of groups, of one link, and of the other family in disguise.
fn unicast(ip: IpAddr, role: &str) -> Result<(), Wrong> {
    if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        let kind = if ip.is_multicast() { "multicast" } else { "broadcast" };
        let message = format!("{ip} is a {kind} address: it has many receivers and cannot be {role}");
        return Err(Wrong::new(message, "name the address of one host"));
    }
    if let IpAddr::V6(v6) = ip {
        if v6.is_unicast_link_local() {
            let message =
                format!("{ip} is a link-local address: it means nothing beyond one link and cannot be {role}");
            return Err(Wrong::new(message, GLOBAL));
        }
        not_mapped(v6)?;
    }
    Ok(())
}

fn not_mapped(ip: Ipv6Addr) -> Result<(), Wrong> {
    match ip.to_ipv4_mapped() {
        Some(v4) => {
            let message = format!("{ip} is an IPv4 address in IPv6 notation, which no packet carries");
            Err(Wrong::new(message, format!("write {v4}")))
        }
        None => Ok(()),
    }
}

/// A source prefix; `None` for one of length 0, which is every sender.
fn source(text: &str) -> Result<Option<Prefix>, Wrong> {
    let prefix: Prefix = text.parse()?;
    if prefix.address.is_multicast() {
        return Err(Wrong::new(
            format!("{prefix} is multicast, which nobody sends from"),
            "name the senders' prefix",
        ));
    }
    Ok((prefix.length > 0).then_some(prefix))
}

/// A note: one line of at most [`NOTE_MAX`] bytes, without control characters.
fn note(text: &str) -> Result<String, Wrong> {
    if text.len() > NOTE_MAX {
        let message = format!("the note has {} bytes", text.len());
        return Err(Wrong::new(message, format!("keep it to {NOTE_MAX}")));
    }
    if text.chars().any(char::is_control) {
        let message = "the note has a line break or another control character";
        return Err(Wrong::new(message, "write one plain line"));
    }
    Ok(text.to_owned())
}

/// Whether the parts of a rule agree with one another.
///
/// # Errors
/// Mixed families, ranges of different lengths, a target that the rule itself matches.
pub fn agree(rule: &Rule) -> Result<(), Mistake> {
    let family = rule.address.family();
    if Family::of(rule.to) != family {
        let message = format!("{} is {}, but 'from' is {family}", rule.to, Family::of(rule.to));
        let remedy = format!("name an {family} address: a redirect does not translate between families");
        return Err(Field::To.mistake(Wrong::new(message, remedy)));
    }
    if let Some(source) = rule.source.filter(|source| source.family() != family) {
        let message = format!("{source} is {}, but 'from' is {family}", source.family());
        return Err(Field::Source.mistake(Wrong::new(message, format!("name an {family} prefix"))));
    }
    let (count, to_count) = (rule.ports.count(), rule.to_ports.count());
    if to_count != 1 && to_count != count {
        let message = format!("{} are {to_count} ports, but {} are {count}", rule.to_ports, rule.ports);
        return Err(Field::To.mistake(Wrong::new(message, same_length_remedy(rule))));
    }
    if rule.address == Address::Ip(rule.to) && rule.ports.intersects(rule.to_ports) {
        let message = format!("{} is matched by the rule itself", rule.target_text());
        return Err(Field::To.mistake(Wrong::new(message, "name another address, or ports outside of 'from'")));
    }
    Ok(())
}

fn same_length_remedy(rule: &Rule) -> String {
    let last = u32::from(rule.to_ports.first) + rule.ports.count() - 1;
    match u16::try_from(last) {
        Ok(last) => format!(
            "write {}, or the one port that all go to",
            endpoint_text(
                rule.to,
                PortRange {
                    first: rule.to_ports.first,
                    last
                }
            )
        ),
        Err(_) => format!(
            "give both {} ports, or name the one port that all go to",
            rule.ports.count()
        ),
    }
}

#[cfg(test)]
mod tests;
