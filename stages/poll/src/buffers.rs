//! How much a socket may hold. Where a device runs an XDP program, its driver gives each packet a page of its own or twice the memory of
//! before, by which the kernel counts: with vmxnet3 a socket holds 49 small packets by default then.

use std::fs::File;
use std::path::Path;

use anyhow::Result;

use crate::STAGE;
use tarn_frame::journal::{Change, Journal};
use tarn_kernel::sysctl;

/// What a socket's receive buffer is when it is made, in bytes. Only the first network namespace has it.
pub const PARAMETER: &str = "/proc/sys/net/core/rmem_default";
/// Measured with vmxnet3 below saturation (poll-storm, 0.4 times the capacity; poll-timely): a server then reads as much as on a stock
/// kernel, and who shares its CPU waits no longer. With 5 times, it reads 8 % more, and they wait half as long again.
const TIMES: u64 = 2;
/// Beyond that, the parameter stays as it is.
const MOST: u64 = 4 << 20;

/// What it has to be where it has this value; `None` where it stays.
fn enlarged(value: &str) -> Option<u64> {
    let value: u64 = value.parse().ok()?;
    Some(value.saturating_mul(TIMES).min(MOST)).filter(|enlarged| *enlarged > value)
}

/// The value that new sockets need; `None` where it stays, or cannot be set from here.
pub fn wanted() -> Option<u64> {
    // Other namespaces than the first may read it.
    File::options().write(true).open(PARAMETER).ok()?;
    enlarged(&sysctl::read(Path::new(PARAMETER)).ok()?)
}

/// Whether a change is that of the parameter.
pub fn is_it(change: &Change) -> bool {
    matches!(change, Change::Sysctl { path, .. } if path == PARAMETER)
}

/// Has sockets that are made from now on hold more, once. What somebody else sets later is left alone.
///
/// # Errors
/// The journal's, or the kernel's.
pub fn enlarge(journal: &mut Journal) -> Result<()> {
    let is_ours = journal.changes(STAGE).any(|(_, change)| is_it(change));
    match wanted().filter(|_| !is_ours) {
        Some(value) => tarn_frame::sysctl::change(journal, STAGE, Path::new(PARAMETER), &value.to_string()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_grow_up_to_a_bound() {
        assert_eq!(enlarged("212992"), Some(425_984));
        assert_eq!(enlarged("16777216"), None, "an administrator's large buffers stay");
        assert_eq!(enlarged("4194304"), None);
        assert_eq!(enlarged("3145728"), Some(4 << 20));
        assert_eq!(enlarged(""), None);
    }
}
