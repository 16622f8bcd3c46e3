//! Events: what an agent has logged, kept for programs.

use std::path::Path;

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

    /// Its line, with a line break.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn line(&self) -> Result<String> {
        let text = serde_json::to_string(self).context("cannot write an event as JSON")?;
        Ok(text + "\n")
    }
}

/// The events in a file and its predecessor `FILE.1`, oldest first; none where there is no such file.
///
/// # Errors
/// A file that cannot be read.
pub fn read(path: &Path) -> Result<Vec<Event>> {
    let mut predecessor = path.as_os_str().to_owned();
    predecessor.push(".1");
    let mut events = Vec::new();
    for path in [Path::new(&predecessor), path] {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        events.extend(String::from_utf8_lossy(&bytes).lines().filter_map(Event::of_line));
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that was killed while it wrote costs the line that it was at, and no other.
    #[test]
    fn events_are_read_in_order_and_past_a_line_that_was_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        assert_eq!(read(&path).unwrap(), []);
        let event = |number: usize| Event {
            at: "2026-11-20T14:56:18Z".to_owned(),
            stage: "paths".to_owned(),
            priority: Priority::Information,
            message: format!("number \"{number}\""),
        };
        std::fs::write(directory.path().join("events.1"), event(1).line().unwrap()).unwrap();
        let line = event(2).line().unwrap();
        assert!(line.contains(r#""priority":"info""#), "{line}");
        let text = format!("{line}{{\"at\":\"2026\n{}", event(3).line().unwrap());
        std::fs::write(&path, text).unwrap();
        assert_eq!(read(&path).unwrap(), [event(1), event(2), event(3)]);
    }
}
