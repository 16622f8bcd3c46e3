//! The network namespace this process is in.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use anyhow::{Result, anyhow};

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
