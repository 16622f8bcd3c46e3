//! What rules have carried, as the programs count it: the map `rule_counters`, mapped into this process's memory.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapHandle};

use super::skeleton::types;

/// The CPUs that this kernel may ever have, as ranges of numbers.
const CPUS: &str = "/sys/devices/system/cpu/possible";

/// One more than the highest number that a CPU may have: for so many the map has room.
///
/// # Errors
/// A kernel that does not list its CPUs.
pub fn cpus() -> Result<u32> {
    let listed = std::fs::read_to_string(CPUS).with_context(|| format!("cannot read {CPUS}"))?;
    let last = listed.trim().rsplit([',', '-']).next().unwrap_or_default();
    let last: u32 = last
        .parse()
        .with_context(|| format!("{CPUS} has no numbers: {listed:?}"))?;
    Ok(last + 1)
}

/// How many rules the map has room for.
///
/// # Errors
/// As [`cpus`].
pub fn slots(map: &MapHandle) -> Result<u32> {
    Ok(map.max_entries() / cpus()?)
}

/// The counters of all rules.
pub struct Table {
    /// Of the CPU 0, by slot; then those of the others.
    memory: NonNull<types::counters>,
    entries: usize,
    slots: usize,
}

impl Table {
    /// Maps the counters into memory.
    ///
    /// # Errors
    /// A map that cannot be mapped, or as [`cpus`].
    pub fn of(map: &MapHandle) -> Result<Self> {
        let (entries, slots) = (map.max_entries() as usize, slots(map)? as usize);
        let length = entries * size_of::<types::counters>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let file = map.as_fd().as_raw_fd();
        // SAFETY: a new mapping, wherever the kernel chooses, touches nothing that exists; the map is open.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file, 0) };
        if memory == libc::MAP_FAILED {
            bail!("cannot map the rules' counters: {}", std::io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).context("the kernel mapped memory at address 0")?;
        Ok(Self { memory, entries, slots })
    }

    /// What each CPU has counted for the rule in this slot; nothing for one that is beyond the table.
    pub fn of_rule(&self, slot: u32) -> impl Iterator<Item = types::counters> {
        // SAFETY: the place is in the mapping and aligned. The programs may write meanwhile, whole integers at a time.
        self.places(slot).map(|place| unsafe { place.read_volatile() })
    }

    /// Lets the rule in this slot begin to count at zero.
    pub fn clear(&self, slot: u32) {
        // SAFETY: as above; nobody else has a reference to it.
        self.places(slot)
            .for_each(|place| unsafe { place.write_volatile(types::counters::default()) });
    }

    fn places(&self, slot: u32) -> impl Iterator<Item = NonNull<types::counters>> {
        let first = slot as usize;
        let end = if first < self.slots { self.entries } else { 0 };
        // SAFETY: below `entries`, so in the mapping.
        (first..end)
            .step_by(self.slots.max(1))
            .map(|place| unsafe { self.memory.add(place) })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let length = self.entries * size_of::<types::counters>();
        // SAFETY: the mapping is ours, as long as `of` made it, and its last user.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), length) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::maps::{look_up, write_all};
    use super::*;
    use tarn_kernel::plain::bytes_of;

    /// A rule's figures are the sum over all CPUs, of its own slot and no other; clearing them leaves its neighbours'.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_redirect_counters_are_those_of_a_rule_on_every_cpu() {
        let (slots, cpus) = (3, cpus().unwrap());
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
            map_flags: libbpf_rs::libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let size = size_of::<types::counters>() as u32;
        let map = MapHandle::create(
            libbpf_rs::MapType::Array,
            Some("counters"),
            4,
            size,
            slots * cpus,
            &options,
        );
        let map = map.unwrap();
        let counted: Vec<(Vec<u8>, types::counters)> = (0..slots * cpus)
            .map(|place| {
                let counters = types::counters {
                    packets: u64::from(place % slots),
                    bytes: u64::from(place),
                    ..Default::default()
                };
                (bytes_of(&place).to_vec(), counters)
            })
            .collect();
        write_all(&map, &counted).unwrap();
        let table = Table::of(&map).unwrap();
        for slot in 0..slots {
            let expected: Vec<(u64, u64)> = (0..cpus)
                .map(|cpu| (u64::from(slot), u64::from(cpu * slots + slot)))
                .collect();
            let read: Vec<(u64, u64)> = table.of_rule(slot).map(|count| (count.packets, count.bytes)).collect();
            assert_eq!(read, expected);
        }
        assert_eq!(table.of_rule(slots).count(), 0);
        table.clear(1);
        let packets = |slot: u32| table.of_rule(slot).map(|count| count.packets).sum::<u64>();
        assert_eq!([0, 1, 2].map(packets), [0, 0, 2 * u64::from(cpus)]);
        let last: types::counters = look_up(&map, bytes_of(&(slots * cpus - 1))).unwrap().unwrap();
        assert_eq!(last.packets, 2);
    }
}
