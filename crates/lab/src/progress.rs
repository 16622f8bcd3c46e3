//! Says how far long work is: one line that renews itself on a terminal, a line a step elsewhere.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, PoisonError};

use tarn_base::output::terminal_width;

/// Stands between the workers' parts of the line.
const SEPARATOR: &str = "  |  ";

/// What one worker is at.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<'a> {
    /// What is worked on: `image trixie`, `redirect on trixie`.
    pub task: &'a str,
    /// The step, in a few words.
    pub doing: &'a str,
    /// Done of the whole task, in 0..=1.
    pub fraction: f64,
    /// What changes within the step: bytes so far, the guest's clock.
    pub detail: &'a str,
}

impl<'a> Step<'a> {
    /// The first step of a task.
    pub fn first(task: &'a str, doing: &'a str) -> Self {
        Self {
            task,
            doing,
            fraction: 0.0,
            detail: "",
        }
    }
}

/// The progress of several workers, on standard error.
pub struct Progress {
    terminal: bool,
    tasks: Mutex<Vec<Task>>,
}

struct Task {
    name: String,
    doing: String,
    line: String,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            terminal: stderr().is_terminal() && can_renew(std::env::var_os("TERM").as_deref()),
            tasks: Mutex::default(),
        }
    }
}

impl Progress {
    /// Shows a worker's step.
    pub fn show(&self, step: &Step) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let line = describe(step);
        let known = tasks.iter().position(|task| task.name == step.task);
        let changed = known.is_none_or(|at| tasks[at].doing != step.doing);
        let task = Task {
            name: step.task.into(),
            doing: step.doing.into(),
            line,
        };
        if !self.terminal && changed {
            eprintln!("{}", task.line);
        }
        match known {
            Some(at) => tasks[at] = task,
            None => tasks.push(task),
        }
        self.draw(&tasks);
    }

    /// Prints a line above the progress; it stays.
    pub fn line(&self, line: &str) {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        self.clear();
        eprintln!("{line}");
        self.draw(&tasks);
    }

    /// Takes a worker's line away.
    pub fn end(&self, task: &str) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|known| known.name != task);
        self.clear();
        self.draw(&tasks);
    }

    /// Runs `print` with the progress taken off the terminal, so that lines on standard output do not mix with it.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        self.clear();
        let result = print();
        self.draw(&tasks);
        result
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }

    fn draw(&self, tasks: &[Task]) {
        if self.terminal && !tasks.is_empty() {
            let lines: Vec<_> = tasks.iter().map(|task| task.line.as_str()).collect();
            let line = join(&lines, terminal_width(std::io::stderr()));
            let _ = write!(stderr(), "\r\x1b[K{line}");
            let _ = stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn describe(step: &Step) -> String {
    let percent = step.fraction.clamp(0.0, 1.0) * 100.0;
    let detail = if step.detail.is_empty() {
        String::new()
    } else {
        format!(", {}", step.detail)
    };
    format!("{}: {percent:3.0} % {}{detail}", step.task, step.doing)
}

/// Whether a terminal of this kind can write a line anew.
fn can_renew(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// The line over all workers, fitted to a terminal: each gets its share of the room, so that none is out of sight.
fn join(lines: &[&str], width: usize) -> String {
    let room = width.saturating_sub(1);
    let whole = lines.join(SEPARATOR);
    if whole.chars().count() <= room {
        return whole;
    }
    let between = SEPARATOR.len() * lines.len().saturating_sub(1);
    let share = room.saturating_sub(between) / lines.len().max(1);
    let cut: Vec<String> = lines.iter().map(|line| line.chars().take(share).collect()).collect();
    cut.join(SEPARATOR).chars().take(room).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal that cannot would show the escape sequences.
    #[test]
    fn a_dumb_terminal_gets_plain_lines() {
        let renewing = ["xterm-256color", "linux", "dumb", ""].map(|term| can_renew(Some(OsStr::new(term))));
        assert_eq!(renewing, [true, true, false, false]);
        assert!(!can_renew(None));
    }

    #[test]
    fn every_worker_keeps_its_place_in_a_narrow_terminal() {
        let lines = [
            "redirect on bookworm:  46 % nft-dnat",
            "redirect on trixie:  12 % plain",
        ];
        assert_eq!(join(&lines, 100), lines.join(SEPARATOR));
        assert_eq!(join(&lines, 40), "redirect on bookw  |  redirect on trixi");
        for width in 0..60 {
            assert!(join(&lines, width).chars().count() <= width.saturating_sub(1));
        }
        assert_eq!(join(&[], 10), "");
    }

    #[test]
    fn a_step_reads_as_a_line() {
        let step = Step {
            task: "redirect on trixie",
            doing: "nft-dnat",
            fraction: 0.456,
            detail: "12.3 s virtual",
        };
        assert_eq!(describe(&step), "redirect on trixie:  46 % nft-dnat, 12.3 s virtual");
        let step = Step {
            detail: "",
            fraction: 7.0,
            ..step
        };
        assert_eq!(describe(&step), "redirect on trixie: 100 % nft-dnat");
    }
}
