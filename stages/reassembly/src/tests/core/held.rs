//! The core, called from Rust. Its memory is C's; whatever a test does, nothing may be left of it.

use std::ptr::NonNull;

use super::Fragment;

/// `struct shim_core`
#[repr(C)]
struct Shim {
    opaque: [u8; 0],
}

// SAFETY: shim_core.c defines these. They use what the pointers point to, and keep none.
unsafe extern "C" {
    safe fn shim_core_new(most: u32) -> Option<NonNull<Shim>>;
    fn shim_core_free(shim: *mut Shim);
    fn shim_core_insert(shim: *mut Shim, offset: u32, length: u32, more: bool, allocations: *mut i64) -> i32;
    fn shim_core_link(shim: *mut Shim, tags: *mut u32, before: *mut i64) -> u32;
    fn shim_core_take(shim: *mut Shim, tags: *mut u32) -> u32;
    fn shim_core_first(shim: *const Shim) -> i64;
    fn shim_core_memory(shim: *const Shim) -> u32;
    safe fn shim_core_live() -> i64;
}

/// `enum core_verdict`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Held,
    Whole,
    Duplicate,
    Overlap,
    BadEnd,
    BadLength,
    NoMemory,
}

const VERDICTS: [Verdict; 7] = [
    Verdict::Held,
    Verdict::Whole,
    Verdict::Duplicate,
    Verdict::Overlap,
    Verdict::BadEnd,
    Verdict::BadLength,
    Verdict::NoMemory,
];

impl Verdict {
    /// Whether the caller discards the datagram.
    pub(super) fn discards(self) -> bool {
        !matches!(self, Verdict::Held | Verdict::Whole | Verdict::Duplicate)
    }
}

/// What is held of one datagram. Packets have numbers in the order of their arrival, duplicates included.
pub(super) struct Held {
    shim: NonNull<Shim>,
    most: usize,
    /// Allocations that succeed from now on; negative: all.
    pub(super) allocations: i64,
}

impl Held {
    /// Nothing is held; room for `most` insertions.
    pub(super) fn new(most: usize) -> Held {
        let shim = shim_core_new(most as u32).unwrap();
        Held {
            shim,
            most,
            allocations: -1,
        }
    }

    pub(super) fn insert(&mut self, fragment: Fragment) -> Verdict {
        let Fragment { offset, length, more } = fragment;
        // SAFETY: the pointers are shim_core_new()'s until drop, and a number's.
        let verdict = unsafe { shim_core_insert(self.shim.as_ptr(), offset, length, more, &mut self.allocations) };
        VERDICTS[usize::try_from(verdict).expect("room for another packet")]
    }

    /// The whole datagram's packets in order, and the one before the newest.
    pub(super) fn link(&mut self) -> (Vec<u32>, Option<u32>) {
        let mut tags = vec![0; self.most];
        let mut before = 0;
        // SAFETY: as above; there is room for all tags.
        let number = unsafe { shim_core_link(self.shim.as_ptr(), tags.as_mut_ptr(), &mut before) };
        tags.truncate(number as usize);
        (tags, u32::try_from(before).ok())
    }

    /// All packets, sorted by their number.
    pub(super) fn take(&mut self) -> Vec<u32> {
        let mut tags = vec![0; self.most];
        // SAFETY: as above.
        let number = unsafe { shim_core_take(self.shim.as_ptr(), tags.as_mut_ptr()) };
        assert!(number as usize <= self.most, "the chain is a circle");
        tags.truncate(number as usize);
        tags.sort_unstable();
        tags
    }

    /// The packet at offset 0.
    pub(super) fn first(&self) -> Option<u32> {
        // SAFETY: as above.
        u32::try_from(unsafe { shim_core_first(self.shim.as_ptr()) }).ok()
    }

    /// What the core says that it has allocated.
    pub(super) fn memory(&self) -> u32 {
        // SAFETY: as above.
        unsafe { shim_core_memory(self.shim.as_ptr()) }
    }

    /// Allocations that are not freed.
    pub(super) fn live(&self) -> i64 {
        shim_core_live()
    }

    /// After link() and take(): nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.memory() == 0 && self.live() == 0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: as above; nothing uses it any more.
        unsafe { shim_core_free(self.shim.as_ptr()) }
    }
}
