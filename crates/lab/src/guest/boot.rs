//! What a distribution's init would have done before the job can run.

use std::fs::{self, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::topology::bring_loopback_up;

/// Type, place and options of the guest's file systems, in the order they are mounted.
const FILE_SYSTEMS: &[(&str, &str, Option<&str>)] = &[
    ("proc", "/proc", None),
    ("sysfs", "/sys", None),
    ("devtmpfs", "/dev", Some("mode=0755")),
    ("devpts", "/dev/pts", Some("gid=5,mode=620,ptmxmode=666")),
    ("tmpfs", "/dev/shm", Some("mode=1777")),
    ("tmpfs", "/run", Some("mode=0755")),
    ("tmpfs", "/tmp", Some("mode=1777")),
    ("cgroup2", "/sys/fs/cgroup", None),
    ("bpf", "/sys/fs/bpf", Some("mode=0700")),
];

/// Those that the kernel may lack.
const OPTIONAL_FILE_SYSTEMS: &[(&str, &str)] = &[("debugfs", "/sys/kernel/debug"), ("tracefs", "/sys/kernel/tracing")];

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
    for (kind, path, options) in FILE_SYSTEMS {
        mount_one(kind, path, *options)?;
    }
    for (kind, path) in OPTIONAL_FILE_SYSTEMS {
        let _ = mount_one(kind, path, None);
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

fn mount_one(kind: &str, path: &str, options: Option<&str>) -> Result<()> {
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
