//! The module's limit, compiled for user space.

use std::ptr::NonNull;

use super::others::{Found, Other};

/// `LIMIT_MOST`: nothing is limited.
pub(super) const OPEN: u32 = 16_384;

/// `struct limit`
#[repr(C)]
struct Opaque([u8; 0]);

unsafe extern "C" {
    fn shim_limit_new(deadline: u64) -> Option<NonNull<Opaque>>;
    fn shim_limit_free(limit: NonNull<Opaque>);
    fn shim_limit_now(limit: NonNull<Opaque>) -> u32;
    fn shim_limit_reached(limit: NonNull<Opaque>);
    fn shim_limit_lost(limit: NonNull<Opaque>);
    fn limit_answer(limit: NonNull<Opaque>, handed_on: u64, heard: u64, at_most: u64, inside: u32, now: u64) -> bool;
    fn limit_nearly_all(limit: NonNull<Opaque>) -> u64;
    fn limit_likely(limit: NonNull<Opaque>) -> u64;
    fn limit_back_off(limit: NonNull<Opaque>, handed_on: u64, now: u64);
}

/// A limit that is to be found, by the module or in another way; the module judges what is overdue in any case. Times are in ns.
pub(super) struct Limit(NonNull<Opaque>, Option<Found>);

// SAFETY of all calls below: the limit lives as long as `self`, and nobody else has it.
impl Limit {
    pub(super) fn new(deadline: u64, other: Option<Other>) -> Self {
        // SAFETY: no pointers are given.
        let limit = unsafe { shim_limit_new(deadline) };
        Self(limit.expect("memory for a limit"), other.map(Found::new))
    }

    pub(super) fn now(&self) -> u32 {
        // SAFETY: see above.
        let now = || unsafe { shim_limit_now(self.0) };
        self.1.as_ref().map_or_else(now, Found::now)
    }

    pub(super) fn reached(&mut self) {
        // SAFETY: see above.
        unsafe { shim_limit_reached(self.0) }
    }

    /// Whether there is a limit from now on, and was none before.
    pub(super) fn answer(&mut self, handed_on: u64, at_most: u64, inside: u32, now: u64) -> bool {
        if let Some(other) = &mut self.1 {
            other.answer(now - handed_on, inside);
        }
        // SAFETY: see above.
        unsafe { limit_answer(self.0, handed_on, handed_on, at_most, inside, now) }
    }

    pub(super) fn lost(&mut self) {
        // SAFETY: see above.
        unsafe { shim_limit_lost(self.0) }
    }

    pub(super) fn nearly_all(&self) -> u64 {
        // SAFETY: see above.
        unsafe { limit_nearly_all(self.0) }
    }

    pub(super) fn likely(&self) -> u64 {
        // SAFETY: see above.
        unsafe { limit_likely(self.0) }
    }

    pub(super) fn back_off(&mut self, handed_on: u64, now: u64) {
        // SAFETY: see above.
        unsafe { limit_back_off(self.0, handed_on, now) }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // SAFETY: see above; it is not used afterwards.
        unsafe { shim_limit_free(self.0) }
    }
}
