//! `/sys` as the calling thread's network namespace has it: what is mounted at `/sys` may be another one's.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

/// `FSCONFIG_CMD_CREATE` of include/uapi/linux/mount.h
const CREATE: libc::c_int = 6;
/// `FSOPEN_CLOEXEC`, `FSMOUNT_CLOEXEC`
const CLOSE_ON_EXEC: libc::c_uint = 1;

/// A mount of sysfs that nobody else sees.
#[derive(Debug)]
pub struct Sysfs(OwnedFd);

impl Sysfs {
    /// Of the calling thread's network namespace. Needs CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// The kernel refuses to mount it.
    pub fn of_this_namespace() -> Result<Self> {
        let context = new_context(c"sysfs").context("cannot open sysfs")?;
        // SAFETY: the call takes a descriptor that is open, numbers, and null pointers, which this command asks for.
        let created = unsafe {
            let none = std::ptr::null::<libc::c_char>();
            libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), CREATE, none, none, 0)
        };
        Errno::result(created).context("cannot make a mount of sysfs")?;
        // SAFETY: the call takes numbers and a descriptor that is open.
        let mounted = unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOSE_ON_EXEC, 0) };
        let mounted = Errno::result(mounted).context("cannot mount sysfs")?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(mounted as libc::c_int) }))
    }

    /// What a file says, without its line break. The path begins below `/sys`.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read.
    pub fn read(&self, path: &str) -> Result<String> {
        let mut text = String::new();
        let mut file = self.open(path, OFlag::O_RDONLY)?;
        file.read_to_string(&mut text)
            .with_context(|| format!("cannot read /sys/{path}"))?;
        Ok(text.trim_end().to_owned())
    }

    /// Writes a value to a file.
    ///
    /// # Errors
    /// There is no such file, or it takes no such value.
    pub fn write(&self, path: &str, value: &str) -> Result<()> {
        let mut file = self.open(path, OFlag::O_WRONLY)?;
        file.write_all(value.as_bytes())
            .with_context(|| format!("cannot write {value} to /sys/{path}"))
    }

    fn open(&self, path: &str, flags: OFlag) -> Result<File> {
        let opened = openat(self.0.as_fd(), path, flags | OFlag::O_CLOEXEC, Mode::empty());
        Ok(opened.with_context(|| format!("cannot open /sys/{path}"))?.into())
    }
}

fn new_context(file_system: &CStr) -> nix::Result<OwnedFd> {
    // SAFETY: the name is a text that lives through the call.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, file_system.as_ptr(), CLOSE_ON_EXEC) };
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Errno::result(context).map(|context| unsafe { OwnedFd::from_raw_fd(context as libc::c_int) })
}
