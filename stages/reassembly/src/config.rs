//! The section `[reassembly]` of `tarn.toml`.
//!
//! ```toml
//! [reassembly]
//! memory = "4MiB"        # that held fragments take at most; default net.ipv4.ipfrag_high_thresh
//! timeout = "30s"        # IPv4 and IPv6; default net.ipv4.ipfrag_time and net.ipv6.ip6frag_time
//! share = "1/8"          # of a full memory, that one source has at most
//! datagrams = "auto"     # or "host", "all"
//! ```

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::defaults::Defaults;
use super::module::{Datagrams, MEMORY, SHARE, Settings, TIMEOUT};
use tarn_base::config::{ConfigError, NumberOrText, Reader, Section, suggestion};
use tarn_base::wrong::Wrong;
use tarn_base::{size, time};

/// The default of `share`, and the module's own.
const SHARE_DEFAULT: u32 = 8;

/// A valid section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// In bytes; `None` for the kernel's.
    pub memory: Option<u64>,
    /// Of both families; `None` for the kernel's.
    pub timeout: Option<Duration>,
    /// A source has 1/`share` of a full memory.
    pub share: u32,
    /// Whose datagrams.
    pub datagrams: Datagrams,
}

/// The section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    memory: Option<Spanned<NumberOrText>>,
    timeout: Option<Spanned<String>>,
    share: Option<Spanned<String>>,
    #[serde(default)]
    datagrams: Datagrams,
}

/// Reads and validates the section.
///
/// # Errors
/// Every mistake found, in no particular order.
pub fn read(section: &Section<'_>) -> Result<Config, Vec<ConfigError>> {
    let written: Written = section.deserialize_whole()?;
    let mut reader = Reader::new(section);
    let size = |written| reader.size("memory", Some(written), *MEMORY.start(), &MEMORY);
    let memory = written.memory.as_ref().map(size);
    let keep = |text: &Spanned<String>| reader.keep("timeout", text.span(), timeout(text.get_ref()));
    let timeout = written.timeout.as_ref().and_then(keep);
    let keep = |text: &Spanned<String>| reader.keep("share", text.span(), share(text.get_ref()));
    let share = written.share.as_ref().and_then(keep);
    reader.finish(Config {
        memory,
        timeout,
        share: share.unwrap_or(SHARE_DEFAULT),
        datagrams: written.datagrams,
    })
}

impl Config {
    /// As the module takes it, with the kernel's own values for what is left out.
    pub fn settings(&self, defaults: &Defaults) -> Settings {
        Settings {
            memory: self.memory.unwrap_or(defaults.memory),
            share: self.share,
            timeout4: self.timeout.unwrap_or(defaults.timeout4),
            timeout6: self.timeout.unwrap_or(defaults.timeout6),
            datagrams: self.datagrams,
        }
    }
}

/// Reads the memory, in bytes.
///
/// # Errors
/// What is wrong, and what would be right; so for all others.
pub fn memory(text: &str) -> Result<u64, Wrong> {
    size::parse(text, &MEMORY)
}

/// Reads a timeout.
///
/// # Errors
/// See [`memory`].
pub fn timeout(text: &str) -> Result<Duration, Wrong> {
    let found = time::parse(text)?;
    if TIMEOUT.contains(&found) {
        return Ok(found);
    }
    let (least, most) = (time::text(*TIMEOUT.start()), time::text(*TIMEOUT.end()));
    let remedy = format!("write {least} to {most}");
    Err(Wrong::new(format!("{text} is out of range"), remedy))
}

/// Reads a share, as its denominator.
///
/// # Errors
/// See [`memory`].
pub fn share(text: &str) -> Result<u32, Wrong> {
    let remedy = || format!("write \"1/{}\" to \"1/{}\"", SHARE.start(), SHARE.end());
    let parts = text.split_once('/').filter(|(one, _)| one.trim() == "1");
    let parts: Option<u32> = parts.and_then(|(_, parts)| parts.trim().parse().ok());
    match parts {
        None => Err(Wrong::new(format!("'{text}' is no share"), remedy())),
        Some(parts) if !SHARE.contains(&parts) => Err(Wrong::new(format!("{text} is out of range"), remedy())),
        Some(parts) => Ok(parts),
    }
}

/// Reads whose datagrams are reassembled.
///
/// # Errors
/// See [`memory`].
pub fn datagrams(text: &str) -> Result<Datagrams, Wrong> {
    let found = Datagrams::CHOICES.into_iter().find(|choice| choice.name() == text);
    let names = Datagrams::CHOICES.map(Datagrams::name);
    found.ok_or_else(|| Wrong::new(format!("`{text}` is not a choice here"), suggestion(text, &names)))
}

#[cfg(test)]
mod tests;
