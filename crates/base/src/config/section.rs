//! A stage's section of the file, and errors that know their place in it.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::ERROR_LIMIT;
use super::value::{Mistake, Sort, Value};

/// One error in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The key with the tables it stands in, joined by dots; empty where the error is not about a key.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What would be right; empty when the message says it.
    pub remedy: String,
}

impl Display for ConfigError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file.display(), self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// Every error of a configuration file, in the order of the file: exit code 2.
#[derive(Debug, Error)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl ConfigErrors {
    /// These errors, each once, in the order of the file, and of others that it names; at most 50.
    pub fn sorted(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        errors.dedup();
        errors.truncate(ERROR_LIMIT);
        Self(errors)
    }
}

impl Display for ConfigErrors {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// The file's text and name.
#[derive(Debug)]
pub struct Document<'a> {
    /// Where it came from, for messages only.
    pub file: &'a Path,
    /// All of it.
    pub text: &'a str,
}

impl Document<'_> {
    /// An error at a place given in bytes.
    pub fn error(&self, span: Range<usize>, key: &str, message: String, remedy: String) -> ConfigError {
        let (line, column) = position(self.text, span.start);
        ConfigError {
            file: self.file.to_path_buf(),
            line,
            column,
            key: key.to_string(),
            message,
            remedy,
        }
    }

    /// An error of the TOML parser.
    pub fn syntax_error(&self, error: &toml::de::Error) -> ConfigError {
        let span = error.span().unwrap_or(self.text.len()..self.text.len());
        let message = format!("not valid TOML: {}", error.message());
        self.error(span, "", message, String::new())
    }
}

/// The line and the column, in characters, both from 1, of a place given in bytes.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = text.get(..end).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or_default();
    (line, last.chars().count() + 1)
}

/// A TOML value's sort, with its article.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a truth value",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// One stage's section of the configuration file.
#[derive(Debug)]
pub struct Section<'a> {
    document: &'a Document<'a>,
    name: &'static str,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Section<'a> {
    /// The section of this name, which has to be a table.
    ///
    /// # Errors
    /// It is another sort of value.
    pub fn of(
        document: &'a Document<'a>,
        name: &'static str,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Result<Self, Vec<ConfigError>> {
        if value.get_ref().is_table() {
            return Ok(Self { document, name, value });
        }
        let message = format!("is {}, not a section", kind(value.get_ref()));
        let remedy = format!("write its keys below a line [{name}]");
        Err(vec![document.error(value.span(), name, message, remedy)])
    }

    /// The file that it is in.
    pub fn file(&self) -> &Path {
        self.document.file
    }

    /// The section as a type of the stage's, whose fields may be [`toml::Spanned`] to know their place.
    ///
    /// Give the type `#[serde(deny_unknown_fields)]`: a key that is not known then comes out as an error that names
    /// the nearest known one. Every unknown key is found, and one error more for each element of a list and for each
    /// key of the section: what is wrong is taken out of a copy, and the rest read again.
    ///
    /// # Errors
    /// Every error found, at most 50.
    pub fn deserialize_whole<T: DeserializeOwned>(&self) -> Result<T, Vec<ConfigError>> {
        let mut value = Cow::Borrowed(self.value);
        let mut errors = Vec::new();
        let mut taken_keys: Vec<String> = Vec::new();
        loop {
            let mistake = match T::deserialize(Value(&value)) {
                Ok(read) if errors.is_empty() => return Ok(read),
                Ok(_) => return Err(errors),
                Err(mistake) => mistake,
            };
            let sort = mistake.sort;
            let at = mistake.span.as_ref().map(|span| span.start);
            let error = self.error_of(mistake);
            if sort == Sort::Missing && taken_keys.contains(&error.key) {
                // It is missing because it was taken out: there is nothing more to find.
                return Err(errors);
            }
            let key = error.key.clone();
            errors.push(error);
            let only_key = sort == Sort::UnknownKey;
            let taken = at.map(|at| take_out(value.to_mut().get_mut(), at, only_key, false));
            match taken {
                None | Some(Taken::Nothing) => return Err(errors),
                _ if errors.len() >= ERROR_LIMIT => return Err(errors),
                Some(Taken::Key) => taken_keys.push(key),
                Some(Taken::Element) => {}
            }
        }
    }

    /// An error at a place in the file, as [`toml::Spanned::span`] gives it. `key` is relative to the section.
    pub fn error(&self, span: Range<usize>, key: &str, message: String, remedy: String) -> ConfigError {
        let key = if key.is_empty() {
            self.name.to_string()
        } else {
            format!("{}.{key}", self.name)
        };
        self.document.error(span, &key, message, remedy)
    }

    fn error_of(&self, mistake: Mistake) -> ConfigError {
        let span = mistake.span.unwrap_or_else(|| self.value.span());
        let mut path = vec![self.name.to_string()];
        path_at(self.value, span.start, &mut path);
        path.extend(mistake.key);
        self.document
            .error(span, &path.join("."), mistake.message, mistake.remedy)
    }
}

/// Appends the keys that lead to the place `at`. Returns whether it lies in `value`.
fn path_at(value: &Spanned<DeValue<'_>>, at: usize, path: &mut Vec<String>) -> bool {
    let inside = match value.get_ref() {
        DeValue::Table(table) => table.iter().any(|(key, value)| {
            path.push(key.get_ref().to_string());
            let found = key.span().contains(&at) || path_at(value, at, path);
            if !found {
                path.pop();
            }
            found
        }),
        DeValue::Array(array) => array.iter().any(|element| path_at(element, at, path)),
        _ => false,
    };
    inside || value.span().contains(&at)
}

/// What [`take_out`] took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Nothing,
    Key,
    Element,
}

/// Takes what is wrong at the place `at` out of the value: the key itself, or (unless `only_key`) the whole element
/// of the innermost list that it stands in.
fn take_out(value: &mut DeValue<'_>, at: usize, only_key: bool, in_list: bool) -> Taken {
    let inner = |values: &mut dyn Iterator<Item = &mut Spanned<DeValue<'_>>>, in_list| {
        let mut taken = values.map(|value| take_out(value.get_mut(), at, only_key, in_list));
        taken.find(|taken| *taken != Taken::Nothing)
    };
    match value {
        DeValue::Table(table) => match inner(&mut table.iter_mut().map(|(_, value)| value), in_list) {
            Some(taken) => taken,
            None if (only_key || !in_list) && take_key_out(table, at) => Taken::Key,
            None => Taken::Nothing,
        },
        DeValue::Array(array) => match inner(&mut array.iter_mut(), true) {
            Some(taken) => taken,
            None if !only_key && take_element_out(array, at) => Taken::Element,
            None => Taken::Nothing,
        },
        _ => Taken::Nothing,
    }
}

fn take_key_out(table: &mut DeTable<'_>, at: usize) -> bool {
    let before = table.len();
    for (key, value) in std::mem::replace(table, DeTable::new()) {
        if !(key.span().contains(&at) || path_at(&value, at, &mut Vec::new())) {
            table.insert(key, value);
        }
    }
    table.len() < before
}

fn take_element_out(array: &mut DeArray<'_>, at: usize) -> bool {
    let before = array.len();
    for element in std::mem::replace(array, DeArray::new()) {
        if !path_at(&element, at, &mut Vec::new()) {
            array.push(element);
        }
    }
    array.len() < before
}
