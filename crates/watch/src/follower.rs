//! Follows what the agent logs.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use tarn_base::output::event::Event;
use tarn_frame::state::{EVENTS, StateDirectory};

/// Reads the events file as it grows, and goes on with the next one when it is begun anew.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: Option<File>,
    /// Its end has not come yet.
    partial_line: Vec<u8>,
}

impl Follower {
    /// Follows the events of the namespace whose state directory this is. They need not be there yet.
    pub fn of(state: &StateDirectory) -> Self {
        Self {
            path: state.path().join(EVENTS),
            file: None,
            partial_line: Vec::new(),
        }
    }

    /// What has come since the call before; all that is kept, the first time. Oldest first.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn more(&mut self) -> Result<Vec<Event>> {
        let context = || format!("cannot read {}", self.path.display());
        let mut events = match self.file {
            Some(_) => Vec::new(),
            None => self.put_aside().with_context(context)?,
        };
        // Nothing is appended to a file that has been put aside: it is read to its end before the next one.
        let next = self.next().with_context(context)?;
        if let Some(file) = self.file.as_mut() {
            events.extend(read(file, &mut self.partial_line).with_context(context)?);
        }
        if let Some(mut next) = next {
            self.partial_line.clear();
            events.extend(read(&mut next, &mut self.partial_line).with_context(context)?);
            self.file = Some(next);
        }
        Ok(events)
    }

    /// What was at the path before it was begun anew.
    fn put_aside(&self) -> std::io::Result<Vec<Event>> {
        let mut path = self.path.as_os_str().to_owned();
        path.push(".1");
        match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            read => Ok(in_text(&read?)),
        }
    }

    /// The file at the path, if it is another one than that which is read.
    fn next(&self) -> std::io::Result<Option<File>> {
        let found = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let inode = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
        let is_read = match &self.file {
            Some(file) => inode(file)? == inode(&found)?,
            None => false,
        };
        Ok((!is_read).then_some(found))
    }
}

fn read(file: &mut File, partial_line: &mut Vec<u8>) -> std::io::Result<Vec<Event>> {
    // It has been emptied where there was no room for a second one.
    if file.stream_position()? > file.metadata()?.len() {
        file.rewind()?;
        partial_line.clear();
    }
    file.read_to_end(partial_line)?;
    let end = partial_line
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let lines: Vec<u8> = partial_line.drain(..end).collect();
    Ok(in_text(&lines))
}

/// The events in whole lines. One that an agent was killed at is left out.
fn in_text(lines: &[u8]) -> Vec<Event> {
    String::from_utf8_lossy(lines)
        .lines()
        .filter_map(Event::of_line)
        .collect()
}

#[cfg(test)]
mod tests;
