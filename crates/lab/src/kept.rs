//! Files that are named for what they were made from: what is asked for again is read instead of being made again.
//!
//! Several processes may read and write the same at the same time.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

use super::cache;

/// The place of one such file.
pub struct Kept {
    path: PathBuf,
    /// Of more files in its directory, those that were used least recently are forgotten.
    most: usize,
}

impl Kept {
    /// The file in a directory that is made from all of these parts.
    pub fn of(directory: &Path, parts: &[Vec<u8>], extension: &str, most: usize) -> Self {
        let path = directory.join(format!("{}.{extension}", key(parts)));
        Self { path, most }
    }

    /// Its content, if there is any.
    pub fn read(&self) -> Option<Vec<u8>> {
        let mut file = File::options().read(true).append(true).open(&self.path).ok()?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).ok()?;
        // What is used stays.
        let _ = file.set_modified(SystemTime::now());
        Some(content)
    }

    /// Removes it, if it is there.
    pub fn forget(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Writes it whole: after a power cut it is there as it was written, or not at all.
    ///
    /// # Errors
    /// When the cache cannot be written, as on a full disk.
    pub fn write(&self, content: &[u8]) -> Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        fs::create_dir_all(directory)
            .and_then(|()| write_to_disk(&new, content))
            .and_then(|()| fs::rename(&new, &self.path))
            .with_context(|| cache::cannot_write(&self.path))?;
        forget_the_oldest(directory, self.most).with_context(|| cache::cannot_write(directory))
    }
}

fn write_to_disk(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    // The time that a file system notes is coarse: of two files that are written one after the other, it may not tell the older.
    file.set_modified(SystemTime::now())?;
    file.sync_data()
}

/// Another process, or another thread of this one, may do the same at the same time.
fn forget_the_oldest(directory: &Path, most: usize) -> std::io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) {
            files.push((modified, entry.path()));
        }
    }
    files.sort();
    let surplus = files.len().saturating_sub(most);
    for (_, path) in files.iter().take(surplus) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
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

    fn kept(directory: &Path, parts: &[&str]) -> Kept {
        let parts: Vec<_> = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
        Kept::of(&directory.join("kept"), &parts, "txt", 3)
    }

    /// A change of anything that a file is made from makes another file.
    #[test]
    fn every_part_counts_and_so_do_their_borders() {
        let directory = tempfile::tempdir().unwrap();
        let kept = |parts: &[&str]| kept(directory.path(), parts);
        assert_eq!(kept(&["ab", "c"]).read(), None);
        kept(&["ab", "c"]).write(b"content").unwrap();
        assert_eq!(kept(&["ab", "c"]).read().unwrap(), b"content");
        assert_eq!(kept(&["a", "bc"]).read(), None);
        assert_eq!(kept(&["ab", "d"]).read(), None);
        kept(&["ab", "c"]).forget();
        assert_eq!(kept(&["ab", "c"]).read(), None);
    }

    /// A cache that only grows fills the disk; one that forgets what is in use makes it again and again.
    #[test]
    fn the_number_of_files_is_bounded_and_what_is_used_stays() {
        let directory = tempfile::tempdir().unwrap();
        let kept = |name: &str| kept(directory.path(), &[name]);
        for name in ["a", "b", "c"] {
            kept(name).write(name.as_bytes()).unwrap();
        }
        assert!(kept("a").read().is_some());
        kept("d").write(b"d").unwrap();
        let here: Vec<_> = ["a", "b", "c", "d"].map(|name| kept(name).read().is_some()).into();
        assert_eq!(here, [true, false, true, true]);
    }
}
