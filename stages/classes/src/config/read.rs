//! Judges a section, mistake by mistake.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::written::{WrittenClass, WrittenImport, WrittenSection};
use super::{
    CAP, CAP_DEFAULT, CLASSES_MOST, CLIENTS, CLIENTS_DEFAULT, Class, Config, DEADLINE, HOLD, HOLD_ROUNDS, Import,
    LIMIT, LocalPorts, MEMORY, OVERDUE, PATIENCE, PORTS_MOST, PORTS_REMEDY, WINDOW, target,
};
use crate::network::Network;
use tarn_base::config::{ConfigError, NumberOrText, Reader, Section};
use tarn_base::time;

/// The default of `window`.
const WINDOW_DEFAULT: Duration = Duration::from_secs(10);
/// The default of `patience`, and the module's own,
const PATIENCE_DEFAULT: Duration = Duration::from_secs(2);
/// or as many times the longest deadline. Answers after that are not seen: a service whose answers take longer looks idle.
const PATIENCE_DEADLINES: u32 = 5;
/// The default of `memory`, in bytes.
const MEMORY_DEFAULT: u64 = 64 << 20;
/// The longest name of a class, in bytes.
const NAME_MAX: usize = 32;

/// Reads and validates the section.
///
/// # Errors
/// Every mistake found, in no particular order.
pub fn read(section: &Section<'_>) -> Result<Config, Vec<ConfigError>> {
    let written: WrittenSection = section.deserialize_whole()?;
    let mut reader = Reader::new(section);
    let of_all = written
        .deadline
        .as_ref()
        .map(|text| deadline(&mut reader, "deadline", text));
    let classes = classes(&mut reader, &written.class, of_all, written.ports.span());
    let longest = classes.iter().map(|class| class.deadline).max().unwrap_or_default();
    let patience = (longest * PATIENCE_DEADLINES).clamp(PATIENCE_DEFAULT, *PATIENCE.end());
    let patience = reader.time("patience", written.patience.as_ref(), patience, &PATIENCE);
    if let Some(text) = written.patience.as_ref().filter(|_| patience < longest) {
        let message = format!("{} is shorter than the longest deadline", text.get_ref());
        let remedy = format!("write at least {}, or leave it out", time::text(longest));
        reader.error(text.span(), "patience", message, remedy);
    }
    let config = Config {
        ports: ports(&mut reader, &written.ports),
        classes,
        rule: written.rule,
        limit: written.limit.map_or(0, |written| limit(&mut reader, &written)),
        window: reader.time("window", written.window.as_ref(), WINDOW_DEFAULT, &WINDOW),
        hold: reader.time("hold", written.hold.as_ref(), Duration::ZERO, &HOLD),
        hold_rounds: reader.number("hold_rounds", written.hold_rounds.as_ref(), 0, HOLD_ROUNDS),
        patience,
        overdue: overdue(&mut reader, written.overdue.as_ref()),
        memory: reader.size("memory", written.memory.as_ref(), MEMORY_DEFAULT, &MEMORY),
        max_clients: reader.number("max_clients", written.max_clients.as_ref(), CLIENTS_DEFAULT, CLIENTS),
        import: written
            .import
            .map(|found| import(&mut reader, &found, written.class.len())),
    };
    reader.finish(config)
}

fn deadline(reader: &mut Reader<'_>, key: &str, written: &Spanned<String>) -> Duration {
    reader.time(key, Some(written), *DEADLINE.end(), &DEADLINE)
}

/// Zero for `"auto"`, which is the default.
fn overdue(reader: &mut Reader<'_>, written: Option<&Spanned<String>>) -> Duration {
    let fixed = written.filter(|text| text.get_ref() != "auto");
    reader.time("overdue", fixed, Duration::ZERO, &OVERDUE)
}

fn limit(reader: &mut Reader<'_>, written: &Spanned<NumberOrText>) -> u32 {
    match written.get_ref() {
        NumberOrText::Text(text) if text == "auto" => return 0,
        NumberOrText::Number(number) if LIMIT.contains(number) => return u32::try_from(*number).unwrap_or(0),
        NumberOrText::Text(text) => {
            let remedy = "write \"auto\", or how many requests the service works on at a time";
            reader.error(written.span(), "limit", format!("'{text}' is no limit"), remedy);
        }
        NumberOrText::Number(number) => {
            let remedy = format!("write \"auto\", or {} to {}", LIMIT.start(), LIMIT.end());
            reader.error(written.span(), "limit", format!("{number} is out of range"), remedy);
        }
    }
    0
}

fn ports(reader: &mut Reader<'_>, written: &Spanned<Vec<Spanned<String>>>) -> Vec<LocalPorts> {
    let mut ports: Vec<LocalPorts> = Vec::new();
    for text in written.get_ref() {
        let Some(range) = reader.parse::<LocalPorts>("ports", text) else {
            continue;
        };
        if let Some(other) = ports.iter().find(|other| other.overlaps(&range)) {
            let message = format!("'{range}' and '{other}' have ports in common");
            reader.error(text.span(), "ports", message, "name each port once");
        }
        ports.push(range);
    }
    if written.get_ref().is_empty() {
        reader.error(written.span(), "ports", "no port is named", PORTS_REMEDY);
    }
    if ports.len() > PORTS_MOST {
        let message = format!("{} ranges of ports are more than {PORTS_MOST}", ports.len());
        reader.error(
            written.span(),
            "ports",
            message,
            "join those that lie side by side: \"tcp/8000-8100\"",
        );
    }
    ports
}

fn classes(
    reader: &mut Reader<'_>,
    written: &[WrittenClass],
    deadline: Option<Duration>,
    section: Range<usize>,
) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for written in written {
        classes.push(class(reader, written, deadline, &classes));
    }
    match written.get(CLASSES_MOST) {
        Some(first) => {
            let message = format!("{} classes are more than {CLASSES_MOST}", written.len());
            reader.error(first.name.span(), "class", message, "join some of them");
        }
        None if written.is_empty() => {
            let remedy = "add [[classes.class]] with name and target, best first; the last takes unknown clients";
            reader.error(section, "class", "there is no class", remedy);
        }
        None => {}
    }
    overlaps(reader, written);
    classes
}

fn class(reader: &mut Reader<'_>, written: &WrittenClass, deadline: Option<Duration>, before: &[Class]) -> Class {
    let name = written.name.get_ref();
    check_name(reader, &written.name, before);
    let percent = *written.target.get_ref();
    let target = target(percent).unwrap_or_else(|| {
        let remedy = "write the percent of answers to be in time: 0.01 to 100";
        reader.error(
            written.target.span(),
            "class.target",
            format!("{percent} is out of range"),
            remedy,
        );
        1
    });
    let own = written.deadline.as_ref();
    let own = own.map(|text| self::deadline(reader, "class.deadline", text));
    let deadline = own.or(deadline).unwrap_or_else(|| {
        let message = format!("class '{name}' has no deadline");
        let remedy = "add one, as in deadline = \"40ms\", here or below [classes] for every class";
        reader.error(written.name.span(), "class.deadline", message, remedy);
        *DEADLINE.end()
    });
    let networks = written.networks.iter();
    Class {
        name: name.clone(),
        target,
        deadline,
        cap: reader.number("class.cap", written.cap.as_ref(), CAP_DEFAULT, CAP),
        networks: networks
            .filter_map(|text| reader.parse("class.networks", text))
            .collect(),
    }
}

fn check_name(reader: &mut Reader<'_>, written: &Spanned<String>, before: &[Class]) {
    let name = written.get_ref();
    let is_plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    if name.is_empty()
        || name.len() > NAME_MAX
        || !name.chars().all(is_plain)
        || name.chars().all(|c| c.is_ascii_digit())
    {
        let remedy = format!("write letters, digits, - and _, at most {NAME_MAX}, and not digits alone");
        reader.error(
            written.span(),
            "class.name",
            format!("'{name}' cannot be a class's name"),
            remedy,
        );
    } else if before.iter().any(|class| class.name == *name) {
        let message = format!("there are two classes '{name}'");
        reader.error(written.span(), "class.name", message, "give each a name of its own");
    }
}

/// A client has one class, or an address one besides its network's: sorted, none must reach into the next one.
fn overlaps(reader: &mut Reader<'_>, written: &[WrittenClass]) {
    let mut all: Vec<(Network, Range<usize>)> = Vec::new();
    for text in written.iter().flat_map(|class| &class.networks) {
        all.extend(text.get_ref().parse().ok().map(|network| (network, text.span())));
    }
    all.sort_by_key(|(network, span)| (*network, span.start));
    let mut widest_of: [Option<(Network, Range<usize>)>; 2] = [None, None];
    for (network, span) in all {
        let widest = &mut widest_of[usize::from(network.is_one())];
        if let Some((other, place)) = widest.as_ref().filter(|(other, _)| other.overlaps(&network)) {
            let (later, earlier) = if span.start > place.start {
                (&span, place)
            } else {
                (place, &span)
            };
            let message = format!(
                "{network} and {other} have clients in common (line {})",
                reader.line(earlier.clone())
            );
            reader.error(later.clone(), "class.networks", message, "name each client once");
        }
        if widest
            .as_ref()
            .is_none_or(|(other, _)| !other.overlaps(&network) || other.last < network.last)
        {
            *widest = Some((network, span));
        }
    }
}

fn import(reader: &mut Reader<'_>, written: &WrittenImport, classes: usize) -> Import {
    let values = written.thresholds.get_ref();
    let span = written.thresholds.span();
    if values.len() + 1 != classes {
        let message = format!("{} thresholds do not part {classes} classes", values.len());
        let remedy = "write one for each class but the last, which takes the rest";
        reader.error(span.clone(), "import.thresholds", message, remedy);
    }
    if values.iter().any(|value| *value < 0) || !values.is_sorted_by(|a, b| a > b) {
        let remedy = "write the least value of each class, falling: [36, 12, 6, 3]";
        reader.error(
            span,
            "import.thresholds",
            "thresholds must fall, and not below 0",
            remedy,
        );
    }
    Import {
        by: written.by,
        thresholds: values.iter().filter_map(|value| u64::try_from(*value).ok()).collect(),
    }
}
