//! XDP programs of tarn's that share a device.
//!
//! A driver calls one XDP program. Another one runs after it where the first offers a place: a `BPF_MAP_TYPE_PROG_ARRAY` called
//! [`MAP`], in which each device has an entry, its index modulo the map's size. The first ends with a tail call to it, and passes the
//! packet where the entry is empty.
//!
//! ```text
//!   driver ──▶ first program ──tail call──▶ next program ──▶ stack
//!                   └── entry empty ─────────────────────────▶
//! ```
//!
//! The kernel empties such a map when the last file descriptor of it is closed: when the agent that loaded the first program ends. So
//! the next program must be one that the host can do without, as `redirect`'s, whose tc program does the same at a higher cost.
//! Nothing has to be pinned for it, and a network namespace made by `ip netns` has no place to pin anything.
//!
//! Two devices whose indices fall on one entry cannot both have the first program: who attaches that sees to it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::attach::{self, call};
use crate::plain::{bytes_of, from_bytes};
use crate::undone::Undone;

/// The name of the map that offers the place.
pub const MAP: &str = "xdp_next";

/// As many maps of a program are looked at; tarn's have fewer.
const MAPS_MOST: usize = 64;

/// The place behind a device's XDP program.
pub struct Place {
    map: MapHandle,
    entry: u32,
}

impl Place {
    /// That of a device; `None` where the device has no native XDP program, or one that offers none.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, which looking up programs and maps by their ids takes.
    pub fn of(device: u32) -> Result<Option<Self>> {
        let Some(id) = attach::xdp_program(device)? else {
            return Ok(None);
        };
        let Some(first) = attach::open_program(id)? else {
            return Ok(None);
        };
        // A map that is gone by now has gone with its program.
        let mut maps = maps_of(first.as_fd())?.into_iter().flat_map(MapHandle::from_map_id);
        let map = maps.find(|map| map.map_type() == MapType::ProgArray && map.name() == MAP);
        Ok(map.filter(|map| map.max_entries() > 0).map(|map| Self {
            entry: device % map.max_entries(),
            map,
        }))
    }

    /// The id of the program that stands there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn program(&self) -> Result<Option<u32>> {
        let found = self.map.lookup(bytes_of(&self.entry), MapFlags::ANY);
        let found = found.context("ask for a device's next XDP program")?;
        Ok(found.and_then(|id| from_bytes(&id)))
    }

    /// Has a program run there, in the place of one that stands there.
    ///
    /// # Errors
    /// A program that the kernel does not take behind the first: one for fragmented frames behind one that is not, for example.
    pub fn put(&self, program: BorrowedFd<'_>) -> Result<()> {
        let program = program.as_raw_fd();
        self.map
            .update(bytes_of(&self.entry), bytes_of(&program), MapFlags::ANY)
            .context("have an XDP program run after another")
    }
}

/// The id of the program that runs after a device's XDP program.
///
/// # Errors
/// Those of [`Place::of`].
pub fn program(device: u32) -> Result<Option<u32>> {
    Place::of(device)?.map_or(Ok(None), |place| place.program())
}

/// Takes the program with this id from behind a device's XDP program.
///
/// # Errors
/// Those of [`Place::of`].
pub fn remove(device: u32, interface: &str, id: u32) -> Result<Undone> {
    let Some(place) = Place::of(device)? else {
        return Ok(Undone::Gone);
    };
    match place.program()? {
        None => Ok(Undone::Gone),
        Some(found) if found != id => Ok(Undone::LeftAlone(format!(
            "{interface} has another next XDP program, id {found}"
        ))),
        Some(_) => {
            let removed = place.map.delete(bytes_of(&place.entry));
            removed.context("take an XDP program from behind another")?;
            Ok(Undone::PutBack)
        }
    }
}

/// The ids of a program's maps.
fn maps_of(program: BorrowedFd<'_>) -> Result<Vec<u32>> {
    let mut ids = [0_u32; MAPS_MOST];
    let mut info = sys::bpf_prog_info {
        nr_map_ids: MAPS_MOST as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is whole, `map_ids` has room for `nr_map_ids` ids, and both live until the call returns.
    let asked = call(|| unsafe { sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length) });
    asked.context("ask for a program's maps")?;
    Ok(ids.into_iter().take(info.nr_map_ids as usize).collect())
}
