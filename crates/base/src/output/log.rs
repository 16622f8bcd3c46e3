//! The log: one line a message.
//!
//! On a terminal and in a pipe a line reads `tarn: STAGE: MESSAGE`. Under systemd it bears a priority prefix
//! (`<4>`, see sd-daemon(3)) and the journal adds time and unit. An agent that has left its terminal writes
//! to a file of bounded size instead, each line with its time. An agent also bounds the number of its lines.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::event::Event;
use super::printable;
use crate::runtime;

mod file;
mod journal;

use file::LogFile;

/// The size in bytes at which the log file is begun anew. One predecessor is kept beside it, so that the log
/// takes at most twice as much.
const FILE_LIMIT: u64 = 1 << 20;

/// The longest message that is logged whole, in characters.
const MESSAGE_LIMIT: usize = 2000;

/// As many lines may come at once where their rate is limited.
const LINES_AT_ONCE: u32 = 100;

/// And then one in this time.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// How grave a message is, as syslog counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Something does not work.
    Error = 3,
    /// Something works, but not as it should.
    Warning = 4,
    /// An administrator may want to know.
    Notice = 5,
    /// The ordinary course of things.
    #[serde(rename = "info")]
    Information = 6,
}

impl Priority {
    /// As journalctl(1) calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Information => "info",
        }
    }
}

/// Logs the ordinary course of things. `stage` is a stage's name, or what of the frame speaks (`agent`, `journal`).
pub fn log(stage: &str, message: impl Display) {
    log_at(Priority::Information, stage, message);
}

/// Logs a message of a given priority.
pub fn log_at(priority: Priority, stage: &str, message: impl Display) {
    if !sink().shows(priority) {
        return;
    }
    let mut message = printable(&message.to_string());
    if let Some((end, _)) = message.char_indices().nth(MESSAGE_LIMIT) {
        message.truncate(end);
        message.push_str("...");
    }
    let mut sink = sink();
    let admitted = match sink.rate.as_mut() {
        None => Some(0),
        Some(rate) => rate.admit(Instant::now()),
    };
    match admitted {
        None => return,
        Some(0) => {}
        Some(left_out) => sink.write(
            Priority::Warning,
            "log",
            &format!("{left_out} lines left out: too many at once"),
        ),
    }
    sink.write(priority, stage, &message);
}

/// From now on, only so many lines are logged: a hundred at once, then one every ten seconds. Of the others there is
/// their number. For a process that lives long: what goes wrong in it may do so again and again.
pub fn limit_log_rate() {
    sink().rate = Some(Rate::new(Instant::now()));
}

/// From now on, log lines go to this file, at most [`FILE_LIMIT`] bytes and as many in its predecessor `PATH.1`.
///
/// # Errors
/// When the file cannot be opened.
pub fn log_to_file(path: &Path) -> Result<()> {
    let file = LogFile::open(path.to_path_buf(), FILE_LIMIT)?;
    sink().file = Some(file);
    Ok(())
}

/// From now on, log lines are also events in this file, of the same size.
///
/// # Errors
/// When the file cannot be opened.
pub fn record_events(path: &Path) -> Result<()> {
    let file = LogFile::open(path.to_path_buf(), FILE_LIMIT)?;
    sink().events = Some(file);
    Ok(())
}

/// From now on, this is called with each log line as an event. It must not log, nor wait for anything.
pub fn watch_events(watcher: impl Fn(&Event) + Send + 'static) {
    sink().watcher = Some(Box::new(watcher));
}

/// From now on, nothing is called.
pub fn unwatch_events() {
    sink().watcher = None;
}

/// Whether only errors are logged from now on. For a program that has the terminal to itself: a line would be written across what it
/// shows.
pub fn log_only_errors(only_errors: bool) {
    sink().only_errors = only_errors;
}

fn sink() -> MutexGuard<'static, Sink> {
    SINK.lock().unwrap_or_else(PoisonError::into_inner)
}

static SINK: Mutex<Sink> = Mutex::new(Sink {
    file: None,
    events: None,
    watcher: None,
    rate: None,
    only_errors: false,
});

type Watcher = Box<dyn Fn(&Event) + Send>;

/// Where lines go.
struct Sink {
    /// Instead of standard error.
    file: Option<LogFile>,
    /// Beside it.
    events: Option<LogFile>,
    watcher: Option<Watcher>,
    /// Without it, all are written.
    rate: Option<Rate>,
    only_errors: bool,
}

impl Sink {
    fn shows(&self, priority: Priority) -> bool {
        !self.only_errors || priority == Priority::Error
    }

    fn write(&mut self, priority: Priority, stage: &str, message: &str) {
        self.record(priority, stage, message);
        if let Some(file) = self.file.as_mut() {
            file.append(&format!("{} {stage}: {message}\n", runtime::timestamp(runtime::now())));
            return;
        }
        if under_systemd() && journal::send(Path::new(journal::SOCKET), priority, stage, message).is_ok() {
            return;
        }
        let line = match under_systemd() {
            true => format!("<{}>{stage}: {message}\n", priority as u8),
            false => format!("tarn: {stage}: {message}\n"),
        };
        // There is nowhere left to report that the log itself cannot be written.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn record(&mut self, priority: Priority, stage: &str, message: &str) {
        if self.events.is_none() && self.watcher.is_none() {
            return;
        }
        let event = Event {
            at: runtime::timestamp(runtime::now()),
            stage: stage.to_owned(),
            priority,
            message: message.to_owned(),
        };
        if let Some(watcher) = &self.watcher {
            watcher(&event);
        }
        if let (Some(events), Ok(line)) = (self.events.as_mut(), event.line()) {
            events.append(&line);
        }
    }
}

/// A token bucket: a token a line.
struct Rate {
    tokens: u32,
    /// When the last token came.
    since: Instant,
    left_out: u64,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self {
            tokens: LINES_AT_ONCE,
            since: now,
            left_out: 0,
        }
    }

    /// Whether a line may be written; if so, how many were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let come = now.saturating_duration_since(self.since).as_secs() / LINE_INTERVAL.as_secs();
        let tokens = u64::from(self.tokens).saturating_add(come);
        if tokens >= u64::from(LINES_AT_ONCE) {
            (self.tokens, self.since) = (LINES_AT_ONCE, now);
        } else {
            self.tokens = tokens as u32; // less than LINES_AT_ONCE
            self.since += LINE_INTERVAL * come as u32; // so is this
        }
        if self.tokens == 0 {
            self.left_out += 1;
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Whether standard error is the stream that systemd's journal reads: `$JOURNAL_STREAM` names its device and
/// inode, so that a program whose standard error was redirected since is not taken in.
fn under_systemd() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
            return false;
        };
        let Ok(metadata) = std::fs::metadata("/proc/self/fd/2") else {
            return false;
        };
        stream == format!("{}:{}", metadata.dev(), metadata.ino())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_does_not_drown_the_rest_and_is_counted() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        let admitted = (0..1000).filter(|_| rate.admit(start).is_some()).count();
        assert_eq!(admitted, LINES_AT_ONCE as usize);
        assert_eq!(rate.admit(start + LINE_INTERVAL * 3), Some(900));
        assert_eq!(rate.admit(start + LINE_INTERVAL * 3), Some(0));
        assert_eq!(rate.admit(start + LINE_INTERVAL * 3), Some(0));
        assert_eq!(rate.admit(start + LINE_INTERVAL * 3), None);
        let much_later = start + LINE_INTERVAL * 1000;
        let admitted = (0..1000).filter(|_| rate.admit(much_later).is_some()).count();
        assert_eq!(admitted, LINES_AT_ONCE as usize);
    }

    /// Warnings of the programs that `tarn top` reads from would stand across its screen; an error is why it ends.
    #[test]
    fn a_program_with_the_terminal_to_itself_logs_only_errors() {
        let mut sink = Sink {
            file: None,
            events: None,
            watcher: None,
            rate: None,
            only_errors: true,
        };
        let others = [Priority::Warning, Priority::Notice, Priority::Information];
        assert!(sink.shows(Priority::Error));
        assert!(others.iter().all(|priority| !sink.shows(*priority)));
        sink.only_errors = false;
        assert!(others.iter().all(|priority| sink.shows(*priority)));
    }
}
