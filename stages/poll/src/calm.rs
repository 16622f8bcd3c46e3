//! Puts devices back that the agent has made threaded: at its end, and when others find it ended.

use crate::STAGE;
use crate::programs::Maps;
use crate::skeleton::types::poll_device;
use crate::threads;
use tarn_base::output::{Priority, log_at};
use tarn_kernel::links;
use tarn_kernel::netdev;
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_kernel::sysfs::Sysfs;

/// Has the threads go last, and softirqs receive again, on all devices that the agent has made threaded. The calling thread is an
/// ordinary one meanwhile: see [`threads::as_ordinary`].
pub fn all(maps: &Maps, sysfs: &Sysfs) {
    let devices = maps.devices();
    let threaded = devices.iter().filter(|(_, shown)| shown.threaded != 0);
    threaded.for_each(|(index, _)| demote(*index));
    threads::as_ordinary(|| {
        devices
            .iter()
            .for_each(|(index, shown)| device(maps, sysfs, *index, shown))
    });
}

/// The same of one device.
pub fn device(maps: &Maps, sysfs: &Sysfs, index: u32, shown: &poll_device) {
    if shown.threaded == 0 {
        return;
    }
    demote(index);
    let Some(name) = name_of(index) else { return };
    match threads::set_threaded(sysfs, &name, false) {
        Ok(()) => {
            let mut then = *shown;
            (then.threaded, then.share, then.mode) = (0, 0, 0);
            let _ = maps.set_device(index, &then, false);
        }
        Err(error) => log_at(Priority::Warning, STAGE, format!("{error:#}")),
    }
}

/// Has a device's threads go last.
pub fn demote(index: u32) {
    for napi in netdev::napis(index).ok().flatten().unwrap_or_default() {
        if let Some(thread) = napi.thread {
            // One that has ended takes nothing.
            let _ = set_policy(thread, Policy::Ordinary);
        }
    }
}

/// The name that a device of this namespace has now.
pub fn name_of(index: u32) -> Option<String> {
    let links = links::all().ok()?;
    links.into_iter().find(|link| link.index == index).map(|link| link.name)
}
