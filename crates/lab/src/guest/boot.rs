//! What a distribution's init would have done before the job can run.

use std::fs::{self, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::topology::bring_loopback_up;

/// A file system of the guest.
struct FileSystem {
    kind: &'static str,
    path: &'static str,
    options: Option<&'static str>,
    /// Whether the kernel may lack it.
    optional: bool,
}

const fn needed(kind: &'static str, path: &'static str, options: Option<&'static str>) -> FileSystem {
    FileSystem {
        kind,
        path,
        options,
        optional: false,
    }
}

const fn optional(kind: &'static str, path: &'static str) -> FileSystem {
    FileSystem {
        kind,
        path,
        options: None,
        optional: true,
    }
}

/// In the order they are mounted.
const FILE_SYSTEMS: &[FileSystem] = &[
    needed("proc", "/proc", None),
    needed("sysfs", "/sys", None),
    needed("devtmpfs", "/dev", Some("mode=0755")),
    needed("devpts", "/dev/pts", Some("gid=5,mode=620,ptmxmode=666")),
    needed("tmpfs", "/dev/shm", Some("mode=1777")),
    needed("tmpfs", "/run", Some("mode=0755")),
    needed("tmpfs", "/tmp", Some("mode=1777")),
    needed("cgroup2", "/sys/fs/cgroup", None),
    needed("bpf", "/sys/fs/bpf", Some("mode=0700")),
    optional("debugfs", "/sys/kernel/debug"),
    optional("tracefs", "/sys/kernel/tracing"),
];

/// The environment of everything in the guest.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("TMPDIR", "/tmp"),
];

/// Makes the bare kernel a system that programs can run on: file systems, console, environment, loopback.
///
/// # Errors
/// With the step that failed; the guest is of no use then.
pub fn prepare() -> Result<()> {
    for file_system in FILE_SYSTEMS {
        let outcome = mount_one(file_system);
        if !file_system.optional {
            outcome?;
        }
    }
    open_console()?;
    for (name, value) in ENVIRONMENT {
        // SAFETY: process 1 has no other thread yet.
        unsafe { std::env::set_var(name, value) };
    }
    fs::write("/proc/sys/kernel/hostname", "lab").context("cannot set the host name")?;
    setrlimit(Resource::RLIMIT_NOFILE, 65_536, 65_536).context("cannot raise the limit of open files")?;
    bring_loopback_up().context("cannot set loopback up")
}

/// The running kernel's release, as `uname -r` prints it.
pub fn kernel_release() -> Result<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot read the kernel's release")?;
    Ok(release.trim().to_owned())
}

fn mount_one(file_system: &FileSystem) -> Result<()> {
    let FileSystem {
        kind, path, options, ..
    } = *file_system;
    fs::create_dir_all(path).with_context(|| format!("cannot make {path}"))?;
    mount(Some(kind), Path::new(path), Some(kind), MsFlags::empty(), options)
        .with_context(|| format!("cannot mount {kind} on {path}"))
}

/// The kernel opened the console before there was a /dev; what is printed from here on goes to the real one.
fn open_console() -> Result<()> {
    let console = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/console")
        .context("cannot open the console")?;
    dup2_stdin(console.as_fd()).context("cannot use the console for input")?;
    dup2_stdout(console.as_fd()).context("cannot use the console for output")?;
    dup2_stderr(console.as_fd()).context("cannot use the console for errors")
}
