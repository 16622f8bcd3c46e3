//! Reads the section, and finds every mistake in it.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::{Config, DESTINATIONS_MOST, Fq, GROUPS_MOST, Values};
use crate::parameters::{PARAMETERS, RESPONSES};
use tarn_base::config::{ConfigError, Reader, Section, suggestion};
use tarn_base::network::Prefix;

/// The section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    r#for: Option<Spanned<Words>>,
    #[serde(default)]
    cgroups: Vec<Spanned<String>>,
    existing: Option<Spanned<bool>>,
    fq: Option<Spanned<Words>>,
    response: Option<Spanned<String>>,
    drop_below: Number,
    queue_margin: Number,
    queue_rise: Number,
    drain_gain: Number,
    window_gain: Number,
    probe_window_gain: Number,
    competing_window_gain: Number,
    competing_above: Number,
    loss_share: Number,
    probe_packets: Number,
    bw_delta_alpha: Number,
    bw_delta_ceiling: Number,
    bw_delta_floor: Number,
}

type Number = Option<Spanned<i64>>;

/// A word, or a list.
enum Words {
    One(String),
    List(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Words;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text in quotes, or a list of them")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Words, E> {
                Ok(Words::One(word.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(Words::List(words))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

impl Written {
    /// The numbers in the order of [`PARAMETERS`].
    fn numbers(&self) -> [&Number; PARAMETERS.len()] {
        [
            &self.drop_below,
            &self.queue_margin,
            &self.queue_rise,
            &self.drain_gain,
            &self.window_gain,
            &self.probe_window_gain,
            &self.competing_window_gain,
            &self.competing_above,
            &self.loss_share,
            &self.probe_packets,
            &self.bw_delta_alpha,
            &self.bw_delta_ceiling,
            &self.bw_delta_floor,
        ]
    }
}

/// Reads and validates the section.
///
/// # Errors
/// Every mistake found, in no particular order.
pub fn read(section: &Section<'_>) -> Result<Config, Vec<ConfigError>> {
    let written: Written = section.deserialize_whole()?;
    let mut reader = Reader::new(section);
    let mut config = Config {
        groups: groups(&mut reader, &written.cgroups),
        fq: written.fq.as_ref().map_or(Fq::Auto, |fq| self::fq(&mut reader, fq)),
        response: written.response.as_ref().map_or(0, |name| response(&mut reader, name)),
        values: values(&mut reader, &written),
        ..Config::default()
    };
    if let Some(reach) = &written.r#for {
        match reach.get_ref() {
            Words::One(word) if word == "all" => config.everybody = true,
            Words::One(word) => {
                let message = format!("'{word}' does not say which connections are meant");
                let remedy = "write \"all\", or a list of destinations: [\"198.51.100.0/24\"]";
                reader.error(reach.span(), "for", message, remedy);
            }
            Words::List(list) => config.destinations = destinations(&mut reader, reach.span(), list),
        }
    }
    if let Some(existing) = written.existing.filter(|existing| *existing.get_ref()) {
        config.existing = true;
        if written.r#for.is_none() {
            let message = "true has no effect without `for`";
            let remedy = "add `for`, which says which open connections are meant, or leave `existing` out";
            reader.error(existing.span(), "existing", message, remedy);
        }
    }
    reader.finish(config)
}

fn values(reader: &mut Reader<'_>, written: &Written) -> Values {
    let mut values = Values::default();
    for (parameter, number) in PARAMETERS.iter().zip(written.numbers()) {
        let range = i64::from(*parameter.range.start())..=i64::from(*parameter.range.end());
        let value = reader.number(parameter.name, number.as_ref(), parameter.default, range);
        values.set(parameter, value);
    }
    values
}

fn response(reader: &mut Reader<'_>, written: &Spanned<String>) -> u32 {
    let name = written.get_ref();
    let found = RESPONSES.iter().find(|(known, _)| known == name);
    found.map_or_else(
        || {
            let names = RESPONSES.map(|(name, _)| name);
            let remedy = format!("write one of {}{}", names.join(", "), suggestion(name, &names));
            reader.error(
                written.span(),
                "response",
                format!("there is no response '{name}'"),
                remedy,
            );
            0
        },
        |(_, number)| *number,
    )
}

fn fq(reader: &mut Reader<'_>, written: &Spanned<Words>) -> Fq {
    let span = written.span();
    match written.get_ref() {
        Words::One(word) if word == "auto" => Fq::Auto,
        Words::One(word) if word == "off" => Fq::Off,
        Words::One(word) => {
            let message = format!("'{word}' does not say which devices are meant");
            let remedy = "write \"auto\", \"off\", or a list of devices: [\"eth0\"]";
            reader.error(span, "fq", message, remedy);
            Fq::Auto
        }
        Words::List(names) if names.is_empty() => {
            reader.error(span, "fq", "no device is named", "write \"off\", or leave the key out");
            Fq::Off
        }
        Words::List(names) => {
            for name in names {
                reader.device("fq", name.span(), name.get_ref());
            }
            Fq::Devices(names.iter().map(|name| name.get_ref().clone()).collect())
        }
    }
}

/// Destinations in the order of the file, each of them once.
fn destinations(reader: &mut Reader<'_>, span: Range<usize>, written: &[Spanned<String>]) -> Vec<Prefix> {
    if written.is_empty() {
        reader.error(
            span,
            "for",
            "no destination is named",
            "write \"all\", or leave the key out",
        );
    }
    if let Some(first) = written.get(DESTINATIONS_MOST) {
        let message = format!("{} destinations are more than {DESTINATIONS_MOST}", written.len());
        reader.error(
            first.span(),
            "for",
            message,
            "write a prefix that contains some of them",
        );
    }
    let mut known = BTreeSet::new();
    let mut destinations = Vec::new();
    for text in written {
        let Some(prefix) = reader.parse::<Prefix>("for", text) else {
            continue;
        };
        if known.insert(prefix) {
            destinations.push(prefix);
        } else {
            let message = format!("{prefix} is named twice");
            reader.error(text.span(), "for", message, "leave one of them out");
        }
    }
    destinations
}

/// Groups by their paths below the root, which are made of names alone.
fn groups(reader: &mut Reader<'_>, written: &[Spanned<String>]) -> Vec<PathBuf> {
    let mut groups: Vec<PathBuf> = Vec::new();
    for text in written {
        let path = Path::new(text.get_ref().trim_start_matches('/'));
        let named = path.components().all(|part| matches!(part, Component::Normal(_)));
        if path.as_os_str().is_empty() || !named {
            let message = format!("'{}' is no control group", text.get_ref());
            let remedy = "write its path below /sys/fs/cgroup: \"system.slice/backup.service\"";
            reader.error(text.span(), "cgroups", message, remedy);
        } else if groups.iter().any(|known| known == path) {
            let message = format!("'{}' is named twice", text.get_ref());
            reader.error(text.span(), "cgroups", message, "leave one of them out");
        } else {
            groups.push(path.to_owned());
        }
    }
    if let Some(first) = written.get(GROUPS_MOST) {
        let message = format!("{} groups are more than {GROUPS_MOST}", written.len());
        reader.error(
            first.span(),
            "cgroups",
            message,
            "name a group that contains some of them",
        );
    }
    groups
}
