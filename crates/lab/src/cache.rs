//! What the lab keeps between runs: `$XDG_CACHE_HOME/tarn` or `~/.cache/tarn`.
//!
//! Everything in it can be deleted at any time and is made again when needed. A directory is made under another
//! name and renamed when it is whole, so an interrupted build leaves nothing that could be taken for an image.

use std::env;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, RenameFlags, renameat2};
use nix::unistd::syncfs;

use super::progress::{Progress, Step};

/// The file in a cached directory that says from what it was made. A directory without it is not whole.
const RECIPE: &str = "recipe";

/// The file that says how long the others are: `BYTES NAME` a line.
const CONTENTS: &str = "contents";

/// How long what an interrupted build left may go on to change: mmdebstrap takes a moment to end and to clean up.
const LEFTOVERS: Duration = Duration::from_secs(10);

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

    /// Whether the slot is filled from exactly this recipe, and its files are as long as they were made.
    fn holds(&self, recipe: &str) -> bool {
        let path = self.path();
        if fs::read_to_string(path.join(RECIPE)).is_ok_and(|found| found != recipe) || !path.join(RECIPE).exists() {
            return false;
        }
        // Slots made before there was such a file are taken as they are.
        fs::read_to_string(path.join(CONTENTS)).map_or(true, |listed| contents(&path).is_ok_and(|now| now == listed))
    }

    /// Has `make` fill the slot, unless it is filled from exactly this recipe; `again`, even then. When somebody else is
    /// filling it, that is waited for first.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn ensure(
        &self,
        recipe: &str,
        again: bool,
        task: &str,
        progress: &Progress,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        if !again && self.holds(recipe) {
            return Ok(());
        }
        let _lock = self.lock(|| progress.line(&format!("{task}: waiting for another tarn that is making it")))?;
        if again || !self.holds(recipe) {
            progress.show(&Step::first(task, "starting"));
            self.fill(recipe, make)?;
            progress.end(task);
        }
        Ok(())
    }

    /// Waits until nobody else fills the slot. `waiting` is called when somebody does.
    ///
    /// # Errors
    /// When the cache cannot be written.
    fn lock(&self, waiting: impl FnOnce()) -> Result<Flock<File>> {
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
    fn fill(&self, recipe: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let new = self.parent.join(format!(".{}.new", self.name));
        remove(&new)?;
        fs::create_dir_all(&new).with_context(|| cannot_write(&new))?;
        let made = make(&new).and_then(|()| seal(&new, recipe).with_context(|| cannot_write(&new)));
        if let Err(error) = made {
            let _ = remove(&new);
            return Err(error);
        }
        exchange(&new, &self.path()).with_context(|| cannot_write(&self.path()))?;
        remove(&new)
    }
}

/// Notes what a directory was made from and holds, and waits until all of it is on the disk: after a power cut, what
/// looks whole has to be.
fn seal(directory: &Path, recipe: &str) -> std::io::Result<()> {
    fs::write(directory.join(CONTENTS), contents(directory)?)?;
    fs::write(directory.join(RECIPE), recipe)?;
    Ok(syncfs(File::open(directory)?)?)
}

/// The files that lie directly in a directory, with their lengths.
fn contents(directory: &Path) -> std::io::Result<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(directory)? {
        let (entry, name) = entry.map(|entry| (entry.metadata(), entry.file_name()))?;
        let (entry, name) = (entry?, name.to_string_lossy().into_owned());
        if entry.is_file() && name != RECIPE && name != CONTENTS {
            lines.push(format!("{} {name}\n", entry.len()));
        }
    }
    lines.sort();
    Ok(lines.concat())
}

/// Puts a directory in another's place in one step, where the file system can; what was there lies in `new` then.
fn exchange(new: &Path, place: &Path) -> std::io::Result<()> {
    if renameat2(AT_FDCWD, new, AT_FDCWD, place, RenameFlags::RENAME_EXCHANGE).is_ok() {
        return Ok(());
    }
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::rename(new, place),
    }
}

/// What is said when something in the cache cannot be written.
pub fn cannot_write(path: &Path) -> String {
    format!(
        "cannot write {}: the lab's cache must be writable and have about 1 GB free",
        path.display()
    )
}

/// Removes a directory and what is in it; it is no error when there is none.
fn remove(path: &Path) -> Result<()> {
    let since = Instant::now();
    loop {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && since.elapsed() < LEFTOVERS => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).with_context(|| cannot_write(path)),
            _ => return Ok(()),
        }
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
        assert!(!home.path().join("trixie/.image.new").exists());
    }

    /// A guest with half a root file system would panic, and nobody would know why.
    #[test]
    fn a_file_that_was_cut_short_makes_the_slot_anew() {
        let home = tempfile::tempdir().unwrap();
        let slot = Slot::below(home.path().to_owned(), "image");
        slot.fill("bash", |path| Ok(fs::write(path.join("base.cpio"), "whole")?))
            .unwrap();
        assert!(slot.holds("bash"));
        fs::write(slot.path().join("base.cpio"), "half").unwrap();
        assert!(!slot.holds("bash"));
        fs::remove_file(slot.path().join("base.cpio")).unwrap();
        assert!(!slot.holds("bash"));
    }

    /// What a killed build left, and its helpers still write to for a moment, must not be in the way of the next.
    #[test]
    fn leftovers_that_still_change_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let slot = Slot::below(home.path().to_owned(), "image");
        let left = home.path().join(".image.new/tmp");
        fs::create_dir_all(&left).unwrap();
        let until = Instant::now() + Duration::from_millis(300);
        let writer = std::thread::spawn(move || {
            for number in 0.. {
                if Instant::now() > until {
                    break;
                }
                let _ = fs::write(left.join(format!("{number}")), "x");
            }
        });
        slot.fill("bash", |_| Ok(())).unwrap();
        writer.join().unwrap();
        assert!(slot.holds("bash"));
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
