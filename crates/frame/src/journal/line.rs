//! The journal's lines, as written and read.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Change;

/// The version of the format. A journal of a later one is refused.
pub const FORMAT: u32 = 1;

/// The first line: who wrote the journal, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub format: u32,
    pub tarn: String,
    pub boot: String,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Line {
    Header(Header),
    Begin {},
    Complete {},
    Change(Entry),
    Undone { id: u64 },
    Superseded { id: u64, by: u64 },
}

/// A change that stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub id: u64,
    pub stage: String,
    pub change: Change,
    /// Made after an `up` that was interrupted, and not by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
}

/// What a line turned out to be.
#[derive(Debug)]
pub enum Parsed {
    Line(Line),
    /// No JSON: written in part.
    Torn,
    /// JSON that this version does not understand, and why.
    Unknown(String),
}

/// Reads a line, its line break included.
pub fn parse(raw: &[u8]) -> Parsed {
    let Ok(value) = serde_json::from_slice::<Value>(raw) else {
        return Parsed::Torn;
    };
    let format = value.pointer("/header/format").and_then(Value::as_u64);
    if let Some(format) = format.filter(|format| *format != u64::from(FORMAT)) {
        return Parsed::Unknown(format!("its format {format} is not known here"));
    }
    match serde_json::from_value(value) {
        Ok(line) => Parsed::Line(line),
        Err(error) => Parsed::Unknown(error.to_string()),
    }
}

/// A line as bytes, its line break included.
pub fn render(line: &Line) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line).context("cannot write a change as JSON")?;
    bytes.push(b'\n');
    Ok(bytes)
}
