//! The maps of the running programs, from whichever process.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle, OpenMapMut};
use serde::{Deserialize, Serialize};

use super::skeleton::{OpenRedirectMaps, RedirectMaps, types};
use super::tables::{PORT_WORDS, Ports};
use tarn_kernel::plain::{Plain, bytes_of, from_bytes};

/// Entries of one batched system call.
const BATCH: usize = 4096;

/// Declares the maps that outlive an agent, once: by their names here and in the skeleton.
macro_rules! lasting_maps {
    ($($name:ident = $skeleton:ident),+ $(,)?) => {
        /// Handles of the maps; names as in `maps.h`.
        #[allow(missing_docs)]
        pub struct Maps {
            $(pub $name: MapHandle,)+
        }

        /// The maps' ids, by which another process finds them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub struct MapIds {
            $($name: u32,)+
        }

        impl Maps {
            /// The maps of programs that this process has loaded.
            pub fn of_skeleton(maps: &RedirectMaps<'_>) -> Result<Self> {
                Ok(Self {
                    $($name: MapHandle::try_from(&maps.$skeleton).context("keep a map open")?,)+
                })
            }

            /// The maps with these ids. They live as long as a program that uses them is attached anywhere.
            pub fn open(ids: &MapIds) -> Result<Self> {
                let open = |id| MapHandle::from_map_id(id).with_context(|| format!("open the BPF map with id {id}"));
                Ok(Self {
                    $($name: open(ids.$name)?,)+
                })
            }

            /// The ids of these maps.
            pub fn ids(&self) -> Result<MapIds> {
                let id = |map: &MapHandle| map.info().map(|info| info.info.id).context("ask for a map's id");
                Ok(MapIds {
                    $($name: id(&self.$name)?,)+
                })
            }

            /// Has programs that are about to be loaded use these maps, as far as they have the size wanted.
            pub fn lend(&self, to: &mut OpenRedirectMaps<'_>) -> Result<()> {
                $(lend(&self.$name, &mut to.$skeleton)?;)+
                Ok(())
            }
        }
    };
}

lasting_maps! {
    rule_counters = rule_counters,
    services = services,
    addresses = addresses,
    sources = sources,
    locals = locals,
    flows4 = flows4,
    flows6 = flows6,
    tcp4 = tcp4,
    tcp6 = tcp6,
    udp4 = udp4,
    udp6 = udp6,
    targets = targets,
    // How full the flow tables are.
    rooms = data_rooms,
    exits = exits,
    ingresses = ingresses,
    xdp_devices = xdp_devices,
    events = events,
    // The programs' variables: `generation`, `is_strict`, `ports_in_use`, `target_ports`.
    state = bss,
}

fn lend(map: &MapHandle, to: &mut OpenMapMut<'_>) -> Result<()> {
    let is_like = map.max_entries() == to.max_entries()
        && map.key_size() == to.key_size()
        && map.value_size() == to.value_size()
        && map.map_type() == to.map_type();
    if is_like {
        to.reuse_fd(map.as_fd()).context("use a running map again")?;
    }
    Ok(())
}

impl Maps {
    /// Makes the programs decide anew about every flow of clients, from their next packets on.
    pub fn next_generation(&self) -> Result<()> {
        self.change_state(|state| state.generation = state.generation.wrapping_add(1))
    }

    /// Says whether any device's `rp_filter` is strict, and makes the programs decide anew about every flow of clients.
    pub fn judge_strictly(&self, is_strict: bool) -> Result<()> {
        self.change_state(|state| {
            state.is_strict = u32::from(is_strict);
            state.generation = state.generation.wrapping_add(1);
        })
    }

    /// Sets the counts of the flow tables' entries to zero: the tables are new.
    pub fn count_flows_anew(&self) -> Result<()> {
        let none = vec![0; self.rooms.value_size() as usize];
        self.rooms
            .update(bytes_of(&0_u32), &none, MapFlags::ANY)
            .context("count the flows anew")
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
