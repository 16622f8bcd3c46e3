//! Waits until the kernel has finished what it began at boot.
//!
//! After process 1 has started, a stock kernel still tests its ciphers and frees its memory, for more than a second.
//! Whatever is measured meanwhile would carry that cost.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::busy::{give_way, monotonic_ns, on_every_cpu, spin};

/// Instructions of one look: 20 ms of the lab's time.
const LOOK: u64 = 20_000_000;
/// The CPU is quiet when at most this share of a look went to others: the timer tick alone takes 0.1 to 0.4 %.
const OTHERS_PERCENT: u64 = 1;
/// Looks in a row that must be quiet.
const LOOKS: u32 = 5;

/// Returns when every CPU has nothing to do but the caller's work.
///
/// The caller works at the lowest priority meanwhile, so that anyone else who has something to do is seen: a loop of
/// known length takes longer than it should.
///
/// # Errors
/// When some CPU is still busy after `limit` of the guest's time.
pub fn wait(limit: Duration) -> Result<()> {
    give_way(true)?;
    let outcome = on_every_cpu(|cpu| wait_here(limit).with_context(|| format!("CPU {cpu}")));
    give_way(false)?;
    outcome
}

/// The same for the CPU that the caller runs on.
fn wait_here(limit: Duration) -> Result<()> {
    let deadline = monotonic_ns() + limit.as_nanos() as u64;
    let mut quiet = 0;
    while quiet < LOOKS {
        let start = monotonic_ns();
        spin(LOOK);
        let elapsed = monotonic_ns() - start;
        let others = elapsed.saturating_sub(LOOK);
        quiet = if others * 100 <= LOOK * OTHERS_PERCENT {
            quiet + 1
        } else {
            0
        };
        if start > deadline {
            bail!("the kernel does not become quiet: {others} ns of the last {elapsed} ns went to others");
        }
    }
    Ok(())
}
