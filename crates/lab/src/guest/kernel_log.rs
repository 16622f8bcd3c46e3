//! Watches the kernel's log for what a test may not cause.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};

/// Texts by which the kernel announces that it is broken: lib/bug.c, kernel/panic.c, lockdep, the sanitizers,
/// the watchdogs, the reference counters.
const ALARMS: &[&str] = &[
    "WARNING:",
    "BUG:",
    "kernel BUG at",
    "Oops",
    "general protection fault",
    "unable to handle",
    "double fault",
    "stack segment",
    "divide error",
    "invalid opcode",
    "KASAN:",
    "KCSAN:",
    "KFENCE:",
    "UBSAN:",
    "possible circular locking dependency",
    "possible recursive locking",
    "possible irq lock inversion",
    "inconsistent lock state",
    "INFO: possible",
    "suspicious RCU usage",
    "bad unlock balance",
    "sleeping function called from invalid context",
    "scheduling while atomic",
    "soft lockup",
    "hard LOCKUP",
    "blocked for more than",
    "rcu_preempt detected stalls",
    "rcu_sched detected stalls",
    "self-detected stall",
    "refcount_t:",
    "list_add corruption",
    "list_del corruption",
    "unregister_netdevice: waiting for",
    "page allocation failure",
    "Out of memory",
    "Call Trace:",
    "DEBUG_LOCKS_WARN_ON",
    "INFO: trying to register non-static key",
    "turning off the locking correctness validator",
    "ref_tracker:",
    "NOHZ tick-stop error",
    "Objects remaining in",
    "leaked",
];

/// A reader of /dev/kmsg that remembers where it stopped.
pub struct KernelLog(File);

impl KernelLog {
    /// Opens the log and skips what it holds already.
    pub fn open() -> Result<Self> {
        let mut log = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .context("cannot open the kernel's log /dev/kmsg")?;
        log.seek(SeekFrom::End(0))
            .context("cannot go to the end of the kernel's log")?;
        Ok(Self(log))
    }

    /// The alarming lines since the last call.
    pub fn alarms(&mut self) -> Result<Vec<String>> {
        let mut alarms = Vec::new();
        let mut record = [0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(length) => alarms.extend(alarming_text(&String::from_utf8_lossy(&record[..length]))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(alarms),
                // The ring buffer was overwritten before it was read; the next read goes on with what is left.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    alarms.push("the kernel's log overflowed: lines are missing".to_owned());
                }
                Err(error) => return Err(error).context("cannot read the kernel's log"),
            }
        }
    }
}

/// The text of a record (`priority,sequence,time,flags;text`, then lines of properties) if it raises an alarm.
fn alarming_text(record: &str) -> Option<String> {
    let text = record.split_once(';')?.1.lines().next()?;
    ALARMS.iter().any(|alarm| text.contains(alarm)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_found_and_an_ordinary_line_is_not() {
        let warning = "4,1234,5678,-;WARNING: CPU: 0 PID: 77 at net/core/dev.c:42 f+0x1/0x2\n SUBSYSTEM=net\n";
        assert_eq!(
            alarming_text(warning).as_deref(),
            Some("WARNING: CPU: 0 PID: 77 at net/core/dev.c:42 f+0x1/0x2")
        );
        assert_eq!(alarming_text("6,12,34,-;veth0: renamed from eth0\n"), None);
        assert_eq!(alarming_text("6,12,34,-;debugging enabled\n"), None);
        assert_eq!(alarming_text("not a record"), None);
    }
}
