//! The file of a Unix socket: made by the agent, and removed by the one that has made it.

use std::fs;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use nix::sys::stat::{Mode, fchmod};

/// A socket at a path.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The device and inode of the file that was made.
    made: Option<(u64, u64)>,
    /// Whether none is to be made any more.
    has_ended: bool,
}

impl SocketFile {
    /// There is none yet.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            state: Mutex::default(),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it, and listens. A socket that nobody listens on is replaced. Root alone may connect, unless somebody changes its mode.
    ///
    /// # Errors
    /// Something else is there, or somebody listens there; the agent ends; or the file cannot be made.
    pub fn listen(&self) -> std::io::Result<UnixListener> {
        let mut state = self.state();
        if state.has_ended {
            return Err(Error::other("the agent ends"));
        }
        make_room(&self.path)?;
        let socket = stream()?;
        // bind(2) gives the file the socket's own mode. Afterwards, somebody who may write to the directory could have replaced it.
        fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
        bind(socket.as_raw_fd(), &UnixAddr::new(&self.path)?)?;
        state.made = Some(identity(&self.path)?);
        listen(&socket, Backlog::MAXCONN)?;
        Ok(UnixListener::from(socket))
    }

    /// Removes it, unless it has become somebody else's, and makes none any more.
    pub fn remove(&self) {
        let mut state = self.state();
        state.has_ended = true;
        let is_ours = |made| identity(&self.path).is_ok_and(|found| found == made);
        if state.made.take().is_some_and(is_ours) {
            // It may be gone by now.
            let _ = fs::remove_file(&self.path);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Removes a socket that nobody listens on.
fn make_room(path: &Path) -> std::io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(Error::other("something else is there: remove it, or use another path"));
    }
    if is_listened_on(path)? {
        return Err(ErrorKind::AddrInUse.into());
    }
    fs::remove_file(path)
}

fn stream() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}

fn is_listened_on(path: &Path) -> std::io::Result<bool> {
    match connect(stream()?.as_raw_fd(), &UnixAddr::new(path)?) {
        // Its queue may be full.
        Ok(()) | Err(Errno::EAGAIN) => Ok(true),
        Err(Errno::ECONNREFUSED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    /// connect(2) refuses a file as it refuses a socket that nobody listens on.
    #[test]
    fn a_file_of_somebody_else_is_never_removed() {
        let directory = directory();
        let path = directory.path().join("tarn.toml");
        fs::write(&path, "[page]\n").unwrap();
        let socket = SocketFile::at(&path);
        assert!(socket.listen().unwrap_err().to_string().contains("something else"));
        socket.remove();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[page]\n");
    }

    /// Two namespaces with one configuration: the second agent's end must not take the first one's page away.
    #[test]
    fn a_socket_of_another_agent_stays() {
        let directory = directory();
        let path = directory.path().join("page.sock");
        let (first, second) = (SocketFile::at(&path), SocketFile::at(&path));
        let _listener = first.listen().unwrap();
        assert_eq!(second.listen().unwrap_err().kind(), ErrorKind::AddrInUse);
        second.remove();
        assert!(path.exists());
        first.remove();
        assert!(!path.exists());
        assert!(first.listen().is_err(), "the agent ends");
    }

    #[test]
    fn what_an_agent_that_was_killed_has_left_is_replaced() {
        let directory = directory();
        let path = directory.path().join("page.sock");
        drop(UnixListener::bind(&path).unwrap());
        let _listener = SocketFile::at(&path).listen().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(is_listened_on(&path).unwrap());
    }
}
