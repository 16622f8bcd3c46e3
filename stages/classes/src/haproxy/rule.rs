//! The rule, where tarn does not choose itself: shares over a window, and the order of the classes by them.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::runtime::Counted;
use crate::config::TARGET_WHOLE;

/// Parts of the window; the oldest is forgotten whole, as in the kernel (`WINDOW_SLOTS`).
pub const SLOTS: u32 = 16;
/// So many failures of a class that is the first are no chance.
const FAILURES_LEAST: u64 = 4;
/// How long it is judged, at least.
const JUDGED: Duration = Duration::from_millis(500);
/// A pause between two turns that is no pause.
const PAUSE: Duration = Duration::from_secs(5);
/// For how long it is the last, at first; each time four times as long,
const BEHIND: Duration = Duration::from_secs(1);
/// up to so many windows.
const WINDOWS_MOST: u32 = 8;

/// The shares of a service's classes. The clock is the caller's: any that never goes back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shares {
    /// In 1/10000, best class first.
    targets: Vec<u32>,
    window: Duration,
    /// What HAProxy had counted when it was asked last; `None` before the first time.
    before: Option<Vec<Counted>>,
    /// What was counted in each part of the window, the last one being under way.
    slots: VecDeque<Vec<Counted>>,
    /// When the next part begins.
    next: Duration,
    /// When HAProxy was asked last.
    asked: Duration,
    /// The class that is the first of those that have requests.
    trial: Option<Trial>,
    /// By class: those that priority does not help are the last.
    behind: Vec<Behind>,
}

/// How a class does while it is the first.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Trial {
    class: usize,
    /// From when on it counts: what has waited before it was the first is through by then.
    from: Duration,
    /// When it is judged.
    next: Duration,
    /// Requests up to the last time: if they were answered in time, then by now.
    asked: u64,
    counted: Counted,
    /// Answers of all classes, in time or not.
    answers: u64,
}

/// For how long a class is the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Behind {
    until: Duration,
    /// For how long the next time; zero: it has not been.
    then: Duration,
}

impl Counted {
    fn add(&mut self, more: Self) {
        self.requests += more.requests;
        self.in_time += more.in_time;
        self.late += more.late;
    }

    /// What was counted since; a counter that has become less began at 0.
    fn since(self, before: Self) -> Self {
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Self {
            requests: since(self.requests, before.requests),
            in_time: since(self.in_time, before.in_time),
            late: since(self.late, before.late),
        }
    }
}

impl Shares {
    /// Of classes with these targets, in 1/10000, from `now` on. Nothing was counted yet.
    pub fn new(targets: Vec<u32>, window: Duration, now: Duration) -> Self {
        let classes = targets.len();
        Self {
            targets,
            window,
            before: None,
            slots: VecDeque::from([vec![Counted::default(); classes]]),
            next: now + window / SLOTS,
            asked: now,
            trial: None,
            behind: vec![Behind::default(); classes],
        }
    }

    /// Goes on with these, if they are of as many classes and the same window; their targets may be others.
    pub fn resume(&mut self, former: Self) {
        if (former.targets.len(), former.window) == (self.targets.len(), self.window) {
            let targets = std::mem::take(&mut self.targets);
            *self = Self { targets, ..former };
        }
    }

    /// Takes up what is counted by now. What was counted before the first time, or while nobody asked, is not known to be of this
    /// window, or to have been served in this order.
    pub fn count(&mut self, counted: &[Counted], now: Duration) {
        let slot = self.window / SLOTS;
        // After a long pause all parts are empty, however many have passed.
        for _ in 0..SLOTS {
            if now >= self.next {
                self.advance();
                self.next += slot;
            }
        }
        self.next = self.next.max(now);
        let was_asked = now.saturating_sub(std::mem::replace(&mut self.asked, now)) <= slot.max(PAUSE);
        let before = self.before.replace(counted.to_vec()).filter(|_| was_asked);
        let before = before.unwrap_or_else(|| counted.to_vec());
        let slot = self.slots.back_mut().into_iter().flatten();
        for (class, (sum, (before, found))) in slot.zip(before.iter().zip(counted)).enumerate() {
            let more = found.since(*before);
            sum.add(more);
            if let Some(trial) = self.trial.as_mut().filter(|trial| now >= trial.from) {
                trial.answers += more.in_time + more.late;
                if trial.class == class {
                    trial.counted.add(more);
                }
            }
        }
    }

    /// Begins the next part of the window.
    fn advance(&mut self) {
        if self.slots.len() == SLOTS as usize {
            self.slots.pop_front();
        }
        self.slots.push_back(vec![Counted::default(); self.targets.len()]);
    }

    /// Over the window, by class.
    pub fn sums(&self) -> Vec<Counted> {
        let mut sums = vec![Counted::default(); self.targets.len()];
        for slot in &self.slots {
            for (sum, slot) in sums.iter_mut().zip(slot) {
                sum.add(*slot);
            }
        }
        sums
    }

    /// What HAProxy has counted, by class; empty before the first time.
    pub fn totals(&self) -> &[Counted] {
        self.before.as_deref().unwrap_or_default()
    }

    /// The classes' places in the order in which they are served, from 0: by S / (N P), least first, and the better class where that is
    /// equal. S: requests answered in time, of N; P: the target. `deadlines` are the classes'.
    ///
    /// A class whose requests fail although it is the first fails for another reason than the queue: they take longer than the deadline,
    /// or are never answered. It would stay the first for ever and keep the service from all others, so it is the last for a while, and
    /// for longer each time.
    pub fn places(&mut self, deadlines: &[Duration], now: Duration) -> Vec<usize> {
        self.judge(deadlines, now);
        let sums = self.sums();
        let ratio = |class: usize| match sums[class].requests {
            0 => 0.0,
            requests => {
                let in_time = sums[class].in_time.min(requests) as f64;
                in_time * f64::from(TARGET_WHOLE) / (requests as f64 * f64::from(self.targets[class]))
            }
        };
        let mut order: Vec<usize> = (0..self.targets.len()).collect();
        order.sort_by(|a, b| {
            let behind = self.is_behind(*a, now).cmp(&self.is_behind(*b, now));
            behind.then(ratio(*a).total_cmp(&ratio(*b)))
        });
        let first = order.iter().copied().find(|class| sums[*class].requests > 0);
        if self.trial.as_ref().map(|trial| trial.class) != first {
            let drained = now + deadlines.iter().max().copied().unwrap_or_default();
            self.trial = first.map(|class| Trial {
                class,
                from: drained,
                next: drained + until_judged(deadlines, class),
                asked: 0,
                counted: Counted::default(),
                answers: 0,
            });
        }
        let mut places = vec![0; order.len()];
        for (place, class) in order.into_iter().enumerate() {
            places[class] = place;
        }
        places
    }

    /// Whether a class is the last because priority does not help it.
    pub fn is_behind(&self, class: usize, now: Duration) -> bool {
        self.behind[class].until > now
    }

    /// Judges the class that is the first, when it is time to.
    fn judge(&mut self, deadlines: &[Duration], now: Duration) {
        let Some(mut trial) = self.trial.take_if(|trial| now >= trial.next) else {
            return;
        };
        let Counted {
            requests,
            in_time,
            late,
        } = trial.counted;
        let unanswered = if in_time == 0 { trial.asked } else { 0 };
        let failures = late.max(unanswered);
        let behind = &mut self.behind[trial.class];
        if failures >= FAILURES_LEAST && failures >= in_time {
            // Where nobody is answered the service stands still, and it need not be the class.
            let lasts = if trial.answers > 0 {
                behind.then.max(BEHIND)
            } else {
                BEHIND
            };
            behind.until = now + lasts;
            behind.then = (4 * lasts).min(self.window * WINDOWS_MOST).max(BEHIND);
        } else if in_time >= failures + FAILURES_LEAST {
            *behind = Behind::default();
        } else {
            // Too few to know.
            trial.asked = requests;
            trial.next = now + until_judged(deadlines, trial.class);
            self.trial = Some(trial);
        }
    }
}

/// How long the class that is the first is judged: its requests of before have been answered by then, if they are in time.
fn until_judged(deadlines: &[Duration], class: usize) -> Duration {
    deadlines.get(class).copied().unwrap_or_default().max(JUDGED)
}
