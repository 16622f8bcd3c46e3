//! What a cache miss costs on this machine: a chain of loads, each from where the one before it said.

use std::ptr::NonNull;

use anyhow::{Context, Result, bail};

use super::programs::thread_time;
use tarn_lab::random::Random;

/// Bytes fetched by one miss.
const LINE: usize = 64;
/// Loads of one measurement.
const LOADS: usize = 200_000;
/// 2 MiB: a huge page.
const HUGE: usize = 2 << 20;

/// Memory whose cache lines form one cycle in random order, so that no prefetcher can guess the next.
pub struct Chase {
    memory: NonNull<u32>,
    mapped: usize,
    lines: usize,
    place: usize,
}

impl Chase {
    /// A cycle over `length` bytes, at least one line. With `huge_pages` the kernel is asked for those, so that hardly a
    /// load misses the translation of its address, too; without, it is asked not to use them.
    pub fn new(length: usize, huge_pages: bool) -> Result<Self> {
        let mapped = length.next_multiple_of(HUGE);
        let memory = map(mapped)?;
        let advice = if huge_pages {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        // SAFETY: the mapping is ours, and advice changes no content. A kernel without huge pages refuses: no harm.
        unsafe { libc::madvise(memory.as_ptr().cast(), mapped, advice) };
        let mut chase = Self {
            memory,
            mapped,
            lines: (length / LINE).max(1),
            place: 0,
        };
        chase.link();
        Ok(chase)
    }

    /// Sattolo's algorithm: a random permutation that is one cycle.
    fn link(&mut self) {
        let mut order: Vec<u32> = (0..self.lines as u32).collect();
        let mut random = Random::new(1, "chase");
        for last in (1..self.lines).rev() {
            order.swap(last, random.below(last as u64) as usize);
        }
        for (line, next) in order.into_iter().enumerate() {
            // SAFETY: `line` is below the number of lines in the mapping.
            unsafe { self.memory.add(line * LINE / size_of::<u32>()).write(next) };
        }
    }

    /// Nanoseconds a load, going on where the measurement before ended.
    pub fn measure(&mut self) -> Result<f64> {
        let before = thread_time()?;
        let mut place = self.place;
        for _ in 0..LOADS {
            // SAFETY: every line holds the number of a line. Volatile, so that the loads are made.
            place = unsafe { self.memory.add(place * LINE / size_of::<u32>()).read_volatile() } as usize;
        }
        self.place = place;
        Ok((thread_time()?.saturating_sub(before)).as_nanos() as f64 / LOADS as f64)
    }
}

impl Drop for Chase {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.mapped) };
    }
}

fn map(length: usize) -> Result<NonNull<u32>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        bail!(
            "no memory to measure cache misses in: {}",
            std::io::Error::last_os_error()
        );
    }
    NonNull::new(memory.cast()).context("the kernel mapped memory at address 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_visits_every_line_before_it_comes_back() {
        let chase = Chase::new(HUGE, false).unwrap();
        let mut place = 0;
        for step in 1..=chase.lines {
            // SAFETY: as in measure().
            place = unsafe { chase.memory.add(place * LINE / size_of::<u32>()).read() } as usize;
            assert_eq!(place == 0, step == chase.lines);
        }
    }
}
