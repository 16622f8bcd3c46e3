//! Away from an uplink at once: because it is dead, or because its answers are late.
//!
//! When answers fail to come, nobody can know yet whether they are late or lost, and whoever waits to find out loses packets. So
//! traffic leaves at once, as it leaves a slow uplink: only for one that is fine, and only some times a minute. Traffic that
//! fills one uplink's queue after the other would chase itself otherwise.

use std::time::Duration;

use super::{Judge, Life, Reason, Uplink};

/// After which time a late uplink may be left once more.
const LEAVE_INTERVAL: Duration = Duration::from_secs(30);

/// A bucket of tokens, as many as there are uplinks: how often late ones may be left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leaves {
    /// How many are taken out of it.
    taken: u32,
    /// Since when.
    since: Duration,
}

impl Leaves {
    /// Takes one, if there is any of so many.
    fn take(&mut self, most: usize, now: Duration) -> bool {
        let earned = now.saturating_sub(self.since).as_secs() / LEAVE_INTERVAL.as_secs();
        if earned > 0 || self.taken == 0 {
            self.taken = self.taken.saturating_sub(u32::try_from(earned).unwrap_or(u32::MAX));
            self.since = now;
        }
        let is_left = (self.taken as usize) < most;
        self.taken += u32::from(is_left);
        is_left
    }

    fn give_back(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }
}

impl<L> Judge<L> {
    /// Away from an uplink that is dead, or late.
    pub(super) fn leave(&mut self, current: usize, now: Duration) -> Option<super::Decision> {
        let reason = self.why_leave(current, now)?;
        let next = self.best_after(current, &reason, now)?;
        if !self.may_leave(current, &reason, now) {
            return None;
        }
        self.better = None;
        self.moved = Some(now);
        let mut decision = self.led_by(next, now, reason);
        decision.weights[current] = 0;
        Some(decision)
    }

    /// Why an uplink is to be left at once, if it is.
    pub(super) fn why_leave(&self, index: usize, now: Duration) -> Option<Reason> {
        let uplink = self.uplinks.get(index)?;
        let name = || uplink.name.clone();
        if !uplink.is_there {
            return Some(Reason::Gone(name()));
        }
        match uplink.life {
            Life::Silent if now < self.grace_until => return None,
            // One that comes back and is in use already was the best there was.
            Life::Silent => return Some(Reason::Silent(name())),
            Life::Overdue(_) => {
                let expected = uplink.best(now)?.expected();
                return Some(Reason::Missing(
                    name(),
                    microseconds(uplink.quiet(now)),
                    microseconds(expected),
                ));
            }
            _ => {}
        }
        let best = uplink.best(now).filter(|_| uplink.is_slow(now))?;
        let (present, expected) = (best.present(now)?, best.expected());
        Some(Reason::Slow(name(), microseconds(present), microseconds(expected)))
    }

    /// Who takes over from an uplink that is left for this reason.
    fn best_after(&self, current: usize, reason: &Reason, now: Duration) -> Option<usize> {
        match reason {
            Reason::Slow(..) => self.best_instead(current, now),
            Reason::Missing(..) => self
                .best_but(Some(current), now)
                .filter(|next| self.uplinks[*next].is_fine(now)),
            _ => self.best_but(Some(current), now),
        }
    }

    /// The best uplink that is fine, and whose worst is better than what the current one has to offer now.
    fn best_instead(&self, current: usize, now: Duration) -> Option<usize> {
        let present = self.uplinks[current].best(now)?.present(now)?;
        let next = self.best_but(Some(current), now)?;
        let uplink = &self.uplinks[next];
        let best = uplink.best(now).filter(|best| best.is_known() && uplink.is_fine(now))?;
        (best.expected() < present).then_some(next)
    }

    /// Whether an uplink may be left for this reason. One that is late is avoided for a while then.
    pub(super) fn may_leave(&mut self, index: usize, reason: &Reason, now: Duration) -> bool {
        if !matches!(reason, Reason::Slow(..) | Reason::Missing(..)) {
            return true;
        }
        if self.best_after(index, reason, now).is_none() || !self.leaves.take(self.uplinks.len(), now) {
            return false;
        }
        self.uplinks[index].avoided_until = now + self.settings.back_after;
        self.uplinks[index].is_left_late = true;
        true
    }

    /// What was taken for late, and has turned out to be dead, is no reason not to leave others. `before` is how each was.
    pub(super) fn give_back_leaves(&mut self, before: &[Life]) {
        for (uplink, before) in self.uplinks.iter_mut().zip(before) {
            let was_late = matches!(before, Life::Overdue(_)) && uplink.is_left_late;
            if was_late && uplink.life == Life::Silent {
                self.leaves.give_back();
            }
            uplink.is_left_late &= matches!(uplink.life, Life::Overdue(_));
        }
    }
}

impl<L> Uplink<L> {
    /// For how long nothing has come.
    fn quiet(&self, now: Duration) -> Duration {
        let last = self.estimates.iter().filter_map(|estimate| estimate.last_answer).max();
        now.saturating_sub(last.unwrap_or_default())
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
