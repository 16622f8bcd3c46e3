//! Runs what wants to be root without being root: in a user namespace of its own, which can do nothing to the host.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, geteuid, getppid};

use tarn_base::error::Unsupported;

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
    die_with_parent(&mut command, Signal::SIGTERM);
    command
}

/// As [`command`], with mounts of its own that end with it.
pub fn command_with_mounts(program: impl AsRef<OsStr>) -> Command {
    if !geteuid().is_root() {
        return command(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(program);
    die_with_parent(&mut command, Signal::SIGTERM);
    command
}

/// Makes a command end by this signal when this process does, whatever ends it: SIGTERM for what cleans up behind
/// itself, SIGKILL for what has nothing to clean up.
pub fn die_with_parent(command: &mut Command, signal: Signal) {
    let parent = Pid::this();
    // SAFETY: prctl and getppid are the calls made between fork and exec, and they are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(signal)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest that outlives a killed tarn would go on to use a processor, with nobody to end it.
    #[test]
    fn a_command_ends_with_the_process_that_started_it() {
        use std::io::Read;
        let (reader, writer) = nix::unistd::pipe().unwrap();
        // SAFETY: the child of a process with threads may only make calls that are async-signal-safe or, as here,
        // end soon: what Command allocates is all that it does besides.
        match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Child => {
                let mut command = Command::new("sleep");
                command.arg("60").stdout(writer);
                die_with_parent(&mut command, Signal::SIGKILL);
                let started = command.spawn().is_ok();
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(!started)) }
            }
            nix::unistd::ForkResult::Parent { child } => {
                drop(writer);
                let status = nix::sys::wait::waitpid(child, None).unwrap();
                assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
            }
        }
        // The pipe ends when the last process that could write to it does.
        let start = std::time::Instant::now();
        std::fs::File::from(reader).read_to_end(&mut Vec::new()).unwrap();
        assert!(start.elapsed().as_secs() < 30, "it slept on");
    }
}
