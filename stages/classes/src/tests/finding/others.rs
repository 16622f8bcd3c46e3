//! What others do to find a limit, with their published defaults, to compare with: of each ten answers they take the mean time.

use super::limit::OPEN;

const SAMPLE: u32 = 10;
/// Both begin with it.
const FIRST: f64 = 20.0;

/// How else a limit is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    /// TCP Vegas (Brakmo and Peterson, 1995) with the logarithmic thresholds of Netflix's concurrency-limits, which Uber's Cinnamon has, too.
    Vegas,
    /// The ratio of the long-term mean to the present one: concurrency-limits' Gradient2, whose least limit is 20, here 1.
    Gradient2,
}

/// Such a limit.
pub(super) struct Found {
    how: Other,
    limit: f64,
    sum: u64,
    answers: u32,
    /// ns: Vegas: the least mean since the last probe; Gradient2: the long-term mean; 0: not known.
    base: f64,
    samples: u32,
}

impl Found {
    pub(super) fn new(how: Other) -> Self {
        Self {
            how,
            limit: FIRST,
            sum: 0,
            answers: 0,
            base: 0.0,
            samples: 0,
        }
    }

    pub(super) fn now(&self) -> u32 {
        self.limit as u32
    }

    /// An answer that took so long, ns, while so many requests were inside.
    pub(super) fn answer(&mut self, took: u64, inside: u32) {
        self.sum += took;
        self.answers += 1;
        if self.answers < SAMPLE {
            return;
        }
        let mean = self.sum as f64 / f64::from(SAMPLE);
        (self.sum, self.answers) = (0, 0);
        self.samples += 1;
        let limit = match self.how {
            Other::Vegas => self.vegas(mean),
            Other::Gradient2 => self.gradient(mean),
        };
        // With few inside, the limit is not what keeps them few.
        if f64::from(inside) * 2.0 >= self.limit {
            self.limit = limit.clamp(1.0, f64::from(OPEN));
        }
    }

    fn vegas(&mut self, mean: f64) -> f64 {
        if self.base == 0.0 || mean < self.base || f64::from(self.samples) >= 22.5 * self.limit {
            (self.base, self.samples) = (mean, 0);
            return self.limit;
        }
        let step = self.limit.log10().floor().max(1.0);
        match (self.limit * (1.0 - self.base / mean)).ceil() {
            queue if queue <= step => self.limit + 6.0 * step,
            queue if queue < 3.0 * step => self.limit + step,
            queue if queue > 6.0 * step => self.limit - step,
            _ => self.limit,
        }
    }

    fn gradient(&mut self, mean: f64) -> f64 {
        // The plain mean of the first samples, smoothed afterwards.
        let part = if self.samples <= 10 {
            f64::from(self.samples)
        } else {
            300.5
        };
        self.base += (mean - self.base) / part;
        let gradient = (self.base / mean).clamp(0.5, 1.0);
        if self.base > 2.0 * mean {
            self.base *= 0.9;
        }
        0.8 * self.limit + 0.2 * (gradient * self.limit + 4.0)
    }
}
