//! `tarn events`: what the agent has decided and found, and what it does next.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use tarn_base::output::Output;
use tarn_base::output::event::Event;
use tarn_frame::state::{EVENTS, StateDirectory};

use crate::frame::Frame;

#[cfg(test)]
mod tests;

/// How often the file is looked at.
const INTERVAL: Duration = Duration::from_millis(200);

/// What was asked for.
pub struct Options {
    /// Only this stage's, or `agent`, `journal`, ...
    pub stage: Option<String>,
    /// As many of the last ones at most.
    pub last: usize,
    /// Goes on with those that come.
    pub follows: bool,
}

/// Prints the events since the stages came up, oldest first; with `follows`, and those that come until nobody reads them.
///
/// # Errors
/// No rights, or a file that cannot be read.
pub fn events(frame: &Frame, options: &Options, output: &mut Output) -> Result<()> {
    (frame.rights)("events")?;
    let mut follower = Follower::of(&frame.state);
    let all = follower.more()?;
    if all.is_empty() && !options.follows && !output.json {
        output.line("no events: nothing is up, or it came up without an agent");
    }
    let before = last(chosen(all, options), options.last);
    if !options.follows {
        return print(&before, false, output);
    }
    print(&before, true, output)?;
    while !output.failed() {
        std::thread::sleep(INTERVAL);
        print(&chosen(follower.more()?, options), true, output)?;
    }
    Ok(())
}

fn chosen(mut events: Vec<Event>, options: &Options) -> Vec<Event> {
    events.retain(|event| options.stage.as_ref().is_none_or(|stage| *stage == event.stage));
    events
}

fn last(mut events: Vec<Event>, count: usize) -> Vec<Event> {
    events.drain(..events.len().saturating_sub(count));
    events
}

/// As one JSON document, or one a line where more come.
fn print(events: &[Event], are_lines: bool, output: &mut Output) -> Result<()> {
    match (output.json, are_lines) {
        (true, false) => return output.json(events),
        (true, true) => events
            .iter()
            .try_for_each(|event| event.line().map(|line| output.line(line.trim_end())))?,
        (false, _) => events.iter().for_each(|event| output.line(for_people(event))),
    }
    Ok(())
}

fn for_people(event: &Event) -> String {
    format!("{} {:<10} {}", event.at, event.stage, event.text())
}

/// Reads the events file as it grows, and goes on with the next one when it is begun anew.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: Option<File>,
    /// A line whose end has not come.
    rest: Vec<u8>,
}

impl Follower {
    /// Follows the events of the namespace whose state directory this is. They need not be there yet.
    pub fn of(state: &StateDirectory) -> Self {
        Self {
            path: state.path().join(EVENTS),
            file: None,
            rest: Vec::new(),
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
            events.extend(read(file, &mut self.rest).with_context(context)?);
        }
        if let Some(mut next) = next {
            self.rest.clear();
            events.extend(read(&mut next, &mut self.rest).with_context(context)?);
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

fn read(file: &mut File, rest: &mut Vec<u8>) -> std::io::Result<Vec<Event>> {
    // It has been emptied where there was no room for a second one.
    if file.stream_position()? > file.metadata()?.len() {
        file.rewind()?;
        rest.clear();
    }
    file.read_to_end(rest)?;
    let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines: Vec<u8> = rest.drain(..end).collect();
    Ok(in_text(&lines))
}

/// The events in whole lines. One that an agent was killed at is left out.
fn in_text(lines: &[u8]) -> Vec<Event> {
    String::from_utf8_lossy(lines)
        .lines()
        .filter_map(Event::of_line)
        .collect()
}
