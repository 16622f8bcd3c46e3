//! What the lab keeps between runs: `$XDG_CACHE_HOME/tarn` or `~/.cache/tarn`.
//!
//! Everything in it can be deleted at any time and is made again when needed. A directory is made under another
//! name and renamed when it is whole, so an interrupted build leaves nothing that could be taken for an image.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use nix::fcntl::{Flock, FlockArg};

/// The file in a cached directory that says from what it was made. A directory without it is not whole.
const RECIPE: &str = "recipe";

/// The lab's cache directory; it may not exist yet.
///
/// # Errors
/// When neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn directory() -> Result<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("tarn"))
        .context("neither XDG_CACHE_HOME nor HOME is set: set one to say where the lab keeps its images")
}

/// One directory of the cache, made from a recipe.
pub struct Slot {
    parent: PathBuf,
    name: &'static str,
}

impl Slot {
    /// The slot `name` of a suite.
    ///
    /// # Errors
    /// As [`directory`].
    pub fn new(suite: &str, name: &'static str) -> Result<Self> {
        Ok(Self::below(directory()?.join(suite), name))
    }

    fn below(parent: PathBuf, name: &'static str) -> Self {
        Self { parent, name }
    }

    /// The directory itself.
    pub fn path(&self) -> PathBuf {
        self.parent.join(self.name)
    }

    /// Whether the slot is filled from exactly this recipe.
    pub fn holds(&self, recipe: &str) -> bool {
        fs::read_to_string(self.path().join(RECIPE)).is_ok_and(|found| found == recipe)
    }

    /// Waits until nobody else fills the slot. `waiting` is called when somebody does.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn lock(&self, waiting: impl FnOnce()) -> Result<Flock<File>> {
        fs::create_dir_all(&self.parent).with_context(|| cannot_write(&self.parent))?;
        let path = self.parent.join(format!(".{}.lock", self.name));
        let file = File::create(&path).with_context(|| cannot_write(&path))?;
        let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((file, _)) => file,
        };
        waiting();
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, error)| anyhow!(error))
            .with_context(|| cannot_write(&path))
    }

    /// Fills the slot: `make` gets an empty directory, and what it leaves there becomes the slot's content.
    /// The caller holds the lock.
    ///
    /// # Errors
    /// Those of `make`, with the slot left as it was; or when the cache cannot be written.
    pub fn fill(&self, recipe: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let new = self.parent.join(format!(".{}.new", self.name));
        remove(&new)?;
        fs::create_dir_all(&new).with_context(|| cannot_write(&new))?;
        if let Err(error) = make(&new) {
            remove(&new)?;
            return Err(error);
        }
        fs::write(new.join(RECIPE), recipe).with_context(|| cannot_write(&new))?;
        remove(&self.path())?;
        fs::rename(&new, self.path()).with_context(|| cannot_write(&self.path()))
    }
}

fn cannot_write(path: &Path) -> String {
    format!(
        "cannot write {}: the lab's cache must be writable and have about 1 GB free",
        path.display()
    )
}

/// Removes a directory and what is in it; it is no error when there is none.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).with_context(|| cannot_write(path)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    /// A changed package list must not go on with an image that lacks the new package.
    #[test]
    fn another_recipe_is_another_image() {
        let home = tempfile::tempdir().unwrap();
        let slot = Slot::below(home.path().join("trixie"), "image");
        let _lock = slot.lock(|| ()).unwrap();
        assert!(!slot.holds("bash"));
        slot.fill("bash", |path| Ok(fs::write(path.join("base.cpio"), "1")?))
            .unwrap();
        assert!(slot.holds("bash"));
        assert!(!slot.holds("bash,tcpdump"));
        slot.fill("bash,tcpdump", |path| Ok(fs::write(path.join("base.cpio"), "2")?))
            .unwrap();
        assert_eq!(fs::read_to_string(slot.path().join("base.cpio")).unwrap(), "2");
    }

    /// An interrupted build must leave the image that was there, and nothing half made.
    #[test]
    fn a_failed_build_leaves_the_old_image() {
        let home = tempfile::tempdir().unwrap();
        let slot = Slot::below(home.path().to_owned(), "image");
        slot.fill("old", |_| Ok(())).unwrap();
        let failed = slot.fill("new", |path| {
            fs::write(path.join("base.cpio"), "half")?;
            bail!("interrupted")
        });
        assert!(failed.is_err());
        assert!(slot.holds("old"));
        assert!(!home.path().join(".image.new").exists());
    }
}
