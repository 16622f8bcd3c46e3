//! Runs what wants to be root without being root: in a user namespace of its own, which can do nothing to the host.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, geteuid, getppid};

use crate::error::Unsupported;

/// How a command becomes root.
const NAMESPACE: [&str; 5] = ["unshare", "--user", "--map-root-user", "--mount", "--"];

/// A command that is root over the files it makes: plain for root, in a namespace of its own for everybody else.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = if geteuid().is_root() {
        Command::new(program)
    } else {
        let mut command = Command::new(NAMESPACE[0]);
        command.args(&NAMESPACE[1..]).arg(program);
        command
    };
    die_with_parent(&mut command);
    command
}

/// As [`command`], with mounts of its own that end with it.
pub fn command_with_mounts(program: impl AsRef<OsStr>) -> Command {
    if !geteuid().is_root() {
        return command(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(program);
    die_with_parent(&mut command);
    command
}

/// Makes a command end when this process does, whatever ends it.
pub fn die_with_parent(command: &mut Command) {
    let parent = Pid::this();
    // SAFETY: prctl and getppid are the calls made between fork and exec, and they are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(Signal::SIGTERM)?;
            // Had the parent ended before, no signal would come any more.
            if getppid() == parent {
                Ok(())
            } else {
                Err(Errno::ESRCH.into())
            }
        });
    }
}

/// Whether this user can become root in a namespace.
///
/// # Errors
/// [`Unsupported`], with what an administrator can do about it.
pub fn check() -> Result<()> {
    let tried = command("true").stdin(Stdio::null()).output();
    let why = match tried {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("{}: {error}", NAMESPACE[0]),
    };
    Err(Unsupported(format!(
        "this host does not let you make a user namespace ({why}), in which the lab would be root over the packages that \
         it unpacks. Install uidmap (enough for images), or allow it, as root: `sysctl -w \
         kernel.apparmor_restrict_unprivileged_userns=0` on Ubuntu, `sysctl -w user.max_user_namespaces=10000` \
         elsewhere; or run this command as root"
    ))
    .into())
}
