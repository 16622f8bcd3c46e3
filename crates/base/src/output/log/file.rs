//! A log file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// A file of bounded size, with one predecessor of that size at most.
pub struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
}

impl LogFile {
    /// Opens or makes it. `limit` is the size in bytes at which it is begun anew.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: PathBuf, limit: u64) -> Result<Self> {
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

    /// Appends a line, line break included. What cannot be written is lost.
    pub fn append(&mut self, line: &str) {
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
