//! Whether softirqs or threads receive from a device, and what priority its threads have.

use anyhow::{Context, Result};
use nix::errno::Errno;
use tarn_kernel::scheduling::{Policy, policy, set_policy};
use tarn_kernel::sysfs::Sysfs;

/// The priority of the guard: more than any thread of a NAPI gets, less than the kernel's threads for interrupts.
pub const GUARD: i32 = 49;

fn file(device: &str) -> String {
    format!("class/net/{device}/threaded")
}

/// Whether threads receive from a device; `None` where it cannot be told: the device is gone.
pub fn is_threaded(sysfs: &Sysfs, device: &str) -> Option<bool> {
    Some(sysfs.read(&file(device)).ok()? != "0")
}

/// Has threads receive from a device, or softirqs. A NAPI that is polled goes over when it has nothing to poll for a moment.
///
/// # Errors
/// The device is gone, or has no NAPIs.
pub fn set_threaded(sysfs: &Sysfs, device: &str, threaded: bool) -> Result<()> {
    let value = if threaded { "1" } else { "0" };
    sysfs
        .write(&file(device), value)
        .with_context(|| format!("cannot have threads receive from {device}, or softirqs again"))
}

/// What became of a thread that was to get a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// It has it.
    Done,
    /// Somebody else has given it another one than it had from us.
    LeftAlone,
    /// It has ended.
    Gone,
    /// Real-time policies are refused here.
    Refused,
}

/// Gives a thread a policy, unless somebody else has changed what we gave it before.
pub fn give(thread: i32, before: Option<Policy>, wanted: Policy) -> Given {
    let Some(now) = policy(thread) else {
        return Given::LeftAlone;
    };
    // What it has before we give it anything is what the kernel starts such threads with, or what is left of an earlier agent: a
    // policy survives that a device is not threaded for a while.
    if before.is_some_and(|before| before != now) {
        return Given::LeftAlone;
    }
    if now == wanted {
        return Given::Done;
    }
    match set_policy(thread, wanted) {
        Ok(()) => Given::Done,
        Err(Errno::ESRCH) => Given::Gone,
        Err(_) => Given::Refused,
    }
}
