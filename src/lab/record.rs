//! What guests have said that ended well. A guest is a function of what it is booted with: the same kernel, root file system,
//! program, files, job, seed and machine make the same run, so that one that is asked for again need not be run again.
//!
//! Only runs in which nothing failed are kept; `--fresh` runs a guest all the same.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

use super::cache;
use super::protocol::{Message, Verdict};
use super::vm::Spec;

/// What is said of a guest that need not run.
pub const REPLAYED: &str = "with the same program, kernel and seed: --fresh runs it again";
/// Of more, those that were used least recently are forgotten.
const MOST: usize = 64;

/// The place of one run.
pub struct Record {
    path: PathBuf,
}

impl Record {
    /// That of a guest's run.
    ///
    /// # Errors
    /// When what it is booted with cannot be read.
    pub fn of(spec: &Spec) -> Result<Self> {
        let key = key(&spec.identity()?);
        Ok(Self {
            path: cache::directory()?.join("runs").join(format!("{key}.json")),
        })
    }

    /// What the guest has said when it ran before; `None` if it has not, or what was kept is damaged.
    pub fn replay(&self) -> Option<Vec<Message>> {
        let file = File::options().read(true).append(true).open(&self.path).ok()?;
        let messages = serde_json::from_reader(BufReader::new(&file)).ok()?;
        // What is used stays.
        let _ = file.set_modified(SystemTime::now());
        Some(messages)
    }

    /// Keeps what a guest has said, if nothing of it failed.
    ///
    /// # Errors
    /// A full disk.
    pub fn keep(&self, messages: &[Message]) -> Result<()> {
        if !is_good(messages) {
            return Ok(());
        }
        let said = messages
            .iter()
            .filter(|message| !matches!(message, Message::Progress { .. }));
        let text = serde_json::to_vec(&said.collect::<Vec<_>>()).context("a run cannot be kept")?;
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &self.path))
            .with_context(|| cache::cannot_write(&self.path))?;
        forget_the_oldest(directory).with_context(|| cache::cannot_write(directory))
    }
}

/// Whether nothing failed: a failure is looked at again.
fn is_good(messages: &[Message]) -> bool {
    let ended = messages
        .iter()
        .any(|message| matches!(message, Message::Ended { error: None }));
    ended
        && messages.iter().all(|message| match message {
            Message::Test { verdict, .. } => *verdict != Verdict::Failed,
            Message::Measured(measurement) => measurement.checks.iter().all(|check| check.passed),
            _ => true,
        })
}

fn forget_the_oldest(directory: &Path) -> std::io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort();
    let surplus = files.len().saturating_sub(MOST);
    files
        .iter()
        .take(surplus)
        .try_for_each(|(_, path)| fs::remove_file(path))
}

/// 128 bits of all parts, each with its length.
fn key(parts: &[Vec<u8>]) -> String {
    let half = |first: u8| {
        let mut hasher = DefaultHasher::new();
        first.hash(&mut hasher);
        parts.hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(0), half(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::experiment::{Check, Measurement};

    fn record(directory: &Path, name: &str) -> Record {
        Record {
            path: directory.join("runs").join(name),
        }
    }

    fn test(verdict: Verdict) -> Message {
        Message::Test {
            name: "lab_a".into(),
            verdict,
            detail: String::new(),
        }
    }

    const ENDED: Message = Message::Ended { error: None };

    /// A failure that is not run again could never be mended.
    #[test]
    fn only_what_went_well_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let record = record(directory.path(), "a.json");
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
            record.keep(&messages).unwrap();
            assert_eq!(record.replay(), None, "{messages:?}");
        }
        let good = vec![test(Verdict::Passed), test(Verdict::Skipped), measured(true), ENDED];
        record.keep(&good).unwrap();
        assert_eq!(record.replay(), Some(good));
    }

    #[test]
    fn damaged_records_are_none_and_their_number_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..MOST + 5 {
            record(directory.path(), &format!("{number}.json"))
                .keep(&[ENDED])
                .unwrap();
        }
        assert_eq!(fs::read_dir(directory.path().join("runs")).unwrap().count(), MOST);
        let last = record(directory.path(), &format!("{}.json", MOST + 4));
        assert!(last.replay().is_some());
        fs::write(&last.path, "[{\"ended\"").unwrap();
        assert_eq!(last.replay(), None);
    }

    /// A change of anything that a guest is booted with makes another run.
    #[test]
    fn every_part_counts_and_so_do_their_borders() {
        let key = |parts: &[&str]| key(&parts.iter().map(|part| part.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["ab", "c"]), key(&["ab", "d"]));
    }
}
