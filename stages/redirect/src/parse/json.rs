//! Rules as JSON: what `rules.jsonl` and `--json` hold. The ends are texts, as people write them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::Mistake;
use crate::rule::{Origin, Protocol, Rule};

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenRule::from(self.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Rule::try_from(WrittenRule::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// A rule's JSON form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    id: u32,
    protocol: Protocol,
    from: String,
    to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    origin: Origin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl From<Rule> for WrittenRule {
    fn from(rule: Rule) -> Self {
        WrittenRule {
            id: rule.id,
            protocol: rule.protocol,
            from: rule.match_text(),
            to: rule.target_text(),
            source: rule.source.map(|prefix| prefix.to_string()),
            origin: rule.origin,
            note: rule.note,
        }
    }
}

impl TryFrom<WrittenRule> for Rule {
    type Error = Mistake;

    fn try_from(written: WrittenRule) -> Result<Self, Mistake> {
        let source = written.source.as_deref().map(super::source).transpose()?.flatten();
        let (address, ports) = super::from(&written.from)?;
        let (to, to_ports) = super::to(&written.to)?;
        let rule = Rule {
            id: written.id,
            protocol: written.protocol,
            source,
            address,
            ports,
            to,
            to_ports: to_ports.unwrap_or(ports),
            origin: written.origin,
            note: written.note,
        };
        super::agree(&rule)?;
        Ok(rule)
    }
}
