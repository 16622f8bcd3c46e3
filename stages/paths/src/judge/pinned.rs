//! Connections that cannot move: whose uplink is dead, and not just slow, and for how long they wait for it.

use std::time::Duration;

use super::{Judge, Life, STANDBY, Uplink};

impl<L> Judge<L> {
    /// Says whether connections stay on their uplinks: all of them are in use then.
    pub fn pinned(mut self, is_pinned: bool) -> Self {
        self.is_pinned = is_pinned;
        self
    }

    /// The uplinks whose connections are lost if they stay, while another uplink would take them. They are told until
    /// [`Self::has_let_go`].
    pub fn lost(&mut self, now: Duration) -> Vec<usize> {
        if !self.is_pinned {
            return Vec::new();
        }
        // One that has just come back is used already where there is no better one.
        let is_used = |uplink: &Uplink<L>| {
            uplink.is_there && matches!(uplink.life, Life::Well | Life::Returning(_)) && uplink.weight > STANDBY
        };
        // When all are silent, it is the targets that are dead.
        let has_other = self.uplinks.iter().any(is_used);
        // One that misses a few answers is none to go to now, and no reason to wait for the dead ones from the beginning.
        let may_have_other =
            has_other || (self.uplinks.iter()).any(|uplink| uplink.is_there && matches!(uplink.life, Life::Overdue(_)));
        let mut lost = Vec::new();
        for (index, uplink) in self.uplinks.iter_mut().enumerate() {
            // In the grace after all were silent, only one whose device has gone is.
            let is_dead = uplink.is_dead(now) && (now >= self.grace_until || !uplink.is_there);
            uplink.has_let_go &= is_dead;
            uplink.dead_since = match uplink.dead_since {
                Some(since) => (is_dead && may_have_other).then_some(since),
                None => (is_dead && has_other).then_some(now),
            };
            if is_dead && has_other && !uplink.has_let_go {
                lost.push(index);
            }
        }
        lost
    }

    /// The uplinks that have been dead for so long that nobody is to wait for them any more.
    pub fn given_up(&self, now: Duration) -> impl Iterator<Item = &Uplink<L>> {
        let after = self.settings.reset_after;
        let is_over = move |since: Duration| !after.is_zero() && now.saturating_sub(since) >= after;
        let all = self.uplinks.iter();
        all.filter(move |uplink| uplink.dead_since.is_some_and(is_over))
    }

    /// The connections of this uplink are free to go elsewhere.
    pub fn has_let_go(&mut self, index: usize) {
        self.uplinks[index].has_let_go = true;
    }
}
