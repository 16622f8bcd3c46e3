//! An interactive shell on the serial console.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use nix::unistd::setsid;

const CONSOLE: &str = "/dev/ttyS0";

/// Runs bash with the serial console as its controlling terminal; returns when the user leaves it.
pub fn run() -> Result<()> {
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(CONSOLE)
            .with_context(|| format!("cannot open {CONSOLE}"))
    };
    let mut bash = Command::new("bash");
    bash.arg("-i")
        .env("TERM", "linux")
        .current_dir("/root")
        .stdin(open()?)
        .stdout(open()?)
        .stderr(open()?);
    // SAFETY: the closure only makes system calls, which are safe between fork and exec.
    unsafe { bash.pre_exec(take_terminal) };
    bash.status().context("cannot start bash: the image lacks it")?;
    Ok(())
}

/// Leads a session of its own, with standard input as the controlling terminal: what job control needs.
fn take_terminal() -> std::io::Result<()> {
    setsid()?;
    // SAFETY: TIOCSCTTY takes an integer; standard input is the console.
    match unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
