//! The rate of the bottleneck over time.

use tarn_lab::random::Random;

use super::network::{Course, MS};

/// How far a step of the random walk goes: the standard deviation of the rate's logarithm.
const WALK_DEVIATION: f64 = 0.25;
/// One in so many steps of a fading channel begins a fade.
const FADE_ONE_IN: u64 = 150;

/// What a course has come to.
#[derive(Debug)]
pub(crate) struct Rate {
    course: Course,
    /// The first one, bit/s.
    whole: u64,
    /// The present one, bit/s.
    pub(crate) now: u64,
    changes: usize,
    /// Of a fading channel: where between the two rates it is, and how many steps a fade goes on.
    level: f64,
    fade: u64,
    random: Random,
}

impl Rate {
    pub(crate) fn new(course: &Course, whole: u64, seed: u64) -> Self {
        let random = Random::new(seed, "course");
        Self {
            course: course.clone(),
            whole,
            now: whole,
            changes: 0,
            level: 0.5,
            fade: 0,
            random,
        }
    }

    /// When the rate changes next, ns; `None`: no more.
    pub(crate) fn next_change(&self, now: u64) -> Option<u64> {
        match &self.course {
            Course::Steady => None,
            Course::Step { period_ms, .. } => Some(now + period_ms * MS),
            Course::Script(script) => script.get(self.changes).map(|(ms, _)| ms * MS),
            Course::Walk { .. } => Some(now + 100 * MS),
            Course::Fading { .. } => Some(now + 20 * MS),
        }
    }

    /// Changes it.
    pub(crate) fn change(&mut self) {
        self.now = match &self.course {
            Course::Steady => self.whole,
            Course::Step { low, .. } if self.changes % 2 == 0 => *low,
            Course::Step { .. } => self.whole,
            Course::Script(script) => script.get(self.changes).map_or(self.now, |(_, rate)| *rate),
            Course::Walk { low } => {
                let low = *low as f64;
                let next = self.now as f64 * (normal(&mut self.random) * WALK_DEVIATION).exp();
                next.clamp(low, low.max(self.whole as f64)) as u64
            }
            Course::Fading { low } => {
                let low = *low;
                self.fading(low)
            }
        };
        self.changes += 1;
    }

    /// The next rate of a fading channel: it returns to the middle in about half a second, and fades for up to 200 ms.
    fn fading(&mut self, low: u64) -> u64 {
        self.level = (self.level + 0.04 * (0.5 - self.level) + 0.08 * normal(&mut self.random)).clamp(0.0, 1.0);
        self.fade = match self.fade {
            0 if self.random.below(FADE_ONE_IN) == 0 => 1 + self.random.below(10),
            steps => steps.saturating_sub(1),
        };
        let level = if self.fade > 0 { 0.0 } else { self.level };
        // Half the decibels are half the way.
        (low as f64 * (self.whole as f64 / low as f64).powf(level)) as u64
    }
}

/// Nearly normal, mean 0, deviation 1: the sum of twelve uniform ones.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0
}
