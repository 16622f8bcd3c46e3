//! Randomness that repeats: everything random in an experiment comes from its seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// A stream of random numbers, the same for the same seed and name on any machine and in any release.
///
/// A generator of statistical quality (PCG XSL 128/64 MCG), not for secrets.
#[derive(Debug, Clone)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The stream called `name` of a seed. Streams of different names do not depend on each other, so that one
    /// more draw at one place does not change what another sees.
    pub fn new(seed: u64, name: &str) -> Self {
        let high = mix(name.bytes().fold(mix(seed), |state, byte| mix(state ^ u64::from(byte))));
        let low = mix(high);
        Self(Pcg64Mcg::new(u128::from(high) << 64 | u128::from(low)))
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in 0.0..1.0, in steps of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in 0..bound; 0 when `bound` is 0. Without bias (Lemire, "Fast Random Integer Generation in an
    /// Interval", 2019).
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.bits()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// Exponentially distributed with the given mean: the gaps of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    /// Puts the items in a random order, each order equally likely (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Spreads every bit of the input over the whole output (the finalizer of SplitMix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u64, name: &str) -> Vec<u64> {
        let mut random = Random::new(seed, name);
        (0..8).map(|_| random.bits()).collect()
    }

    #[test]
    fn a_stream_repeats_and_differs_by_seed_and_by_name() {
        assert_eq!(draw(1, "load"), draw(1, "load"));
        assert_ne!(draw(1, "load"), draw(2, "load"));
        assert_ne!(draw(1, "load"), draw(1, "loss"));
    }

    #[test]
    fn uniform_and_exponential_have_their_means() {
        let mut random = Random::new(7, "means");
        let draws = 100_000;
        let uniform = (0..draws).map(|_| random.uniform()).sum::<f64>() / f64::from(draws);
        let exponential = (0..draws).map(|_| random.exponential(3.0)).sum::<f64>() / f64::from(draws);
        assert!((uniform - 0.5).abs() < 0.005, "{uniform}");
        assert!((exponential - 3.0).abs() < 0.05, "{exponential}");
    }

    #[test]
    fn below_reaches_every_value_about_equally_often() {
        let mut random = Random::new(7, "below");
        let mut seen = [0; 6];
        (0..60_000).for_each(|_| seen[random.below(6) as usize] += 1);
        assert!(seen.iter().all(|&count| (9_500..10_500).contains(&count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(7, "shuffle").shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
