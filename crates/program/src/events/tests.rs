//! What somebody or a program sees who follows the events.

use std::fs;
use std::io::{ErrorKind, Write};

use tarn_base::output::Priority;
use tarn_base::output::testing::{Written, output};
use tarn_frame::state::EVENTS;

use super::*;
use crate::testing::frame_at;

fn event(number: usize) -> Event {
    Event {
        at: format!("2026-11-20T14:56:{number:02}Z"),
        stage: if number % 2 == 0 { "paths" } else { "poll" }.to_owned(),
        priority: if number == 3 {
            Priority::Warning
        } else {
            Priority::Information
        },
        message: format!("number {number}"),
    }
}

fn text(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|number| event(number).line().unwrap()).collect()
}

#[test]
fn the_last_events_of_a_stage_are_printed() {
    let directory = tempfile::tempdir().unwrap();
    let frame = frame_at(&directory.path().join("tarn.toml"));
    let shown = |stage: Option<&str>, last: usize, json: bool| {
        let options = Options {
            stage: stage.map(str::to_owned),
            last,
            follows: false,
        };
        let (mut output, written) = output(None);
        output.json = json;
        events(&frame, &options, &mut output).unwrap();
        written.text()
    };
    assert!(shown(None, 9, false).starts_with("no events: nothing is up"));
    assert_eq!(shown(None, 9, true), "[]\n");
    fs::create_dir_all(frame.state.path()).unwrap();
    fs::write(frame.state.path().join("events.1"), text(1..3)).unwrap();
    // An agent was killed at a line, and the next one began another.
    let cut_off = &text(3..4)[..20];
    let rest = format!("{}{cut_off}\n{}", text(3..5), text(5..6));
    fs::write(frame.state.path().join(EVENTS), rest).unwrap();
    assert_eq!(
        shown(Some("poll"), 2, false),
        "2026-11-20T14:56:03Z poll       warning: number 3\n2026-11-20T14:56:05Z poll       number 5\n"
    );
    let document: Vec<Event> = serde_json::from_str(&shown(None, 9, true)).unwrap();
    assert_eq!(document, (1..6).map(event).collect::<Vec<_>>());
}

/// A reader who ends after so many lines.
struct Until {
    lines: usize,
    written: Written,
}

impl Write for Until {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.written.text().lines().count() < self.lines {
            true => self.written.write(bytes),
            false => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// `-n` cuts what is there at the beginning, never what comes.
#[test]
fn a_follower_loses_nothing_that_comes_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let frame = frame_at(&directory.path().join("tarn.toml"));
    fs::create_dir_all(frame.state.path()).unwrap();
    let append = |text: String| {
        let mut file = fs::OpenOptions::new();
        let mut file = file
            .append(true)
            .create(true)
            .open(frame.state.path().join(EVENTS))
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    append(text(0..3));
    let written = Written::default();
    let until = Until {
        lines: 4,
        written: written.clone(),
    };
    let follower = std::thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let options = Options {
                stage: None,
                last: 1,
                follows: true,
            };
            let mut output = Output::to_writer(Box::new(until), None);
            events(&frame, &options, &mut output)
        });
        while written.text().is_empty() {
            std::thread::sleep(INTERVAL / 20);
        }
        append(text(3..6));
        while written.text().lines().count() < 4 {
            std::thread::sleep(INTERVAL / 20);
        }
        append(text(6..7));
        follower.join().unwrap()
    });
    follower.unwrap();
    let numbers: Vec<_> = written
        .text()
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.to_owned())
        .collect();
    assert_eq!(numbers, ["2", "3", "4", "5"]);
}
