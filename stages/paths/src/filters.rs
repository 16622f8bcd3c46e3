//! The filter of reverse paths (RFC 3704) of the uplinks' devices.

use std::path::PathBuf;

use anyhow::Result;

use super::STAGE;
use super::config::Config;
use tarn_frame::journal::Journal;
use tarn_kernel::sysctl;

/// An answer to a probe comes by the uplink that was asked, which is not always the one that packets to its sender leave by:
/// the strict filter of reverse paths (RFC 3704) drops it. These devices get the loose one.
pub fn loosened(config: &Config) -> Result<Vec<(PathBuf, &'static str)>> {
    let read = |name: &str| {
        let path = path(name);
        let found = path.exists().then(|| sysctl::read(&path)).transpose();
        found.map(|found| (path, found.unwrap_or_default()))
    };
    let (_, all) = read("all")?;
    let mut strict = Vec::new();
    let ipv4 = config.groups.iter().filter(|group| group.to.address.is_ipv4());
    for uplink in ipv4.flat_map(|group| &group.uplinks) {
        let (path, own) = read(&uplink.device)?;
        // The greater of the two is in force.
        let is_strict = own == "1" || own == "0" && all == "1";
        if is_strict && !strict.iter().any(|(there, _)| *there == path) {
            strict.push((path, "2"));
        }
    }
    Ok(strict)
}

/// The reverse path filter of a device, or of `all`.
pub fn path(device: &str) -> PathBuf {
    sysctl::path(&format!("net.ipv4.conf.{}.rp_filter", device.replace('.', "/")))
}

/// Gives them the loose one, through the journal.
///
/// # Errors
/// A full disk.
pub fn loosen(config: &Config, journal: &mut Journal) -> Result<()> {
    for (path, value) in loosened(config)? {
        tarn_frame::sysctl::change(journal, STAGE, &path, value)?;
    }
    Ok(())
}
