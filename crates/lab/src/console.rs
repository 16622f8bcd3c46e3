//! The guest's serial console: the kernel's log, kept for the case that something goes wrong.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::Result;

/// What a kernel prints when it ends.
const FATAL: &str = "Kernel panic - not syncing";

/// What a kernel prints when it goes on, but not as it should.
const TROUBLE: &[&str] = &[
    "------------[ cut here ]------------",
    "BUG: ",
    "Oops: ",
    "general protection fault",
    "detected stall",
    "blocked for more than",
    "Out of memory: Killed process",
];

/// The console's output: a file in memory that QEMU writes. A pipe would not do, because a full pipe makes the
/// emulated serial port retry by the host's clock.
pub struct Console {
    file: File,
    read: u64,
    text: String,
}

impl Console {
    /// The console whose output goes to this empty file.
    pub fn new(file: File) -> Self {
        Self {
            file,
            read: 0,
            text: String::new(),
        }
    }

    /// The file that QEMU writes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Takes in what was printed since. Returns whether there was anything.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn update(&mut self) -> Result<bool> {
        let length = self.file.metadata()?.len();
        let mut new = vec![0; usize::try_from(length.saturating_sub(self.read))?];
        self.file.read_exact_at(&mut new, self.read)?;
        self.read = self.read.max(length);
        // The serial line ends its lines with CR LF; what a guest prints may be anything.
        self.text.push_str(&String::from_utf8_lossy(&new).replace('\r', ""));
        Ok(!new.is_empty())
    }

    /// Everything printed so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The last `count` lines.
    pub fn last_lines(&self, count: usize) -> String {
        let lines: Vec<_> = self.text.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// The first line that says that the kernel is in trouble; only that it has ended, unless `strict`. The line
    /// behind a "cut here" is the telling one.
    pub fn trouble(&self, strict: bool) -> Option<&str> {
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            if line.contains(FATAL) {
                return Some(line);
            }
            if strict && TROUBLE.iter().any(|sign| line.contains(sign)) {
                return if line.contains("cut here") {
                    lines.next().or(Some(line))
                } else {
                    Some(line)
                };
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn console(text: &str) -> Console {
        let mut console = Console::new(tempfile::tempfile().unwrap());
        console.file().write_all(text.as_bytes()).unwrap();
        assert!(console.update().unwrap());
        assert!(!console.update().unwrap());
        console
    }

    /// A kernel that is no longer whole must not give a figure or pass a test.
    #[test]
    fn trouble_is_seen() {
        for line in [
            "[    1.0] Kernel panic - not syncing: Attempted to kill init!",
            "[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "[    1.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [tarn:1]",
            "[    1.0] rcu: INFO: rcu_preempt self-detected stall on CPU",
            "[    1.0] Oops: Oops: 0000 [#1] PREEMPT SMP",
        ] {
            assert_eq!(
                console(&format!("[    0.5] fine\r\n{line}\r\n[    1.1] RIP: x\r\n")).trouble(true),
                Some(line)
            );
        }
        let warning =
            console("[ 1.0] ------------[ cut here ]------------\r\n[ 1.0] WARNING: CPU: 0 PID: 1 at net/x.c:1 f\r\n");
        assert_eq!(
            warning.trouble(true),
            Some("[ 1.0] WARNING: CPU: 0 PID: 1 at net/x.c:1 f")
        );
        assert_eq!(warning.trouble(false), None);
    }

    #[test]
    fn an_ordinary_log_is_no_trouble() {
        assert_eq!(
            console("[ 0.1] Linux version 6.12\r\n[ 0.2] x86/fpu: FP/SSE not present\r\n").trouble(true),
            None
        );
    }

    #[test]
    fn the_last_lines_are_those_before_the_end() {
        assert_eq!(console("a\r\nb\r\nc\r\n").last_lines(2), "b\nc");
        assert_eq!(console("a\r\n").last_lines(2), "a");
    }
}
