//! Judges what a section says, mistake by mistake.

use std::fmt::{self, Display};
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::{ConfigError, Section};
use crate::size;
use crate::time;
use crate::wrong::Wrong;

/// The longest name of a device, in bytes: `IFNAMSIZ`, less the terminating zero.
const DEVICE_MAX: usize = 15;

/// Judges the values of a section and gathers what is wrong. What it returns for a wrong value only serves to go on reading.
#[derive(Debug)]
pub struct Reader<'a> {
    section: &'a Section<'a>,
    errors: Vec<ConfigError>,
}

impl<'a> Reader<'a> {
    /// Of this section; nothing is wrong yet.
    pub fn new(section: &'a Section<'a>) -> Self {
        Self {
            section,
            errors: Vec::new(),
        }
    }

    /// What was read, if nothing is wrong.
    ///
    /// # Errors
    /// Every mistake noted, in the order that they were found in.
    pub fn finish<T>(self, read: T) -> Result<T, Vec<ConfigError>> {
        if self.errors.is_empty() {
            Ok(read)
        } else {
            Err(self.errors)
        }
    }

    /// Notes a mistake; see [`Section::error`].
    pub fn error(&mut self, span: Range<usize>, key: &str, message: impl Into<String>, remedy: impl Into<String>) {
        let error = self.section.error(span, key, message.into(), remedy.into());
        self.errors.push(error);
    }

    /// Notes a mistake in a file that this one names.
    pub fn note(&mut self, error: ConfigError) {
        self.errors.push(error);
    }

    /// The file.
    pub fn file(&self) -> &Path {
        self.section.file()
    }

    /// The line that a place is on, from 1.
    pub fn line(&self, span: Range<usize>) -> usize {
        self.section.error(span, "", String::new(), String::new()).line
    }

    /// A text that is a value: a prefix, for example.
    pub fn parse<T: FromStr<Err = Wrong>>(&mut self, key: &str, written: &Spanned<String>) -> Option<T> {
        self.keep(key, written.span(), written.get_ref().parse())
    }

    /// What was read at a place, if it could be.
    pub fn keep<T>(&mut self, key: &str, span: Range<usize>, read: Result<T, Wrong>) -> Option<T> {
        read.map_err(|wrong| self.error(span, key, wrong.message, wrong.remedy))
            .ok()
    }

    /// A time: `"250ms"`.
    pub fn time(
        &mut self,
        key: &str,
        written: Option<&Spanned<String>>,
        default: Duration,
        range: &RangeInclusive<Duration>,
    ) -> Duration {
        let read = |text: &Spanned<String>| {
            let time = self.keep(key, text.span(), time::parse(text.get_ref()))?;
            Some(self.within(key, text, time, range, |time| time::text(*time)))
        };
        written.and_then(read).unwrap_or(default)
    }

    /// A whole number; the range lies within `u32`.
    pub fn number(
        &mut self,
        key: &str,
        written: Option<&Spanned<i64>>,
        default: u32,
        range: RangeInclusive<i64>,
    ) -> u32 {
        let Some(written) = written else { return default };
        let number = self.within(key, written, *written.get_ref(), &range, i64::to_string);
        u32::try_from(number).unwrap_or(default)
    }

    /// A size in bytes: `"64MiB"`, 67108864.
    pub fn size(
        &mut self,
        key: &str,
        written: Option<&Spanned<NumberOrText>>,
        default: u64,
        range: &RangeInclusive<u64>,
    ) -> u64 {
        let Some(written) = written else { return default };
        let found = match written.get_ref() {
            NumberOrText::Text(text) => size::parse(text, range),
            NumberOrText::Number(number) => match u64::try_from(*number) {
                Ok(bytes) if range.contains(&bytes) => return bytes,
                _ => Err(Wrong::new(
                    format!("{number} bytes are out of range"),
                    size::remedy(range),
                )),
            },
        };
        let found = found.map_err(|wrong| Wrong {
            remedy: format!("{}, or the bytes as a number", wrong.remedy),
            ..wrong
        });
        self.keep(key, written.span(), found).unwrap_or(default)
    }

    /// The name of a device, whether or not it is there: what the kernel's `dev_valid_name` takes, and no control characters.
    pub fn device(&mut self, key: &str, span: Range<usize>, name: &str) {
        let is_sized = (1..=DEVICE_MAX).contains(&name.len()) && ![".", ".."].contains(&name);
        if !is_sized || name.contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control()) {
            let message = format!("'{name}' cannot be the name of a device");
            self.error(span, key, message, "'ip link' shows those there are");
        }
    }

    /// The value, or the nearest end of the range that it has to lie in.
    pub fn within<W: Display, T: PartialOrd + Copy>(
        &mut self,
        key: &str,
        written: &Spanned<W>,
        value: T,
        range: &RangeInclusive<T>,
        text: impl Fn(&T) -> String,
    ) -> T {
        if range.contains(&value) {
            return value;
        }
        let remedy = format!("write {} to {}", text(range.start()), text(range.end()));
        self.error(
            written.span(),
            key,
            format!("{} is out of range", written.get_ref()),
            remedy,
        );
        if value > *range.end() {
            *range.end()
        } else {
            *range.start()
        }
    }
}

/// A value that may be written in two ways: `"auto"` or 8; `"64MiB"` or 67108864.
#[derive(Debug)]
pub enum NumberOrText {
    /// Without quotes.
    Number(i64),
    /// In quotes.
    Text(String),
}

impl<'de> Deserialize<'de> for NumberOrText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = NumberOrText;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a whole number, or a text in quotes")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<NumberOrText, E> {
                Ok(NumberOrText::Number(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<NumberOrText, E> {
                Ok(NumberOrText::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
