//! The clock, the CPUs, and work of known length.

use std::arch::asm;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::Pid;

/// The monotonic clock, in nanoseconds since boot. In the lab: instructions and idle time since boot.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until the monotonic clock shows this time.
pub fn sleep_until(time_ns: u64) -> Result<()> {
    let time = TimeSpec::from_duration(Duration::from_nanos(time_ns));
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &time) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot sleep"),
        }
    }
}

/// Executes this many instructions (rounded down to an even number) and nothing else.
pub fn spin(instructions: u64) {
    if instructions < 2 {
        return;
    }
    // SAFETY: counts a register down to zero.
    unsafe {
        asm!("2: dec {0}", "jnz 2b", inout(reg) instructions / 2 => _, options(nomem, nostack));
    }
}

/// Keeps the calling thread on one CPU; threads that it starts inherit that.
pub fn move_to(cpu: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu).with_context(|| format!("cannot name CPU {cpu}"))?;
    sched_setaffinity(this_thread(), &only).with_context(|| format!("cannot move to CPU {cpu}"))
}

/// Runs the closure on every CPU that the calling thread may use, one after the other.
pub fn on_every_cpu(mut work: impl FnMut(usize) -> Result<()>) -> Result<()> {
    let allowed = sched_getaffinity(this_thread()).context("cannot read the CPU affinity")?;
    let outcome = (0..CpuSet::count())
        .filter(|&cpu| allowed.is_set(cpu).unwrap_or(false))
        .try_for_each(|cpu| {
            move_to(cpu)?;
            work(cpu)
        });
    sched_setaffinity(this_thread(), &allowed).context("cannot restore the CPU affinity")?;
    outcome
}

/// Lets everything else on the CPU go before the calling thread (SCHED_IDLE), or no longer.
pub fn give_way(yes: bool) -> Result<()> {
    schedule(if yes { libc::SCHED_IDLE } else { libc::SCHED_OTHER }, 0)
}

/// Lets the calling thread and those that it starts go before everything else on the CPU (SCHED_FIFO), as if they had a machine
/// of their own: what other processes do then is not in their times.
pub fn go_first() -> Result<()> {
    schedule(libc::SCHED_FIFO, 1)
}

/// Lets the threads started from here on take turns: one that is woken waits until the running one sleeps (SCHED_BATCH).
/// Schedulers differ in that otherwise: Linux 7.2's has an exchange take one switch of threads more or less, 3,600
/// instructions, for dozens of exchanges in a row.
pub fn take_turns() -> Result<()> {
    schedule(libc::SCHED_BATCH, 0)
}

fn schedule(policy: i32, priority: i32) -> Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `parameters` lives through the call.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    Errno::result(result)
        .with_context(|| format!("cannot change the scheduling policy to {policy}"))
        .map(drop)
}

fn this_thread() -> Pid {
    Pid::from_raw(0)
}
