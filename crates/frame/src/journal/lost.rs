//! Journals that somebody has emptied, damaged or removed while something is up.
//!
//! Taken for that of a host where nothing is up, such a journal would leave behind for good what is up: `tarn down` would put
//! nothing back and remove the state directory. Beside the files of a stage, a journal without any change is one of these:
//!
//! | journal | what happened | |
//! |---|---|---|
//! | no header | the header is on the disk before a stage keeps anything: it was lost | refused |
//! | an `undone` or `complete` line | a `tarn down` was killed before it removed the files, or a stage changes nothing | taken |
//! | neither, and no `up` has completed | the first `up` was killed while a stage that changes nothing, or not yet, kept its files | taken |
//! | neither, and an `up` has completed | the `complete` line was lost, and with it the changes before that line | refused |
//!
//! A separate file says that an `up` has completed, because the journal's own line about it may be lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Result, anyhow};

use super::line::{self, Line};
use crate::state::StateDirectory;

/// The extension of the file that is beside the journal once an `up` has completed.
const COMPLETED: &str = "completed";

/// Notes that an `up` has completed. To be called after the journal has its `complete` line: a kill in between must not make a
/// journal without it look like a lost one.
///
/// # Errors
/// A full disk.
pub fn note_completed(journal: &Path) -> io::Result<()> {
    let path = journal.with_extension(COMPLETED);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Removes that note, for a journal that begins: that of an earlier boot says nothing of this one.
///
/// # Errors
/// A file that cannot be removed.
pub fn forget_completed(journal: &Path) -> io::Result<()> {
    match fs::remove_file(journal.with_extension(COMPLETED)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Refuses a journal without changes beside the files of a stage, unless an interrupted verb explains it.
///
/// # Errors
/// It was lost, and what to do.
pub fn refuse(state: &StateDirectory, journal: &Path, has_header: bool, is_settled: bool) -> Result<()> {
    let is_explained = is_settled || !journal.with_extension(COMPLETED).exists();
    let Some(file) = state.stage_file()?.filter(|_| !has_header || !is_explained) else {
        return Ok(());
    };
    Err(anyhow!(
        "the journal {} is empty, damaged or gone, but {} shows that something is up: undo that by hand, or reboot, which puts \
         back everything tarn does; then remove the directory {}",
        journal.display(),
        file.display(),
        state.path().display()
    ))
}

/// Cuts a journal of which nothing stands any more down to its header and a line that says so. That works on a full disk, too: the
/// line is written over those behind the header, padded to the end of one of them. Returns the length in bytes, and the lines.
///
/// # Errors
/// A file that cannot be written.
pub fn cut_down(journal: &Path) -> Result<(u64, usize)> {
    let bytes = fs::read(journal)?;
    let Some(header) = line_end(&bytes, 0) else {
        File::create(journal)?;
        return Ok((0, 0));
    };
    let settled = line::render(&Line::Complete {})?;
    let file = OpenOptions::new().write(true).open(journal)?;
    // Where there is no room, nothing but a `begin` was ever there.
    let end = line_end(&bytes, header + settled.len() - 1);
    if let Some(end) = end {
        let padding = end - header - settled.len();
        let (text, line_break) = settled.split_at(settled.len() - 1);
        let padded = [text, &b" ".repeat(padding), line_break].concat();
        file.write_all_at(&padded, header as u64)?;
    }
    let length = end.unwrap_or(header) as u64;
    file.set_len(length)?;
    Ok((length, 1 + usize::from(end.is_some())))
}

/// Where the line ends that has a byte at `from`, or at the first one behind it.
fn line_end(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.iter().position(|byte| *byte == b'\n').map(|end| from + end + 1)
}
