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
use super::protocol::{Job, Message, Verdict};

/// What is said of a guest that need not run.
pub const REPLAYED: &str = "with the same program, kernel and seed: --fresh runs it again";
/// Of more, those that were used least recently are forgotten.
const MOST: usize = 512;

/// The place of one run.
pub struct Record {
    path: PathBuf,
}

impl Record {
    /// That of a guest's run.
    ///
    /// # Errors
    /// When what it is booted with cannot be read.
    pub fn of(identity: &[Vec<u8>]) -> Result<Self> {
        let key = key(identity);
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

    /// Forgets what the guest has said when it ran before.
    pub fn forget(&self) {
        let _ = fs::remove_file(&self.path);
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
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &self.path))
            .with_context(|| cache::cannot_write(&self.path))?;
        forget_the_oldest(directory).with_context(|| cache::cannot_write(directory))
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

/// Another process, or another guest of this one, may do the same at the same time.
fn forget_the_oldest(directory: &Path) -> std::io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) {
            files.push((modified, entry.path()));
        }
    }
    files.sort();
    let surplus = files.len().saturating_sub(MOST);
    for (_, path) in files.iter().take(surplus) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
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
    use crate::experiment::{Check, Measurement};
    use crate::protocol::Circumstances;

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
    fn damaged_records_are_none_and_their_number_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..MOST + 5 {
            record(directory.path(), &format!("{number}.json"))
                .keep(&job(&[]), &[ENDED])
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
