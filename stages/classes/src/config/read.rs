//! Judges a section, mistake by mistake.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::networks::networks;
use super::services::{Found, services};
use super::written::{WrittenClass, WrittenImport, WrittenSection};
use super::{
    CAP, CAP_DEFAULT, CLASSES_MOST, CLIENTS, CLIENTS_DEFAULT, Class, Config, HOLD, HOLD_ROUNDS, Import, MEMORY, WINDOW,
    target,
};
use crate::network::Network;
use tarn_base::config::{ConfigError, Reader, Section};

/// The default of `window`.
const WINDOW_DEFAULT: Duration = Duration::from_secs(10);
/// The default of `memory`, in bytes.
const MEMORY_DEFAULT: u64 = 64 << 20;
/// The longest name of a class, in bytes.
const NAME_MAX: usize = 32;

/// Reads and validates the section.
///
/// # Errors
/// Every mistake found, in no particular order.
pub fn read(section: &Section<'_>) -> Result<Config, Vec<ConfigError>> {
    let written: Spanned<WrittenSection> = section.deserialize_whole()?;
    let mut reader = Reader::new(section);
    let (place, written) = (written.span(), written.into_inner());
    let max_clients = reader.number("max_clients", written.max_clients.as_ref(), CLIENTS_DEFAULT, CLIENTS);
    let (networks, count) = networks(&mut reader, &written.class);
    let is_right = |written: &Spanned<i64>| CLIENTS.contains(written.get_ref());
    if written.max_clients.as_ref().is_none_or(is_right) && count > max_clients as usize {
        let span = written.max_clients.as_ref().map_or(place.clone(), Spanned::span);
        let message = format!("{count} networks of clients are named, and there may be {max_clients}");
        reader.error(span, "max_clients", message, "raise it");
    }
    let classes = classes(&mut reader, &written.class, networks, place.clone());
    let Found {
        services,
        proxied,
        shares_limit,
    } = services(&mut reader, &written);
    if written.service.is_empty() && written.ports.is_none() {
        let remedy = "add [[classes.service]] with its ports, as in ports = [\"tcp/80\"]";
        reader.error(place, "service", "there is no service", remedy);
    }
    let config = Config {
        services,
        proxied,
        shares_limit,
        classes,
        rule: written.rule,
        window: reader.time("window", written.window.as_ref(), WINDOW_DEFAULT, &WINDOW),
        hold: reader.time("hold", written.hold.as_ref(), Duration::ZERO, &HOLD),
        hold_rounds: reader.number("hold_rounds", written.hold_rounds.as_ref(), 0, HOLD_ROUNDS),
        memory: reader.size("memory", written.memory.as_ref(), MEMORY_DEFAULT, &MEMORY),
        max_clients,
        import: written
            .import
            .map(|found| import(&mut reader, &found, written.class.len())),
    };
    reader.finish(config)
}

fn classes(
    reader: &mut Reader<'_>,
    written: &[WrittenClass],
    networks: Vec<Vec<Network>>,
    section: Range<usize>,
) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for (written, networks) in written.iter().zip(networks) {
        classes.push(class(reader, written, networks, &classes));
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
    classes
}

fn class(reader: &mut Reader<'_>, written: &WrittenClass, networks: Vec<Network>, before: &[Class]) -> Class {
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
    Class {
        name: name.clone(),
        target,
        cap: reader.number("class.cap", written.cap.as_ref(), CAP_DEFAULT, CAP),
        networks,
    }
}

fn check_name(reader: &mut Reader<'_>, written: &Spanned<String>, before: &[Class]) {
    let name = written.get_ref();
    if check_plain(reader, "class.name", written, "a class's name") && before.iter().any(|class| class.name == *name) {
        let message = format!("there are two classes '{name}'");
        reader.error(written.span(), "class.name", message, "give each a name of its own");
    }
}

/// Whether it can be a name on the command line and in figures; `what` is what it would be.
pub(super) fn check_plain(reader: &mut Reader<'_>, key: &str, written: &Spanned<String>, what: &str) -> bool {
    let name = written.get_ref();
    let is_plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let is_number = name.chars().all(|c| c.is_ascii_digit());
    if !is_number && name.len() <= NAME_MAX && name.chars().all(is_plain) {
        return true;
    }
    let remedy = format!("write letters, digits, - and _, at most {NAME_MAX}, and not digits alone");
    reader.error(written.span(), key, format!("'{name}' cannot be {what}"), remedy);
    false
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
