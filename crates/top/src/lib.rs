//! `tarn top`: what tarn does, second by second, on a screen of its own.
//!
//! The overview has a line for each stage, in packet order. Enter opens a stage, which shows all its figures. Both are made of
//! what every stage describes of itself (`tarn_base::figures`): a stage needs no code here.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use std::io::{IsTerminal, stdin, stdout};
use std::time::Duration;

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use ratatui::crossterm::event::Event;
use tarn_base::error::Usage;
use tarn_base::output::Output;
use tarn_frame::{Stages, Tool};
use tarn_watch::Frame;

mod keys;
mod model;
mod styles;
mod terminal;
mod text;
mod view;

use model::{Key, Model};
use styles::Styles;
use tarn_watch::reader::{Reader, Request};
use terminal::{News, Screen};

/// How long the screen waits for a key before it looks for figures.
const TICK: Duration = Duration::from_millis(200);

const HELP: &str = "\
Keys: Up and Down select, Enter opens a stage, d lists decisions and events, ? explains a stage's figures, Escape goes back, \
Space pauses, q quits.
Without a terminal, `tarn status` prints the same figures.";

/// The tool, for these stages.
pub struct Top(pub Stages);

impl Tool for Top {
    fn command(&self) -> Command {
        let interval = Arg::new("interval")
            .long("interval")
            .value_name("SECONDS")
            .value_parser(value_parser!(u32).range(1..=60))
            .default_value("1")
            .help("Seconds between updates");
        Command::new("top")
            .about("Show live figures for every stage")
            .arg(interval)
            .after_help(HELP)
    }

    fn execute(&self, matches: &ArgMatches, _: &mut Output) -> Result<()> {
        let interval = matches.get_one::<u32>("interval").copied().unwrap_or(1);
        let streams = [
            (stdin().is_terminal(), "standard input"),
            (stdout().is_terminal(), "standard output"),
        ];
        if let Some((_, name)) = streams.iter().find(|(is_terminal, _)| !is_terminal) {
            let message = format!("`tarn top`: {name} is not a terminal; use `tarn status`");
            return Err(Usage(message).into());
        }
        let frame = Frame::of_this_namespace(self.0)?;
        (frame.rights)("top")?;
        let mut screen = Screen::open()?;
        watch(frame, Duration::from_secs(interval.into()), &mut screen)
    }
}

/// Shows the figures until somebody quits.
fn watch(frame: Frame, interval: Duration, screen: &mut Screen) -> Result<()> {
    let styles = Styles::of_environment();
    let mut reader = Reader::start(frame, interval)?;
    let mut model = Model::default();
    let mut is_changed = true;
    loop {
        is_changed |= update(&mut model, &mut reader, screen.height())?;
        if std::mem::take(&mut is_changed) {
            screen.draw(|frame| view::draw(&mut model, &styles, frame))?;
        }
        match screen.news(TICK)? {
            News::End => return Ok(()),
            News::Suspend => screen.suspend()?,
            News::Events(events) => {
                for event in events {
                    is_changed = true;
                    match pressed(&event) {
                        Some(Key::Quit) => return Ok(()),
                        Some(Key::Suspend) => screen.suspend()?,
                        Some(Key::Redraw) => screen.clear()?,
                        Some(key) => model.press(key),
                        None => {}
                    }
                }
                continue;
            }
        }
        is_changed = true;
    }
}

/// Takes what has come, and asks for what is to be shown. Returns whether something has changed.
fn update(model: &mut Model, reader: &mut Reader, height: usize) -> Result<bool> {
    let silent_s = reader.silent_s();
    let mut is_changed = silent_s != model.silent_s;
    while let Some(sample) = reader.take()? {
        is_changed = true;
        model.add(sample);
    }
    model.silent_s = reader.silent_s();
    reader.ask(Request {
        opened: model.opened(),
        rows: height,
    });
    Ok(is_changed)
}

fn pressed(event: &Event) -> Option<Key> {
    match event {
        Event::Key(pressed) => keys::key_of(pressed),
        _ => None,
    }
}
