//! Which uplinks are to be used, as a pure function of samples and time: nothing here asks the kernel or the clock.
//!
//! An uplink's score is the time within which nearly every answer comes (mean and four standard deviations over the last
//! minutes), and what its losses cost, times its cost: the least score is the calmest. Two rules move traffic:
//! - **At once**, away from an uplink that is dead, or slower at this moment than anything to be expected of it, when another
//!   one is fine and better even at its worst. Flows that are under way move, too. Answers that are missing may be only late:
//!   the uplink is left as a slow one is, and counts as dead when nothing has come for as long as an answer may take.
//! - **In peace**, to an uplink whose score has been lower by a margin for a while, and not soon after another move. Flows that
//!   are under way stay where they are until they pause.
//!
//! Where the load is measured, it is the score, and nobody is slow: what is dead is left at once, all else is in peace.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::nexthop::WEIGHT_MOST;

mod distribution;
mod estimate;
mod leave;
mod pinned;
mod reason;
#[cfg(test)]
mod tests;
mod traffic;
mod uplink;

pub use distribution::Distribution;
pub use estimate::Estimate;
use leave::Leaves;
pub use reason::Reason;
pub use uplink::{Life, Uplink};

/// The weight of an uplink that gets all new flows. A kernel that has no such weights gets the greatest that it has.
pub const MAIN: u32 = WEIGHT_MOST;
/// The weight of one that gets none of them.
pub const STANDBY: u32 = 1;
/// The weight of the uplink with the largest share, where flows are shared.
const WEIGHT: u32 = 256;
/// So many standard errors that a score has to be lower besides, not to be so by chance.
const CONFIDENCE: f64 = 2.0;
/// In proportion, an uplink whose score of delay is so many times the best one's gets nothing.
const WORST: f64 = 4.0;
/// The most probes a second to a target, also when one is missing and more are sent to know soon.
pub const RATE_MOST: u32 = 100;
/// The same while an uplink is looked at closely: because it is new, or has answered late.
pub const RATE_CLOSE: u32 = 20;
/// The same while its traffic is not answered.
const RATE_ALARM: u32 = 100;
/// The same while all uplinks are silent: the first that answers is used at once.
const RATE_OUTAGE: u32 = 5;
/// By default an uplink is asked this often, one target after the other: rarely enough that probes cost little, and often enough that
/// one that stands by is known to be dead within 3 s: this time, and that after which an answer is lost.
pub const INTERVAL: Duration = Duration::from_millis(1700);
/// The same of one where volume is dear.
pub const INTERVAL_METERED: Duration = Duration::from_secs(10);

/// What uplinks are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Round trips of probes, their variation and losses.
    #[default]
    Delay,
    /// How much their devices send, and how unevenly.
    Load,
}

/// How flows are given to uplinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// All new flows to the calmest.
    #[default]
    Calmest,
    /// To each as many as it is calm.
    Proportional,
}

/// A measure or policy as it is written.
pub fn name(value: impl ValueEnum) -> String {
    let written = value.to_possible_value();
    written.map(|written| written.get_name().to_owned()).unwrap_or_default()
}

/// What the judgement goes by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// What uplinks are compared by.
    pub measure: Measure,
    /// How fast a measured load follows what is sent: K of its averages, 0 to 1024.
    pub gain: u32,
    /// How flows are given.
    pub policy: Policy,
    /// A better uplink's score is lower by this part, 0.0 to 1.0,
    pub margin: f64,
    /// and by this time,
    pub least_margin: Duration,
    /// for so long.
    pub hold: Duration,
    /// The least time between two moves in peace.
    pub stay: Duration,
    /// How long an uplink that was dead has to be well before it is used again.
    pub back_after: Duration,
    /// How long TCP connections of a dead uplink may wait for it, before what is sent on them is refused; zero: for ever.
    pub reset_after: Duration,
    /// After this time, what was seen counts half as much.
    pub memory: Duration,
    /// After which a probe counts as lost.
    pub timeout: Duration,
    /// Probes a second to each target of an uplink in use; of others, a quarter. 1 to [`RATE_MOST`]. `None`: as few as will do.
    pub rate: Option<u32>,
    /// The same while one is missing and more are sent to know soon: at most [`RATE_MOST`], and less where there are many targets.
    pub rate_most: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            measure: Measure::Delay,
            gain: 512,
            policy: Policy::Calmest,
            margin: 0.1,
            least_margin: Duration::from_millis(1),
            hold: Duration::from_secs(5),
            stay: Duration::from_secs(30),
            back_after: Duration::from_secs(10),
            reset_after: Duration::from_secs(30),
            memory: Duration::from_secs(120),
            timeout: Duration::from_secs(1),
            rate: None,
            rate_most: RATE_MOST,
        }
    }
}

/// How an uplink is asked at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The time from one probe to the next.
    pub interval: Duration,
    /// Whom.
    pub whom: Whom,
}

/// Which targets of an uplink are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// All of them at once.
    All,
    /// One after the other.
    InTurn,
    /// The one that tells best.
    Best,
}

/// A change of weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// One an uplink; 0: not in the group.
    pub weights: Vec<u32>,
    /// Why.
    pub reason: Reason,
}

/// The judgement of one group of uplinks.
#[derive(Debug, Clone)]
pub struct Judge<L = ()> {
    settings: Settings,
    /// The uplinks: who probes them, or follows their devices, says here what there is to know.
    pub uplinks: Vec<Uplink<L>>,
    /// Whether connections stay on their uplinks, so that all of them are in use.
    is_pinned: bool,
    /// Whether the settings have changed, which the weights are to follow at once.
    is_set_anew: bool,
    /// The last move.
    moved: Option<Duration>,
    /// Who has been better since when.
    better: Option<(usize, Duration)>,
    /// How many more times an uplink may be left whose answers are only late, as far as is known.
    leaves: Leaves,
    /// Since when all uplinks are silent.
    all_silent: Option<Duration>,
    /// Until this moment no silent uplink counts as dead: all were silent, and the first answers again.
    grace_until: Duration,
}

impl<L> Judge<L> {
    /// Nothing is known of these uplinks. `weights` is what is in force, all 0 where nothing is.
    pub fn new(settings: Settings, mut uplinks: Vec<Uplink<L>>, weights: &[u32]) -> Self {
        for (uplink, weight) in uplinks.iter_mut().zip(weights) {
            uplink.begin(*weight);
        }
        Self {
            settings,
            uplinks,
            is_pinned: false,
            is_set_anew: false,
            moved: None,
            better: None,
            leaves: Leaves::default(),
            all_silent: None,
            grace_until: Duration::ZERO,
        }
    }

    /// Uses other settings from now on (policy, measure, gain, margins and times), and these costs, one an uplink. The memory of what
    /// was seen stays as long as it is.
    pub fn set(&mut self, settings: Settings, costs: impl Iterator<Item = u32>) {
        self.is_set_anew |= settings.policy != self.settings.policy;
        if settings.measure != self.settings.measure {
            self.better = None;
        }
        self.settings = settings;
        for (uplink, cost) in self.uplinks.iter_mut().zip(costs) {
            uplink.set(&settings, cost);
        }
    }

    /// What uplinks are compared by.
    pub fn measure(&self) -> Measure {
        self.settings.measure
    }

    /// What is in force, one an uplink.
    pub fn weights(&self) -> Vec<u32> {
        self.uplinks.iter().map(|uplink| uplink.weight).collect()
    }

    /// Whether an uplink in use misses a probe: to know what else there is, all are asked then.
    pub fn is_suspicious(&self, now: Duration) -> bool {
        let mut all = self.uplinks.iter().enumerate();
        all.any(|(index, uplink)| self.is_used(index, now) && uplink.is_suspicious(now))
    }

    /// Whether flows go by an uplink: new ones, or those that were left there, to pause or because they cannot move.
    fn is_used(&self, index: usize, now: Duration) -> bool {
        let uplink = &self.uplinks[index];
        let least = match self.settings.policy {
            Policy::Proportional => 0,
            Policy::Calmest => STANDBY,
        };
        self.is_pinned || uplink.weight > least || uplink.is_draining(now) || self.main() == Some(index)
    }

    /// How often, and whom, to ask by this uplink.
    pub fn pace(&self, index: usize, now: Duration) -> Pace {
        let (settings, uplink) = (&self.settings, &self.uplinks[index]);
        let is_dead = uplink.life == Life::Silent;
        let at = |rate: u32, whom| Pace {
            interval: Duration::from_secs(1) / rate.min(settings.rate_most).max(1),
            whom,
        };
        match settings.rate {
            _ if self.is_suspicious(now) && !is_dead => at(settings.rate_most, Whom::All),
            Some(rate) if now < self.grace_until || self.is_used(index, now) => at(rate, Whom::All),
            Some(rate) => at(rate.div_ceil(4), Whom::All),
            None if uplink.traffic.alarm().is_some() && !is_dead => at(RATE_ALARM, uplink.whom_in_alarm(now)),
            None if now < self.grace_until || uplink.needs_a_close_look(now) => at(RATE_CLOSE, Whom::All),
            None if self.all_silent.is_some() => at(RATE_OUTAGE, Whom::All),
            None => Pace {
                interval: uplink.calm_interval(),
                whom: Whom::InTurn,
            },
        }
    }

    /// What is to change now, if anything is. It counts as done from then on.
    pub fn decide(&mut self, now: Duration) -> Option<Decision> {
        let before: Vec<Life> = self.uplinks.iter().map(|uplink| uplink.life).collect();
        for uplink in &mut self.uplinks {
            uplink.judge(now, &self.settings);
        }
        self.give_back_leaves(&before);
        self.notice_revival(now);
        let decision = match self.settings.policy {
            _ if std::mem::take(&mut self.is_set_anew) => self.anew(now),
            Policy::Calmest => self.calmest(now),
            Policy::Proportional => self.proportional(now, &before),
        }?;
        if decision.weights == self.weights() {
            return None;
        }
        for (uplink, weight) in self.uplinks.iter_mut().zip(&decision.weights) {
            uplink.weight = *weight;
            // Who has no weight has no flows either.
            uplink.left = uplink.left.filter(|_| *weight > 0);
        }
        Some(decision)
    }

    /// When targets answer again that nobody reached, by whichever uplink first, the others get as long as an answer may take to
    /// do the same: which one was asked first is chance.
    fn notice_revival(&mut self, now: Duration) {
        let there = self.uplinks.iter().filter(|uplink| uplink.is_there);
        let mut asked = there.filter_map(Uplink::is_silent).peekable();
        if asked.peek().is_some() && asked.all(|is_silent| is_silent) {
            self.all_silent.get_or_insert(now);
        } else if self.all_silent.take().is_some() {
            self.grace_until = now + self.settings.timeout;
        }
    }

    /// The same uplinks by another policy. Flows that were shared stay where they are until they pause.
    fn anew(&mut self, now: Duration) -> Option<Decision> {
        let main = self.main()?;
        match self.settings.policy {
            Policy::Calmest => {
                let shared = self.uplinks.iter_mut().filter(|uplink| uplink.weight > 0);
                shared.for_each(|uplink| uplink.left = Some(now));
                Some(self.led_by(main, now, Reason::Set))
            }
            Policy::Proportional => self.shares(now, Reason::Set),
        }
    }

    fn calmest(&mut self, now: Duration) -> Option<Decision> {
        let Some(current) = self.main() else {
            let first = self.best_but(None, now)?;
            return Some(self.led_by(first, now, Reason::Begin));
        };
        self.leave(current, now)
            .or_else(|| self.in_peace(current, now))
            .or_else(|| self.stand_by(current, now))
    }

    /// The name of the uplink that gets the most new flows.
    pub fn main_name(&self) -> Option<String> {
        self.main().map(|index| self.uplinks[index].name.clone())
    }

    /// The uplink with the most weight.
    fn main(&self) -> Option<usize> {
        let used = self.uplinks.iter().enumerate().filter(|(_, uplink)| uplink.weight > 0);
        used.max_by_key(|(index, uplink)| (uplink.weight, usize::MAX - index))
            .map(|(index, _)| index)
    }

    /// One uplink gets all new flows. The others stand by with so little weight that they get none: without them in the group,
    /// nothing would take over when the device of the first one goes, until the agent does. One that cannot be used is left out.
    fn led_by(&self, chosen: usize, now: Duration, reason: Reason) -> Decision {
        // One that an earlier agent has left out has to be known first.
        let is_first = self.main().is_none();
        let weight = |(index, uplink): (usize, &Uplink<L>)| match is_first || uplink.weight > 0 || uplink.is_known() {
            _ if index == chosen => MAIN,
            true if uplink.may_stand_by(now) && now >= uplink.avoided_until => STANDBY,
            _ => 0,
        };
        Decision {
            weights: self.uplinks.iter().enumerate().map(weight).collect(),
            reason,
        }
    }

    /// The best uplink that can be used, other than this one: known ones by their scores, then by cost and order. When none can
    /// be used, but this one cannot send at all, one that can send at least.
    fn best_but(&self, current: Option<usize>, now: Duration) -> Option<usize> {
        let rank = |index: &usize| {
            let uplink = &self.uplinks[*index];
            (uplink.score(now).unwrap_or(f64::MAX), uplink.cost)
        };
        let others = || (0..self.uplinks.len()).filter(|index| Some(*index) != current);
        let best = |usable: &dyn Fn(&Uplink<L>) -> bool| {
            let usable = others().filter(|index| usable(&self.uplinks[*index]));
            usable.min_by(|one, other| {
                let ((a, b), (c, d)) = (rank(one), rank(other));
                a.total_cmp(&c).then(b.cmp(&d))
            })
        };
        let cannot_send = current.is_none_or(|current| !self.uplinks[current].is_there);
        let comes_back =
            |uplink: &Uplink<L>| uplink.is_there && uplink.is_silent() == Some(false) && uplink.misses_none(now);
        best(&|uplink| uplink.is_fine(now))
            .or_else(|| best(&|uplink| uplink.answers(now)))
            .or_else(|| best(&comes_back))
            .or_else(|| best(&|uplink| uplink.is_there).filter(|_| cannot_send))
    }

    /// Takes those out that cannot be used, and those back in that can be again. An uplink with flows that were left there to
    /// pause is taken out when it is slow: they leave it then.
    fn stand_by(&mut self, current: usize, now: Duration) -> Option<Decision> {
        if matches!(self.uplinks[current].life, Life::Silent | Life::Overdue(_)) {
            return None; // nothing is better than what there is
        }
        for (index, uplink) in self.uplinks.iter_mut().enumerate() {
            let is_late = uplink.is_slow(now) || matches!(uplink.life, Life::Overdue(_));
            if index != current && uplink.is_draining(now) && is_late {
                uplink.avoided_until = now + self.settings.back_after;
            }
        }
        let mut decision = self.led_by(current, now, Reason::Begin);
        let changed = (0..self.uplinks.len()).find(|index| decision.weights[*index] != self.uplinks[*index].weight)?;
        decision.reason = match decision.weights[changed] {
            0 => self.why_leave(changed, now)?,
            _ => Reason::Back(self.uplinks[changed].name.clone()),
        };
        Some(decision)
    }

    /// Whether the last move in peace was long enough ago for another one.
    fn has_stayed(&self, now: Duration) -> bool {
        let stay = self.settings.stay;
        self.moved.is_none_or(|moved| now.saturating_sub(moved) >= stay)
    }

    /// To an uplink that has been calmer for a while.
    fn in_peace(&mut self, current: usize, now: Duration) -> Option<Decision> {
        let found = self.calmer_than(current, now);
        let Some((next, score, than)) = found else {
            self.better = None;
            return None;
        };
        let since = match self.better {
            Some((who, since)) if who == next => since,
            _ => now,
        };
        self.better = Some((next, since));
        if !self.has_stayed(now) || now.saturating_sub(since) < self.settings.hold {
            return None;
        }
        self.better = None;
        self.moved = Some(now);
        let name = |index: usize| self.uplinks[index].name.clone();
        let (score, than) = (score as u64, than as u64);
        let reason = match self.settings.measure {
            Measure::Delay => Reason::Calmer(name(next), score, name(current), than),
            Measure::Load => Reason::LessBusy(name(next), score, name(current), than),
        };
        self.uplinks[current].left = Some(now);
        Some(self.led_by(next, now, reason))
    }

    /// The calmest uplink that is calmer by the margin, its score and the current one's.
    fn calmer_than(&self, current: usize, now: Duration) -> Option<(usize, f64, f64)> {
        let next = self
            .best_but(Some(current), now)
            .filter(|next| self.uplinks[*next].is_fine(now))?;
        if !self.uplinks[next].is_proven(now) || !self.uplinks[current].is_proven(now) {
            return None;
        }
        let score = self.uplinks[next].score(now)?;
        // One of which nothing can be known is the last resort.
        let than = self.uplinks[current].score(now).unwrap_or(f64::MAX);
        let least = match self.settings.measure {
            Measure::Delay => self.settings.least_margin.as_secs_f64() * 1e6,
            Measure::Load => uplink::IDLE,
        };
        let doubt = self.uplinks[next].doubt(now).hypot(self.uplinks[current].doubt(now));
        let needed = (than * self.settings.margin).max(least) + CONFIDENCE * doubt;
        (score < than - needed).then_some((next, score, than))
    }

    fn proportional(&mut self, now: Duration, before: &[Life]) -> Option<Decision> {
        if self.main().is_none() {
            return self.shares(now, Reason::Begin);
        }
        let used: Vec<usize> = (0..self.uplinks.len())
            .filter(|index| self.uplinks[*index].weight > 0)
            .collect();
        for index in used {
            let Some(reason) = self.why_leave(index, now) else {
                continue;
            };
            if !self.may_leave(index, &reason, now) {
                continue;
            }
            if let Some(shares) = self.shares(now, reason.clone()) {
                return Some(shares);
            }
            // Nobody is well: one that answers, or can send at least, if this one cannot.
            let next = self.best_but(Some(index), now)?;
            return Some(self.led_by(next, now, reason));
        }
        let back = before
            .iter()
            .zip(&self.uplinks)
            .find(|(life, uplink)| matches!(life, Life::Returning(_)) && uplink.life == Life::Well);
        if let Some((_, uplink)) = back {
            return self.shares(now, Reason::Back(uplink.name.clone()));
        }
        let mut usable = self.uplinks.iter().filter(|uplink| uplink.is_usable());
        if !self.has_stayed(now) || !usable.all(|uplink| uplink.is_proven(now)) {
            return None;
        }
        let shares = self.shares(now, Reason::Shares)?;
        let differs = self.differs(&shares.weights);
        self.moved = if differs { Some(now) } else { self.moved };
        differs.then_some(shares)
    }

    /// Shares by score: who is twice as calm gets twice as much. `None` when nobody can be used.
    fn shares(&self, now: Duration, reason: Reason) -> Option<Decision> {
        // One that misses a probe at this moment is looked at by `why_leave`, and not left out for it.
        // One that comes back, or is only late, and was in use all the time, keeps its flows.
        let has_stayed = |uplink: &Uplink<L>| {
            let is_kept = matches!(uplink.life, Life::Returning(_) | Life::Overdue(_)) || now < self.grace_until;
            uplink.is_there && uplink.weight > 0 && is_kept
        };
        let usable = |uplink: &&Uplink<L>| (uplink.is_usable() || has_stayed(uplink)) && now >= uplink.avoided_until;
        let scores = self
            .uplinks
            .iter()
            .filter(usable)
            .filter_map(|uplink| uplink.score(now));
        let best = scores.fold(f64::INFINITY, f64::min);
        let cheapest = self.uplinks.iter().map(|uplink| uplink.cost).min().unwrap_or(100);
        // Twice the margin between coming and going, so that nobody does both again and again.
        let worst = |uplink: &Uplink<L>| match uplink.weight {
            0 => WORST * (1.0 - self.settings.margin),
            _ => WORST * (1.0 + self.settings.margin),
        };
        let weight = |uplink: &Uplink<L>| match uplink.score(now) {
            _ if !usable(&uplink) => 0,
            // Without a weight, what is under way would move, too; an uplink that is only busy is no reason for that.
            Some(score) if score > best * worst(uplink) && self.settings.measure == Measure::Delay => 0,
            Some(score) => ((f64::from(WEIGHT) * best / score.max(1.0)).round() as u32).clamp(1, WEIGHT),
            None => (WEIGHT * cheapest / uplink.cost.max(1)).clamp(1, WEIGHT),
        };
        let weights: Vec<u32> = self.uplinks.iter().map(weight).collect();
        let is_any = weights.iter().any(|weight| *weight > 0);
        is_any.then_some(Decision { weights, reason })
    }

    /// Whether a share would change by more than the margin, or come or go.
    fn differs(&self, weights: &[u32]) -> bool {
        let share =
            |weights: &[u32], index: usize| f64::from(weights[index]) / f64::from(weights.iter().sum::<u32>().max(1));
        let before = self.weights();
        (0..weights.len()).any(|index| {
            let (old, new) = (share(&before, index), share(weights, index));
            (old == 0.0) != (new == 0.0) || (new - old).abs() > self.settings.margin * old.max(new)
        })
    }
}
