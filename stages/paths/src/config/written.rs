//! The section as it is written, before it is judged.

use serde::Deserialize;
use toml::Spanned;

use crate::judge::{Measure, Policy};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenSection {
    #[serde(default)]
    pub policy: Policy,
    #[serde(default)]
    pub measure: Measure,
    pub load_gain: Option<Spanned<i64>>,
    pub rate: Option<Spanned<i64>>,
    pub memory: Option<Spanned<String>>,
    pub margin: Option<Spanned<f64>>,
    pub hold: Option<Spanned<String>>,
    pub stay: Option<Spanned<String>>,
    pub back_after: Option<Spanned<String>>,
    pub reset_after: Option<Spanned<String>>,
    pub timeout: Option<Spanned<String>>,
    pub mark_mask: Option<Spanned<i64>>,
    pub rule_priority: Option<Spanned<i64>>,
    #[serde(default)]
    pub tcp: bool,
    pub group: Spanned<Vec<WrittenGroup>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenGroup {
    pub to: Spanned<String>,
    pub metric: Option<Spanned<i64>>,
    #[serde(default)]
    pub targets: Vec<Spanned<String>>,
    #[serde(default)]
    pub pin: WrittenPin,
    #[serde(default)]
    pub adopt: bool,
    pub uplink: Option<Spanned<Vec<WrittenUplink>>>,
}

/// Whether connections stay on their uplinks.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(untagged, expecting = "expected true, false or \"auto\"")]
pub enum WrittenPin {
    /// They do, or not.
    Said(bool),
    /// They do where addresses are translated.
    Found(Auto),
}

/// The word for it.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    Auto,
}

impl Default for WrittenPin {
    fn default() -> Self {
        Self::Found(Auto::Auto)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenUplink {
    pub device: Spanned<String>,
    pub gateway: Option<Spanned<String>>,
    #[serde(default)]
    pub onlink: bool,
    pub cost: Option<Spanned<i64>>,
    #[serde(default)]
    pub metered: bool,
    pub targets: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    pub prefixes: Vec<Spanned<String>>,
}
