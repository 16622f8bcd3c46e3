//! What the stack thinks of packets by the device that they come in by: the programs hand on only what it would take.

use std::collections::HashMap;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};

use super::maps::{Maps, delete_all};
use super::skeleton::types;
use tarn_kernel::links::Link;
use tarn_kernel::plain::bytes_of;

/// `rp_filter` where the way back has to be the way that a packet came: as in shared.h.
const STRICT: u32 = 1;

/// Has the programs know the devices, and `rp_filter` of each by its index.
///
/// # Errors
/// A map that cannot be written.
pub fn set(maps: &Maps, links: &[Link], reverse_paths: &HashMap<u32, u32>) -> Result<()> {
    let of = |link: &Link| reverse_paths.get(&link.index).copied().unwrap_or(0);
    for link in links {
        let ingress = types::ingress {
            reverse_path: of(link),
            master: link.master.unwrap_or(0),
        };
        maps.ingresses
            .update(bytes_of(&link.index), bytes_of(&ingress), MapFlags::ANY)
            .context("tell the programs of a device that packets come in by")?;
    }
    let is_gone = |key: &Vec<u8>| !links.iter().any(|link| bytes_of(&link.index) == key.as_slice());
    let gone: Vec<Vec<u8>> = maps.ingresses.keys().filter(is_gone).collect();
    delete_all(&maps.ingresses, &gone)?;
    maps.judge_strictly(links.iter().any(|link| of(link) == STRICT))
}
