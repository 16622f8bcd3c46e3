//! The lock of a state directory, and whose turn it is.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tarn_base::error::Ending;

use super::LOCK_INTERVAL;
use crate::ending;

/// A file that is locked as long as this lives, and whose text says by whom: the right to change things in this namespace, or
/// to be its agent.
///
/// The lock belongs to the open file, which a copy of the process (fork(2)) has open too: it is held until the last of them
/// has closed it.
#[derive(Debug)]
pub struct Lock {
    file: File,
    /// Until this is dropped, other threads of this process wait.
    _turn: Option<Turn>,
}

impl Lock {
    /// Takes the lock of this file if nobody holds it.
    ///
    /// # Errors
    /// When the file can be neither opened nor made.
    pub fn try_take(path: &Path) -> std::io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        // SAFETY: flock() takes no pointer, and the descriptor is open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let error = std::io::Error::last_os_error();
            return match error.kind() {
                ErrorKind::WouldBlock => Ok(None),
                _ => Err(error),
            };
        }
        // Between opening and locking, the holder before us may have removed the file: then this is a lock on
        // nothing, and others would lock another file of that name.
        let lock = Self { file, _turn: None };
        Ok(lock.is_of(path).then_some(lock))
    }

    /// Shares the lock of this file, which is made if it is not there; `None` when that cannot be.
    pub(super) fn try_share(path: &Path) -> Option<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).ok()?;
        // SAFETY: flock() takes no pointer, and the descriptor is open.
        let is_shared = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } == 0;
        is_shared.then_some(Self { file, _turn: None })
    }

    /// Ends the turn together with the lock.
    pub(super) fn in_turn(self, turn: Turn) -> Self {
        Self {
            _turn: Some(turn),
            ..self
        }
    }

    /// Whether somebody holds the lock of this file, or shares it. Makes no file.
    pub fn is_held(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        // SAFETY: flock() takes no pointer, and the descriptor is open; a lock gained ends when it is closed.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) != 0 }
    }

    /// Replaces the file's text.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, text: &str) -> std::io::Result<()> {
        self.file
            .set_len(0)
            .and_then(|()| self.file.write_all_at(text.as_bytes(), 0))
    }

    /// Tells others that this process holds the lock now, and what for. On a full disk they are not told.
    pub fn tell(&self, verb: &str) {
        let _ = self.write(&format!("{} {verb}", std::process::id()));
    }

    /// Whether this is the lock in the file at `path`, and not one of that name that was removed since.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        match (self.file.metadata(), std::fs::metadata(path)) {
            (Ok(held), Ok(there)) => held.ino() == there.ino() && held.dev() == there.dev(),
            _ => false,
        }
    }
}

impl AsRawFd for Lock {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A thread's turn to lock: flock(2) keeps no order, and a busy session of the agent would starve the others.
#[derive(Debug)]
pub(super) struct Turn(u64);

/// Those who wait in this process or whose turn it is, in the order in which they came.
#[derive(Debug)]
struct Queue {
    next: u64,
    here: Vec<(u64, PathBuf)>,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    next: 0,
    here: Vec::new(),
});
static LEFT: Condvar = Condvar::new();

impl Turn {
    fn behind_others(path: &Path) -> Self {
        let mut queue = queue();
        let number = queue.next;
        queue.next += 1;
        queue.here.push((number, path.to_owned()));
        Self(number)
    }

    /// Waits for the turn at this path; `None` when it has not come by then.
    ///
    /// # Errors
    /// [`ending::check`]'s.
    pub fn take(path: &Path, patience: Instant) -> Result<Option<Self>, Ending> {
        let turn = Self::behind_others(path);
        let mut queue = queue();
        loop {
            let first = queue.here.iter().find(|(_, at)| at == path);
            if first.is_some_and(|(number, _)| *number == turn.0) {
                return Ok(Some(turn));
            }
            let Some(left) = patience.checked_duration_since(Instant::now()) else {
                return Ok(None);
            };
            ending::check()?;
            // A thread that panicked has left the queue as it was.
            let waited = LEFT.wait_timeout(queue, left.min(LOCK_INTERVAL));
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        queue().here.retain(|(number, _)| *number != self.0);
        LEFT.notify_all();
    }
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lock_outlives_the_process_that_took_it_as_long_as_its_child_works() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = Lock::try_take(&path).unwrap().unwrap();
        let child = Lock {
            file: lock.file.try_clone().unwrap(),
            _turn: None,
        };
        drop(lock);
        assert!(Lock::is_held(&path));
        drop(child);
        assert!(!Lock::is_held(&path));
    }

    /// A session that adds one client after the other would keep all others from their turn.
    #[test]
    fn threads_take_turns_in_the_order_in_which_they_came() {
        let path = Path::new("/turns");
        let soon = || Instant::now() + Duration::from_secs(10);
        let first = Turn::take(path, soon()).unwrap().unwrap();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 1..=3 {
                let order = &order;
                scope.spawn(move || {
                    let _turn = Turn::take(path, soon()).unwrap().unwrap();
                    order.lock().unwrap().push(number);
                });
                while queue().here.iter().filter(|(_, at)| at == path).count() <= number {
                    std::thread::yield_now();
                }
            }
            assert!(Turn::take(path, Instant::now()).unwrap().is_none());
            assert!(Turn::take(Path::new("/another"), Instant::now()).unwrap().is_some());
            drop(first);
        });
        assert_eq!(order.into_inner().unwrap(), [1, 2, 3]);
        assert!(!queue().here.iter().any(|(_, at)| at == path));
    }
}
