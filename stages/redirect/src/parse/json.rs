//! Rules as JSON: what `rules.jsonl` and `--json` hold. The ends are texts, as people write them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::Written;
use crate::rule::{Origin, Protocol, Rule};

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = WrittenRule {
            id: self.id,
            protocol: self.protocol,
            from: self.match_text(),
            to: self.target_text(),
            source: self.source.map(|prefix| prefix.to_string()),
            origin: self.origin,
            note: self.note.clone(),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = WrittenRule::deserialize(deserializer)?;
        let rule = Written {
            protocols: &[written.protocol.name()],
            from: &written.from,
            to: &written.to,
            source: written.source.as_deref(),
            note: written.note.as_deref(),
        };
        let rules = super::rules(&rule, written.origin).unwrap_or_default();
        let rule = rules
            .into_iter()
            .next()
            .ok_or_else(|| D::Error::custom("not a valid rule"))?;
        Ok(Rule { id: written.id, ..rule })
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
