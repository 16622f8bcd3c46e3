//! Makes a program fit for the guest: linked statically, and without what only a debugger reads.

use anyhow::{Context, Result, bail};

/// `PT_LOAD`, `PT_INTERP`: what is loaded, and what names a dynamic linker.
const LOADED: u32 = 1;
const INTERPRETER: u32 = 3;

/// The size of an ELF header and of a program header.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

/// The program cut off behind the last byte that the kernel loads. Symbols and debug information lie behind it
/// and are most of the file; the guest would unpack them at every boot.
///
/// # Errors
/// When it is no 64-bit little-endian ELF program, or needs a dynamic linker, which may not be there in the guest.
pub fn for_the_guest(mut program: Vec<u8>) -> Result<Vec<u8>> {
    if !program.starts_with(b"\x7fELF\x02\x01") || program.len() < HEADER {
        bail!("not a program for 64-bit Linux");
    }
    let table = usize::try_from(number(&program, 32, 8)?)?;
    let count = usize::try_from(number(&program, 56, 2)?)?;
    let mut end = table + count * PROGRAM_HEADER;
    for header in (0..count).map(|index| table + index * PROGRAM_HEADER) {
        match u32::try_from(number(&program, header, 4)?)? {
            INTERPRETER => bail!("not linked statically; build with the flags in .cargo/config.toml"),
            LOADED => {
                let segment_end = number(&program, header + 8, 8)?.checked_add(number(&program, header + 32, 8)?);
                end = end.max(usize::try_from(segment_end.context("a malformed program header")?)?);
            }
            _ => {}
        }
    }
    if end > program.len() {
        bail!("the file is cut short");
    }
    program.truncate(end);
    // There is no table of sections any more: its place, the size of an entry, their number and that of the names.
    program[40..48].fill(0);
    program[58..HEADER].fill(0);
    Ok(program)
}

/// A little-endian number of `size` bytes, at most 8.
fn number(program: &[u8], at: usize, size: usize) -> Result<u64> {
    let bytes = program.get(at..at + size).context("the file is cut short")?;
    Ok(bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    /// A program that is cut in the wrong place would not start as the guest's /init.
    #[test]
    fn a_cut_program_still_runs() {
        let itself = std::fs::read("/proc/self/exe").unwrap();
        let cut = for_the_guest(itself.clone()).unwrap();
        assert!(cut.len() < itself.len());
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cut");
        std::fs::write(&path, cut).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = Command::new(&path).arg("--list").output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("a_cut_program_still_runs"));
    }

    #[test]
    fn a_dynamic_program_or_none_at_all_is_refused() {
        assert!(for_the_guest(b"#!/bin/sh\n".to_vec()).is_err());
        let mut truncated = std::fs::read("/proc/self/exe").unwrap();
        truncated.truncate(4096);
        assert!(for_the_guest(truncated).is_err());
    }
}
