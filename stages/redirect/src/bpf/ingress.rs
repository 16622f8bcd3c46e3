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

/// Has the programs know by which device the stack gets what comes in by each, and `rp_filter` of that, by its index.
///
/// # Errors
/// A map that cannot be written.
pub fn set(maps: &Maps, links: &[Link], reverse_paths: &HashMap<u32, u32>) -> Result<()> {
    let mut is_any_strict = false;
    for link in links {
        let device = link.above(links).last().unwrap_or(link).index;
        let reverse_path = reverse_paths.get(&device).copied().unwrap_or(0);
        is_any_strict |= reverse_path == STRICT;
        let ingress = types::ingress { device, reverse_path };
        maps.ingresses
            .update(bytes_of(&link.index), bytes_of(&ingress), MapFlags::ANY)
            .context("tell the programs of a device that packets come in by")?;
    }
    let is_gone = |key: &Vec<u8>| !links.iter().any(|link| bytes_of(&link.index) == key.as_slice());
    let gone: Vec<Vec<u8>> = maps.ingresses.keys().filter(is_gone).collect();
    delete_all(&maps.ingresses, &gone)?;
    maps.judge_strictly(is_any_strict)
}
