//! The maps of the running programs, from whichever process.

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Serialize};

use super::skeleton::{RedirectMaps, types};
use super::tables::{PORT_WORDS, Ports};
use tarn_kernel::plain::{Plain, bytes_of, from_bytes};

/// Entries of one batched system call.
const BATCH: usize = 4096;

/// Handles of the maps; names as in `maps.h`.
#[allow(missing_docs)]
pub struct Maps {
    pub rule_counters: MapHandle,
    pub services: MapHandle,
    pub addresses: MapHandle,
    pub sources: MapHandle,
    pub locals: MapHandle,
    pub flows4: MapHandle,
    pub flows6: MapHandle,
    pub exits: MapHandle,
    /// Only the XDP program uses it: without one attached anywhere it goes with the process that made it.
    pub xdp_devices: Option<MapHandle>,
    pub events: MapHandle,
    /// The programs' variables: `generation`, `ports_in_use`, `target_ports`.
    pub state: MapHandle,
}

/// The maps' ids, by which another process finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct MapIds {
    rule_counters: u32,
    services: u32,
    addresses: u32,
    sources: u32,
    locals: u32,
    flows4: u32,
    flows6: u32,
    exits: u32,
    xdp_devices: Option<u32>,
    events: u32,
    state: u32,
}

impl Maps {
    /// The maps of programs that this process has loaded.
    pub fn of_skeleton(maps: &RedirectMaps<'_>) -> Result<Self> {
        let handle = |map| MapHandle::try_from(map).context("keep a map open");
        Ok(Self {
            rule_counters: handle(&maps.rule_counters)?,
            services: handle(&maps.services)?,
            addresses: handle(&maps.addresses)?,
            sources: handle(&maps.sources)?,
            locals: handle(&maps.locals)?,
            flows4: handle(&maps.flows4)?,
            flows6: handle(&maps.flows6)?,
            exits: handle(&maps.exits)?,
            xdp_devices: Some(handle(&maps.xdp_devices)?),
            events: handle(&maps.events)?,
            state: handle(&maps.bss)?,
        })
    }

    /// The maps with these ids. They live as long as a program that uses them is attached anywhere.
    pub fn open(ids: &MapIds) -> Result<Self> {
        let handle = |id| MapHandle::from_map_id(id).with_context(|| format!("open the BPF map with id {id}"));
        Ok(Self {
            rule_counters: handle(ids.rule_counters)?,
            services: handle(ids.services)?,
            addresses: handle(ids.addresses)?,
            sources: handle(ids.sources)?,
            locals: handle(ids.locals)?,
            flows4: handle(ids.flows4)?,
            flows6: handle(ids.flows6)?,
            exits: handle(ids.exits)?,
            xdp_devices: ids.xdp_devices.and_then(|id| MapHandle::from_map_id(id).ok()),
            events: handle(ids.events)?,
            state: handle(ids.state)?,
        })
    }

    /// The ids of these maps.
    pub fn ids(&self) -> Result<MapIds> {
        let id = |map: &MapHandle| map.info().map(|info| info.info.id).context("ask for a map's id");
        Ok(MapIds {
            rule_counters: id(&self.rule_counters)?,
            services: id(&self.services)?,
            addresses: id(&self.addresses)?,
            sources: id(&self.sources)?,
            locals: id(&self.locals)?,
            flows4: id(&self.flows4)?,
            flows6: id(&self.flows6)?,
            exits: id(&self.exits)?,
            xdp_devices: self.xdp_devices.as_ref().map(id).transpose()?,
            events: id(&self.events)?,
            state: id(&self.state)?,
        })
    }

    /// Makes the programs decide anew about every flow of clients, from their next packets on.
    pub fn next_generation(&self) -> Result<()> {
        self.change_state(|state| state.generation = state.generation.wrapping_add(1))
    }

    /// Adds ports to those that the programs look at.
    pub fn add_ports(&self, in_use: &Ports, of_targets: &Ports) -> Result<()> {
        self.change_state(|state| {
            for word in 0..PORT_WORDS {
                state.ports_in_use[word] |= in_use.0[word];
                state.target_ports[word] |= of_targets.0[word];
            }
        })
    }

    /// The programs only read their state, and writers hold the state directory's lock, so it can be written whole.
    fn change_state(&self, change: impl FnOnce(&mut types::bss)) -> Result<()> {
        let key = 0_u32;
        let bytes = self
            .state
            .lookup(bytes_of(&key), MapFlags::ANY)?
            .context("the programs have no state")?;
        let mut state: types::bss = from_bytes(&bytes).context("the programs' state is of another version")?;
        change(&mut state);
        self.state
            .update(bytes_of(&key), bytes_of(&state), MapFlags::ANY)
            .context("change the programs' state")
    }
}

/// Looks one value up.
pub fn look_up<T: Plain>(map: &MapHandle, key: &[u8]) -> Result<Option<T>> {
    Ok(map
        .lookup(key, MapFlags::ANY)
        .context("look up in a map")?
        .and_then(|bytes| from_bytes(&bytes)))
}

/// Writes entries, many with one system call where the map can.
pub fn write_all<K: AsRef<[u8]>, V: Plain>(map: &MapHandle, entries: &[(K, V)]) -> Result<()> {
    for batch in entries.chunks(BATCH) {
        if batch.len() == 1 || !write_batch(map, batch)? {
            for (key, value) in batch {
                map.update(key.as_ref(), bytes_of(value), MapFlags::ANY)
                    .context("write to a map")?;
            }
        }
    }
    Ok(())
}

/// False when this kind of map has no batched writes.
fn write_batch<K: AsRef<[u8]>, V: Plain>(map: &MapHandle, batch: &[(K, V)]) -> Result<bool> {
    let (mut keys, mut values) = (Vec::new(), Vec::with_capacity(batch.len() * size_of::<V>()));
    for (key, value) in batch {
        keys.extend_from_slice(key.as_ref());
        values.extend_from_slice(bytes_of(value));
    }
    match map.update_batch(&keys, &values, batch.len() as u32, MapFlags::ANY, MapFlags::ANY) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == libbpf_rs::ErrorKind::Other || is_unsupported(&error) => Ok(false),
        Err(error) => Err(error).context("write to a map; it may be full: raise `max_rules` in tarn.toml"),
    }
}

/// ENOTSUPP has no kind of its own.
fn is_unsupported(error: &libbpf_rs::Error) -> bool {
    error.to_string().contains("524")
}

/// Deletes entries; those that are gone already are no error.
pub fn delete_all<K: AsRef<[u8]>>(map: &MapHandle, keys: &[K]) -> Result<()> {
    for key in keys {
        match map.delete(key.as_ref()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                return Err(error).context("delete from a map");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Deletes the entries whose keys are not wanted, after all others were written. `was_empty` tells that there were none
/// before: then there is nothing to look for.
pub fn delete_others(map: &MapHandle, was_empty: bool, is_wanted: impl Fn(&[u8]) -> bool) -> Result<()> {
    if was_empty {
        return Ok(());
    }
    let others: Vec<Vec<u8>> = map.keys().filter(|key| !is_wanted(key)).collect();
    delete_all(map, &others)
}

/// Whether a map has no entry.
pub fn is_empty(map: &MapHandle) -> bool {
    map.keys().next().is_none()
}
