//! A conversation that has to be over in time, however slowly the other end speaks or listens.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// How often a socket whose queue is full is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A stream, until a point in time. The time limits of a socket itself count for each system call, so that a byte now
/// and then would keep it for ever.
#[derive(Debug)]
pub struct Patient<'a> {
    stream: &'a UnixStream,
    end: Instant,
}

impl<'a> Patient<'a> {
    /// Reads and writes that are over when `patience` is.
    pub fn with(stream: &'a UnixStream, patience: Duration) -> Self {
        let end = Instant::now() + patience;
        Self { stream, end }
    }

    /// What is left of the time.
    fn left(&self) -> Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(too_long()),
            false => Ok(Some(left)),
        }
    }
}

fn too_long() -> Error {
    Error::new(ErrorKind::TimedOut, "it takes too long")
}

/// A socket's time limit ends a system call with EAGAIN.
fn in_words(error: Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock => too_long(),
        _ => error,
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer).map_err(in_words)
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(in_words)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Connects to a socket. One whose owner hangs has a full queue after a while, at which connect(2) would wait for ever.
pub fn connect_within(path: &Path, patience: Duration) -> Result<UnixStream> {
    let end = Instant::now() + patience;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = UnixAddr::new(path)?;
    loop {
        match connect(fd.as_raw_fd(), &address) {
            Err(Errno::EAGAIN) if Instant::now() < end => std::thread::sleep(RETRY_INTERVAL),
            Err(Errno::EAGAIN) => return Err(Error::new(ErrorKind::TimedOut, "its queue is full")),
            connected => {
                connected?;
                break;
            }
        }
    }
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::sys::socket::{Backlog, listen};

    use super::*;

    #[test]
    fn who_speaks_a_byte_at_a_time_is_not_listened_to_for_ever() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let dribble = std::thread::spawn(move || {
            while theirs.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let start = Instant::now();
        let mut patient = Patient::with(&ours, Duration::from_millis(200));
        assert!(std::io::copy(&mut patient, &mut std::io::sink()).is_err());
        assert!(start.elapsed() < Duration::from_secs(20));
        drop(ours);
        dribble.join().unwrap();
    }

    #[test]
    fn who_takes_nothing_is_not_spoken_to_for_ever() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut patient = Patient::with(&ours, Duration::from_millis(50));
        assert!(patient.write_all(&vec![0; 16 << 20]).is_err());
    }

    #[test]
    fn a_socket_whose_owner_hangs_does_not_hang_its_clients() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let brief = Duration::from_millis(50);
        let mut waiting = Vec::new();
        let told = loop {
            match connect_within(&path, brief) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(told.kind(), ErrorKind::TimedOut, "after {}: {told}", waiting.len());
    }
}
