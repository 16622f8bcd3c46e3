//! Where tarn keeps what it knows about a network namespace: `/run/tarn/netns-COOKIE/`.
//!
//! | file | what it is |
//! |---|---|
//! | `lock` | held by whoever changes anything; its text says who |
//! | `journal` | what was changed and how to put it back |
//! | `journal.completed` | empty; there once a `tarn up` has completed |
//! | `agent` | held locked by the agent as long as it lives; its text says which process |
//! | `control.sock` | the agent's control socket |
//! | `log` | the agent's log, where no systemd keeps it |
//!
//! and whatever a stage keeps there. The directory belongs to root alone, and is gone after `tarn down`; one that other
//! users could write to is refused.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::ending;
use tarn_kernel::netns;

mod lock;

pub use lock::Lock;
use lock::Turn;

/// Where the state directories of all namespaces lie.
const ROOT: &str = "/run/tarn";

/// The file in it that has the agent's events.
pub const EVENTS: &str = "events";

/// What the frame keeps in a state directory, also with endings: see above.
const FRAME_FILES: [&str; 6] = ["lock", "journal", "agent", "control", "log", EVENTS];

/// How long to wait for another tarn to finish.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// How often a directory is made or removed again when another tarn is at the same.
const ATTEMPTS: u32 = 100;

/// A `tarn up` that takes longer hangs.
const UP_MOST: Duration = Duration::from_secs(60);
/// How often a held lock is tried again. flock(2) has no time limit of its own.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The state directory of one network namespace. It need not exist.
#[derive(Debug, Clone)]
pub struct StateDirectory {
    root: PathBuf,
    path: PathBuf,
}

impl StateDirectory {
    /// The value in a file here; `None` when there is no such file.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged.
    pub fn read_json<T: serde::de::DeserializeOwned>(&self, file: &str) -> Result<Option<T>> {
        let path = self.path().join(file);
        match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .with_context(|| format!("{} is damaged: run `tarn down`, then `tarn up`", path.display())),
        }
    }

    /// Puts a value into a file here: whole, or not at all.
    ///
    /// # Errors
    /// A full disk, no rights.
    pub fn write_json(&self, file: &str, value: &impl serde::Serialize) -> Result<()> {
        self.write_json_if(file, value, || Ok(()))
    }

    /// The same, where it may still be refused once the disk has taken it: `decide` is called just before the file changes.
    ///
    /// # Errors
    /// A full disk, no rights, or what `decide` fails of.
    pub fn write_json_if(
        &self,
        file: &str,
        value: &impl serde::Serialize,
        decide: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let path = self.path().join(file);
        let new = path.with_extension("json.new");
        let failed = || format!("cannot write {}", path.display());
        fs::write(&new, serde_json::to_vec(value)?).with_context(failed)?;
        if let Err(error) = decide() {
            // What is left over is overwritten by the next one.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        fs::rename(&new, &path).with_context(failed)
    }

    /// Removes files from here. Those that are not there are no error.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove_files(&self, files: &[&str]) -> Result<()> {
        for path in files.iter().map(|file| self.path.join(file)) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// That of the network namespace this thread is in.
    ///
    /// # Errors
    /// When the kernel cannot tell namespaces apart (before 5.14).
    pub fn of_this_namespace() -> Result<Self> {
        Ok(Self::at(Path::new(ROOT), &format!("netns-{}", netns::cookie()?)))
    }

    /// A directory `name` below `root`.
    pub fn at(root: &Path, name: &str) -> Self {
        Self {
            root: root.to_path_buf(),
            path: root.join(name),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name, which says what namespace it is about.
    pub fn name(&self) -> String {
        self.path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// Those of other network namespaces where something is up.
    ///
    /// # Errors
    /// When the directory that they lie in cannot be read.
    pub fn others(&self) -> Result<Vec<Self>> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.with_context(|| format!("cannot read {}", self.root.display()))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let others = names.filter(|name| name.starts_with("netns-") && *name != self.name());
        Ok(others.map(|name| Self::at(&self.root, &name)).collect())
    }

    /// A file here that a stage keeps as long as it is up, if there is one: none of the frame's own.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn stage_file(&self) -> Result<Option<PathBuf>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read {}", self.path.display()))?,
        };
        let is_stages = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| {
                !FRAME_FILES
                    .iter()
                    .any(|own| name == *own || name.starts_with(&format!("{own}.")))
            })
        };
        Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).find(is_stages))
    }

    /// Whether it exists: something is up, or a crash left something to finish.
    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// Makes it, readable for root alone. Making it twice is no error.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(&self) -> Result<()> {
        let failed = || {
            let shown = self.path.display();
            format!("cannot make the directory {shown}, where tarn keeps what it needs to put the host back")
        };
        let made = || make(&self.root, 0o755).and_then(|()| make(&self.path, 0o700));
        let mut result = made();
        // Between the two, another `tarn down` may take the root away, which was empty.
        for _ in 0..ATTEMPTS {
            match &result {
                Err(error) if error.kind() == ErrorKind::NotFound => result = made(),
                _ => break,
            }
        }
        result.with_context(failed)?;
        private(&self.root)?;
        private(&self.path)
    }

    /// Takes the lock that everybody holds who changes anything, and makes the directory for it. Waits up to 10 s
    /// for other holders: threads of this process get it in the order in which they ask, and leave it to another process that
    /// waits. `verb` tells others what is going on.
    ///
    /// # Errors
    /// When others hold it for longer; the message says which. [`ending::check`]'s.
    pub fn lock_for(&self, verb: &str) -> Result<Lock> {
        let patience = Instant::now() + LOCK_PATIENCE;
        let turn = Turn::take(&self.path, patience)?.ok_or_else(|| self.locked_by_another())?;
        let mut waiting = None;
        self.create()?;
        if Lock::is_held(&self.waiting_path()) {
            // Whoever waits there tries again meanwhile.
            std::thread::sleep(LOCK_INTERVAL + LOCK_INTERVAL / 4);
        }
        loop {
            ending::check()?;
            self.create()?;
            match self.try_lock(verb)? {
                Some(lock) => return Ok(lock.in_turn(turn)),
                None if Instant::now() >= patience => return Err(self.locked_by_another()),
                None => {
                    waiting = waiting.or_else(|| Lock::try_share(&self.waiting_path()));
                    std::thread::sleep(LOCK_INTERVAL);
                }
            }
        }
    }

    /// Locked by those who wait for the lock, and share it.
    fn waiting_path(&self) -> PathBuf {
        self.path.join("lock.waiting")
    }

    /// Takes the lock if nobody holds it and the directory is there.
    ///
    /// # Errors
    /// When the lock's file cannot be used.
    pub fn try_lock(&self, verb: &str) -> Result<Option<Lock>> {
        let taken = match Lock::try_take(&self.path.join("lock")) {
            // The holder before us may be removing the directory.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            taken => taken.with_context(|| format!("cannot lock {}", self.path.display()))?,
        };
        Ok(taken.inspect(|lock| lock.tell(verb)))
    }

    /// Whether anybody holds the lock.
    pub fn is_locked(&self) -> bool {
        Lock::is_held(&self.path.join("lock"))
    }

    /// Whether a `tarn up` holds the lock, and has not held it for longer than it takes: one that hangs is no excuse for what does not
    /// work.
    pub fn is_coming_up(&self) -> bool {
        let path = self.path.join("lock");
        let holder = std::fs::read_to_string(&path).unwrap_or_default();
        let verb = holder.split_once(' ').map(|(_, verb)| verb.trim());
        let taken = std::fs::metadata(&path).and_then(|found| found.modified());
        let is_recent = taken.is_ok_and(|taken| taken.elapsed().is_ok_and(|since| since < UP_MOST));
        verb == Some("up") && is_recent && self.is_locked()
    }

    fn locked_by_another(&self) -> anyhow::Error {
        let holder = std::fs::read_to_string(self.path.join("lock")).unwrap_or_default();
        match holder.split_once(' ') {
            Some((pid, verb)) if pid == std::process::id().to_string() => anyhow!(
                "others are being served: `tarn {}` and what waits before this have not finished in {} s: try again",
                verb.trim(),
                LOCK_PATIENCE.as_secs()
            ),
            Some((pid, verb)) => anyhow!(
                "another tarn is at work here: process {pid} (tarn {}) has not finished in {} s: wait for it, or end \
                 it with `kill -9 {pid}`, which loses nothing: `tarn down` finishes its work",
                verb.trim(),
                LOCK_PATIENCE.as_secs()
            ),
            None => anyhow!(
                "another tarn is at work here and has not finished in {} s",
                LOCK_PATIENCE.as_secs()
            ),
        }
    }

    /// Removes the directory with all that is in it, and `/run/tarn` when it is empty.
    ///
    /// It gets another name first: so a crash leaves all of it or nothing that another tarn would take for something,
    /// and one that waits for the lock makes a directory of its own. Does nothing when `lock` is not that of the
    /// directory any more: it was removed, and what is there now is somebody else's.
    ///
    /// # Errors
    /// When something in it cannot be removed.
    pub fn remove(&self, lock: &Lock) -> Result<()> {
        if !lock.is_of(&self.path.join("lock")) {
            return Ok(());
        }
        let failed = || format!("cannot remove the state directory {}", self.path.display());
        for _ in 0..ATTEMPTS {
            self.sweep().with_context(failed)?;
            match std::fs::rename(&self.path, self.removed()) {
                // Another tarn's, which has come and gone since we looked.
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                renamed => {
                    renamed.with_context(failed)?;
                    break;
                }
            }
        }
        self.sweep().with_context(failed)
    }

    /// Removes what a crash in the middle of [`StateDirectory::remove`] left, and `/run/tarn` when it is empty.
    ///
    /// # Errors
    /// When something of it cannot be removed.
    pub fn sweep(&self) -> std::io::Result<()> {
        let mut swept = Ok(());
        for _ in 0..ATTEMPTS {
            swept = std::fs::remove_dir_all(self.removed());
            match &swept {
                // Another tarn, whose directory it is now, has put it there while we removed what was there.
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                _ => break,
            }
        }
        match swept {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Not empty: another namespace's directory is in it.
        let _ = std::fs::remove_dir(&self.root);
        Ok(())
    }

    /// What the directory is called while it is removed.
    fn removed(&self) -> PathBuf {
        self.root.join(format!(".{}.removed", self.name()))
    }
}

/// Makes a directory; one that is there already is no error.
fn make(directory: &Path, mode: u32) -> std::io::Result<()> {
    match DirBuilder::new().mode(mode).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        // Without what the umask takes: who may not look in here sees that something is up all the same.
        made => made.and_then(|()| fs::set_permissions(directory, Permissions::from_mode(mode))),
    }
}

/// Refuses a directory in which another user could put files for us to obey: what the journal names is undone as root.
fn private(directory: &Path) -> Result<()> {
    let shown = directory.display();
    let found = match std::fs::symlink_metadata(directory) {
        // Another `tarn down` has just removed it: who takes the lock makes it anew.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.with_context(|| format!("cannot look at {shown}"))?,
    };
    let us = nix::unistd::geteuid().as_raw();
    // None of the remedies deletes anything: the journals of other namespaces may be in there.
    let (wrong, remedy) = if !found.is_dir() {
        (
            "is no directory",
            format!("move it out of the way: `mv {shown} {shown}.old`"),
        )
    } else if found.uid() != us && found.uid() != 0 {
        let remedy = format!("look at what it holds; if all of it is tarn's, `chown -R root: {shown}`");
        ("belongs to another user, so what it holds cannot be trusted", remedy)
    } else if found.mode() & 0o022 != 0 {
        let remedy = format!("look at what it holds; if all of it is tarn's, `chmod go-w {shown}`");
        (
            "can be written by other users, so what it holds cannot be trusted",
            remedy,
        )
    } else {
        return Ok(());
    };
    Err(anyhow!("{shown} {wrong}: {remedy}"))
}

/// Reads at most `limit` bytes of a file, as text.
///
/// # Errors
/// When it cannot be read or is no UTF-8.
pub fn read_bounded(path: &Path, limit: u64) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(limit).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn state() -> (tempfile::TempDir, StateDirectory) {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(&directory.path().join("tarn"), "netns-7");
        (directory, state)
    }

    #[test]
    fn after_down_nothing_is_left_in_run() {
        let (directory, state) = state();
        assert!(!state.exists());
        let lock = state.lock_for("test").unwrap();
        assert!(state.exists());
        std::fs::write(state.path().join("journal"), "x").unwrap();
        std::fs::create_dir(state.path().join("maps")).unwrap();
        std::fs::write(state.path().join("maps/one"), "x").unwrap();
        state.remove(&lock).unwrap();
        state.remove(&lock).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn another_namespace_s_state_is_left_when_this_one_goes_down() {
        let (directory, state) = state();
        let other = StateDirectory::at(&directory.path().join("tarn"), "netns-8");
        other.create().unwrap();
        state.remove(&state.lock_for("test").unwrap()).unwrap();
        assert!(other.exists() && !state.exists());
    }

    /// A module that two namespaces need is not taken out when the first of them goes down.
    #[test]
    fn other_namespaces_are_found_and_nothing_else_is() {
        let (directory, state) = state();
        assert!(state.others().unwrap().is_empty());
        state.create().unwrap();
        let other = StateDirectory::at(&directory.path().join("tarn"), "netns-8");
        other.create().unwrap();
        std::fs::create_dir(directory.path().join("tarn/.netns-9.removed")).unwrap();
        let names: Vec<String> = state.others().unwrap().iter().map(StateDirectory::name).collect();
        assert_eq!(names, ["netns-8"]);
    }

    #[test]
    fn what_another_tarn_has_begun_since_is_not_removed() {
        let (_directory, state) = state();
        state.create().unwrap();
        let old = state.try_lock("old").unwrap().unwrap();
        state.remove(&old).unwrap();
        let _new = state.lock_for("new").unwrap();
        std::fs::write(state.path().join("journal"), "x").unwrap();
        state.remove(&old).unwrap();
        assert!(state.path().join("journal").exists());
    }

    #[test]
    fn who_waits_in_vain_is_told_for_whom() {
        let (_directory, state) = state();
        let lock = state.lock_for("up").unwrap();
        lock.tell("redirect add");
        assert!(state.try_lock("down").unwrap().is_none());
        let told = state.locked_by_another().to_string();
        assert!(told.contains("`tarn redirect add`") && !told.contains("kill"), "{told}");
        lock.write("1 redirect add").unwrap();
        let told = state.locked_by_another().to_string();
        let holder = "process 1 (tarn redirect add)";
        assert!(told.contains(holder) && told.contains("kill -9"), "{told}");
        lock.tell("redirect add");
        drop(lock);
    }

    #[test]
    fn a_crash_in_the_middle_of_down_leaves_nothing_that_is_taken_for_something() {
        let (directory, state) = state();
        let lock = state.lock_for("down").unwrap();
        std::fs::write(state.path().join("rules.jsonl"), "x").unwrap();
        std::fs::rename(state.path(), state.removed()).unwrap();
        assert!(!state.exists());
        assert!(state.try_lock("up").unwrap().is_none());
        drop(lock);
        state.remove(&state.lock_for("up").unwrap()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_obeyed() {
        let (_directory, state) = state();
        state.create().unwrap();
        for (path, mode) in [(&state.root, 0o755), (&state.path, 0o700)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
            let told = format!("{:#}", state.lock_for("up").unwrap_err());
            assert!(told.contains("can be written by other users"), "{told}");
            let remedy = format!("`chmod go-w {}`", path.display());
            assert!(told.contains(&remedy) && !told.contains("rm -r"), "{told}");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        state.lock_for("up").unwrap();
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let (directory, state) = state();
        std::fs::create_dir(&state.root).unwrap();
        std::os::unix::fs::symlink(directory.path(), &state.path).unwrap();
        let told = format!("{:#}", state.lock_for("up").unwrap_err());
        assert!(told.contains("is no directory"), "{told}");
    }

    #[test]
    fn other_users_cannot_look_into_it() {
        let (_directory, state) = state();
        state.create().unwrap();
        assert_eq!(
            std::fs::metadata(state.path()).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }

    #[test]
    fn two_never_change_things_at_once_even_when_the_directory_goes_in_between() {
        let (_directory, state) = state();
        let inside = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..60 {
                        let lock = state.lock_for("test").unwrap();
                        assert!(!inside.swap(true, std::sync::atomic::Ordering::SeqCst));
                        std::thread::yield_now();
                        inside.store(false, std::sync::atomic::Ordering::SeqCst);
                        if round % 2 == 0 {
                            state.remove(&lock).unwrap();
                        }
                    }
                });
            }
        });
    }
}
