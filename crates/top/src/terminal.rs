//! The terminal: taken, given back whatever ends the program, and waited for.

use std::io::{stdin, stdout};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use ratatui::{DefaultTerminal, Frame};
use tarn_base::output::log_only_errors;
use tarn_base::runtime::Signals;

/// Events that are taken at a time: keys that are held down, or a text that was pasted.
const EVENTS_MOST: usize = 1024;

/// What a wait for the terminal has brought.
pub enum News {
    /// Keys and changes of size, if any.
    Events(Vec<Event>),
    /// The program is to stop until it is continued.
    Suspend,
    /// The program is to end: it was told so, or the terminal is gone.
    End,
}

/// The terminal while the program has it to itself.
pub struct Screen {
    /// Dropping it prints an error where the terminal is gone, and panics when that fails, too.
    terminal: ManuallyDrop<DefaultTerminal>,
    signals: Signals,
}

impl Screen {
    /// Takes the terminal. To be called before any thread is started.
    ///
    /// # Errors
    /// It cannot be read or written: it is as it was then.
    pub fn open() -> Result<Self> {
        let ending = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
        let signals = Signals::of(&[&ending[..], &[Signal::SIGTSTP]].concat())?;
        // Restores the terminal when something panics.
        let terminal = ratatui::try_init().inspect_err(|_| _ = ratatui::try_restore());
        let terminal = ManuallyDrop::new(terminal.context("cannot use this terminal")?);
        show_cursor_on_panic();
        log_only_errors(true);
        Ok(Self { terminal, signals })
    }

    /// Draws.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        let drawn = self.terminal.draw(draw);
        drawn.map(|_| ()).context("cannot draw on this terminal")
    }

    /// Has the next [`Screen::draw`] draw everything.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub fn clear(&mut self) -> Result<()> {
        self.terminal.clear().context("cannot draw on this terminal")
    }

    /// The terminal's height in lines.
    pub fn height(&self) -> usize {
        self.terminal.size().map_or(0, |size| size.height.into())
    }

    /// Waits for keys, signals, or a change of size, at most `limit`.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub fn news(&self, limit: Duration) -> Result<News> {
        // crossterm reads a terminal that has hung up for ever.
        if self.wait_or_find_hung_up(limit) {
            return Ok(News::End);
        }
        match self.signals.arrived() {
            Some("SIGTSTP") => return Ok(News::Suspend),
            Some(_) => return Ok(News::End),
            None => {}
        }
        let mut events = Vec::new();
        while events.len() < EVENTS_MOST && event::poll(Duration::ZERO).context("cannot read keys")? {
            events.push(event::read().context("cannot read keys")?);
        }
        Ok(News::Events(events))
    }

    /// Waits until there is something to read; returns whether the terminal has hung up.
    fn wait_or_find_hung_up(&self, limit: Duration) -> bool {
        let stdin = stdin();
        let mut polled = [
            PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
        // A signal that has a handler ends the wait: that the size has changed is one.
        let _ = poll(&mut polled, timeout);
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        polled[0].revents().is_some_and(|events| events.intersects(gone))
    }

    /// Gives the terminal back, stops as `^Z` does, and takes the terminal again when the program is continued.
    ///
    /// # Errors
    /// The terminal cannot be used any more.
    pub fn suspend(&mut self) -> Result<()> {
        let unusable = "cannot use this terminal";
        ratatui::try_restore().context(unusable)?;
        self.terminal.show_cursor().context(unusable)?;
        stop()?;
        enable_raw_mode().context(unusable)?;
        execute!(stdout(), EnterAlternateScreen).context(unusable)?;
        self.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Where it fails the terminal is gone.
        let _ = ratatui::try_restore();
        let _ = self.terminal.show_cursor();
        log_only_errors(false);
    }
}

/// Where a panic aborts, nothing is dropped that would show the cursor.
fn show_cursor_on_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = execute!(stdout(), Show);
        hook(panic);
    }));
}

/// Stops the whole group of processes: a script that runs this program is to stop, too.
fn stop() -> Result<()> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTSTP);
    mask.thread_unblock().context("cannot stop")?;
    let stopped = kill(Pid::from_raw(0), Signal::SIGTSTP).context("cannot stop");
    mask.thread_block().context("cannot stop")?;
    stopped
}
