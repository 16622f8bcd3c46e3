//! How busy uplinks are: BPF programs count what their devices send (`load.bpf.c`).
//!
//! The programs run as long as this process: what they measure is of use to nobody else.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, libbpf_sys as sys};
use serde::{Deserialize, Serialize};

use super::skeleton::{LoadSkelBuilder, types};
use super::slots::{SLOTS, Slots};
use tarn_kernel::plain::{Plain, bytes_of, bytes_of_mut, from_bytes};
use tarn_kernel::{clock, libbpf};

/// As in shared.h.
const ONE: f64 = 1024.0;

/// What a device sends, smoothed, in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Load {
    /// How much.
    pub busy: f64,
    /// How far from it at any moment.
    pub uneven: f64,
}

impl Load {
    /// The published weight of a path, but for its cost.
    pub fn weight(self) -> f64 {
        self.busy + self.uneven
    }

    /// This one, moved towards another one by a part of the distance.
    pub fn towards(self, other: Self, part: f64) -> Self {
        Self {
            busy: self.busy + (other.busy - self.busy) * part,
            uneven: self.uneven + (other.uneven - self.uneven) * part,
        }
    }
}

/// The running programs. They end with the value.
pub struct LoadMeter {
    loads: MapHandle,
    slots: Slots,
    clock: OwnedFd,
    _link: Link,
    tick_ns: u64,
    gain: u32,
}

// SAFETY: both hold only integers, and their fields leave no gap: `path_load` four of 64 bits, `path_clock` one.
unsafe impl Plain for types::path_load {}
// SAFETY: as above.
unsafe impl Plain for types::path_clock {}

impl LoadMeter {
    /// Loads and attaches the programs. `gain` is K, 0 to 1024. No device is measured yet.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_PERFMON (root), or on a kernel without type information.
    pub fn attach(gain: u32) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let mut open = LoadSkelBuilder::default()
            .open(&mut storage)
            .context("open the programs that measure load")?;
        open.maps
            .data_data
            .as_deref_mut()
            .context("the programs that measure load have no variables")?
            .gain = gain;
        let skeleton = libbpf::load("the kernel refused the programs that measure load", || open.load())?;
        let clock = skeleton.progs.read_jiffies.as_fd().try_clone_to_owned();
        let variables = MapHandle::try_from(&skeleton.maps.bss).context("keep a map open")?;
        Ok(Self {
            loads: MapHandle::try_from(&skeleton.maps.loads).context("keep a map open")?,
            slots: Slots::new(variables, SLOTS - 1, "choose measure = \"delay\"")?,
            clock: clock.context("keep a program open")?,
            _link: skeleton
                .progs
                .count_sent
                .attach_trace()
                .context("cannot watch what devices send")?,
            tick_ns: clock::tick_ns()?,
            gain,
        })
    }

    /// Measures these devices of this namespace, by their indices, and no others. Those that were measured before go on.
    ///
    /// # Errors
    /// More devices than can be measured; a kernel that refuses to write its maps.
    pub fn follow(&mut self, devices: &[u32]) -> Result<()> {
        self.slots.follow(devices, |slot| {
            let nothing = bytes_of(&types::path_load::default()).to_vec();
            let everywhere = vec![nothing; libbpf_rs::num_possible_cpus()?];
            self.loads
                .update_percpu(bytes_of(&slot), &everywhere, MapFlags::ANY)
                .context("write the map of loads")
        })
    }

    /// How busy a device is; `None` for one that is not measured.
    ///
    /// # Errors
    /// A kernel that refuses to read its maps.
    pub fn read(&self, device: u32) -> Result<Option<Load>> {
        let Some(loads) = self.look(device)? else {
            return Ok(None);
        };
        let now = self.jiffies()?;
        let per_second = 1e9 / self.tick_ns as f64;
        let mut sum = Load::default();
        for load in &loads {
            let load = aged(load, now, self.gain);
            sum.busy += load.busy * per_second;
            sum.uneven += load.uneven * per_second;
        }
        Ok(Some(sum))
    }

    /// Whether a device has sent anything since it is measured; `None` for one that is not.
    ///
    /// # Errors
    /// A kernel that refuses to read its maps.
    #[cfg(feature = "proof")]
    pub fn has_sent(&self, device: u32) -> Result<Option<bool>> {
        let found = self.look(device)?;
        Ok(found.map(|loads| loads.iter().any(|load| load.tick > 0)))
    }

    /// What each CPU has of a device.
    fn look(&self, device: u32) -> Result<Option<Vec<types::path_load>>> {
        let Some(slot) = self.slots.of(device) else {
            return Ok(None);
        };
        let found = self
            .loads
            .lookup_percpu(bytes_of(&slot), MapFlags::ANY)
            .context("read the map of loads")?;
        Ok(found.map(|cpus| cpus.iter().filter_map(|bytes| from_bytes(bytes)).collect()))
    }

    fn jiffies(&self) -> Result<u64> {
        let mut now = types::path_clock::default();
        let context = bytes_of_mut(&mut now);
        let mut options = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
            ctx_in: context.as_mut_ptr().cast(),
            ctx_size_in: context.len() as u32,
            ..Default::default()
        };
        // SAFETY: the descriptor is open, and the context, which a program of this kind writes to, lives until the call returns.
        let result = unsafe { sys::bpf_prog_test_run_opts(self.clock.as_raw_fd(), &raw mut options) };
        if result < 0 {
            return Err(std::io::Error::from_raw_os_error(-result)).context("read the kernel's clock");
        }
        Ok(now.jiffies)
    }
}

/// A CPU's averages, in bytes a jiffy, as they would be if something were sent now: the kernel updates them only then, and an uplink
/// that nobody uses any more would stay as busy as it was.
fn aged(load: &types::path_load, now: u64, gain: u32) -> Load {
    let (busy, uneven) = (load.load as f64 / ONE, load.unevenness as f64 / ONE);
    let elapsed = now.saturating_sub(load.tick);
    if load.tick == 0 || elapsed == 0 {
        return Load { busy, uneven };
    }
    let (elapsed, gain) = (elapsed as f64, f64::from(gain) / ONE);
    let rate = load.bytes as f64 / elapsed;
    let left = (1.0 - gain).powf(elapsed);
    // Each step takes the distance to the rate as it is then, which shrinks by the same factor as what is left of the steps before.
    Load {
        busy: rate + (busy - rate) * left,
        uneven: (uneven + elapsed * gain * (busy - rate).abs()) * left,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(tick: u64, bytes: u64, load: u64, unevenness: u64) -> types::path_load {
        types::path_load {
            tick,
            bytes,
            load,
            unevenness,
        }
    }

    proptest::proptest! {
        /// An average that is aged in one step must be what the kernel would have come to, jiffy by jiffy.
        #[test]
        fn aging_is_an_update_in_every_jiffy(
            busy in 0u64..1 << 40, uneven in 0u64..1 << 40, bytes in 0u64..1 << 30, elapsed in 1u64..50, gain in 0u32..=1024,
        ) {
            let found = aged(&load(7, bytes, busy, uneven), 7 + elapsed, gain);
            let (rate, k) = (bytes as f64 / elapsed as f64, f64::from(gain) / ONE);
            let (mut busy, mut uneven) = (busy as f64 / ONE, uneven as f64 / ONE);
            for _ in 0..elapsed {
                busy = k * rate + (1.0 - k) * busy;
                uneven = k * (rate - busy).abs() + (1.0 - k) * uneven;
            }
            proptest::prop_assert!((found.busy - busy).abs() <= 1e-6 * busy.max(1.0), "{found:?}, {busy}");
            proptest::prop_assert!((found.uneven - uneven).abs() <= 1e-6 * uneven.max(1.0), "{found:?}, {uneven}");
        }
    }

    /// An uplink that nobody uses any more is free again after a moment.
    #[test]
    fn what_is_not_used_becomes_idle() {
        let found = aged(&load(1000, 1500, 1 << 20, 1 << 20), 1000 + 250, 512);
        assert!(found.weight() < 10.0, "{found:?}");
        assert_eq!(aged(&load(0, 0, 0, 0), 1000, 512), Load::default(), "never used");
    }
}
