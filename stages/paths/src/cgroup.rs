//! Control groups (cgroups) of version 2.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// Where the root of the groups is mounted, as this process sees it: `/sys/fs/cgroup`, or `/sys/fs/cgroup/unified` beside version 1.
///
/// # Errors
/// When it is mounted nowhere.
pub fn root() -> Result<PathBuf> {
    const MOUNTS: &str = "/proc/self/mounts";
    let mounts = std::fs::read(MOUNTS).with_context(|| format!("cannot read {MOUNTS}"))?;
    find(&mounts).context("no control groups of version 2 are mounted: mount -t cgroup2 none /sys/fs/cgroup")
}

/// The first mount of them in a list as fstab(5) describes it.
fn find(mounts: &[u8]) -> Option<PathBuf> {
    mounts.split(|byte| *byte == b'\n').find_map(|line| {
        let mut words = line.split(|byte| *byte == b' ').skip(1);
        let (path, kind) = (words.next()?, words.next()?);
        (kind == b"cgroup2").then(|| PathBuf::from(OsString::from_vec(plain(path))))
    })
}

/// A path whose blanks and backslashes are written as three octal digits, as they are.
fn plain(mut written: &[u8]) -> Vec<u8> {
    let mut path = Vec::new();
    while let [first, rest @ ..] = written {
        let digits = rest.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(code.unwrap_or(*first));
        written = if code.is_some() { &rest[3..] } else { rest };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_found_wherever_it_is_mounted() {
        let systemd = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        assert_eq!(find(systemd.as_bytes()), Some("/sys/fs/cgroup".into()));
        let hybrid = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(find(hybrid.as_bytes()), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(find(b"none /a\\040b\\134c cgroup2 rw 0 0"), Some("/a b\\c".into()));
        assert_eq!(find(b"cgroup /sys/fs/cgroup cgroup rw 0 0\n\n"), None);
    }
}
