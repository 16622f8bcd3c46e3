//! Guards the threads that go first while the agent has something else to do.
//!
//! What may wait for the kernel's lock of devices (RTNL) keeps the guard from looking, and most of it is done as an ordinary thread
//! ([`threads::as_ordinary`]), as whoever holds the lock may be. If a flood grows, or a trial begins, at just that moment, threads that go
//! first take all of the CPU: no ordinary thread gets on, the agent among them, until the keeper finds it stuck after half a second. So
//! another thread, with the guard's priority, looks as often as the guard, and has them go last by the guard's rule.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::guard::{Look, TICK};
use crate::programs::Maps;
use crate::threads;
use tarn_base::runtime::monotonic_ns;
use tarn_kernel::scheduling::{Policy, policy, run_time_ns};

/// A guard for while the other one cannot look.
pub struct StandIn {
    maps: Arc<Maps>,
    demoted: Mutex<Vec<i32>>,
}

/// Ends the guarding, also where what is done meanwhile panics.
struct Ending<'a> {
    is_done: &'a AtomicBool,
    guarding: Option<Thread>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Release);
        if let Some(guarding) = &self.guarding {
            guarding.unpark();
        }
    }
}

/// What threads have run so far, in ns, and when that was read.
struct Ran {
    began_ns: u64,
    by_thread: BTreeMap<i32, u64>,
    ended_ns: u64,
}

impl StandIn {
    /// For the threads that stand in these maps as those that go first.
    pub fn new(maps: Arc<Maps>) -> Self {
        Self {
            maps,
            demoted: Mutex::default(),
        }
    }

    /// Runs `work` as an ordinary thread.
    pub fn while_ordinary<T>(&self, work: impl FnOnce() -> T) -> T {
        self.meanwhile(|| threads::as_ordinary(work))
    }

    /// Runs `work`, which may wait.
    pub fn meanwhile<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.ran();
        if before.by_thread.is_empty() {
            return work();
        }
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            // It has the priority of the calling thread.
            let builder = thread::Builder::new().name("stand-in".to_owned());
            let guarding = builder.spawn_scoped(scope, || self.guard_until(&is_done, before));
            if guarding.is_err() {
                self.demote();
            }
            let _ending = Ending {
                is_done: &is_done,
                guarding: guarding.ok().map(|guarding| guarding.thread().clone()),
            };
            work()
        })
    }

    /// The threads that it has made go last since the last call.
    pub fn take_demoted(&self) -> Vec<i32> {
        std::mem::take(&mut self.demoted())
    }

    fn demoted(&self) -> MutexGuard<'_, Vec<i32>> {
        self.demoted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard_until(&self, is_done: &AtomicBool, mut before: Ran) {
        while !is_done.load(Ordering::Acquire) {
            thread::park_timeout(TICK);
            if Duration::from_nanos(monotonic_ns() - before.began_ns) < TICK {
                continue;
            }
            let now = self.ran();
            let look = Look {
                elapsed: Duration::from_nanos(now.ended_ns - before.began_ns),
                ran: most_on_a_cpu(&before.by_thread, &now.by_thread),
                ..Look::default()
            };
            if look.is_too_much() {
                return self.demote();
            }
            before = now;
        }
    }

    /// Of the threads that go first. The time before and after makes a part of a CPU no greater than it is.
    fn ran(&self) -> Ran {
        let began_ns = monotonic_ns();
        let first = self.maps.first().into_iter();
        let by_thread = first
            .map(|(thread, _)| (thread, run_time_ns(thread).unwrap_or_default()))
            .collect();
        Ran {
            began_ns,
            by_thread,
            ended_ns: monotonic_ns(),
        }
    }

    /// One that somebody else has given another policy is left to the guard.
    fn demote(&self) {
        for (thread, priority) in self.maps.first() {
            if policy(thread) == Some(Policy::Fifo(priority)) && threads::demote(thread, priority) {
                self.maps.goes_first(thread, None);
                self.demoted().push(thread);
            }
        }
    }
}

/// What those of one CPU have run together, where that is the most.
fn most_on_a_cpu(before: &BTreeMap<i32, u64>, now: &BTreeMap<i32, u64>) -> Duration {
    let mut sums: HashMap<Option<u32>, u64> = HashMap::new();
    for (thread, now) in now {
        let before = before.get(thread).unwrap_or(now);
        *sums.entry(threads::cpu_of(*thread)).or_default() += now.saturating_sub(*before);
    }
    Duration::from_nanos(sums.into_values().max().unwrap_or_default())
}
