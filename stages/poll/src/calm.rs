//! Puts devices back that the agent has made threaded: at its end, and when others find it ended.

use crate::STAGE;
use crate::programs::Maps;
use crate::skeleton::types::poll_device;
use crate::threads;
use crate::weights;
use tarn_base::output::{Priority, log_at};
use tarn_kernel::links;
use tarn_kernel::sysfs::Sysfs;

/// Has the threads go last, and softirqs receive again, on all devices that the agent has made threaded, with the kernel's weight. The calling thread is an
/// ordinary one for the second part: see [`threads::as_ordinary`].
pub fn all(maps: &Maps, sysfs: &Sysfs) {
    for (thread, priority) in maps.first() {
        if threads::demote(thread, priority) {
            maps.goes_first(thread, None);
        }
    }
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

/// Has softirqs receive again from a device that the agent has made threaded.
pub fn device(maps: &Maps, sysfs: &Sysfs, index: u32, shown: &poll_device) {
    if shown.threaded == 0 {
        return;
    }
    let Some(name) = name_of(index) else { return };
    match threads::set_threaded(sysfs, &name, false) {
        Ok(()) => {
            let mut then = *shown;
            (then.threaded, then.share, then.mode) = (0, 0, 0);
            let _ = maps.set_device(index, &then, 0, false);
        }
        Err(error) => log_at(Priority::Warning, STAGE, format!("{error:#}")),
    }
}

/// The name that a device of this namespace has now.
pub fn name_of(index: u32) -> Option<String> {
    let links = links::all().ok()?;
    links.into_iter().find(|link| link.index == index).map(|link| link.name)
}
