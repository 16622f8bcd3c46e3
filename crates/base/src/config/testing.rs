//! Sections for the tests of stages.

use std::path::Path;

use toml::de::DeTable;

use super::{ConfigError, ConfigErrors, Document, Section};

/// A section as its stage reads it, or every error as the user sees them. The file's name is `t`.
pub fn section<T>(
    name: &'static str,
    text: &str,
    read: fn(&Section<'_>) -> Result<T, Vec<ConfigError>>,
) -> Result<T, Vec<String>> {
    let document = Document {
        file: Path::new("t"),
        text,
    };
    let (root, errors) = DeTable::parse_recoverable(text);
    assert!(errors.is_empty(), "{errors:?}");
    let value = root
        .get_ref()
        .get(name)
        .unwrap_or_else(|| panic!("{text}: no section {name}"));
    let read = Section::of(&document, name, value).and_then(|section| read(&section));
    read.map_err(|errors| ConfigErrors::sorted(errors).0.iter().map(ToString::to_string).collect())
}
