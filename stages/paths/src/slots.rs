//! Which devices a BPF program measures, and by which of its slots (`slots.h`).

use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::skeleton::{tcp, types};
use tarn_kernel::netns;
use tarn_kernel::plain::{Plain, bytes_of};

/// As in shared.h.
pub const SLOTS: usize = 2049;
const INDEXES: usize = 65_536;

// SAFETY: an array of 65,536 integers of 16 bits, one of `path_device`, which is 64 + 32 + 32 bits, and nothing between.
unsafe impl Plain for types::bss {}

/// Every program that includes slots.h has the same variables.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<types::bss>() == size_of::<tcp::types::bss>());
    assert!(offset_of!(types::bss, devices) == offset_of!(tcp::types::bss, devices));
};

/// The slots of a program's devices.
pub struct Slots {
    /// The program's variables.
    variables: MapHandle,
    namespace: u64,
    /// The devices' indices by slot; 0 where none is. Slot 0 is nobody's.
    devices: Vec<u32>,
    /// What a user may do when there is no slot for a device.
    remedy: &'static str,
}

impl Slots {
    /// For so many devices of this network namespace, at most 2048; none is measured yet. `variables` are the program's, `remedy` is
    /// what a user may do when there is no slot for a device.
    ///
    /// # Errors
    /// A kernel older than 5.14.
    pub fn new(variables: MapHandle, most: usize, remedy: &'static str) -> Result<Self> {
        Ok(Self {
            variables,
            namespace: netns::cookie()?,
            devices: vec![0; most.min(SLOTS - 1) + 1],
            remedy,
        })
    }

    /// The slot of a device that is measured.
    pub fn of(&self, device: u32) -> Option<u32> {
        let slot = self.devices.iter().position(|index| device != 0 && *index == device)?;
        Some(slot as u32)
    }

    /// Has these devices measured, by their indices, and no others. Those that were measured before keep their slots. `begin` is
    /// called for each slot that another device gets, before the program knows.
    ///
    /// # Errors
    /// More devices than can be measured; what `begin` cannot do; a kernel that refuses to write the program's variables.
    pub fn follow(&mut self, devices: &[u32], begin: impl FnMut(u32) -> Result<()>) -> Result<()> {
        let (slots, given) = assign(&self.devices, devices, self.remedy)?;
        given.into_iter().try_for_each(begin)?;
        if self.devices != slots {
            self.write(&slots)?;
            self.devices = slots;
        }
        Ok(())
    }

    /// Tells the program which devices are measured.
    fn write(&self, slots: &[u32]) -> Result<()> {
        let mut variables = Box::new(types::bss {
            slots: [0; INDEXES],
            devices: [types::path_device::default(); SLOTS],
        });
        for (slot, index) in slots.iter().enumerate().filter(|(_, index)| **index != 0) {
            variables.slots[*index as usize % INDEXES] = slot as u16;
            variables.devices[slot] = types::path_device {
                namespace: self.namespace,
                index: *index,
                ..Default::default()
            };
        }
        self.variables
            .update(bytes_of(&0_u32), bytes_of(&*variables), MapFlags::ANY)
            .context("write the programs' variables")
    }
}

/// The slots of these devices, those of `before` where they had one, and which slots are given anew.
fn assign(before: &[u32], devices: &[u32], remedy: &str) -> Result<(Vec<u32>, Vec<u32>)> {
    let kept = |device: &u32| if devices.contains(device) { *device } else { 0 };
    let mut slots: Vec<u32> = before.iter().map(kept).collect();
    let mut given = Vec::new();
    for index in devices {
        if slots.contains(index) {
            continue;
        }
        let is_same_place = |other: &u32| *other != 0 && *other as usize % INDEXES == *index as usize % INDEXES;
        ensure!(
            !slots.iter().any(is_same_place),
            "the numbers of two devices agree in their last 16 bits ({index}): only one of them can be measured: make one of them anew, or {remedy}"
        );
        let free = slots.iter().skip(1).position(|device| *device == 0);
        let slot = free.context("there are more uplinks than can be measured")? + 1;
        slots[slot] = *index;
        given.push(slot as u32);
    }
    Ok((slots, given))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMEDY: &str = "leave it";

    /// What is measured goes on; what is new begins in a slot of its own, also in one that was another's.
    #[test]
    fn a_device_keeps_its_slot_while_others_come_and_go() {
        let (slots, given) = assign(&[0; 4], &[7, 9, 7], REMEDY).unwrap();
        assert_eq!(
            (slots, given),
            (vec![0, 7, 9, 0], vec![1, 2]),
            "a device of two groups has one"
        );
        let (slots, given) = assign(&[0, 7, 9, 0], &[5, 9], REMEDY).unwrap();
        assert_eq!((slots, given), (vec![0, 5, 9, 0], vec![1]));
        let (slots, given) = assign(&[0, 5, 9, 0], &[9], REMEDY).unwrap();
        assert_eq!((slots, given), (vec![0, 0, 9, 0], vec![]));
    }

    #[test]
    fn what_cannot_be_told_apart_or_finds_no_slot_is_refused() {
        let told = assign(&[0; 4], &[7, 7 + 65_536], REMEDY).unwrap_err().to_string();
        assert!(told.contains("(65543)") && told.ends_with("or leave it"), "{told}");
        assert!(assign(&[0; 3], &[1, 2], REMEDY).is_ok());
        assert!(assign(&[0; 3], &[1, 2, 3], REMEDY).is_err());
        let (slots, _) = assign(&[0, 7, 0], &[7 + 65_536], REMEDY).unwrap();
        assert_eq!(slots, [0, 65_543, 0], "the other one has gone");
    }

    proptest::proptest! {
        /// Whatever comes and goes, each device has one slot, and slots are given to those that had none.
        #[test]
        fn every_device_has_one_slot(turns in proptest::collection::vec(proptest::collection::hash_set(1u32..40, 0..8), 1..20)) {
            let mut before = vec![0; 9];
            for turn in turns {
                let devices: Vec<u32> = turn.into_iter().collect();
                let (slots, given) = assign(&before, &devices, REMEDY).unwrap();
                let mut found: Vec<u32> = slots.iter().copied().filter(|index| *index != 0).collect();
                let mut wanted = devices.clone();
                found.sort_unstable();
                wanted.sort_unstable();
                proptest::prop_assert_eq!(found, wanted);
                for (slot, index) in slots.iter().enumerate() {
                    let is_new = *index != 0 && before[slot] != *index;
                    proptest::prop_assert_eq!(given.contains(&(slot as u32)), is_new);
                    proptest::prop_assert!(!is_new || !before.contains(index), "{} has moved", index);
                }
                before = slots;
            }
        }
    }
}
