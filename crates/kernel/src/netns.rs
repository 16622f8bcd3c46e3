//! The network namespace this process is in, and those that live beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use nix::sched::{CloneFlags, setns};

/// `SO_NETNS_COOKIE` of include/uapi/asm-generic/socket.h, the same on every architecture tarn runs on.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The namespace's cookie: a number that the kernel gives to every network namespace, once and never again until the
/// next boot. An inode number, which `readlink /proc/self/ns/net` shows, is given again.
///
/// # Errors
/// When the kernel has none (before 5.14).
pub fn cookie() -> Result<u64> {
    // A socket of any sort will do; one over IPv4 is there on every kernel that tarn is for.
    let socket = UdpSocket::bind(("0.0.0.0", 0)).map_err(|error| anyhow!("cannot open a socket: {error}"))?;
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `cookie`, and both live for the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        return Err(anyhow!(
            "cannot tell which network namespace this is: {error}: tarn needs Linux 6.1 or newer"
        ));
    }
    Ok(cookie)
}

/// The cookies of all network namespaces that a thread is in, that a process holds open, or that are mounted as `ip netns` does it. Needs
/// root.
///
/// # Errors
/// When they cannot be listed, or entered.
pub fn living() -> Result<BTreeSet<u64>> {
    let mut namespaces = BTreeMap::new();
    for path in places()? {
        // Processes end, and mounts go.
        if let Ok(file) = File::open(path)
            && let Ok(metadata) = file.metadata()
        {
            namespaces.insert((metadata.dev(), metadata.ino()), file);
        }
    }
    namespaces.values().map(cookie_of).collect()
}

/// The entries of a directory; none of one that is gone.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// Where network namespaces can be opened.
fn places() -> Result<Vec<PathBuf>> {
    let is_number = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    };
    let is_namespace = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"net:["))
    };
    let mut places = Vec::new();
    for process in entries(Path::new("/proc")).filter(is_number) {
        places.extend(entries(&process.join("task")).map(|thread| thread.join("ns/net")));
        places.extend(entries(&process.join("fd")).filter(is_namespace));
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("cannot list the mounts")?;
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind) = (words.next()?, words.next()?);
        (kind == "nsfs").then(|| PathBuf::from(path))
    });
    places.extend(mounted);
    Ok(places)
}

/// The cookie of an open namespace: a thread enters it, and ends. What is no network namespace has none.
fn cookie_of(namespace: &File) -> Result<u64> {
    let enter = || match setns(namespace, CloneFlags::CLONE_NEWNET) {
        Ok(()) => cookie(),
        Err(nix::errno::Errno::EINVAL) => Ok(0),
        Err(error) => Err(error).context("cannot enter a network namespace"),
    };
    std::thread::scope(|scope| scope.spawn(enter).join())
        .unwrap_or_else(|_| Err(anyhow!("a thread that was to look at a network namespace has ended")))
}

#[cfg(any(test, feature = "testing"))]
pub mod testing {
    //! Namespaces for tests.

    use nix::sched::{CloneFlags, unshare};

    /// Runs `work` in a network namespace of its own, on a thread of its own. Needs root.
    pub fn in_new_namespace<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let isolated = scope.spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace needs root");
                work()
            });
            isolated.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_knows_itself_again() {
        assert_eq!(cookie().unwrap(), cookie().unwrap());
        assert_ne!(cookie().unwrap(), 0);
    }
}
