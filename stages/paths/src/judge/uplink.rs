//! One uplink as the judgement sees it: what its targets tell, and whether it lives.

use std::time::Duration;

use super::estimate::{Estimate, RECENT};
use super::traffic::Traffic;
use super::{INTERVAL, INTERVAL_METERED, Measure, STANDBY, Settings, Whom};
use crate::load::Load;

/// For how long flows may be left on an uplink that was used before.
const DRAINING: Duration = Duration::from_secs(600);
/// An uplink that has been well for so long is not held to have died before.
const FORGIVEN: Duration = Duration::from_secs(600);
/// Before so many answers, a score is no reason to move.
const ENOUGH: u64 = 20;
/// So many probes to each target are sent closely to begin with, to know what to expect.
const ACQUAINTANCE: u64 = 200;
/// The same where volume is dear.
const ACQUAINTANCE_METERED: u64 = 20;
/// A load below this, in bytes a second, counts as this much, and a difference below it for none: an uplink that is idle is not
/// infinitely better than another one that is.
pub const IDLE: f64 = 10_000.0;
/// An uplink that dies again and again has to be well for at most 2 to this power times as long before it is used.
const DOUBLINGS_MOST: u32 = 5;

/// Whether packets come through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// As far as is known.
    Well,
    /// Answers fail to come since this moment, and may be late or lost.
    Overdue(Duration),
    /// No target answers: nothing has come for as long as an answer may take.
    Silent,
    /// Answers come again, since this moment.
    Returning(Duration),
}

/// One uplink.
#[derive(Debug, Clone)]
pub struct Uplink<L = ()> {
    /// What is known of it besides, which the judgement does not ask about.
    pub link: L,
    /// What log lines call it.
    pub name: String,
    /// A factor of its score, in percent.
    pub cost: u32,
    /// What its device sends, smoothed; `None` while nobody measures it.
    pub load: Option<Load>,
    measure: Measure,
    /// Whether volume is dear: it is asked as little as can be.
    is_metered: bool,
    /// Whether what goes by it is answered.
    pub traffic: Traffic,
    /// Whether its device can send.
    pub is_there: bool,
    /// One a target.
    pub estimates: Vec<Estimate>,
    /// Whether packets come through.
    pub life: Life,
    /// It was left because it was slow, and is not used again before this moment.
    pub avoided_until: Duration,
    /// Its weight in the group; 0: not in it.
    pub weight: u32,
    /// When it was left in peace, if it was.
    pub(super) left: Option<Duration>,
    /// Whether it was left while its answers were overdue, and still are.
    pub(super) is_left_late: bool,
    /// Whether it is dead, and its connections were let go.
    pub(super) has_let_go: bool,
    /// Since when it is dead, while another one is not.
    pub(super) dead_since: Option<Duration>,
    /// Whether it has fallen silent, and nobody was told.
    pub has_died: bool,
    died: Option<Duration>,
    deaths: u32,
}

impl<L> Uplink<L> {
    /// An uplink of which nothing is known, with this many targets.
    pub fn new(link: L, name: String, cost: u32, targets: usize, settings: &Settings) -> Self {
        Self {
            link,
            name,
            cost,
            load: None,
            measure: settings.measure,
            is_metered: false,
            traffic: Traffic::default(),
            is_there: true,
            estimates: vec![Estimate::new(settings.memory, settings.timeout); targets],
            life: Life::Well,
            avoided_until: Duration::ZERO,
            weight: 0,
            left: None,
            is_left_late: false,
            has_let_go: false,
            dead_since: None,
            has_died: false,
            died: None,
            deaths: 0,
        }
        .asked_by(settings)
    }

    /// Probes count for the time for which they stand, where they come as rarely as will do.
    fn asked_by(mut self, settings: &Settings) -> Self {
        let turn = self.calm_interval() * self.estimates.len() as u32;
        for estimate in &mut self.estimates {
            estimate.unit = settings.rate.is_none().then_some(turn);
        }
        self
    }

    /// Says whether volume is dear there.
    pub fn metered(mut self, is_metered: bool, settings: &Settings) -> Self {
        self.is_metered = is_metered;
        self.asked_by(settings)
    }

    /// The time between two probes while nothing speaks for more.
    pub(super) fn calm_interval(&self) -> Duration {
        match self.is_metered {
            true => INTERVAL_METERED,
            false => INTERVAL,
        }
    }

    /// Who is asked when its traffic is answered no more: one target will do while that one answers.
    pub(super) fn whom_in_alarm(&self, now: Duration) -> Whom {
        match self.estimates.iter().any(|estimate| estimate.overdue(now) > 0) {
            true => Whom::All,
            false => Whom::Best,
        }
    }

    /// Whether it is to be asked more closely: it is new, or a target that answered until now has not, or late. Traffic that is not
    /// answered is another matter.
    pub(super) fn needs_a_close_look(&self, now: Duration) -> bool {
        let enough = if self.is_metered {
            ACQUAINTANCE_METERED
        } else {
            ACQUAINTANCE
        };
        let is_of_late = self.calm_interval() * (2 * self.estimates.len() as u32 + 1);
        self.life != Life::Silent
            && self.estimates.iter().any(|estimate| {
                estimate.asked < enough || estimate.is_heard_within(is_of_late, now) && estimate.is_doubtful(now)
            })
    }

    /// Begins with the weight that is in force.
    pub(super) fn begin(&mut self, weight: u32) {
        self.weight = weight;
        self.has_let_go = false;
        // Flows were shared before, perhaps, and are still where they began.
        self.left = (weight > STANDBY).then_some(Duration::ZERO);
    }

    /// Whether it was left in peace, and flows may still be there.
    pub(super) fn is_draining(&self, now: Duration) -> bool {
        self.left.is_some_and(|left| now.saturating_sub(left) < DRAINING)
    }

    /// Is compared by what these settings say from now on, and has this cost.
    pub fn set(&mut self, settings: &Settings, cost: u32) {
        self.cost = cost;
        self.measure = settings.measure;
        if settings.measure == Measure::Delay {
            self.load = None;
        }
    }

    /// The target that tells best of the uplink: trouble of the uplink's own shows at all of them.
    pub fn best(&self, now: Duration) -> Option<&Estimate> {
        self.estimates.get(self.best_index(now)?)
    }

    /// Its place in the list.
    pub fn best_index(&self, now: Duration) -> Option<usize> {
        let rank = |estimate: &&Estimate| match estimate.is_known() && estimate.overdue(now) < RECENT {
            true => estimate.score_us(),
            false => f64::MAX,
        };
        let all = self.estimates.iter().enumerate();
        all.min_by(|(_, one), (_, other)| rank(one).total_cmp(&rank(other)))
            .map(|(index, _)| index)
    }

    /// Whether it can be used.
    pub fn is_usable(&self) -> bool {
        self.is_there && self.life == Life::Well
    }

    /// Whether it can stand by in the group: one without flows need not go for answers that may be late.
    pub(super) fn may_stand_by(&self, now: Duration) -> bool {
        let is_idle = self.weight == STANDBY && !self.is_draining(now);
        self.is_usable() || self.is_there && is_idle && matches!(self.life, Life::Overdue(_))
    }

    /// Whether nothing comes through: not within the time after which an answer counts as lost.
    pub fn is_dead(&self, now: Duration) -> bool {
        !self.is_there || self.life == Life::Silent && self.estimates.iter().all(|estimate| estimate.is_mute(now))
    }

    /// Whether it can be used, and nothing speaks against it at this moment.
    pub fn is_fine(&self, now: Duration) -> bool {
        self.answers(now) && now >= self.avoided_until && !self.is_slow(now)
    }

    /// Whether it can be used, and misses no probe.
    pub fn answers(&self, now: Duration) -> bool {
        self.is_usable() && self.misses_none(now)
    }

    /// Whether no probe is missing, of those to its best target.
    pub fn misses_none(&self, now: Duration) -> bool {
        self.best(now).is_none_or(|best| best.overdue(now) == 0)
    }

    /// Whether no target answers; `None` where there is none to ask.
    pub fn is_silent(&self) -> Option<bool> {
        (!self.estimates.is_empty()).then_some(self.life == Life::Silent)
    }

    /// Whether there is something to judge it by, or never will be.
    pub fn is_known(&self) -> bool {
        self.estimates.is_empty() || self.estimates.iter().any(Estimate::is_known)
    }

    /// Whether it is slower now than it ever is, even with luck. Who goes by the load does not ask.
    pub fn is_slow(&self, now: Duration) -> bool {
        if self.measure == Measure::Load {
            return false;
        }
        let is_late = |estimate: &Estimate| {
            estimate
                .present(now)
                .is_some_and(|present| present > estimate.expected())
        };
        let mut known = self.estimates.iter().filter(|estimate| estimate.is_known()).peekable();
        // Trouble of the uplink's own shows at all of its targets.
        known.peek().is_some() && known.all(is_late)
    }

    /// The score with the cost in it, in microseconds, or in bytes a second where the load is measured; `None` while nothing is
    /// known.
    pub fn score(&self, now: Duration) -> Option<f64> {
        let score = match self.measure {
            Measure::Delay => self.best(now).filter(|best| best.is_known())?.score_us(),
            Measure::Load => self.load?.weight().max(IDLE),
        };
        Some(score * f64::from(self.cost) / 100.0)
    }

    /// How far the score may be off by chance, in its unit: a standard error.
    pub fn doubt(&self, now: Duration) -> f64 {
        let doubt = match self.measure {
            Measure::Delay => self.best(now).map_or(0.0, Estimate::doubt_us),
            Measure::Load => 0.0,
        };
        doubt * f64::from(self.cost) / 100.0
    }

    /// Whether enough is known of it for a score to be a reason to move, or never will be.
    pub fn is_proven(&self, now: Duration) -> bool {
        match self.measure {
            Measure::Delay => self.best(now).is_none_or(|best| best.answers >= ENOUGH),
            Measure::Load => self.load.is_some(),
        }
    }

    /// Whether a probe is missing: then more are sent, to know soon.
    pub fn is_suspicious(&self, now: Duration) -> bool {
        let mut missing = self.estimates.iter().map(|estimate| estimate.overdue(now)).peekable();
        let is_unclear = self.estimates.iter().any(|estimate| estimate.overdue(now) < RECENT);
        self.life != Life::Silent && missing.peek().is_some() && missing.all(|count| count > 0) && is_unclear
    }

    /// Finds out whether it lives.
    pub fn judge(&mut self, now: Duration, settings: &Settings) {
        if self.estimates.is_empty() {
            return; // nobody can tell
        }
        let all = |is: &dyn Fn(&Estimate) -> bool| self.estimates.iter().all(is);
        let is_overdue = all(&|estimate| estimate.overdue_in_vain(now) >= RECENT);
        let is_silent = all(&|estimate| estimate.is_mute(now) && estimate.unanswered() >= RECENT);
        self.life = match self.life {
            Life::Well | Life::Overdue(_) if is_silent => self.die(now),
            Life::Well if is_overdue => Life::Overdue(now),
            Life::Overdue(since) if self.has_answered_since(Some(since)) => Life::Well,
            Life::Returning(_) if is_overdue => Life::Silent,
            // What comes only after its time is no answer.
            Life::Silent
                if !all(&|estimate| estimate.overdue(now) >= RECENT) && self.has_answered_in_time_since(self.died) =>
            {
                Life::Returning(now)
            }
            Life::Returning(since) if now.saturating_sub(since) >= self.wait(settings) => Life::Well,
            life => life,
        };
        for estimate in &mut self.estimates {
            estimate.is_outage = self.life == Life::Silent;
        }
        if self
            .traffic
            .alarm()
            .is_some_and(|since| self.has_answered_a_probe_since(since))
        {
            self.traffic.end_alarm();
        }
    }

    fn die(&mut self, now: Duration) -> Life {
        let is_forgiven = self.died.is_none_or(|died| now.saturating_sub(died) > FORGIVEN);
        self.deaths = if is_forgiven { 1 } else { self.deaths.saturating_add(1) };
        self.died = Some(now);
        self.has_died = true;
        Life::Silent
    }

    fn has_answered_a_probe_since(&self, moment: Duration) -> bool {
        self.estimates
            .iter()
            .any(|estimate| estimate.has_answered_what_was_sent_since(moment))
    }

    fn has_answered_in_time_since(&self, moment: Option<Duration>) -> bool {
        self.estimates.iter().any(|estimate| estimate.last_in_time > moment)
    }

    fn has_answered_since(&self, moment: Option<Duration>) -> bool {
        self.estimates.iter().any(|estimate| estimate.last_answer > moment)
    }

    /// How long it has to be well before it is used again: twice as long after each death that follows another soon.
    fn wait(&self, settings: &Settings) -> Duration {
        let doublings = self.deaths.saturating_sub(1).min(DOUBLINGS_MOST);
        settings.back_after * 2_u32.pow(doublings)
    }
}
