//! How long all CPUs have slept at once, counted by BPF programs (`idle.bpf.c`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use anyhow::{Context, Result, bail};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};

use super::clock::on_every_cpu;

tarn_kernel::skeleton!(mod skeleton, "idle");

type Counters = skeleton::types::bss;

/// Of the map that holds the counters, and of the mapping.
const COUNTERS_SIZE: usize = size_of::<Counters>();

/// The attached programs and their counters; dropping it detaches them.
pub struct IdleCounter {
    counters: NonNull<Counters>,
    _links: Vec<libbpf_rs::Link>,
}

// SAFETY: through a shared reference the counters are only read, a word at a time, and the links are not touched.
unsafe impl Sync for IdleCounter {}

impl IdleCounter {
    /// Loads and attaches the programs on a machine with this many CPUs.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_PERFMON (root), or on a kernel without type information.
    pub fn attach(cpus: u32) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let mut open = skeleton::IdleSkelBuilder::default()
            .open(&mut storage)
            .context("cannot read the programs")?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.cpus = cpus;
        }
        let loaded = open
            .load()
            .context("cannot load the BPF programs that count idle time")?;
        let links = loaded
            .object()
            .progs_mut()
            .map(|program| {
                program
                    .attach()
                    .with_context(|| format!("cannot attach {:?}", program.name()))
            })
            .collect::<Result<_>>()?;
        let counters = map_counters(loaded.maps.bss.as_fd())?;
        // One that was asleep already has not been seen falling asleep: each is woken up once.
        on_every_cpu(|_| Ok(()))?;
        Ok(Self {
            counters,
            _links: links,
        })
    }

    /// Time that all CPUs have slept at once since the programs were attached, in ns.
    pub fn idle_ns(&self) -> u64 {
        // SAFETY: mapped for as long as `self` lives. The kernel writes it as one aligned word, when all CPUs sleep and
        // the caller therefore does not run.
        unsafe { (&raw const (*self.counters.as_ptr()).idle_ns).read_volatile() }
    }

    /// How often that was.
    pub fn sleeps(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (&raw const (*self.counters.as_ptr()).sleeps).read_volatile() }
    }
}

impl Drop for IdleCounter {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_counters` with this size, and not used after.
        unsafe { libc::munmap(self.counters.as_ptr().cast(), COUNTERS_SIZE) };
    }
}

/// Makes the section of the programs' variables readable.
fn map_counters(section: BorrowedFd<'_>) -> Result<NonNull<Counters>> {
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            COUNTERS_SIZE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            section.as_raw_fd(),
            0,
        )
    };
    match NonNull::new(address.cast()) {
        Some(counters) if address != libc::MAP_FAILED => Ok(counters),
        _ => bail!(
            "cannot map the counters of idle time: {}",
            std::io::Error::last_os_error()
        ),
    }
}
