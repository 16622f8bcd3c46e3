//! Puts devices back that the agent has made threaded: at its end, and when others find it ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use crate::STAGE;
use crate::programs::Maps;
use crate::skeleton::types::poll_device;
use crate::threads;
use crate::weights;
use tarn_base::output::{Priority, log_at};
use tarn_base::runtime::monotonic_ns;
use tarn_kernel::links;
use tarn_kernel::netdev;
use tarn_kernel::sysfs::Sysfs;

/// The programs shed for a quarter of a second after the last look.
const SHED_ON_EVERY: Duration = Duration::from_millis(50);

/// Has the threads go last that the agent lets go first.
pub fn demote(maps: &Maps) {
    for (thread, priority) in maps.first() {
        if threads::demote(thread, priority) {
            maps.goes_first(thread, None);
        }
    }
}

/// Has the threads go last, and softirqs receive again, on all devices that the agent has made threaded, with the kernel's weight. The calling thread is an
/// ordinary one for the second part: see [`threads::as_ordinary`].
pub fn all(maps: &Maps, sysfs: &Sysfs) {
    demote(maps);
    threads::as_ordinary(|| {
        let devices = maps.devices();
        devices
            .iter()
            .for_each(|(index, shown)| device(maps, sysfs, *index, shown));
        if let Err(error) = weights::put_back() {
            log_at(Priority::Warning, STAGE, format!("{error:#}"));
        }
    });
}

/// Has softirqs receive again from a device that the agent has made threaded. What cannot be put back is gone, or has no threads: the
/// map forgets it as well.
pub fn device(maps: &Maps, sysfs: &Sysfs, index: u32, shown: &poll_device) {
    if shown.threaded == 0 {
        return;
    }
    if let Some(name) = name_of(index)
        && let Err(error) = unthread(maps, sysfs, &name)
    {
        log_at(Priority::Warning, STAGE, format!("{error:#}"));
    }
    let mut then = *shown;
    (then.threaded, then.share, then.mode) = (0, 0, 0);
    let _ = maps.set_device(index, &then, 0, false);
}

/// Kernels since 6.17 wait for the device's threads to have nothing to poll, and hold the device's lock meanwhile. So the programs
/// shed on, by the least shares, until that is done.
fn unthread(maps: &Maps, sysfs: &Sysfs, name: &str) -> Result<()> {
    let is_done = AtomicBool::new(false);
    maps.shed_all_that_they_may();
    std::thread::scope(|scope| {
        let shedding = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) && maps.shed_on().is_ok() {
                std::thread::park_timeout(SHED_ON_EVERY);
            }
        });
        let done = threads::set_threaded(sysfs, name, false);
        is_done.store(true, Ordering::Relaxed);
        shedding.thread().unpark();
        done
    })
}

/// How much of the time a thread that polls without end wants to run at least, in percent.
const BUSY: u64 = 80;

/// Tells when threads have little to do.
#[derive(Default)]
pub struct Business {
    /// For how long each wanted to run so far, in ns.
    wanted: HashMap<i32, u64>,
    /// When that was (CLOCK_MONOTONIC, ns).
    at: u64,
}

impl Business {
    /// Whether a thread of a device that the agent has made threaded wanted to run for most of the time since the last call. Where that is not
    /// known, as at the first one, it did.
    pub fn look(&mut self, maps: &Maps) -> bool {
        let now = monotonic_ns();
        let elapsed = now - std::mem::replace(&mut self.at, now);
        let devices = maps.devices().into_iter().filter(|(_, shown)| shown.threaded != 0);
        let napis = devices.flat_map(|(index, _)| netdev::napis(index).ok().flatten().unwrap_or_default());
        let wanted: HashMap<i32, u64> = napis
            .filter_map(|napi| napi.thread)
            .filter_map(|thread| Some((thread, threads::wanted_to_run_ns(thread)?)))
            .collect();
        let before = std::mem::replace(&mut self.wanted, wanted);
        let is_busy = |(thread, now): (&i32, &u64)| {
            let since = before.get(thread).map(|before| now.saturating_sub(*before));
            since.is_none_or(|since| since.saturating_mul(100) > elapsed.saturating_mul(BUSY))
        };
        self.wanted.iter().any(is_busy)
    }
}

/// The name that a device of this namespace has now.
pub fn name_of(index: u32) -> Option<String> {
    let links = links::all().ok()?;
    links.into_iter().find(|link| link.index == index).map(|link| link.name)
}
