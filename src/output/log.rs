//! The log: one line a message.
//!
//! On a terminal and in a pipe a line reads `tarn: STAGE: MESSAGE`. Under systemd it bears a priority prefix
//! (`<4>`, see sd-daemon(3)) and the journal adds time and unit. An agent that has left its terminal writes
//! to a file of bounded size instead, each line with its time.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result};

use super::printable;
use crate::runtime;

/// The size in bytes at which the log file is begun anew. One predecessor is kept beside it, so that the log
/// takes at most twice as much.
const FILE_LIMIT: u64 = 1 << 20;

/// The longest message that is logged whole, in characters.
const MESSAGE_LIMIT: usize = 2000;

/// How grave a message is, as syslog counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Something does not work.
    Error = 3,
    /// Something works, but not as it should.
    Warning = 4,
    /// An administrator may want to know.
    Notice = 5,
    /// The ordinary course of things.
    Information = 6,
}

/// Logs the ordinary course of things. `stage` is a stage's name, or what of the frame speaks (`agent`, `journal`).
pub fn log(stage: &str, message: impl Display) {
    log_at(Priority::Information, stage, message);
}

/// Logs a message of a given priority.
pub fn log_at(priority: Priority, stage: &str, message: impl Display) {
    let mut message = printable(&message.to_string());
    if let Some((end, _)) = message.char_indices().nth(MESSAGE_LIMIT) {
        message.truncate(end);
        message.push_str("...");
    }
    let mut sink = SINK.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = sink.as_mut() {
        file.append(&format!("{} {stage}: {message}\n", runtime::timestamp(runtime::now())));
        return;
    }
    let line = match under_systemd() {
        true => format!("<{}>{stage}: {message}\n", priority as u8),
        false => format!("tarn: {stage}: {message}\n"),
    };
    // There is nowhere left to report that the log itself cannot be written.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// From now on, log lines go to this file, at most [`FILE_LIMIT`] bytes and as many in its predecessor `PATH.1`.
///
/// # Errors
/// When the file cannot be opened.
pub fn log_to_file(path: &Path) -> Result<()> {
    let file = LogFile::open(path.to_path_buf(), FILE_LIMIT)?;
    *SINK.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    Ok(())
}

static SINK: Mutex<Option<LogFile>> = Mutex::new(None);

struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
}

impl LogFile {
    fn open(path: PathBuf, limit: u64) -> Result<Self> {
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = opened.with_context(|| format!("cannot open the log {}", path.display()))?;
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        Ok(Self {
            path,
            file,
            size,
            limit,
        })
    }

    fn append(&mut self, line: &str) {
        if self.size + line.len() as u64 > self.limit {
            self.begin_anew();
        }
        if self.file.write_all(line.as_bytes()).is_ok() {
            self.size += line.len() as u64;
        }
    }

    fn begin_anew(&mut self) {
        let mut predecessor = self.path.clone().into_os_string();
        predecessor.push(".1");
        if std::fs::rename(&self.path, predecessor).is_err() {
            // The cap holds in any case: what cannot be kept is dropped.
            let _ = self.file.set_len(0);
            self.size = 0;
        } else if let Ok(next) = Self::open(self.path.clone(), self.limit) {
            *self = next;
        }
    }
}

/// Whether standard error is the stream that systemd's journal reads: `$JOURNAL_STREAM` names its device and
/// inode, so that a program whose standard error was redirected since is not taken in.
fn under_systemd() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
            return false;
        };
        let Ok(metadata) = std::fs::metadata("/proc/self/fd/2") else {
            return false;
        };
        stream == format!("{}:{}", metadata.dev(), metadata.ino())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_an_agent_that_runs_for_years_stays_small_and_keeps_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = LogFile::open(path.clone(), 1000).unwrap();
        for number in 0..500 {
            log.append(&format!("line {number}\n"));
        }
        drop(log);
        let mut log = LogFile::open(path.clone(), 1000).unwrap();
        log.append("after a restart\n");
        let current = std::fs::read_to_string(&path).unwrap();
        let previous = std::fs::read_to_string(directory.path().join("log.1")).unwrap();
        assert!(current.len() <= 1000 && previous.len() <= 1000);
        assert!(current.ends_with("line 499\nafter a restart\n"));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
