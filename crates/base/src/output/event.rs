//! Events: what an agent has logged, kept for programs.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::log::Priority;

/// A log line of an agent. In a file, one JSON document a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When: RFC 3339, UTC, in whole seconds.
    pub at: String,
    /// The stage, or what of the frame speaks (`agent`, `journal`).
    pub stage: String,
    /// How grave it is.
    pub priority: Priority,
    /// What has happened, for people.
    pub message: String,
}

impl Event {
    /// The line of a file; `None` where it is none of an event: an agent that was killed has begun it.
    pub fn of_line(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// The message, behind its priority where that is a grave one.
    pub fn text(&self) -> String {
        match self.priority {
            Priority::Error | Priority::Warning => format!("{}: {}", self.priority.name(), self.message),
            Priority::Notice | Priority::Information => self.message.clone(),
        }
    }

    /// Its line, with a line break.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn line(&self) -> Result<String> {
        let text = serde_json::to_string(self).context("cannot write an event as JSON")?;
        Ok(text + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_and_a_line_that_was_cut_off_is_none() {
        let event = Event {
            at: "2026-11-20T14:56:18Z".to_owned(),
            stage: "paths".to_owned(),
            priority: Priority::Information,
            message: "wan0 \"is\" gone".to_owned(),
        };
        let line = event.line().unwrap();
        assert!(line.contains(r#""priority":"info""#) && line.ends_with("}\n"), "{line}");
        assert_eq!(Event::of_line(&line), Some(event));
        assert_eq!(Event::of_line(&line[..20]), None);
    }
}
