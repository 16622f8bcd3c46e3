//! The section `[events]` of `tarn.toml`.
//!
//! ```toml
//! [events]
//! hook = "logger -t tarn-hook \"$TARN_MESSAGE\""   # a shell runs it for each event
//! priority = "notice"                              # and those that are graver; or "error", "warning", "info"
//! ```

use serde::Deserialize;
use tarn_base::config::{ConfigError, Section};
use tarn_base::output::Priority;
use toml::Spanned;

/// The section's name.
pub const SECTION: &str = "events";

/// A command that the agent runs for each event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// What /bin/sh runs.
    pub command: String,
    /// The least grave events that it is run for.
    pub least: Priority,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    hook: Spanned<String>,
    #[serde(default = "notice")]
    priority: Priority,
}

fn notice() -> Priority {
    Priority::Notice
}

/// Reads the section.
///
/// # Errors
/// Every error found.
pub fn read(section: &Section<'_>) -> Result<Hook, Vec<ConfigError>> {
    let written: Written = section.deserialize_whole()?;
    let command = written.hook.get_ref().trim().to_owned();
    if command.is_empty() {
        let message = "is empty".to_owned();
        let remedy = "name a command, or leave the section out".to_owned();
        return Err(vec![section.error(written.hook.span(), "hook", message, remedy)]);
    }
    Ok(Hook {
        command,
        least: written.priority,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(text: &str) -> Result<Option<Hook>, String> {
        let read = super::super::parse(text, Path::new("tarn.toml"), &[]);
        read.map(|configuration| configuration.hook)
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_hook_is_run_for_notices_and_what_is_graver() {
        assert_eq!(parse(""), Ok(None));
        let hook = parse("[events]\nhook = \" true \"\n").unwrap().unwrap();
        assert_eq!((hook.command.as_str(), hook.least), ("true", Priority::Notice));
        let hook = parse("[events]\nhook = \"true\"\npriority = \"info\"\n")
            .unwrap()
            .unwrap();
        assert_eq!(hook.least, Priority::Information);
    }

    #[test]
    fn a_hook_that_would_never_run_is_refused() {
        for (wrong, said) in [
            ("[events]\n", "hook"),
            ("[events]\nhook = \"\"\n", "is empty"),
            ("[events]\nhook = \"true\"\npriority = \"loud\"\n", "priority"),
            ("[events]\nhok = \"true\"\n", "hook"),
            ("[event]\nhook = \"true\"\n", "events"),
        ] {
            let errors = parse(wrong).unwrap_err();
            assert!(errors.contains(said), "{wrong}: {errors}");
        }
    }
}
