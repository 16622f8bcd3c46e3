//! memory.c, called from Rust. Entries are C's; the tests know them by their tags.

use std::collections::BTreeMap;
use std::ptr::NonNull;

/// `struct shim_memory`
#[repr(C)]
struct Shim {
    opaque: [u8; 0],
}

/// `struct shim_entry`
#[repr(C)]
pub(super) struct Opaque {
    opaque: [u8; 0],
}

/// `struct shim_sums`, bytes
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) held: u64,
    pub(super) strangers: u64,
    pub(super) most: u64,
}

/// `struct shim_shard`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) oldest_known: u64,
    pub(super) oldest_stranger: u64,
    pub(super) largest: u64,
    pub(super) datagrams: u32,
    pub(super) sources: u32,
}

// SAFETY: shim_memory.c defines these. They use what the pointers point to, and have an entry until shim_memory_end().
unsafe extern "C" {
    safe fn shim_memory_new(ceiling: u64, share: u64) -> Option<NonNull<Shim>>;
    fn shim_memory_free(shim: *mut Shim);
    fn shim_memory_begin(
        shim: *mut Shim,
        address: u64,
        family: u8,
        hash: u32,
        tag: u64,
        born: u64,
        now: u32,
    ) -> Option<NonNull<Opaque>>;
    fn shim_memory_charge(shim: *mut Shim, entry: *mut Opaque, bytes: i32);
    fn shim_memory_completed(shim: *mut Shim, entry: *const Opaque, now: u32);
    fn shim_memory_end(shim: *mut Shim, entry: *mut Opaque) -> bool;
    fn shim_memory_choose(shim: *const Shim, shard: *mut u32) -> i32;
    fn shim_memory_victim(shim: *const Shim, reason: i32, shard: u32) -> i64;
    fn shim_memory_is_full(shim: *const Shim) -> bool;
    fn shim_memory_is_stranger(entry: *const Opaque) -> bool;
    fn shim_memory_bytes(entry: *const Opaque) -> u64;
    fn shim_memory_source_bytes(entry: *const Opaque) -> u64;
    fn shim_memory_sums(shim: *const Shim) -> Sums;
    fn shim_memory_shard(shim: *const Shim, shard: u32) -> Shard;
    fn shim_memory_oldest(shim: *mut Shim, shard: u32, is_stranger: bool, is_second: bool) -> i64;
    fn shim_memory_failed(shim: *mut Shim, shard: u32, address: u64, family: u8);
    fn shim_memory_watched(shim: *const Shim, shard: u32, index: u32, address: *mut u64, family: *mut u8) -> u64;
}

/// `struct memory_address`
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) address: u64,
    pub(super) family: u8,
}

/// `AF_INET` and `AF_INET6`
pub(super) const FIRST: u8 = 2;
pub(super) const SECOND: u8 = 10;

/// `enum memory_reason`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Share,
    Stranger,
    Age,
}

const REASONS: [Reason; 3] = [Reason::Share, Reason::Stranger, Reason::Age];

/// The tag of an entry.
pub(super) type Entry = u64;

pub(super) struct Memory {
    shim: NonNull<Shim>,
    entries: BTreeMap<Entry, NonNull<Opaque>>,
    next: Entry,
}

impl Memory {
    pub(super) fn new(ceiling: u64, share: u64) -> Memory {
        Memory {
            shim: shim_memory_new(ceiling, share).unwrap(),
            entries: BTreeMap::new(),
            next: 0,
        }
    }

    /// A datagram begins, `born` by a clock that never goes back, `now` in seconds. It holds nothing.
    pub(super) fn begin(&mut self, source: Address, hash: u32, born: u64, now: u32) -> Entry {
        let tag = self.next;
        self.next += 1;
        // SAFETY: the pointer is shim_memory_new()'s until drop.
        let entry =
            unsafe { shim_memory_begin(self.shim.as_ptr(), source.address, source.family, hash, tag, born, now) };
        self.entries.insert(tag, entry.unwrap());
        tag
    }

    fn at(&self, entry: Entry) -> *mut Opaque {
        self.entries[&entry].as_ptr()
    }

    pub(super) fn charge(&mut self, entry: Entry, bytes: i32) {
        // SAFETY: as above; what is in `entries` has not ended.
        unsafe { shim_memory_charge(self.shim.as_ptr(), self.at(entry), bytes) }
    }

    /// The entry's source has completed a datagram.
    pub(super) fn completed(&mut self, entry: Entry, now: u32) {
        // SAFETY: as above.
        unsafe { shim_memory_completed(self.shim.as_ptr(), self.at(entry), now) }
    }

    /// Returns whether the entry's source holds nothing any more.
    pub(super) fn end(&mut self, entry: Entry) -> bool {
        let pointer = self.entries.remove(&entry).unwrap();
        // SAFETY: as above; nobody has the entry after that.
        unsafe { shim_memory_end(self.shim.as_ptr(), pointer.as_ptr()) }
    }

    pub(super) fn choose(&self) -> Option<(Reason, u32)> {
        let mut shard = u32::MAX;
        // SAFETY: as above, and a number's.
        let reason = unsafe { shim_memory_choose(self.shim.as_ptr(), &mut shard) };
        Some((REASONS[usize::try_from(reason).ok()?], shard))
    }

    pub(super) fn victim(&self, (reason, shard): (Reason, u32)) -> Option<Entry> {
        // SAFETY: as above.
        Entry::try_from(unsafe { shim_memory_victim(self.shim.as_ptr(), reason as i32, shard) }).ok()
    }

    pub(super) fn is_full(&self) -> bool {
        // SAFETY: as above.
        unsafe { shim_memory_is_full(self.shim.as_ptr()) }
    }

    pub(super) fn is_stranger(&self, entry: Entry) -> bool {
        // SAFETY: as above.
        unsafe { shim_memory_is_stranger(self.at(entry)) }
    }

    pub(super) fn bytes(&self, entry: Entry) -> u64 {
        // SAFETY: as above.
        unsafe { shim_memory_bytes(self.at(entry)) }
    }

    /// What the entry's source holds.
    pub(super) fn source_bytes(&self, entry: Entry) -> u64 {
        // SAFETY: as above.
        unsafe { shim_memory_source_bytes(self.at(entry)) }
    }

    pub(super) fn sums(&self) -> Sums {
        // SAFETY: as above.
        unsafe { shim_memory_sums(self.shim.as_ptr()) }
    }

    pub(super) fn shard(&self, shard: u32) -> Shard {
        // SAFETY: as above.
        unsafe { shim_memory_shard(self.shim.as_ptr(), shard) }
    }

    /// The oldest entry of a shard's list.
    pub(super) fn oldest(&self, shard: u32, is_stranger: bool, is_second: bool) -> Option<Entry> {
        // SAFETY: as above.
        Entry::try_from(unsafe { shim_memory_oldest(self.shim.as_ptr(), shard, is_stranger, is_second) }).ok()
    }

    /// A datagram of a source has failed.
    pub(super) fn failed(&mut self, shard: u32, source: Address) {
        // SAFETY: as above.
        unsafe { shim_memory_failed(self.shim.as_ptr(), shard, source.address, source.family) }
    }

    /// The sources whose failures a shard counts, and how many.
    pub(super) fn watched(&self, shard: u32) -> Vec<(Address, u64)> {
        let one = |index| {
            let mut source = Address { address: 0, family: 0 };
            let Address { address, family } = &mut source;
            // SAFETY: as above, and two numbers'.
            let failed = unsafe { shim_memory_watched(self.shim.as_ptr(), shard, index, address, family) };
            (source, failed)
        };
        (0..4).map(one).filter(|(source, _)| source.family != 0).collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let entries: Vec<Entry> = self.entries.keys().copied().collect();
        for entry in entries {
            self.end(entry);
        }
        // SAFETY: as above; all entries have ended, and their sources with them.
        unsafe { shim_memory_free(self.shim.as_ptr()) }
    }
}
