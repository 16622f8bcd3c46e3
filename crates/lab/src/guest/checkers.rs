//! Asks those checkers of a debug kernel that do not speak up by themselves: kmemleak and lockdep.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// kmemleak's reports and commands: Documentation/dev-tools/kmemleak.rst.
const LEAKS: &str = "/sys/kernel/debug/kmemleak";
/// What has been there for less than 5 s is not reported (MSECS_MIN_AGE in mm/kmemleak.c), and what was given up may be
/// freed as late (kvfree_rcu). Waiting costs nothing in the lab.
const AGE: Duration = Duration::from_secs(6);
/// What has changed since the scan before is not reported: the first scan takes its checksums.
const SCANS: u32 = 2;

/// lockdep's state; `debug_locks` is 0 when it has turned itself off.
const LOCKDEP: &str = "/proc/lockdep_stats";

/// The checkers, and what is known of them.
pub struct Checkers {
    checks_locks: bool,
}

impl Checkers {
    /// Finds them at work.
    ///
    /// # Errors
    /// When one of them is off.
    pub fn open() -> Result<Self> {
        if !checks_locks()? {
            bail!("lockdep is off, though nothing has run yet: see the kernel's log");
        }
        Ok(Self { checks_locks: true })
    }

    /// Says so, once, when locks are not checked any more.
    pub fn has_stopped(&mut self) -> Result<Option<String>> {
        if !self.checks_locks || checks_locks()? {
            return Ok(None);
        }
        self.checks_locks = false;
        Ok(Some("lockdep is off from here on".to_owned()))
    }

    /// Memory that nobody refers to any more, with the places that took it, since the guest has booted.
    pub fn leaks(&self) -> Result<Vec<String>> {
        thread::sleep(AGE);
        for _ in 0..SCANS {
            fs::write(LEAKS, "scan").with_context(|| format!("cannot have memory looked through: {LEAKS}"))?;
        }
        let found = fs::read_to_string(LEAKS).with_context(|| format!("cannot read {LEAKS}"))?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let heading = "memory was lost, by this test or one before it on this guest:".to_owned();
        Ok([heading].into_iter().chain(found.lines().map(str::to_owned)).collect())
    }
}

fn checks_locks() -> Result<bool> {
    let stats = fs::read_to_string(LOCKDEP).with_context(|| format!("cannot read {LOCKDEP}"))?;
    state_in(&stats).with_context(|| format!("{LOCKDEP} does not tell whether lockdep is on"))
}

/// ` debug_locks:                             1`
fn state_in(stats: &str) -> Option<bool> {
    let value = stats
        .lines()
        .find_map(|line| line.trim().strip_prefix("debug_locks:"))?;
    Some(value.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checker that is off finds nothing, and everything would seem well.
    #[test]
    fn a_checker_that_is_off_is_seen() {
        let stats = |state| format!(" lock-classes:    1 [max: 8192]\n debug_locks:     {state}\n");
        assert_eq!(state_in(&stats(1)), Some(true));
        assert_eq!(state_in(&stats(0)), Some(false));
        assert_eq!(state_in("lock-classes: 1"), None);
    }
}
