//! How long a function takes, and how often it is called (`cost.bpf.c`).

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use nix::sys::stat::{Mode, umask};

use crate::skeleton::cost::CostSkelBuilder;
use crate::skeleton::cost::types::bss;
use tarn_kernel::attach::open_program;
use tarn_kernel::libbpf;
use tarn_kernel::plain::{Plain, from_bytes};

/// Counts while it lives.
pub struct Watch {
    counts: MapHandle,
    _links: [Link; 2],
}

impl Watch {
    /// On a function of the kernel or one of its modules, or on a BPF program.
    ///
    /// # Errors
    /// There is none of this name, or the kernel refuses.
    pub fn on(function: &str) -> Result<Self> {
        // Of several the last that was loaded: a case before may have connections that are not freed yet.
        let named = ProgInfoIter::default().filter(|program| program.name.to_str() == Some(function));
        let known = named.max_by_key(|program| program.id);
        let program = known.map(|known| open_program(known.id)).transpose()?.flatten();
        let target = program.as_ref().map_or(0, AsRawFd::as_raw_fd);
        let mut storage = MaybeUninit::uninit();
        let mut open = CostSkelBuilder::default()
            .open(&mut storage)
            .context("open the programs that watch")?;
        for watching in [&mut open.progs.begins, &mut open.progs.ends] {
            let set = watching.set_attach_target(target, Some(function.to_owned()));
            set.with_context(|| format!("there is no function {function}"))?;
        }
        let loaded = libbpf::load("the kernel refused the programs that watch", || open.load())?;
        let links = [loaded.progs.ends.attach(), loaded.progs.begins.attach()];
        let [ends, begins] = links;
        Ok(Self {
            counts: MapHandle::try_from(&loaded.maps.bss).context("keep a map open")?,
            _links: [begins?, ends?],
        })
    }

    /// What is found around a function that does nothing, ns: the kernel's umask(2).
    ///
    /// # Errors
    /// Those of [`Watch::on`].
    pub fn calibrate() -> Result<f64> {
        let watch = Self::on("__x64_sys_umask")?;
        let usual = Mode::from_bits_truncate(0o022);
        for _ in 0..1000 {
            umask(usual);
        }
        Ok(watch.spent() as f64 / watch.calls().max(1) as f64)
    }

    /// Nanoseconds in all.
    pub fn spent(&self) -> u64 {
        self.counted().map_or(0, |counts| counts.spent_ns)
    }

    /// Calls in all.
    pub fn calls(&self) -> u64 {
        self.counted().map_or(0, |counts| counts.calls)
    }

    fn counted(&self) -> Option<bss> {
        let value = self.counts.lookup(&[0; 4], MapFlags::ANY).ok().flatten();
        from_bytes(&value?)
    }
}

// SAFETY: repr(C), integers alone.
unsafe impl Plain for bss {}
