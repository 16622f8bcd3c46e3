//! When a thread gets the processor, and for how long it has waited for it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;

/// `SCHED_RESET_ON_FORK`: programs and threads that the thread starts are ordinary ones (sched(7)).
const RESET_ON_FORK: i32 = 0x4000_0000;
/// The least priority that goes before all ordinary threads.
const PRIORITY: i32 = 1;
/// The nice value that gets the most of what is left, where a real-time policy is not allowed.
const NICEST: i32 = -20;

/// Has the calling thread run before ordinary ones, however busy they are (`SCHED_RR`); what it starts is ordinary. Where that is
/// not allowed, as in some control groups, it gets the least nice value. It has to sleep most of the time.
///
/// # Errors
/// Neither is allowed.
pub fn go_first() -> Result<()> {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: `parameters` lives through the call.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | RESET_ON_FORK, &raw const parameters) };
    if Errno::result(set).is_ok() {
        return Ok(());
    }
    // SAFETY: no pointers. 0 is the calling thread, in spite of the constant's name (setpriority(2), "C library/kernel
    // differences").
    let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICEST) };
    Errno::result(set)
        .context("cannot give a thread a priority (needs CAP_SYS_NICE)")
        .map(drop)
}

/// By which rules a thread gets the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER` at nice 0, as most threads.
    Ordinary,
    /// `SCHED_FIFO` with this priority, 1 to 99: before all ordinary ones, for as long as it wants.
    Fifo(i32),
}

/// The policy of a thread, by its number; 0 is the calling thread. `None` where it has none of those here, or has ended.
pub fn policy(thread: i32) -> Option<Policy> {
    // SAFETY: the call takes a number only.
    let policy = unsafe { libc::sched_getscheduler(thread) };
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` lives through the call.
    if unsafe { libc::sched_getparam(thread, &raw mut parameters) } != 0 {
        return None;
    }
    match policy & !RESET_ON_FORK {
        libc::SCHED_OTHER => Some(Policy::Ordinary),
        libc::SCHED_FIFO => Some(Policy::Fifo(parameters.sched_priority)),
        _ => None,
    }
}

/// Gives a thread another policy; 0 is the calling thread.
///
/// # Errors
/// `EPERM` without CAP_SYS_NICE or in a control group without real-time budget; `ESRCH`: it has ended.
pub fn set_policy(thread: i32, policy: Policy) -> nix::Result<()> {
    let (policy, sched_priority) = match policy {
        Policy::Ordinary => (libc::SCHED_OTHER, 0),
        Policy::Fifo(priority) => (libc::SCHED_FIFO, priority),
    };
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: `parameters` lives through the call.
    Errno::result(unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) }).map(drop)
}

/// For how long a thread has run, in ns; `None` of one that has ended, or where the kernel does not count it.
pub fn run_time_ns(thread: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// For how long a thread was ready to run and did not get the processor.
pub struct Waiting {
    file: File,
    before: Duration,
}

impl Waiting {
    /// Of the calling thread, from now on. `None` where the kernel does not count it (`CONFIG_SCHED_INFO`).
    pub fn of_this_thread() -> Option<Self> {
        let mut waiting = Self {
            file: File::open("/proc/thread-self/schedstat").ok()?,
            before: Duration::ZERO,
        };
        waiting.since();
        Some(waiting)
    }

    /// Since it was asked last.
    pub fn since(&mut self) -> Duration {
        let Some(now) = self.read() else { return Duration::ZERO };
        let passed = now.saturating_sub(self.before);
        self.before = now;
        passed
    }

    /// The second number: nanoseconds on a run queue (Documentation/scheduler/sched-stats.rst).
    fn read(&self) -> Option<Duration> {
        let mut text = [0; 128];
        let length = self.file.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let waited = text.split_ascii_whitespace().nth(1)?;
        Some(Duration::from_nanos(waited.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A thread that shares one processor with another one that never sleeps has to wait half of the time.
    #[test]
    fn a_thread_that_does_not_get_the_processor_has_waited() {
        use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
        use nix::unistd::Pid;
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this).unwrap();
        let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
        let mut one = CpuSet::new();
        one.set(first).unwrap();
        sched_setaffinity(this, &one).unwrap();
        let end = Instant::now() + Duration::from_millis(200);
        let burn = move || while Instant::now() < end {};
        let other = std::thread::spawn(burn);
        let mut waiting = Waiting::of_this_thread().unwrap();
        burn();
        let waited = waiting.since();
        other.join().unwrap();
        assert!(waited > Duration::from_millis(30), "{waited:?}");
        assert!(waiting.since() < waited, "it is counted once");
    }
}
