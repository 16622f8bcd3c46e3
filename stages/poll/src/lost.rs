//! A program that the kernel lists on a device, and that its driver does not run.
//!
//! vmxnet3's is one: once the device was down, or its rings were changed, packets pass by the program that it had before (seen on Linux
//! 6.12; `xdp packets` of `ethtool -S` stands still). Calm packets are not counted (poll.bpf.c), so a storm shows it.

use std::os::fd::BorrowedFd;

use anyhow::{Result, ensure};
use tarn_kernel::attach;
use tarn_kernel::undone::Undone;

use crate::device::Device;

/// After so many looks without a packet that was judged.
const AFTER: u32 = 10;
/// It is attached anew so often. A driver that goes on without it does so for good.
const ATTEMPTS: u32 = 3;

/// What the looks at a device have shown.
#[derive(Debug, Default)]
pub struct Lost {
    silent: u32,
    attempts: u32,
}

impl Lost {
    /// After a look during which packets beyond a share were to be dropped: whether one was judged, and whether every poll was full.
    /// Returns whether the program is lost.
    pub fn look(&mut self, has_run: bool, is_full: bool) -> bool {
        if has_run {
            *self = Self::default();
        } else if is_full {
            self.silent += 1;
        }
        self.silent >= AFTER
    }

    /// Attaches the program anew.
    ///
    /// # Errors
    /// The driver's, or that this has not helped before.
    pub fn attach_anew(&mut self, device: &Device, program: BorrowedFd<'_>) -> Result<()> {
        self.silent = 0;
        self.attempts += 1;
        ensure!(self.attempts <= ATTEMPTS, "attaching it anew has not helped");
        let id = attach::program_id(program)?;
        let detached = attach::detach_xdp(device.index, &device.name, id)?;
        ensure!(matches!(detached, Undone::PutBack), "it cannot be detached");
        attach::attach_xdp(device.index, program, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver is not reset for a moment in which nothing came.
    #[test]
    fn only_full_polls_without_a_judged_packet_show_it() {
        let mut lost = Lost::default();
        for _ in 0..2 * AFTER {
            assert!(!lost.look(false, false));
        }
        assert!(!lost.look(true, true));
        let after = (1..).find(|_| lost.look(false, true));
        assert_eq!(after, Some(AFTER));
    }
}
