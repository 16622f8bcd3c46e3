//! The round trips of this host's TCP connections, by uplink: a BPF program counts them (`tcp.bpf.c`).
//!
//! The program runs as long as this process. Round trips are shown and nothing is decided by them: they are as much those of the
//! peers that happen to be spoken to by an uplink as those of the uplink.

use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use self::histogram::Histogram;
pub use self::histogram::RoundTrips;
use self::recent::Recent;
use super::skeleton::tcp::TcpSkelBuilder;
use super::slots::{SLOTS, Slots};
use tarn_kernel::cgroup;
use tarn_kernel::plain::{bytes_of, from_bytes};
use tarn_kernel::{libbpf, netns};

mod histogram;
mod recent;

/// The running program. It ends with the value.
pub struct TcpMeter {
    round_trips: MapHandle,
    slots: Slots,
    /// What was seen lately, by the devices' indices.
    recent: HashMap<u32, Recent>,
    _link: Link,
}

impl TcpMeter {
    /// Loads the program and attaches it to the root of the control groups, for the connections of this network namespace that
    /// begin from now on, by at most so many uplinks. No device is measured yet. A histogram takes 1.3 kB for each CPU and uplink.
    ///
    /// # Errors
    /// Without CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (root), on a kernel without type information, where no control group of
    /// version 2 is mounted, or where somebody else's program there allows no other beside it.
    pub fn attach(uplinks: usize) -> Result<Self> {
        let uplinks = uplinks.min(SLOTS - 1);
        let root = cgroup::root()?;
        let group = File::open(&root).with_context(|| format!("cannot open {}", root.display()))?;
        let mut storage = MaybeUninit::uninit();
        let mut open = TcpSkelBuilder::default()
            .open(&mut storage)
            .context("open the program that takes TCP's round trips")?;
        open.maps
            .rodata_data
            .as_deref_mut()
            .context("the program that takes TCP's round trips has no variables")?
            .namespace = netns::cookie()?;
        open.maps
            .round_trips
            .set_max_entries(uplinks as u32 + 1)
            .context("size the map of round trips")?;
        let skeleton = libbpf::load("the kernel refused the program that takes TCP's round trips", || {
            open.load()
        })?;
        let variables = MapHandle::try_from(&skeleton.maps.bss).context("keep a map open")?;
        let program = &skeleton.progs.follow_round_trips;
        Ok(Self {
            round_trips: MapHandle::try_from(&skeleton.maps.round_trips).context("keep a map open")?,
            slots: Slots::new(variables, uplinks, "set tcp = false")?,
            recent: HashMap::new(),
            _link: program
                .attach_cgroup(group.as_raw_fd())
                .with_context(|| format!("cannot follow the TCP connections of {}", root.display()))?,
        })
    }

    /// Measures these devices of this namespace, by their indices, and no others. Those that were measured before go on, and are
    /// looked at when that is due; `now` is the time since any one moment.
    ///
    /// # Errors
    /// More devices than can be measured; a kernel that refuses to read or write its maps.
    pub fn follow(&mut self, devices: &[u32], now: Duration) -> Result<()> {
        // What a slot has from the device before is taken off: see below.
        self.slots.follow(devices, |_| Ok(()))?;
        self.recent.retain(|device, _| devices.contains(device));
        for device in devices {
            let Some(slot) = self.slots.of(*device) else { continue };
            match self.recent.get_mut(device) {
                Some(recent) if !recent.is_due(now) => {}
                Some(recent) => recent.look(now, look(&self.round_trips, slot)?),
                None => {
                    let first = Recent::new(now, look(&self.round_trips, slot)?);
                    self.recent.insert(*device, first);
                }
            }
        }
        Ok(())
    }

    /// The round trips by a device in the last minute, as of the last look, which was at most 10 s ago; `None` for one that is not
    /// measured.
    pub fn read(&self, device: u32) -> Option<RoundTrips> {
        self.recent.get(&device).map(Recent::round_trips)
    }
}

/// What all CPUs have counted in a slot.
fn look(map: &MapHandle, slot: u32) -> Result<Histogram> {
    let found = map
        .lookup_percpu(bytes_of(&slot), MapFlags::ANY)
        .context("read the map of round trips")?
        .context("the map of round trips is too small")?;
    let mut sum = Histogram::default();
    for counts in found.iter().filter_map(|bytes| from_bytes::<Histogram>(bytes)) {
        sum.add(&counts);
    }
    Ok(sum)
}
