//! Whether softirqs or threads receive from a device, and what priority its threads have.

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use tarn_kernel::features::{Host, Release};
use tarn_kernel::scheduling::{Policy, policy, set_policy};
use tarn_kernel::sysfs::Sysfs;

/// The priority of the guard: more than any thread of a NAPI gets, less than the kernel's threads for interrupts.
pub const GUARD: i32 = 49;

fn file(device: &str) -> String {
    format!("class/net/{device}/threaded")
}

/// Whether threads receive from a device; `None` where it has another name by now, or is gone.
pub fn is_threaded(sysfs: &Sysfs, device: &str) -> Option<bool> {
    Some(sysfs.read(&file(device)).ok()? != "0")
}

/// Has threads receive from a device, or softirqs. A NAPI that is polled goes over when it has nothing to poll for a moment.
///
/// # Errors
/// The device is gone, or has no NAPIs. Softirqs cannot have it back while it is down: see [`would_wait_for_ever`].
pub fn set_threaded(sysfs: &Sysfs, device: &str, threaded: bool) -> Result<()> {
    let value = if threaded { "1" } else { "0" };
    let write = || {
        sysfs
            .write(&file(device), value)
            .with_context(|| format!("cannot have threads receive from {device}, or softirqs again"))
    };
    if threaded || !is_down(sysfs, device) {
        return write();
    }
    // Some drivers have no NAPIs while the device is down: the kernel refuses then.
    if would_wait_for_ever(sysfs, device) || write().is_err() {
        bail!(
            "{device} is down, and stays threaded, without a priority: once it is up, \
             `echo 0 >/sys/class/net/{device}/threaded` has softirqs receive again"
        );
    }
    Ok(())
}

/// The kernel that waits for a device's threads to have nothing to poll before softirqs receive again.
const WAITS_SINCE: Release = Release {
    major: 6,
    minor: 17,
    patch: 0,
};

/// Whether the kernel would wait for ever to have softirqs receive again, and hold the device's lock, which those that hold the lock of all
/// devices wait for: it takes a NAPI of a device that is down for one that is polled (`napi_stop_kthread`; seen on Linux 7.3).
pub fn would_wait_for_ever(sysfs: &Sysfs, device: &str) -> bool {
    is_down(sysfs, device) && Release::parse(&Host::this().release_text()).is_none_or(|release| release >= WAITS_SINCE)
}

/// Whether it is there, and set down.
pub fn is_down(sysfs: &Sysfs, device: &str) -> bool {
    let flags = sysfs.read(&format!("class/net/{device}/flags")).unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16);
    flags.is_ok_and(|flags| flags & libc::IFF_UP as u32 == 0)
}

/// Runs `work` as an ordinary thread, and goes on with the policy that the calling thread has.
///
/// The files below `/sys/class/net` do not wait for the kernel's lock of devices (RTNL): the system call is restarted until it is free.
/// A real-time thread would do so for as long as the holder does not get the CPU, which is for good where there is one CPU.
pub fn as_ordinary<T>(work: impl FnOnce() -> T) -> T {
    let before = policy(0).filter(|before| *before != Policy::Ordinary);
    if before.is_some() {
        // It goes on as it is then.
        let _ = set_policy(0, Policy::Ordinary);
    }
    let done = work();
    if let Some(before) = before {
        let _ = set_policy(0, before);
    }
    done
}

/// Whether the number is that of a thread that receives here: in another PID namespace it may be anybody's.
pub fn is_of_a_napi(thread: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{thread}/comm")).is_ok_and(|name| name.starts_with("napi/"))
}

/// The CPU that a thread runs on, or ran on last (proc(5), `/proc/PID/stat`, field 39).
pub fn cpu_of(thread: i32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// For how long a thread ran, or was ready to and waited for a CPU, in ns; `None` of one that has ended.
pub fn wanted_to_run_ns(thread: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    let mut figures = text.split_ascii_whitespace().map(|figure| figure.parse::<u64>().ok());
    Some(figures.next()?? + figures.next()??)
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
    let Some(now) = policy(thread).filter(|_| is_of_a_napi(thread)) else {
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

/// Has a thread that was given a priority go last, unless somebody else has changed that since. Returns whether it does not have it any
/// more; one that has ended does not.
pub fn demote(thread: i32, priority: i32) -> bool {
    if policy(thread) != Some(Policy::Fifo(priority)) {
        return true;
    }
    // In another PID namespace the number may be anybody's.
    is_of_a_napi(thread) && matches!(set_policy(thread, Policy::Ordinary), Ok(()) | Err(Errno::ESRCH))
}
