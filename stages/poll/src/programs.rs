//! The programs in the kernel, and the maps that they share with the agent.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use crate::guard;
use crate::handover;
use crate::skeleton::PollSkelBuilder;
use crate::skeleton::types::{poll_control, poll_counts, poll_device, poll_napi, poll_share, shed_sender};
use crate::standing::Maps as Numbers;
use tarn_base::runtime::monotonic_ns;
use tarn_kernel::plain::{Plain, bytes_of, from_bytes};
use tarn_kernel::{clock, libbpf};

/// Entries of the map of senders that are read at most: it has room for as many.
const SENDERS_MOST: usize = 4096;
/// As in shared.h.
pub const SHARES: u32 = 1024;
/// `MOST_NAPIS` of shared.h.
const NAPIS_MOST: usize = 1024;
/// For so long the agent may not look while packets are shed.
const PATIENCE: Duration = Duration::from_millis(250);

// SAFETY: 64-bit integers only.
unsafe impl Plain for poll_napi {}
// SAFETY: four 32-bit integers, then two of 64 bits.
unsafe impl Plain for poll_device {}
// SAFETY: one integer of 64 bits, four of 32.
unsafe impl Plain for poll_control {}
// SAFETY: 64-bit integers only.
unsafe impl Plain for poll_counts {}
// SAFETY: five integers of 32 bits.
unsafe impl Plain for poll_share {}
// SAFETY: integers of 32, 16 and 8 bits, in this order, that end at a multiple of 4.
unsafe impl Plain for shed_sender {}

/// The maps.
pub struct Maps {
    napis: MapHandle,
    devices: MapHandle,
    counts: MapHandle,
    senders: MapHandle,
    control: MapHandle,
    shares: MapHandle,
    first: MapHandle,
}

/// The programs, loaded. What a device runs stays there when this ends; nothing is counted then.
pub struct Programs {
    /// Their maps.
    pub maps: Arc<Maps>,
    shed: OwnedFd,
    /// The programs of other stages behind it; the kernel forgets them when nobody has the map open.
    next: MapHandle,
    /// Sockets by receive queue (`handover`), where the kernel has such a map.
    pub handovers: Option<MapHandle>,
    _counting: Link,
}

impl Programs {
    /// Loads them, and begins to count.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_PERFMON (root), or on a kernel without type information.
    pub fn load() -> Result<Self> {
        Self::load_with(handover::has_socket_map())
    }

    /// The same, on a kernel that has AF_XDP or as if it had not.
    pub(crate) fn load_with(has_sockets: bool) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let mut open = PollSkelBuilder::default()
            .open(&mut storage)
            .context("open the programs that receive")?;
        let constants = open.maps.rodata_data.as_deref_mut();
        let constants = constants.context("the programs that receive have no constants")?;
        constants.secret = random();
        constants.has_sockets = has_sockets;
        let tick = clock::tick_ns()?;
        constants.patience = (PATIENCE.as_nanos() as u64).div_ceil(tick) as u32;
        open.maps
            .handovers
            .set_autocreate(has_sockets)
            .context("choose the maps of the programs that receive")?;
        let skeleton = libbpf::load("the kernel refused the programs that receive", || open.load())?;
        let handle = |map: &dyn MapCore| MapHandle::from_map_id(map.info()?.info.id).context("keep a map open");
        let maps = Maps {
            napis: handle(&skeleton.maps.napis)?,
            devices: handle(&skeleton.maps.devices)?,
            counts: handle(&skeleton.maps.counts)?,
            senders: handle(&skeleton.maps.senders)?,
            control: handle(&skeleton.maps.control)?,
            shares: handle(&skeleton.maps.shares)?,
            first: handle(&skeleton.maps.first)?,
        };
        let shed = skeleton
            .progs
            .shed
            .as_fd()
            .try_clone_to_owned()
            .context("keep a program open")?;
        let counting = skeleton.progs.count.attach_trace();
        Ok(Self {
            maps: Arc::new(maps),
            shed,
            next: handle(&skeleton.maps.xdp_next)?,
            handovers: has_sockets.then(|| handle(&skeleton.maps.handovers)).transpose()?,
            _counting: counting.context("cannot watch what NAPIs do")?,
        })
    }

    /// The program for devices that shed.
    pub fn shed(&self) -> BorrowedFd<'_> {
        self.shed.as_fd()
    }

    /// Whether another stage's program runs on a device behind this stage's.
    pub fn has_next(&self, device: u32) -> bool {
        let found = self.next.lookup(bytes_of(&(device % SHARES)), MapFlags::ANY);
        found.is_ok_and(|program| program.is_some())
    }

    /// No other stage's program runs any more on a device that sheds and is gone: another may get its place.
    pub fn forget_next(&self, device: u32) {
        let _ = self.next.delete(bytes_of(&(device % SHARES)));
    }
}

impl Maps {
    /// Those of these numbers; `None` when the agent that made them has ended, and no device holds them.
    pub fn open(numbers: &Numbers) -> Option<Self> {
        let open = |number| MapHandle::from_map_id(number).ok();
        Some(Self {
            napis: open(numbers.napis)?,
            devices: open(numbers.devices)?,
            counts: open(numbers.counts)?,
            senders: open(numbers.senders)?,
            control: open(numbers.control)?,
            shares: open(numbers.shares)?,
            first: open(numbers.first)?,
        })
    }

    /// Their numbers.
    ///
    /// # Errors
    /// The kernel's.
    pub fn numbers(&self) -> Result<Numbers> {
        let number = |map: &MapHandle| -> Result<u32> { Ok(map.info()?.info.id) };
        Ok(Numbers {
            napis: number(&self.napis)?,
            devices: number(&self.devices)?,
            counts: number(&self.counts)?,
            senders: number(&self.senders)?,
            control: number(&self.control)?,
            shares: number(&self.shares)?,
            first: number(&self.first)?,
        })
    }

    /// Counts a NAPI from now on, if it is not counted yet.
    ///
    /// # Errors
    /// More NAPIs than are counted.
    pub fn follow(&self, napi: u32) -> Result<()> {
        if self.napi(napi).is_some() {
            return Ok(());
        }
        let nothing = poll_napi::default();
        self.napis
            .update(bytes_of(&napi), bytes_of(&nothing), MapFlags::ANY)
            .context("cannot count what another NAPI does")
    }

    /// Counts a NAPI no longer. One that is gone is no error.
    pub fn forget(&self, napi: u32) {
        let _ = self.napis.delete(bytes_of(&napi));
    }

    /// What a NAPI did; `None` where it is not counted.
    pub fn napi(&self, napi: u32) -> Option<poll_napi> {
        value(&self.napis, bytes_of(&napi))
    }

    /// Says that a thread may go first, with this priority, or that it does not any more. Whether that was possible: the map may be full.
    pub fn goes_first(&self, thread: i32, priority: Option<i32>) -> bool {
        let key = bytes_of(&thread);
        match priority {
            Some(priority) => self.first.update(key, bytes_of(&priority), MapFlags::ANY).is_ok(),
            None => self.first.delete(key).is_ok(),
        }
    }

    /// The threads that may go first, and their priorities.
    pub fn first(&self) -> Vec<(i32, i32)> {
        let keys = self.first.keys().take(NAPIS_MOST);
        keys.filter_map(|key| Some((from_bytes(&key)?, value(&self.first, &key)?)))
            .collect()
    }

    /// What the agent does with each device, by index.
    pub fn devices(&self) -> Vec<(u32, poll_device)> {
        let keys = self.devices.keys().take(crate::config::DEVICES_MOST);
        let mut devices: Vec<_> = keys
            .filter_map(|key| Some((from_bytes(&key)?, value(&self.devices, &key)?)))
            .collect();
        devices.sort_by_key(|(index, _)| *index);
        devices
    }

    /// Says what the agent does with a device, and has it shed accordingly: `port` is what one port may get in a window.
    ///
    /// # Errors
    /// More devices than are watched.
    pub fn set_device(&self, index: u32, device: &poll_device, port: u32, can_shed: bool) -> Result<()> {
        self.devices
            .update(bytes_of(&index), bytes_of(device), MapFlags::ANY)
            .context("cannot watch another device")?;
        let share = poll_share {
            device: index,
            share: device.share,
            port,
            alarm: can_shed.into(),
            ran: 0,
        };
        self.set_share(&share, can_shed)
    }

    /// Whether the program has judged a packet of a device since [`Maps::set_device`].
    pub fn has_run(&self, index: u32) -> bool {
        self.share(index).is_some_and(|share| share.ran != 0)
    }

    /// What a device sheds; `None` where its entry is another's.
    fn share(&self, index: u32) -> Option<poll_share> {
        value(&self.shares, bytes_of(&(index % SHARES))).filter(|share: &poll_share| share.device == index)
    }

    /// The agent does nothing with a device any more.
    pub fn forget_device(&self, index: u32) {
        let _ = self.devices.delete(bytes_of(&index));
        let share = poll_share {
            device: index,
            ..poll_share::default()
        };
        let _ = self.set_share(&share, false);
    }

    /// A device that cannot shed leaves the entry to one that can.
    fn set_share(&self, share: &poll_share, can_shed: bool) -> Result<()> {
        if !can_shed && self.share(share.device).is_none() {
            return Ok(());
        }
        let place = share.device % SHARES;
        self.shares
            .update(bytes_of(&place), bytes_of(share), MapFlags::ANY)
            .context("cannot write what a device sheds")
    }

    /// Says that the agent looks now, for the `window`th time, whether any device sheds, whether any has another stage's program, and whether
    /// what is dropped goes to the sockets of [`Programs::handovers`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn beat(&self, beat: u64, window: u32, sheds: bool, has_next: bool, redirects: bool) -> Result<()> {
        let control = poll_control {
            beat,
            window,
            sheds: sheds.into(),
            next: has_next.into(),
            redirects: redirects.into(),
        };
        self.control
            .update(&[0; 4], bytes_of(&control), MapFlags::ANY)
            .context("cannot write what the programs go by")
    }

    /// Has the programs shed what they may wherever they shed: by the least shares.
    pub fn shed_all_that_they_may(&self) {
        let (share, port) = guard::least();
        for (device, _) in self.devices().into_iter().filter(|(_, shown)| shown.share > 0) {
            let share = poll_share {
                device,
                share,
                port,
                alarm: 1,
                ran: 0,
            };
            let _ = self.set_share(&share, true);
        }
    }

    /// Whether the agent has looked for devices since the stage came up: at the first look, none is in the map yet.
    pub fn has_looked(&self) -> bool {
        value::<poll_control>(&self.control, &[0; 4]).is_some_and(|control| control.window > 1)
    }

    /// Has the programs shed on for a moment, as if the agent had looked.
    ///
    /// # Errors
    /// The kernel's.
    pub fn shed_on(&self) -> Result<()> {
        let control: poll_control = value(&self.control, &[0; 4]).unwrap_or_default();
        let sheds = self.devices().iter().any(|(_, device)| device.share > 0);
        self.beat(
            monotonic_ns(),
            control.window.wrapping_add(1),
            sheds,
            control.next != 0,
            false,
        )
    }

    /// When the agent last looked (CLOCK_MONOTONIC, ns).
    pub fn last_beat(&self) -> Option<u64> {
        value::<poll_control>(&self.control, &[0; 4]).map(|control| control.beat)
    }

    /// What a device's packets came to so far: shed by source, by port, and spared.
    pub fn counts(&self, device: u32) -> [u64; 3] {
        let counts = self.counts.lookup_percpu(bytes_of(&(device % SHARES)), MapFlags::ANY);
        let counts = counts.ok().flatten().unwrap_or_default();
        let mut sum = [0; 3];
        for count in counts.iter().filter_map(|count| from_bytes::<poll_counts>(count)) {
            let here = [count.shed[0], count.shed[1], count.spared];
            sum.iter_mut().zip(here).for_each(|(sum, here)| *sum += here);
        }
        sum
    }

    /// About how many packets of whom were shed, most first.
    pub fn senders(&self) -> Vec<(shed_sender, u64)> {
        let keys = self.senders.keys().take(SENDERS_MOST);
        let mut senders: Vec<(shed_sender, u64)> = keys
            .filter_map(|key| Some((from_bytes(&key)?, value(&self.senders, &key)?)))
            .collect();
        senders.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        senders
    }
}

/// As the keys of hash maps are drawn: without waiting for a generator that has just begun, as /dev/urandom does for a second or more.
fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

fn value<T: Plain>(map: &MapHandle, key: &[u8]) -> Option<T> {
    map.lookup(key, MapFlags::ANY)
        .ok()
        .flatten()
        .and_then(|bytes| from_bytes(&bytes))
}
