//! What tarn prints: lines, tables and JSON documents on standard output, log lines on standard error.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use terminal_size::{Width, terminal_size_of};

mod document;
pub mod event;
mod log;
mod table;

pub use document::Document;
pub use log::{
    Priority, limit_log_rate, log, log_at, log_only_errors, log_to_file, record_events, unwatch_events, watch_events,
};
pub use table::{Align, Table};

/// The width assumed for a terminal that does not tell its own, in columns.
const DEFAULT_WIDTH: usize = 80;

/// Where a verb writes its answer.
///
/// A reader that goes away (`tarn redirect list | head`) ends the output quietly; any other failure to write is
/// kept and reported by [`Output::finish`], so that a full disk never looks like success.
pub struct Output {
    /// Whether the answer is to be one JSON document instead of text.
    pub json: bool,
    /// For a verb that can tell when it is about to change something; `None` where nobody can withdraw the request.
    pub beginning: Option<Beginning>,
    sink: Sink,
    width: Option<usize>,
    failure: Option<std::io::Error>,
}

/// Begins the answer to a program, which cannot withdraw its request any more then; fails when it has withdrawn it.
pub type Beginning = Box<dyn FnOnce() -> Result<()> + Send>;

/// Where an answer goes.
enum Sink {
    /// To people and scripts, as it comes.
    Text(Box<dyn Write>),
    /// To a program, when it is whole.
    Document(Document),
}

impl Output {
    /// An output to standard output.
    pub fn to_stdout() -> Self {
        let stdout = std::io::stdout();
        let width = stdout.is_terminal().then(|| terminal_width(&stdout));
        Self {
            json: false,
            beginning: None,
            sink: Sink::Text(Box::new(stdout)),
            width,
            failure: None,
        }
    }

    /// For tests: an output to any writer. `width` is that of the terminal behind it, if there is one.
    #[cfg(any(test, feature = "testing"))]
    pub fn to_writer(writer: Box<dyn Write>, width: Option<usize>) -> Self {
        Self {
            json: false,
            beginning: None,
            sink: Sink::Text(writer),
            width,
            failure: None,
        }
    }

    /// An output that is kept for a program that called the verb: one JSON document, on one line.
    pub fn to_document() -> Self {
        Self {
            json: true,
            beginning: None,
            sink: Sink::Document(Document::default()),
            width: None,
            failure: None,
        }
    }

    /// What [`Output::to_document`] has kept.
    pub fn into_document(self) -> Document {
        match self.sink {
            Sink::Document(document) => document,
            Sink::Text(_) => Document::default(),
        }
    }

    /// Prints one line (or several, when the text has line breaks).
    pub fn line(&mut self, line: impl Display) {
        self.write(&format!("{line}\n"));
    }

    /// Prints one JSON document, indented, with a line break at its end.
    ///
    /// # Errors
    /// When the value cannot be written as JSON (a map with keys that are no strings), or is too long for a program.
    pub fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        if let Sink::Document(document) = &mut self.sink {
            return document.put(value);
        }
        let mut text = serde_json::to_string_pretty(value).context("cannot write the answer as JSON")?;
        text.push('\n');
        self.write(&text);
        Ok(())
    }

    /// Prints the answer: the document for programs, or the text for people.
    ///
    /// # Errors
    /// As [`Output::json`].
    pub fn answer<T: Serialize + ?Sized>(&mut self, document: &T, text: impl Display) -> Result<()> {
        if self.json {
            return self.json(document);
        }
        self.line(text);
        Ok(())
    }

    /// Prints a table, fitted to the terminal's width; whole lines when there is no terminal, so that `grep` and
    /// the like see whole rows.
    pub fn table(&mut self, table: &Table) {
        let text = table.render(self.width);
        self.write(&text);
    }

    /// The width of the terminal in columns; `None` when the output is no terminal.
    pub fn width(&self) -> Option<usize> {
        self.width
    }

    /// Whether nothing more can be written: what prints without end stops then.
    pub fn failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Reports a failure to write that happened on the way.
    ///
    /// # Errors
    /// The first failure, unless it was that the reader has gone away.
    pub fn finish(&mut self) -> Result<()> {
        match self.failure.take() {
            None => Ok(()),
            Some(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.failure = Some(error);
                Ok(())
            }
            Some(error) => Err(anyhow!("cannot write the output: {error}")),
        }
    }

    fn write(&mut self, text: &str) {
        if self.failure.is_some() {
            return;
        }
        let written = match &mut self.sink {
            Sink::Text(writer) => writer.write_all(text.as_bytes()).and_then(|()| writer.flush()),
            Sink::Document(document) => document.add_text(text),
        };
        self.failure = written.err();
    }
}

/// The width of the terminal behind a descriptor, in columns; 80 when it does not tell.
pub fn terminal_width(descriptor: impl AsFd) -> usize {
    terminal_size_of(descriptor).map_or(DEFAULT_WIDTH, |(Width(columns), _)| columns.into())
}

/// The width to wrap error messages to: the terminal's behind standard error, at most 80; `None` without one.
pub fn error_width() -> Option<usize> {
    let stderr = std::io::stderr();
    let is_terminal = stderr.is_terminal();
    is_terminal.then(|| terminal_width(&stderr).clamp(20, DEFAULT_WIDTH))
}

/// Text from outside (a note, an interface's name, another program's message) made harmless for a terminal:
/// control characters are replaced.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(any(test, feature = "testing"))]
pub mod testing {
    //! An output that a test can read.

    use std::sync::{Arc, Mutex};

    use super::*;

    /// What was written so far.
    #[derive(Clone, Default)]
    pub struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        /// The text written.
        pub fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// An output and what it writes.
    pub fn output(width: Option<usize>) -> (Output, Written) {
        let written = Written::default();
        (Output::to_writer(Box::new(written.clone()), width), written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_an_error_and_a_closed_pipe_is_not() {
        let mut full = Output::to_writer(Box::new(Failing(ErrorKind::StorageFull)), None);
        full.line("a");
        full.line("b");
        assert!(full.finish().is_err());
        let mut gone = Output::to_writer(Box::new(Failing(ErrorKind::BrokenPipe)), None);
        gone.line("a");
        gone.json(&1).unwrap();
        assert!(gone.finish().is_ok());
    }

    #[test]
    fn a_rule_s_note_cannot_drive_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\u{fffd}[2Jb\u{fffd}c");
        assert_eq!(printable("ordinary ü"), "ordinary ü");
    }
}
