//! What guests have said that ended well. A guest is a function of what it is booted with: the same kernel, root file system,
//! program, files, job, seed and machine make the same run, so that one that is asked for again need not be run again.
//!
//! Only runs in which nothing failed are kept; `--fresh` runs a guest all the same.

use anyhow::{Context, Result};

use super::cache;
use super::kept::Kept;
use super::protocol::{Job, Message, Verdict};

/// What is said of a guest that need not run.
pub const REPLAYED: &str = "with the same program, kernel and seed: --fresh runs it again";
/// Of more, those that were used least recently are forgotten.
const MOST: usize = 512;

/// The place of one run.
pub struct Record(Kept);

impl Record {
    /// That of a guest's run.
    ///
    /// # Errors
    /// When what it is booted with cannot be read.
    pub fn of(identity: &[Vec<u8>]) -> Result<Self> {
        let directory = cache::directory()?.join("runs");
        Ok(Self(Kept::of(&directory, identity, "json", MOST)))
    }

    /// What the guest has said when it ran before; `None` if it has not, or what was kept is damaged.
    pub fn replay(&self) -> Option<Vec<Message>> {
        serde_json::from_slice(&self.0.read()?).ok()
    }

    /// Forgets what the guest has said when it ran before.
    pub fn forget(&self) {
        self.0.forget();
    }

    /// Keeps what a guest with this job has said, if nothing of it failed; else what it said before is forgotten, too.
    ///
    /// # Errors
    /// A full disk.
    pub fn keep(&self, job: &Job, messages: &[Message]) -> Result<()> {
        if !is_good(job, messages) {
            self.forget();
            return Ok(());
        }
        let said = messages
            .iter()
            .filter(|message| !matches!(message, Message::Progress { .. }));
        let text = serde_json::to_vec(&said.collect::<Vec<_>>()).context("a run cannot be kept")?;
        self.0.write(&text)
    }
}

/// Whether all was done and nothing failed: a failure is run again.
fn is_good(job: &Job, messages: &[Message]) -> bool {
    let ended = Message::Ended { error: None };
    let has_reported = |test: &String| {
        let mut reports = messages.iter();
        reports.any(|message| matches!(message, Message::Test { name, .. } if name == test))
    };
    let is_whole = match job {
        Job::Tests { tests, .. } => tests.iter().all(has_reported),
        _ => true,
    };
    messages.contains(&ended)
        && is_whole
        && messages.iter().all(|message| match message {
            Message::Test { verdict, .. } => *verdict != Verdict::Failed,
            Message::Measured(measurement) => measurement.checks.iter().all(|check| check.passed),
            _ => true,
        })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::experiment::{Check, Measurement};
    use crate::protocol::Circumstances;

    fn record(directory: &Path, name: &str) -> Record {
        Record(Kept::of(directory, &[name.as_bytes().to_vec()], "json", MOST))
    }

    fn test(verdict: Verdict) -> Message {
        Message::Test {
            name: "lab_a".into(),
            verdict,
            detail: String::new(),
        }
    }

    const ENDED: Message = Message::Ended { error: None };

    fn job(tests: &[&str]) -> Job {
        Job::Tests {
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
            circumstances: Circumstances::default(),
        }
    }

    /// A failure that is not run again could never be mended.
    #[test]
    fn only_what_went_well_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let record = record(directory.path(), "a");
        let measured = |passed| {
            Message::Measured(Measurement {
                checks: vec![Check {
                    passed,
                    ..Check::default()
                }],
                ..Measurement::default()
            })
        };
        let failed = Message::Ended {
            error: Some("it failed".into()),
        };
        for messages in [
            vec![test(Verdict::Passed)],
            vec![test(Verdict::Failed), ENDED],
            vec![test(Verdict::Passed), failed],
            vec![measured(false), ENDED],
        ] {
            record.keep(&job(&["lab_a"]), &messages).unwrap();
            assert_eq!(record.replay(), None, "{messages:?}");
        }
        let missed = Measurement {
            goals: vec![Check::default()],
            ..Measurement::default()
        };
        let good = vec![
            test(Verdict::Passed),
            test(Verdict::Skipped),
            measured(true),
            Message::Measured(missed),
            ENDED,
        ];
        record.keep(&job(&["lab_a"]), &good).unwrap();
        assert_eq!(record.replay(), Some(good.clone()));
        // One that the guest has not run makes the whole worth nothing, and what was known before.
        record.keep(&job(&["lab_a", "lab_b"]), &good).unwrap();
        assert_eq!(record.replay(), None);
    }

    #[test]
    fn a_damaged_record_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let record = record(directory.path(), "a");
        record.keep(&job(&[]), &[ENDED]).unwrap();
        assert!(record.replay().is_some());
        record.0.write(b"[{\"ended\"").unwrap();
        assert_eq!(record.replay(), None);
    }
}
