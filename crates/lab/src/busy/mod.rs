//! CPU cost as instructions: how every such figure of the lab comes about.
//!
//! The lab's virtual machine counts one nanosecond an instruction; when all its CPUs sleep, its clock jumps to the next
//! timer instead. So the clock advances by the instructions executed and by the time skipped, and
//!
//! ```text
//! busy = elapsed - idle        instructions executed, by whomever: programs, system calls, interrupts, softirqs
//! cost of a packet = busy / packets delivered
//! ```
//!
//! A figure is a number of instructions, exact and repeatable, but a model: no real CPU takes one nanosecond for each.
//!
//! `idle` is the time during which every CPU slept, counted by BPF programs at the doors of the idle loop
//! ([`IdleCounter`]); nothing else skips time. It holds for any number of CPUs, which take turns, so that each one's own
//! "not idle" would contain the others' turns. What programs, system calls, interrupts and softirqs execute is busy, in
//! idle time too.
//!
//! - **Resolution**: one instruction. About 200 instructions on the way into and out of each sleep count as idle.
//! - **The meter's own cost**: reading clock and counter, measured when the meter is made and left out. Where the CPU
//!   sleeps, the programs add some 1,000 instructions to each sleep, which are part of the figure ([`Busy::sleeps`]
//!   says how often). A CPU that never sleeps, as in a closed loop over links without delay, executes none of it.
//! - **The timer tick** (every 1 to 4 ms of busy time, some 3,000 to 4,000 instructions, 0.1 to 0.4 %) is part of the
//!   figure, as it is of any busy machine's work.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::unistd::{SysconfVar, sysconf};

pub use self::clock::{give_way, go_first, monotonic_ns, move_to, on_every_cpu, sleep_until, spin, take_turns};
pub use self::idle::IdleCounter;

mod clock;
mod idle;

/// How often the meter measures its own cost; the least is taken, the others met a timer tick.
const CALIBRATIONS: usize = 10;

/// How long [`Meter::settle`] looks at a time. Idle time costs nothing in the lab.
const LOOK: Duration = Duration::from_millis(500);
/// Instructions that a kernel executes by itself in such a time, with room to spare (measured: 0.1 to 0.6 million).
const BY_ITSELF: u64 = 1_000_000;
/// For so long the kernel may collect what was given up before it frees it all at once: kvfree_rcu for 5 s
/// (KFREE_DRAIN_JIFFIES, since Linux 6.2). Without the wait, single requests on 6.12 were 750,000 instructions dearer;
/// that they were hit by just this was not traced.
const COLLECTING: Duration = Duration::from_secs(6);
/// Looks in a row that must be quiet: what is deferred may wait for a grace period, and then for a worker.
const LOOKS: u32 = 2;

/// What all CPUs together did in a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Busy {
    /// How long it took, in ns of the lab's clock.
    pub elapsed_ns: u64,
    /// Of that, time in which every CPU slept.
    pub idle_ns: u64,
    /// The rest: instructions executed.
    pub busy_ns: u64,
    /// How often all CPUs fell asleep.
    pub sleeps: u64,
}

impl Busy {
    /// Instructions an item of the given number; 0 when there is none.
    pub fn per(&self, count: u64) -> f64 {
        if count == 0 {
            0.0
        } else {
            self.busy_ns as f64 / count as f64
        }
    }
}

/// Measures CPU cost. Make one and use it for all measurements of an experiment.
pub struct Meter {
    idle: IdleCounter,
    own_ns: u64,
}

/// A measurement under way; see [`Meter::start`].
pub struct Running<'a> {
    meter: &'a Meter,
    start_ns: u64,
    idle_ns: u64,
    sleeps: u64,
}

impl Meter {
    /// Attaches what counts idle time, and measures what measuring costs.
    ///
    /// # Errors
    /// Without root, or when the kernel has no type information (CONFIG_DEBUG_INFO_BTF).
    pub fn new() -> Result<Self> {
        let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN)
            .context("cannot count the CPUs")?
            .unwrap_or(1);
        let mut meter = Self {
            idle: IdleCounter::attach(cpus as u32)?,
            own_ns: 0,
        };
        meter.own_ns = (0..CALIBRATIONS)
            .map(|_| meter.start().stop().busy_ns)
            .min()
            .unwrap_or(0);
        Ok(meter)
    }

    /// What measuring itself costs, in instructions; already left out of every result.
    pub fn own_cost(&self) -> u64 {
        self.own_ns
    }

    /// Begins a measurement.
    pub fn start(&self) -> Running<'_> {
        let (sleeps, idle_ns) = (self.idle.sleeps(), self.idle.idle_ns());
        Running {
            meter: self,
            sleeps,
            idle_ns,
            start_ns: monotonic_ns(),
        }
    }

    /// Waits until the kernel has finished what was set going before: a namespace, a map or a program that was given
    /// up is freed later, by workers, whose cost would else be found in whatever is measured then.
    ///
    /// # Errors
    /// When there is no end of it within `limit` of the lab's time.
    pub fn settle(&self, limit: Duration) -> Result<()> {
        sleep_until(monotonic_ns() + COLLECTING.as_nanos() as u64)?;
        let deadline = monotonic_ns() + limit.as_nanos() as u64;
        let mut quiet = 0;
        while quiet < LOOKS {
            let start = monotonic_ns();
            let ((), look) = self.measure(|| sleep_until(start + LOOK.as_nanos() as u64))?;
            quiet = if look.busy_ns <= BY_ITSELF { quiet + 1 } else { 0 };
            if quiet == 0 && start > deadline {
                bail!(
                    "the kernel does not become quiet: it executes {} instructions in {} ms in which nothing is asked of it",
                    look.busy_ns,
                    LOOK.as_millis()
                );
            }
        }
        Ok(())
    }

    /// Measures what the closure does, whoever does it.
    pub fn measure<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Busy)> {
        let running = self.start();
        let outcome = work();
        let busy = running.stop();
        Ok((outcome?, busy))
    }
}

impl Running<'_> {
    /// Ends the measurement.
    pub fn stop(self) -> Busy {
        let end_ns = monotonic_ns();
        let idle_ns = self.meter.idle.idle_ns() - self.idle_ns;
        let elapsed_ns = (end_ns - self.start_ns).saturating_sub(self.meter.own_ns);
        let busy_ns = elapsed_ns.saturating_sub(idle_ns);
        Busy {
            elapsed_ns,
            idle_ns,
            busy_ns,
            sleeps: self.meter.idle.sleeps() - self.sleeps,
        }
    }
}

#[cfg(test)]
mod tests;
