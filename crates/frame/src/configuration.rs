//! `tarn.toml`: one section a stage, validated whole before anything on the host changes.
//!
//! Every error found is reported, of all sections, each with file, line, column, the key and what would be right.

use std::io::Read;
use std::path::Path;

use toml::Spanned;
use toml::de::DeTable;

use crate::{Configured, Stage};
use tarn_base::config::{ConfigError, ConfigErrors, Document, Section, position, suggestion};
use tarn_base::error::Usage;

mod events;
mod page;
#[cfg(test)]
mod tests;

pub use events::Hook;
pub use page::{Listen, Page};

/// The file read when none is named.
pub const DEFAULT_PATH: &str = "/etc/tarn/tarn.toml";

/// The largest configuration accepted, in bytes: a few hundred thousand rules.
const SIZE_LIMIT: u64 = 64 << 20;

/// The sections that are no stage's.
const OWN_SECTIONS: [&str; 2] = [events::SECTION, page::SECTION];

/// A valid configuration.
pub struct Configuration {
    /// The stages that have a section, in packet order.
    pub stages: Vec<ConfiguredStage>,
    /// What is run for each event.
    pub hook: Option<Hook>,
    /// Where the live page is shown.
    pub page: Option<Page>,
}

impl Configuration {
    /// Whether it configures nothing.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty() && self.hook.is_none() && self.page.is_none()
    }
}

/// A stage that has a section, and its valid configuration.
pub struct ConfiguredStage {
    /// The stage's name.
    pub name: &'static str,
    /// What it was configured to.
    pub configured: Box<dyn Configured>,
}

/// Reads a configuration file.
///
/// # Errors
/// [`Usage`] when there is no such file, or it cannot be read or is no text.
pub fn read(path: &Path) -> Result<String, Usage> {
    let shown = path.display();
    let refuse = |reason: String| Usage(format!("cannot read the configuration {shown}: {reason}"));
    let metadata = std::fs::metadata(path).map_err(|error| refuse(missing_file(&error)))?;
    if metadata.is_dir() {
        return Err(refuse("it is a directory: name the file in it with -c".to_string()));
    }
    let mut bytes = Vec::new();
    // One byte more than is accepted, because a device or a pipe does not tell its size.
    let read = std::fs::File::open(path).and_then(|file| file.take(SIZE_LIMIT + 1).read_to_end(&mut bytes));
    read.map_err(|error| refuse(missing_file(&error)))?;
    if bytes.len() as u64 > SIZE_LIMIT {
        return Err(refuse(format!(
            "it has more than {} MiB, the most accepted",
            SIZE_LIMIT >> 20
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(error.as_bytes().get(..valid).unwrap_or_default()).into_owned();
        let (line, column) = position(&before, before.len());
        Usage(format!(
            "{shown}:{line}:{column}: this byte is not UTF-8: save the file as UTF-8 text"
        ))
    })
}

fn missing_file(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            "there is no such file: `tarn init` writes one for this host; or name another with -c FILE".into()
        }
        std::io::ErrorKind::PermissionDenied => "permission denied: run tarn as root".into(),
        _ => error.to_string(),
    }
}

/// Validates a configuration. `path` is where it came from, for messages only.
///
/// # Errors
/// Every error found, in the order of the file.
pub fn parse(text: &str, path: &Path, stages: &[&dyn Stage]) -> Result<Configuration, ConfigErrors> {
    let document = Document { file: path, text };
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What the parser recovered after an error is a guess: complaining about it would mislead.
        return Err(ConfigErrors::sorted(
            errors.iter().map(|error| document.syntax_error(error)).collect(),
        ));
    }
    let root = root.get_ref();
    let unknown = root.keys().filter(|key| {
        !OWN_SECTIONS.contains(&key.get_ref().as_ref()) && stages.iter().all(|stage| stage.name() != key.as_ref())
    });
    let mut errors: Vec<ConfigError> = unknown.map(|key| unknown_section(&document, key, stages)).collect();
    let mut configured = Vec::new();
    for stage in stages {
        let name = stage.name();
        let Some(value) = root.get(name) else { continue };
        match Section::of(&document, name, value).and_then(|section| stage.configure(section)) {
            Ok(valid) => configured.push(ConfiguredStage {
                name,
                configured: valid,
            }),
            Err(found) => errors.extend(found),
        }
    }
    let own = |name: &'static str| Some(Section::of(&document, name, root.get(name)?));
    let hook = own(events::SECTION).map(|section| section.and_then(|section| events::read(&section)));
    let page = own(page::SECTION).map(|section| section.and_then(|section| page::read(&section)));
    let hook = hook.and_then(|read| read.map_err(|found| errors.extend(found)).ok());
    let page = page.and_then(|read| read.map_err(|found| errors.extend(found)).ok());
    match errors.is_empty() {
        true => Ok(Configuration {
            stages: configured,
            hook,
            page,
        }),
        false => Err(ConfigErrors::sorted(errors)),
    }
}

/// Reads and validates a file that must configure at least one stage.
///
/// # Errors
/// [`Usage`] or [`ConfigErrors`].
pub fn load(path: &Path, stages: &[&dyn Stage]) -> anyhow::Result<Configuration> {
    let configuration = parse(&read(path)?, path, stages)?;
    if configuration.stages.is_empty() {
        let name = stages.first().map_or("redirect", |stage| stage.name());
        let problem = format!(
            "{} configures no stage: add a section, for example [{name}]",
            path.display()
        );
        return Err(Usage(problem).into());
    }
    Ok(configuration)
}

fn unknown_section(document: &Document, key: &Spanned<toml::de::DeString>, stages: &[&dyn Stage]) -> ConfigError {
    let names: Vec<&str> = stages.iter().map(|stage| stage.name()).chain(OWN_SECTIONS).collect();
    let name = key.get_ref().as_ref();
    document.error(
        key.span(),
        name,
        "there is no such section".to_string(),
        suggestion(name, &names),
    )
}
