//! Puts a configuration in its place: whole, or not at all.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

/// What to do where it cannot be written.
const ELSEWHERE: &str = "name another file with -o, or print the configuration with -o -";

/// Files that are kept at most.
const KEPT_MOST: usize = 99;

/// Writes a file. One that is there is kept as `FILE.old`, or `FILE.old.2` and so on, whose path is returned; its mode and owner go on.
/// Where the path is a symbolic link, the file that it leads to is replaced.
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
    let new = write(directory, text, path).with_context(failed)?;
    let kept = keep(path).with_context(failed)?;
    if let Err(error) = new.persist(path) {
        // It is the second name of what is still in its place.
        kept.iter().for_each(|kept| _ = fs::remove_file(kept));
        return Err(error.error).with_context(failed);
    }
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .with_context(failed)?;
    Ok(kept)
}

/// Writes the text beside its place, with the mode and owner of what is there.
fn write(directory: &Path, text: &str, path: &Path) -> std::io::Result<NamedTempFile> {
    let mut new = NamedTempFile::with_prefix_in(".tarn.toml.", directory)?;
    match fs::metadata(path) {
        Ok(before) => {
            fchown(new.as_file(), Some(before.uid()), Some(before.gid()))?;
            new.as_file().set_permissions(before.permissions())?;
        }
        Err(_) => new.as_file().set_permissions(Permissions::from_mode(0o644))?,
    }
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    Ok(new)
}

/// Gives what is there a second name that nothing has yet: the file stays in its place until the new one is there.
fn keep(path: &Path) -> std::io::Result<Option<PathBuf>> {
    for number in 1..=KEPT_MOST {
        let kept = old(path, number);
        match fs::hard_link(path, &kept) {
            Ok(()) => return Ok(Some(kept)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn old(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    if number > 1 {
        name.push(format!(".{number}"));
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Somebody's configuration is not lost, whatever it looks like, wherever it lies, and however often it is written anew.
    #[test]
    fn what_was_there_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("etc/tarn.conf"), directory.path().join("link"));
        assert_eq!(replace(&path, "first").unwrap(), None);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&path, &link).unwrap();
        let mut kept = Vec::new();
        for text in ["second", "third", "fourth"] {
            kept.extend(replace(&link, text).unwrap());
        }
        let named: Vec<_> = kept.iter().map(|kept| kept.file_name().unwrap()).collect();
        assert_eq!(named, ["tarn.conf.old", "tarn.conf.old.2", "tarn.conf.old.3"]);
        let texts: Vec<_> = kept.iter().map(|kept| fs::read_to_string(kept).unwrap()).collect();
        assert_eq!(texts, ["first", "second", "third"]);
        assert_eq!(fs::read_to_string(&link).unwrap(), "fourth");
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 4);
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
