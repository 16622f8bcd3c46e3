//! What the clients saw of a load, and what tarn says of it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::clients::Seen;
use super::scene::{Begun, Counted};
use super::servers::Kind;
use super::{AFTER, Run};
use crate::proof::scene::TARGETS;
use tarn_lab::experiment::Case;

/// What tarn had counted when the comparison began; nothing at the beginning of all.
#[derive(Default)]
pub struct Count {
    /// As clients note times, in s.
    at: f64,
    classes: Vec<Counted>,
}

impl Count {
    /// Of connections in TLS only: they are counted by what an answer usually takes, which has to be known first.
    ///
    /// # Errors
    /// Those of [`Begun::counted`].
    pub fn of(run: &Run, begun: &Begun<'_>) -> Result<Self> {
        if !run.contender.is_tarn() || !run.kind.is_connection() {
            return Ok(Self::default());
        }
        Ok(Self {
            at: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64(),
            classes: begun.counted()?,
        })
    }
}

/// What clients saw of a load.
pub struct Outcome {
    /// A class each.
    pub seen: Vec<Vec<Seen>>,
    pub deadline: Duration,
    /// From when it is measured, and for how long.
    pub from: Duration,
    pub length: Duration,
}

impl Outcome {
    /// Adds what the clients saw to a case's figures.
    pub fn fill(&self, case: &mut Case, kind: Kind) {
        for class in 0..TARGETS.len() {
            case.metrics.insert(format!("in_time_{class}"), self.share(class));
            if kind == Kind::Visits {
                case.metrics.insert(format!("let_in_{class}"), self.share_let_in(class));
            }
        }
        let answers = self.throughput() * f64::from(kind.at_once());
        case.metrics.insert("throughput_per_s".into(), answers);
    }

    /// Adds what tarn has counted since `before`, and what the clients saw, by the same rule: a request counts when it comes, and as
    /// answered in time when it is.
    pub fn compare(&self, case: &mut Case, before: &Count, after: &[Counted]) {
        for (class, after) in after.iter().enumerate() {
            let earlier = before.classes.get(class).copied().unwrap_or_default();
            let (requests, in_time) = (after.requests - earlier.requests, after.in_time - earlier.in_time);
            let mut add = |name: &str, value: f64| case.metrics.insert(format!("{name}_{class}"), value);
            add("said_in_time", in_time / requests.max(1.0));
            let all = &self.seen[class];
            let requests = all.iter().filter(|seen| seen.begin >= before.at).count();
            let took = all.iter().filter(|seen| self.is_in_time(seen));
            let in_time = took
                .filter(|seen| seen.end().is_some_and(|end| end >= before.at))
                .count();
            add("seen_in_time", in_time as f64 / requests.max(1) as f64);
        }
    }

    fn is_in_time(&self, seen: &Seen) -> bool {
        seen.took.is_some_and(|took| took <= self.deadline.as_secs_f64())
    }

    /// Those of a class's requests that are measured. They came at equal distances.
    fn measured(&self, class: usize) -> Vec<Seen> {
        let mut all = self.seen[class].clone();
        all.sort_by(|one, other| one.begin.total_cmp(&other.begin));
        let whole = (self.from + self.length + AFTER).as_secs_f64();
        let at = |time: Duration| (all.len() as f64 * time.as_secs_f64() / whole) as usize;
        all[at(self.from)..at(self.from + self.length)].to_vec()
    }

    /// The share of a class's requests that was answered in time.
    pub fn share(&self, class: usize) -> f64 {
        self.share_of(class, |seen| seen.took)
    }

    /// The share of a class's connections that was let in within the deadline.
    fn share_let_in(&self, class: usize) -> f64 {
        self.share_of(class, |seen| seen.let_in)
    }

    fn share_of(&self, class: usize, time: impl Fn(&Seen) -> Option<f64>) -> f64 {
        let measured = self.measured(class);
        let is_in_time = |seen: &&Seen| time(seen).is_some_and(|time| time <= self.deadline.as_secs_f64());
        measured.iter().filter(is_in_time).count() as f64 / measured.len().max(1) as f64
    }

    /// Answers a second while it is measured.
    fn throughput(&self) -> f64 {
        let all = || self.seen.iter().flatten();
        let begin = all().map(|seen| seen.begin).fold(f64::INFINITY, f64::min);
        let [from, to] = [self.from, self.from + self.length].map(|time| begin + time.as_secs_f64());
        all()
            .filter_map(Seen::end)
            .filter(|end| (from..to).contains(end))
            .count() as f64
            / (to - from)
    }
}
