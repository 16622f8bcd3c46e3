//! Puts a configuration in its place: whole, or not at all.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What to do where it cannot be written.
const ELSEWHERE: &str = "name another file with -o, or print the configuration with -o -";

/// Writes a file. One that is there is kept as `FILE.old`, whose path is returned; its mode and owner go on. Where the path is a
/// symbolic link, the file that it leads to is replaced.
///
/// # Errors
/// A directory or file that cannot be written: nothing has changed then.
pub fn replace(path: &Path, text: &str) -> Result<Option<PathBuf>> {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let failed = || format!("cannot write {}: {ELSEWHERE}", path.display());
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    fs::create_dir_all(directory).with_context(failed)?;
    let before = fs::metadata(path).ok();
    let new = beside(path, ".new");
    let written = write(&new, text, before.as_ref()).and_then(|()| {
        let kept = before.is_some().then(|| beside(path, ".old"));
        kept.iter().try_for_each(|kept| copy(path, kept))?;
        fs::rename(&new, path)?;
        File::open(directory)?.sync_all()?;
        Ok(kept)
    });
    if written.is_err() {
        // What cannot be removed was not made.
        let _ = fs::remove_file(&new);
    }
    written.with_context(failed)
}

/// The path with something behind its name.
fn beside(path: &Path, behind: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or(OsStr::new("tarn.toml")).to_owned();
    name.push(behind);
    path.with_file_name(name)
}

/// Under a second name as well, the file stays in its place until the new one is there.
fn copy(path: &Path, kept: &Path) -> std::io::Result<()> {
    match fs::remove_file(kept) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::hard_link(path, kept),
    }
}

fn write(new: &Path, text: &str, before: Option<&Metadata>) -> std::io::Result<()> {
    // One that an earlier attempt has left. What somebody else has put there meanwhile is not written to.
    let _ = fs::remove_file(new);
    let mut file = OpenOptions::new().write(true).create_new(true).open(new)?;
    if let Some(before) = before {
        fchown(&file, Some(before.uid()), Some(before.gid()))?;
        file.set_permissions(before.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Somebody's configuration is not lost, whatever it looks like and wherever it lies.
    #[test]
    fn what_was_there_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("etc/tarn.conf"), directory.path().join("link"));
        assert_eq!(replace(&path, "first").unwrap(), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&path, &link).unwrap();
        let kept = replace(&link, "second").unwrap().unwrap();
        assert_eq!(kept.file_name().unwrap(), "tarn.conf.old");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "first");
        assert_eq!(replace(&path, "third").unwrap(), Some(kept.clone()));
        assert_eq!(fs::read_to_string(&kept).unwrap(), "second");
        assert_eq!(fs::read_to_string(&link).unwrap(), "third");
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
    }

    #[test]
    fn a_link_that_lies_in_wait_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "theirs").unwrap();
        let path = directory.path().join("tarn.toml");
        symlink(&victim, beside(&path, ".new")).unwrap();
        replace(&path, "ours").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
    }

    #[test]
    fn nothing_is_left_where_the_file_cannot_be_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tarn.toml");
        fs::create_dir_all(path.join("below")).unwrap();
        let text = format!("{:#}", replace(&path, "ours").unwrap_err());
        assert!(text.contains("-o -"), "{text}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
