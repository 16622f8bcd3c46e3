//! Judges what a section says of its services.

use std::time::Duration;

use toml::Spanned;

use super::written::{WrittenClass, WrittenSection, WrittenService};
use super::{DEADLINE, LIMIT, LocalPorts, OVERDUE, PATIENCE, PORTS_MOST, PORTS_REMEDY, Proxied, Service, proxied};
use crate::module::{Protocol, SERVICES_MOST};
use tarn_base::config::{NumberOrText, Reader};
use tarn_base::network::Protocol as Transport;
use tarn_base::time;

/// The default of `patience`, and the module's own,
const PATIENCE_DEFAULT: Duration = Duration::from_secs(2);
/// or as many times the longest deadline. Answers after that are not seen: a service whose answers take longer looks idle.
const PATIENCE_DEADLINES: u32 = 5;

type Ports = Spanned<Vec<Spanned<String>>>;

/// What the section says for all services.
struct Common {
    /// Of each class, where it or the section has one.
    deadlines: Vec<Option<Duration>>,
    limit: u32,
    patience: Option<Duration>,
    overdue: Duration,
}

/// What the section says of its services.
#[derive(Default)]
pub(super) struct Found {
    pub services: Vec<Service>,
    pub proxied: Vec<Proxied>,
    /// The services are one, of several ports that are named for all.
    pub shares_limit: bool,
}

/// The services.
pub(super) fn services(reader: &mut Reader<'_>, written: &WrittenSection) -> Found {
    let common = common(reader, written);
    let has_own = |service: &WrittenService| service.deadline.is_some();
    if written.service.is_empty() || !written.service.iter().all(has_own) {
        check_deadlines(reader, &written.class, &common.deadlines);
    }
    let mut found = Found::default();
    for one in &written.service {
        match &one.through {
            Some(through) => {
                let deadlines = own_deadlines(reader, one, &common);
                found
                    .proxied
                    .extend(proxied::service(reader, one, through, deadlines, &found));
            }
            None => found.services.extend(service(reader, one, &common, &found)),
        }
    }
    let Found {
        mut services, proxied, ..
    } = found;
    if let Some(first) = written
        .service
        .iter()
        .filter_map(|service| service.ports.as_ref())
        .nth(SERVICES_MOST)
    {
        let message = format!("{} services are more than {SERVICES_MOST}", services.len());
        let remedy = "join some of them: a service can have many ports";
        reader.error(first.span(), "service", message, remedy);
    }
    match &written.ports {
        Some(found) if written.service.is_empty() => services.push(only(reader, found, &common)),
        Some(found) => {
            let remedy = "move them into a [[classes.service]]";
            reader.error(found.span(), "ports", "each service has its own ports", remedy);
        }
        None => {}
    }
    let own = written.service.iter().filter(|service| service.through.is_none());
    let own = own.map(|service| service.patience.is_some());
    let own = own.chain(std::iter::repeat(false));
    let waiting = services
        .iter()
        .zip(own)
        .filter(|(_, has_own)| !has_own)
        .map(|(service, _)| service);
    check_patience(reader, "patience", written.patience.as_ref(), waiting);
    let shares_limit = written.service.is_empty() && services.iter().any(|service| service.ports.len() > 1);
    Found {
        services,
        proxied,
        shares_limit,
    }
}

/// An answer that comes after it is not seen, so it has to be as long as the longest deadline.
fn check_patience<'a>(
    reader: &mut Reader<'_>,
    key: &str,
    written: Option<&Spanned<String>>,
    services: impl Iterator<Item = &'a Service>,
) {
    let Some(written) = written else { return };
    let wrong = services.filter_map(|service| {
        let longest = service.deadlines.iter().max().copied()?;
        (service.patience < longest).then_some(longest)
    });
    let Some(longest) = wrong.max() else { return };
    let message = format!("{} is shorter than the longest deadline", written.get_ref());
    let remedy = format!("write at least {}, or leave it out", time::text(longest));
    reader.error(written.span(), key, message, remedy);
}

fn common(reader: &mut Reader<'_>, written: &WrittenSection) -> Common {
    let of_all = written.deadline.as_ref();
    let of_all = of_all.map(|text| deadline(reader, "deadline", text));
    let own = written.class.iter().map(|class| {
        let own = class.deadline.as_ref();
        own.map(|text| deadline(reader, "class.deadline", text)).or(of_all)
    });
    Common {
        deadlines: own.collect(),
        limit: limit(reader, "limit", written.limit.as_ref(), 0),
        patience: written
            .patience
            .as_ref()
            .map(|text| reader.time("patience", Some(text), *PATIENCE.end(), &PATIENCE)),
        overdue: overdue(reader, "overdue", written.overdue.as_ref(), Duration::ZERO),
    }
}

/// Where a service has no deadline, each class needs one.
fn check_deadlines(reader: &mut Reader<'_>, classes: &[WrittenClass], deadlines: &[Option<Duration>]) {
    for (class, _) in classes.iter().zip(deadlines).filter(|(_, deadline)| deadline.is_none()) {
        let message = format!("class '{}' has no deadline", class.name.get_ref());
        let remedy = "add one, as in deadline = \"40ms\", here or below [classes] for every class";
        reader.error(class.name.span(), "class.deadline", message, remedy);
    }
}

/// The service of a section that names ports only.
fn only(reader: &mut Reader<'_>, written: &Ports, common: &Common) -> Service {
    let ports = ports(reader, "ports", written, &[]);
    let deadlines = deadlines(common);
    Service {
        name: default_name(&ports),
        patience: common.patience.unwrap_or_else(|| default_patience(&deadlines)),
        limit: common.limit,
        overdue: common.overdue,
        protocol: Protocol::Auto,
        ports,
        deadlines,
    }
}

fn own_deadlines(reader: &mut Reader<'_>, written: &WrittenService, common: &Common) -> Vec<Duration> {
    let own = written.deadline.as_ref();
    let own = own.map(|text| deadline(reader, "service.deadline", text));
    own.map_or_else(|| deadlines(common), |own| vec![own; common.deadlines.len()])
}

fn service(reader: &mut Reader<'_>, written: &WrittenService, common: &Common, before: &Found) -> Option<Service> {
    for (key, found) in [("service.socket", &written.socket), ("service.maps", &written.maps)] {
        if let Some(found) = found {
            reader.error(
                found.span(),
                key,
                "it is HAProxy's",
                "add through = \"haproxy\", or leave it out",
            );
        }
    }
    let deadlines = own_deadlines(reader, written, common);
    let Some(found) = &written.ports else {
        let span = written.name.as_ref().map_or(0..0, Spanned::span);
        reader.error(span, "service.ports", "the service has no ports", PORTS_REMEDY);
        return None;
    };
    let ports = ports(reader, "service.ports", found, &before.services);
    let patience = common.patience.unwrap_or_else(|| default_patience(&deadlines));
    let key = "service.patience";
    let service = Service {
        name: name(reader, written, &ports, before),
        patience: reader.time(key, written.patience.as_ref(), patience, &PATIENCE),
        limit: limit(reader, "service.limit", written.limit.as_ref(), common.limit),
        overdue: overdue(reader, "service.overdue", written.overdue.as_ref(), common.overdue),
        protocol: protocol(reader, written.protocol.as_ref(), &ports),
        ports,
        deadlines,
    };
    check_patience(reader, key, written.patience.as_ref(), std::iter::once(&service));
    Some(service)
}

/// The names of protocols, and over what they are spoken: `None` over TCP and UDP.
const PROTOCOLS: [(&str, Protocol, Option<Transport>); 6] = [
    ("auto", Protocol::Auto, None),
    ("http", Protocol::Http, Some(Transport::Tcp)),
    ("stream", Protocol::Stream, Some(Transport::Tcp)),
    ("datagram", Protocol::Auto, Some(Transport::Udp)),
    ("dns", Protocol::Dns, None),
    ("connection", Protocol::Connection, None),
];

fn protocol(reader: &mut Reader<'_>, written: Option<&Spanned<String>>, ports: &[LocalPorts]) -> Protocol {
    const KEY: &str = "service.protocol";
    let Some(written) = written else { return Protocol::Auto };
    let name = written.get_ref();
    let Some((_, protocol, over)) = PROTOCOLS.iter().find(|(known, ..)| known == name) else {
        let names: Vec<&str> = PROTOCOLS.iter().map(|(name, ..)| *name).collect();
        let remedy = format!("write one of {}", names.join(", "));
        reader.error(written.span(), KEY, format!("'{name}' is no protocol"), remedy);
        return Protocol::Auto;
    };
    let other = over.and_then(|over| ports.iter().find(|ports| ports.protocol != over));
    if let Some(port) = other {
        let message = format!("'{name}' is not spoken at {port}");
        let remedy = "give that port a service of its own, or leave the protocol out";
        reader.error(written.span(), KEY, message, remedy);
    }
    *protocol
}

fn default_patience(deadlines: &[Duration]) -> Duration {
    let longest = deadlines.iter().max().copied().unwrap_or_default();
    (longest * PATIENCE_DEADLINES).clamp(PATIENCE_DEFAULT, *PATIENCE.end())
}

fn deadlines(common: &Common) -> Vec<Duration> {
    let found = common.deadlines.iter();
    found.map(|deadline| deadline.unwrap_or(*DEADLINE.end())).collect()
}

fn default_name(ports: &[LocalPorts]) -> String {
    ports.first().map(ToString::to_string).unwrap_or_default()
}

fn name(reader: &mut Reader<'_>, written: &WrittenService, ports: &[LocalPorts], before: &Found) -> String {
    let Some(written) = &written.name else {
        return default_name(ports);
    };
    check_name(reader, written, before);
    written.get_ref().clone()
}

/// It is part of other names, and the only one of its kind.
pub(super) fn check_name(reader: &mut Reader<'_>, written: &Spanned<String>, before: &Found) {
    super::read::check_plain(reader, "service.name", written, "a service's name");
    let mut names = before.services.iter().map(|service| &service.name);
    let mut others = before.proxied.iter().map(|service| &service.name);
    if names.any(|name| name == written.get_ref()) || others.any(|name| name == written.get_ref()) {
        let message = format!("there are two services '{}'", written.get_ref());
        reader.error(written.span(), "service.name", message, "give each a name of its own");
    }
}

fn deadline(reader: &mut Reader<'_>, key: &str, written: &Spanned<String>) -> Duration {
    reader.time(key, Some(written), *DEADLINE.end(), &DEADLINE)
}

/// `"auto"` is zero.
fn overdue(reader: &mut Reader<'_>, key: &str, written: Option<&Spanned<String>>, default: Duration) -> Duration {
    match written {
        Some(text) if text.get_ref() == "auto" => Duration::ZERO,
        written => reader.time(key, written, default, &OVERDUE),
    }
}

/// `"auto"` is 0.
fn limit(reader: &mut Reader<'_>, key: &str, written: Option<&Spanned<NumberOrText>>, default: u32) -> u32 {
    let Some(written) = written else { return default };
    match written.get_ref() {
        NumberOrText::Text(text) if text == "auto" => return 0,
        NumberOrText::Number(number) if LIMIT.contains(number) => return u32::try_from(*number).unwrap_or(0),
        NumberOrText::Text(text) => {
            let remedy = "write \"auto\", or how many requests the service works on at a time";
            reader.error(written.span(), key, format!("'{text}' is no limit"), remedy);
        }
        NumberOrText::Number(number) => {
            let remedy = format!("write \"auto\", or {} to {}", LIMIT.start(), LIMIT.end());
            reader.error(written.span(), key, format!("{number} is out of range"), remedy);
        }
    }
    default
}

fn ports(reader: &mut Reader<'_>, key: &str, written: &Ports, before: &[Service]) -> Vec<LocalPorts> {
    let mut ports: Vec<LocalPorts> = Vec::new();
    for text in written.get_ref() {
        let Some(range) = reader.parse::<LocalPorts>(key, text) else {
            continue;
        };
        let mut others = before.iter().flat_map(|service| &service.ports).chain(&ports);
        if let Some(other) = others.find(|other| other.overlaps(&range)) {
            let message = format!("'{range}' and '{other}' have ports in common");
            reader.error(text.span(), key, message, "name each port once");
        }
        ports.push(range);
    }
    if written.get_ref().is_empty() {
        reader.error(written.span(), key, "no port is named", PORTS_REMEDY);
    }
    if ports.len() > PORTS_MOST {
        let message = format!("{} ranges of ports are more than {PORTS_MOST}", ports.len());
        let remedy = "join those that lie side by side: \"tcp/8000-8100\"";
        reader.error(written.span(), key, message, remedy);
    }
    ports
}
