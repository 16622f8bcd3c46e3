//! `tarn events`: what the agent has decided and found, and what it does next.

use std::time::Duration;

use anyhow::Result;
use tarn_base::output::Output;
use tarn_base::output::event::Event;
use tarn_watch::{Follower, Frame};

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
