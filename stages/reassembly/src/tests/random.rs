//! Numbers that are the same in every run.

/// splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// In another order, each as likely (Fisher and Yates).
    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }
}
