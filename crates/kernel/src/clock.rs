//! The kernel's ticks.

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_getres};

/// The length of a jiffy, in nanoseconds, at least 1: the coarse clocks tick with it.
///
/// # Errors
/// A kernel that does not tell.
pub fn tick_ns() -> Result<u64> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).context("ask for the length of a tick")?;
    Ok((tick.tv_sec() as u64 * 1_000_000_000 + tick.tv_nsec() as u64).max(1))
}
