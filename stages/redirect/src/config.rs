//! The section `[redirect]` of `tarn.toml`.
//!
//! ```toml
//! [redirect]
//! mode = "auto"        # or "bpf", "nftables"
//! deliver = "auto"     # how BPF delivers: or "tc", "redirect"
//! devices = "all"      # or ["eth0", "eth1"]
//! max_rules = 65536    # up to 4194304
//! flows = 262144       # 1024 to 16777216
//!
//! [[redirect.rule]]
//! protocol = "udp"                # or "tcp", or ["tcp", "udp"]
//! from = "192.168.64.2:8080"      # 0.0.0.0:8080 and [::]:8080: any address of this host
//! to = "10.0.1.2:8083"
//! source = "10.0.0.0/8"           # only these senders
//! note = "the new server"
//! over_listeners = false         # also ports of the range that programs of this host listen on
//! ```

use std::collections::HashSet;
use std::fmt;
use std::ops::{Range, RangeInclusive};

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;

use super::devices::Devices;
use super::overlap::{self, Kind};
use super::parse::{self, Field, Written};
use super::rule::{Match, Origin, Rule};
use super::store::{LIMIT_DEFAULT, LIMIT_MAX};
use tarn_base::config::{ConfigError, Reader, Section};

/// The default of `flows`.
pub const FLOWS_DEFAULT: u32 = 262_144;
const FLOWS: RangeInclusive<i64> = 1024..=16_777_216;

/// A valid section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Which carrier.
    pub mode: Mode,
    /// How the carrier `bpf` delivers.
    pub deliver: Deliver,
    /// The devices that packets to be redirected come in by.
    pub devices: Devices,
    /// The most rules, command-added ones included.
    pub max_rules: u32,
    /// The most flows remembered for replies, in entries.
    pub flows: u32,
    /// The rules, one a protocol; ids are not given yet.
    pub rules: Vec<Rule>,
    /// What those match that may take ports that programs of this host listen on.
    pub over_listeners: HashSet<Match>,
}

/// Which carrier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// The best that this host supports.
    #[default]
    Auto,
    /// BPF programs.
    Bpf,
    /// Destination NAT.
    Nftables,
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "auto" => Ok(Self::Auto),
            "bpf" => Ok(Self::Bpf),
            "nftables" => Ok(Self::Nftables),
            "xdp" => Err(D::Error::custom(
                "`xdp` has another name now, as it does not need XDP; write \"bpf\"",
            )),
            other => Err(D::Error::unknown_variant(other, &["auto", "bpf", "nftables"])),
        }
    }
}

/// How the carrier `bpf` hands a packet on to the outgoing device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Deliver {
    /// From tc: the cheapest on every host, see the figures in the stage's README.
    #[default]
    Tc,
    /// From XDP.
    Redirect,
}

impl Deliver {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tc => "tc",
            Self::Redirect => "redirect",
        }
    }
}

/// As it is written: `None` leaves the choice to tarn.
struct WrittenDeliver(Option<Deliver>);

impl<'de> Deserialize<'de> for WrittenDeliver {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const FORMER: &str =
            "`pass` was removed, as routing without tarn was faster; leave this key out, or write \"tc\"";
        match String::deserialize(deserializer)?.as_str() {
            "auto" => Ok(Self(None)),
            "tc" => Ok(Self(Some(Deliver::Tc))),
            "redirect" => Ok(Self(Some(Deliver::Redirect))),
            "pass" => Err(D::Error::custom(FORMER)),
            other => Err(D::Error::unknown_variant(other, &["auto", "tc", "redirect"])),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSection {
    #[serde(default)]
    mode: Mode,
    deliver: Option<Spanned<WrittenDeliver>>,
    devices: Option<Spanned<Words>>,
    max_rules: Option<Spanned<i64>>,
    flows: Option<Spanned<i64>>,
    #[serde(default)]
    rule: Vec<WrittenRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    protocol: Spanned<Words>,
    from: Spanned<String>,
    to: Spanned<String>,
    source: Option<Spanned<String>>,
    note: Option<Spanned<String>>,
    #[serde(default)]
    over_listeners: bool,
}

/// One word or a list of words.
struct Words {
    list: bool,
    words: Vec<String>,
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Words;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or a list of strings")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Words, E> {
                Ok(Words {
                    list: false,
                    words: vec![word.to_owned()],
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(Words { list: true, words })
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

/// Reads and validates the section.
///
/// # Errors
/// Every mistake found, in no particular order.
pub fn read(section: &Section<'_>) -> Result<Config, Vec<ConfigError>> {
    let written: WrittenSection = section.deserialize_whole()?;
    let mut sections = SectionReader {
        reader: Reader::new(section),
        rules: Vec::new(),
        over_listeners: HashSet::new(),
        places: Vec::new(),
    };
    let deliver = sections.deliver(written.mode, written.deliver);
    let devices = written
        .devices
        .map(|devices| sections.devices(&devices))
        .unwrap_or_default();
    let max_rules = written.max_rules.as_ref();
    let max_rules = sections
        .reader
        .number("max_rules", max_rules, LIMIT_DEFAULT, 1..=i64::from(LIMIT_MAX));
    let flows = sections
        .reader
        .number("flows", written.flows.as_ref(), FLOWS_DEFAULT, FLOWS);
    written.rule.iter().for_each(|rule| sections.rule(rule));
    sections.conflicts();
    sections.count(max_rules);
    let SectionReader {
        reader,
        rules,
        over_listeners,
        ..
    } = sections;
    reader.finish(Config {
        mode: written.mode,
        deliver,
        devices,
        max_rules,
        flows,
        rules,
        over_listeners,
    })
}

struct SectionReader<'a> {
    reader: Reader<'a>,
    rules: Vec<Rule>,
    over_listeners: HashSet<Match>,
    /// Where `from` and `to` of each rule stand.
    places: Vec<(Range<usize>, Range<usize>)>,
}

impl SectionReader<'_> {
    fn deliver(&mut self, mode: Mode, written: Option<Spanned<WrittenDeliver>>) -> Deliver {
        let Some(written) = written else {
            return Deliver::default();
        };
        let (span, WrittenDeliver(deliver)) = (written.span(), written.into_inner());
        if mode == Mode::Nftables && deliver.is_some() {
            let message = "mode = \"nftables\" leaves delivery to the kernel's routing".to_owned();
            self.reader
                .error(span, "deliver", message, "leave this key out, or choose mode = \"bpf\"");
        }
        deliver.unwrap_or_default()
    }

    fn devices(&mut self, written: &Spanned<Words>) -> Devices {
        let Words { list, words } = written.get_ref();
        if !list && words[0] == "all" {
            return Devices::All;
        }
        if words.is_empty() {
            let remedy = "name one, as in [\"eth0\"], or write \"all\"";
            self.reader
                .error(written.span(), "devices", "no device is named", remedy);
        }
        for (number, name) in words.iter().enumerate() {
            self.reader.device("devices", written.span(), name);
            if words[..number].contains(name) {
                let message = format!("'{name}' is named twice");
                self.reader
                    .error(written.span(), "devices", message, "name each device once");
            }
        }
        Devices::Named(words.clone())
    }

    fn rule(&mut self, written: &WrittenRule) {
        let protocols: Vec<&str> = written.protocol.get_ref().words.iter().map(String::as_str).collect();
        let parsed = parse::rules(
            &Written {
                protocols: &protocols,
                from: written.from.get_ref(),
                to: written.to.get_ref(),
                source: written.source.as_ref().map(|source| source.get_ref().as_str()),
                note: written.note.as_ref().map(|note| note.get_ref().as_str()),
            },
            Origin::Config,
        );
        match parsed {
            Ok(rules) => {
                self.places
                    .resize(self.rules.len() + rules.len(), (written.from.span(), written.to.span()));
                if written.over_listeners {
                    self.over_listeners.extend(rules.iter().map(Rule::matched));
                }
                self.rules.extend(rules);
            }
            Err(mistakes) => {
                for mistake in mistakes {
                    let key = format!("rule.{}", mistake.field);
                    self.reader
                        .error(written.span_of(mistake.field), &key, mistake.message, mistake.remedy);
                }
            }
        }
    }

    /// Rules that cannot stand together, each with the line of the other.
    fn conflicts(&mut self) {
        for conflict in overlap::conflicts(&self.rules) {
            let place = |index: usize| format!("line {}", self.reader.line(self.places[index].0.clone()));
            let (message, remedy) = conflict.describe(&self.rules, place);
            let (from, to) = self.places[conflict.rule].clone();
            let (span, key) = if conflict.kind == Kind::Chain {
                (to, "rule.to")
            } else {
                (from, "rule.from")
            };
            self.reader.error(span, key, message, remedy);
        }
    }

    fn count(&mut self, max_rules: u32) {
        let Some((from, _)) = self.places.get(max_rules as usize) else {
            return;
        };
        let message = format!(
            "{} rules are more than max_rules = {max_rules} allows",
            self.rules.len()
        );
        let remedy = format!("set max_rules to {} or more, at most {LIMIT_MAX}", self.rules.len());
        self.reader.error(from.clone(), "rule.from", message, remedy);
    }
}

impl WrittenRule {
    fn span_of(&self, field: Field) -> Range<usize> {
        let optional = |part: &Option<Spanned<String>>| part.as_ref().map_or(self.from.span(), Spanned::span);
        match field {
            Field::Protocol => self.protocol.span(),
            Field::From => self.from.span(),
            Field::To => self.to.span(),
            Field::Source => optional(&self.source),
            Field::Note => optional(&self.note),
        }
    }
}

#[cfg(test)]
mod tests;
