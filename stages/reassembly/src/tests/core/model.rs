//! The core's promise, exact to the byte: who owns each byte of the datagram, and nothing cleverer.

use std::collections::BTreeMap;

use super::Fragment;
use super::held::Verdict;

const MOST: usize = 65_535;
const NOBODY: u32 = u32::MAX;

/// What becomes of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Held,
    Whole,
    Duplicate,
    /// ... and the datagram with it.
    Discarded,
}

impl From<Verdict> for Fate {
    fn from(verdict: Verdict) -> Fate {
        match verdict {
            Verdict::Held => Fate::Held,
            Verdict::Whole => Fate::Whole,
            Verdict::Duplicate => Fate::Duplicate,
            _ => Fate::Discarded,
        }
    }
}

pub(super) struct Model {
    owner: Vec<u32>,
    fragments: BTreeMap<u32, Fragment>,
    end: Option<usize>,
    bytes: usize,
}

impl Model {
    pub(super) fn new() -> Model {
        Model {
            owner: vec![NOBODY; MOST],
            fragments: BTreeMap::new(),
            end: None,
            bytes: 0,
        }
    }

    /// Inserts the packet with this number.
    pub(super) fn insert(&mut self, number: u32, fragment: Fragment) -> Fate {
        let (start, end) = (fragment.offset as usize, (fragment.offset + fragment.length) as usize);
        if fragment.length == 0 || (fragment.more && fragment.length % 8 != 0) || end > MOST {
            return Fate::Discarded;
        }
        if self.fragments.get(&self.owner[start]) == Some(&fragment) {
            return Fate::Duplicate;
        }
        let behind = self
            .end
            .is_some_and(|last| end > last || (!fragment.more && end != last));
        let is_behind_it = !fragment.more && self.owner[end..].iter().any(|owner| *owner != NOBODY);
        let overlaps = self.owner[start..end].iter().any(|owner| *owner != NOBODY);
        if behind || is_behind_it || overlaps {
            return Fate::Discarded;
        }
        self.owner[start..end].fill(number);
        self.fragments.insert(number, fragment);
        self.bytes += end - start;
        if !fragment.more {
            self.end = Some(end);
        }
        if self.end == Some(self.bytes) {
            Fate::Whole
        } else {
            Fate::Held
        }
    }

    /// The packets in the order of their bytes.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let mut owners: Vec<u32> = self.owner.iter().copied().filter(|owner| *owner != NOBODY).collect();
        owners.dedup();
        owners
    }

    /// The packets in the order of their arrival.
    pub(super) fn held(&self) -> Vec<u32> {
        self.fragments.keys().copied().collect()
    }

    /// The packet that owns the first byte.
    pub(super) fn first(&self) -> Option<u32> {
        Some(self.owner[0]).filter(|owner| *owner != NOBODY)
    }
}
