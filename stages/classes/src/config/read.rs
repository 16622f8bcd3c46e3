//! Judges a section, mistake by mistake.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;

use super::written::{NumberOrText, WrittenClass, WrittenImport, WrittenSection};
use super::{
    CAP, CAP_DEFAULT, CLASSES_MOST, CLIENTS, CLIENTS_DEFAULT, Class, Config, DEADLINE, HOLD, HOLD_ROUNDS, Import,
    LIMIT, MEMORY, PATIENCE, PORTS_MOST, PortRange, WINDOW, target,
};
use crate::network::Network;
use tarn_base::config::{ConfigError, Section};
use tarn_base::time;

/// The default of `window`.
const WINDOW_DEFAULT: Duration = Duration::from_secs(10);
/// The default of `patience`, and the module's own.
const PATIENCE_DEFAULT: Duration = Duration::from_secs(2);
/// The default of `memory`, in bytes.
const MEMORY_DEFAULT: u64 = 64 << 20;
/// The longest name of a class, in bytes.
const NAME_MAX: usize = 32;

pub fn read(section: &Section<'_>) -> Result<Config, Vec<ConfigError>> {
    let written: WrittenSection = section.deserialize_whole()?;
    let mut reader = Reader {
        section,
        errors: Vec::new(),
    };
    let deadline = written.deadline.map(|text| reader.time("deadline", &text, &DEADLINE));
    let config = Config {
        ports: reader.ports(&written.ports),
        classes: reader.classes(&written.class, deadline, written.ports.span()),
        rule: written.rule.into(),
        limit: written.limit.map_or(0, |limit| reader.limit(&limit)),
        window: reader.time_or("window", written.window, WINDOW_DEFAULT, &WINDOW),
        hold: reader.time_or("hold", written.hold, Duration::ZERO, &HOLD),
        hold_rounds: reader.number("hold_rounds", written.hold_rounds, 0, HOLD_ROUNDS),
        patience: reader.time_or("patience", written.patience, PATIENCE_DEFAULT, &PATIENCE),
        memory: written.memory.map_or(MEMORY_DEFAULT, |memory| reader.memory(&memory)),
        max_clients: reader.number("max_clients", written.max_clients, CLIENTS_DEFAULT, CLIENTS),
        import: written.import.map(|import| reader.import(&import, written.class.len())),
    };
    if reader.errors.is_empty() {
        Ok(config)
    } else {
        Err(reader.errors)
    }
}

struct Reader<'a> {
    section: &'a Section<'a>,
    errors: Vec<ConfigError>,
}

impl Reader<'_> {
    fn error(&mut self, span: Range<usize>, key: &str, message: impl Into<String>, remedy: impl Into<String>) {
        let error = self.section.error(span, key, message.into(), remedy.into());
        self.errors.push(error);
    }

    /// The line that a place is on.
    fn line(&self, span: Range<usize>) -> usize {
        self.section.error(span, "", String::new(), String::new()).line
    }

    fn time(&mut self, key: &str, written: &Spanned<String>, range: &RangeInclusive<Duration>) -> Duration {
        let remedy = format!("write {} to {}", time::text(*range.start()), time::text(*range.end()));
        match time::parse(written.get_ref()) {
            Ok(found) if range.contains(&found) => return found,
            Ok(_) => self.error(
                written.span(),
                key,
                format!("{} is out of range", written.get_ref()),
                remedy,
            ),
            Err(message) => self.error(written.span(), key, message, ""),
        }
        *range.end()
    }

    fn time_or(
        &mut self,
        key: &str,
        written: Option<Spanned<String>>,
        default: Duration,
        range: &RangeInclusive<Duration>,
    ) -> Duration {
        written.map_or(default, |text| self.time(key, &text, range))
    }

    fn number(&mut self, key: &str, written: Option<Spanned<i64>>, default: u32, range: RangeInclusive<i64>) -> u32 {
        let Some(written) = written else { return default };
        let number = *written.get_ref();
        if !range.contains(&number) {
            let remedy = format!("write {} to {}", range.start(), range.end());
            self.error(written.span(), key, format!("{number} is out of range"), remedy);
        }
        u32::try_from(number).unwrap_or(default)
    }

    fn limit(&mut self, written: &Spanned<NumberOrText>) -> u32 {
        match written.get_ref() {
            NumberOrText::Text(text) if text == "auto" => return 0,
            NumberOrText::Number(number) if LIMIT.contains(number) => return u32::try_from(*number).unwrap_or(0),
            NumberOrText::Text(text) => {
                let remedy = "write \"auto\", or how many requests the service works on at a time";
                self.error(written.span(), "limit", format!("'{text}' is no limit"), remedy);
            }
            NumberOrText::Number(number) => {
                let remedy = format!("write \"auto\", or {} to {}", LIMIT.start(), LIMIT.end());
                self.error(written.span(), "limit", format!("{number} is out of range"), remedy);
            }
        }
        0
    }

    fn memory(&mut self, written: &Spanned<NumberOrText>) -> u64 {
        let bytes = match written.get_ref() {
            NumberOrText::Number(number) => u64::try_from(*number).ok(),
            NumberOrText::Text(text) => size(text),
        };
        if let Some(bytes) = bytes.filter(|bytes| MEMORY.contains(bytes)) {
            return bytes;
        }
        let message = match written.get_ref() {
            NumberOrText::Text(text) if bytes.is_none() => format!("'{text}' is no size"),
            NumberOrText::Text(text) => format!("{text} is out of range"),
            NumberOrText::Number(number) => format!("{number} bytes are out of range"),
        };
        self.error(
            written.span(),
            "memory",
            message,
            "write \"64KiB\" to \"4GiB\", or the bytes as a number",
        );
        MEMORY_DEFAULT
    }

    fn ports(&mut self, written: &Spanned<Vec<Spanned<String>>>) -> Vec<PortRange> {
        const REMEDY: &str = "write \"tcp/80\", \"udp/53\" or \"tcp/8000-8100\"";
        let mut ports: Vec<PortRange> = Vec::new();
        for text in written.get_ref() {
            match text.get_ref().parse::<PortRange>() {
                Err(message) => self.error(text.span(), "ports", message, REMEDY),
                Ok(range) => {
                    if let Some(other) = ports.iter().find(|other| other.overlaps(&range)) {
                        let message = format!("'{range}' and '{other}' have ports in common");
                        self.error(text.span(), "ports", message, "name each port once");
                    }
                    ports.push(range);
                }
            }
        }
        if written.get_ref().is_empty() {
            self.error(written.span(), "ports", "no port is named", REMEDY);
        }
        if ports.len() > PORTS_MOST {
            let message = format!("{} ranges of ports are more than {PORTS_MOST}", ports.len());
            self.error(
                written.span(),
                "ports",
                message,
                "join those that lie side by side: \"tcp/8000-8100\"",
            );
        }
        ports
    }

    fn classes(&mut self, written: &[WrittenClass], deadline: Option<Duration>, section: Range<usize>) -> Vec<Class> {
        let mut classes: Vec<Class> = Vec::new();
        for class in written {
            let class = self.class(class, deadline, &classes);
            classes.push(class);
        }
        match written.get(CLASSES_MOST) {
            Some(first) => {
                let message = format!("{} classes are more than {CLASSES_MOST}", written.len());
                self.error(first.name.span(), "class", message, "join some of them");
            }
            None if written.is_empty() => {
                let remedy = "add [[classes.class]] with name and target, best first; the last takes unknown clients";
                self.error(section, "class", "there is no class", remedy);
            }
            None => {}
        }
        self.overlaps(written);
        classes
    }

    fn class(&mut self, written: &WrittenClass, deadline: Option<Duration>, before: &[Class]) -> Class {
        let name = written.name.get_ref();
        self.name(&written.name, before);
        let percent = *written.target.get_ref();
        let target = target(percent).unwrap_or_else(|| {
            let remedy = "write the percent of answers to be in time: 0.01 to 100";
            self.error(
                written.target.span(),
                "class.target",
                format!("{percent} is out of range"),
                remedy,
            );
            1
        });
        let own = written
            .deadline
            .as_ref()
            .map(|text| self.time("class.deadline", text, &DEADLINE));
        let deadline = own.or(deadline).unwrap_or_else(|| {
            let message = format!("class '{name}' has no deadline");
            let remedy = "add one, as in deadline = \"40ms\", here or below [classes] for every class";
            self.error(written.name.span(), "class.deadline", message, remedy);
            *DEADLINE.end()
        });
        Class {
            name: name.clone(),
            target,
            deadline,
            cap: self.number("class.cap", written.cap.clone(), CAP_DEFAULT, CAP),
            networks: written.networks.iter().filter_map(|text| self.network(text)).collect(),
        }
    }

    fn name(&mut self, written: &Spanned<String>, before: &[Class]) {
        let name = written.get_ref();
        let is_plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        if name.is_empty()
            || name.len() > NAME_MAX
            || !name.chars().all(is_plain)
            || name.chars().all(|c| c.is_ascii_digit())
        {
            let remedy = format!("write letters, digits, - and _, at most {NAME_MAX}, and not digits alone");
            self.error(
                written.span(),
                "class.name",
                format!("'{name}' cannot be a class's name"),
                remedy,
            );
        } else if before.iter().any(|class| class.name == *name) {
            let message = format!("there are two classes '{name}'");
            self.error(written.span(), "class.name", message, "give each a name of its own");
        }
    }

    fn network(&mut self, written: &Spanned<String>) -> Option<Network> {
        let parsed = written.get_ref().parse::<Network>();
        parsed
            .map_err(|wrong| self.error(written.span(), "class.networks", wrong.message, wrong.remedy))
            .ok()
    }

    /// A client has one class, or an address one besides its network's: sorted, none must reach into the next one.
    fn overlaps(&mut self, written: &[WrittenClass]) {
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
                    self.line(earlier.clone())
                );
                self.error(later.clone(), "class.networks", message, "name each client once");
            }
            if widest
                .as_ref()
                .is_none_or(|(other, _)| !other.overlaps(&network) || other.last < network.last)
            {
                *widest = Some((network, span));
            }
        }
    }

    fn import(&mut self, written: &WrittenImport, classes: usize) -> Import {
        let values: Vec<i64> = written
            .thresholds
            .get_ref()
            .iter()
            .map(|value| *value.get_ref())
            .collect();
        let span = written.thresholds.span();
        if values.len() + 1 != classes {
            let message = format!("{} thresholds do not part {classes} classes", values.len());
            let remedy = "write one for each class but the last, which takes the rest";
            self.error(span.clone(), "import.thresholds", message, remedy);
        }
        if values.iter().any(|value| *value < 0) || !values.is_sorted_by(|a, b| a > b) {
            let remedy = "write the least value of each class, falling: [36, 12, 6, 3]";
            self.error(
                span,
                "import.thresholds",
                "thresholds must fall, and not below 0",
                remedy,
            );
        }
        Import {
            by: written.by,
            thresholds: values
                .into_iter()
                .filter_map(|value| u64::try_from(value).ok())
                .collect(),
        }
    }
}

/// `64MiB` in bytes.
fn size(text: &str) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let shift = [("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30)]
        .into_iter()
        .find(|(name, _)| *name == unit.trim())?
        .1;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}
