//! Control groups (cgroups) of version 2, and the BPF programs that are called for sockets of their processes.
//!
//! Programs are attached without a `bpf_link`: the group holds them, so they outlive the process. A program is known by its id,
//! which the kernel does not give twice.

use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys as sys;
use nix::errno::Errno;

use crate::attach::{call, errno, open_program};
use crate::undone::Undone;

/// As many programs of one kind as a group can have: `BPF_CGROUP_MAX_PROGS`.
const PROGRAMS_MAX: usize = 64;

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

/// The ids of the programs that a group has for its sockets (sockops), those of the groups above it left out; `None` when there is
/// no such group.
///
/// # Errors
/// What the kernel says.
pub fn socket_programs(group: &Path) -> Result<Option<Vec<u32>>> {
    open(group)?.map(|group| attached(&group)).transpose()
}

/// Attaches a program to the sockets of a group, beside those that are there.
///
/// # Errors
/// There is no such group; somebody else's program there or above allows none beside it.
pub fn attach_to_sockets(group: &Path, program: BorrowedFd<'_>) -> Result<()> {
    let shown = group.display();
    let file = open(group)?.with_context(|| format!("there is no control group {shown}"))?;
    // SAFETY: both file descriptors are open until the call returns.
    let result = call(|| unsafe {
        let (kind, flags) = (sys::BPF_CGROUP_SOCK_OPS, sys::BPF_F_ALLOW_MULTI);
        sys::bpf_prog_attach(program.as_raw_fd(), file.as_raw_fd(), kind, flags)
    });
    let explained = result.map_err(|error| match errno(&error) {
        Some(Errno::EPERM) => {
            error.context("a program there allows no other beside it; `bpftool cgroup tree` shows it")
        }
        _ => error,
    });
    explained.with_context(|| format!("cannot attach a program to the sockets of {shown}"))
}

/// Takes the program with this id from the sockets of a group.
///
/// # Errors
/// What the kernel says.
pub fn detach_from_sockets(group: &Path, id: u32) -> Result<Undone> {
    let Some(file) = open(group)? else {
        return Ok(Undone::Gone);
    };
    let Some(program) = open_program(id)? else {
        return Ok(Undone::Gone);
    };
    // Where the groups are not mounted as they were, nothing is known of them: that is an error.
    let ids = attached(&file).with_context(|| format!("cannot look at the control group {}", group.display()))?;
    if !ids.contains(&id) {
        return Ok(Undone::Gone);
    }
    // SAFETY: both file descriptors are open until the call returns.
    let result =
        call(|| unsafe { sys::bpf_prog_detach2(program.as_raw_fd(), file.as_raw_fd(), sys::BPF_CGROUP_SOCK_OPS) });
    result.with_context(|| format!("cannot take a program from the sockets of {}", group.display()))?;
    Ok(Undone::PutBack)
}

/// A group's directory; `None` when it is gone.
fn open(group: &Path) -> Result<Option<File>> {
    match File::open(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => Ok(Some(
            opened.with_context(|| format!("cannot open {}", group.display()))?,
        )),
    }
}

fn attached(group: &File) -> Result<Vec<u32>> {
    let mut ids = [0_u32; PROGRAMS_MAX];
    let (mut count, mut flags) = (PROGRAMS_MAX as u32, 0);
    // SAFETY: `ids` has room for `count` ids, and all three live until the call returns.
    let result = call(|| unsafe {
        let kind = sys::BPF_CGROUP_SOCK_OPS;
        sys::bpf_prog_query(group.as_raw_fd(), kind, 0, &mut flags, ids.as_mut_ptr(), &mut count)
    });
    result.context("ask for the programs of a control group")?;
    Ok(ids.into_iter().take(count as usize).collect())
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
