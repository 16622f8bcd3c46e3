//! Keeps what the host does away from the guest, by a library that QEMU loads: `turns.c` says from what, and how.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::{Context, Result};
use tarn_base::error::Unsupported;

use super::host::QEMU;

/// What guests' runs depend on; the compiled library only does what it says.
pub const SOURCE: &str = include_str!("turns.c");

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/turns.so"));

/// The line that it writes to the standard error once both threads have met it (`SIGN` in turns.c).
pub const SIGN: &str = "QEMU's threads take turns";

/// Writes the library to an empty file and has `command` load it from there. The command must inherit the file.
///
/// # Errors
/// When the file cannot be written.
pub fn load(command: &mut Command, mut file: &File) -> Result<()> {
    file.write_all(LIBRARY).context("cannot write QEMU's library")?;
    command.env("LD_PRELOAD", format!("/dev/fd/{}", file.as_raw_fd()));
    Ok(())
}

/// Finds in what QEMU has written to its standard error that both threads have met the library.
///
/// # Errors
/// [`Unsupported`] where they have not: the library was not loaded, or another QEMU waits in another way.
pub fn check(complaints: &str) -> Result<()> {
    if complaints.contains(SIGN) {
        return Ok(());
    }
    let not_loaded = complaints.lines().find(|line| line.contains("LD_PRELOAD"));
    let reason =
        not_loaded.unwrap_or("its threads wait in a way that the lab does not know; Debian's QEMU 7.2 and 10.0 work");
    Err(Unsupported(format!(
        "this {QEMU} lets the load of the host change what a guest measures: {reason}"
    ))
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(complaints: &str) -> String {
        check(complaints).unwrap_err().to_string()
    }

    #[test]
    fn qemu_that_takes_turns_is_taken_whatever_else_it_says() {
        check(&format!("warning: no KVM\n{SIGN}\n")).unwrap();
    }

    #[test]
    fn qemu_that_takes_no_turns_is_refused_with_the_reason() {
        assert!(refusal("warning: no KVM\n").contains("its threads wait in a way that the lab does not know"));
        let loader = "ERROR: ld.so: object '/dev/fd/9' from LD_PRELOAD cannot be preloaded: ignored.";
        assert!(refusal(&format!("{loader}\n")).ends_with(loader));
    }

    #[test]
    fn the_sign_is_what_the_library_writes() {
        assert!(SOURCE.contains(SIGN));
    }
}
