//! Network cards that QEMU gives a guest. What drivers do (NAPI, descriptor rings, interrupts) shows on them, and not on veth pairs.
//! [`crate::topology`] has the guest's side.
//!
//! ```text
//!            ┌──── eth0 ────┐
//!   hub 1 ───┤              │ the guest
//!     ▲      └──── eth1 ────┘
//!     │ gate
//!   hub 2 ────────  eth2: what is sent here begins to circle
//!    ▲ │
//!    │ ▼ two joints, each of which passes what it has got at its next tick
//!   hub 3
//! ```
//!
//! With [`Cards::Storm`], frames circle between hubs 2 and 3 for ever, and pass the gate to hub 1 on each lap: a load at a fixed rate
//! that costs the guest no instruction. Both directions of the ring are open, so a frame that is sent once by eth2 passes the gate
//! twice a lap; and a lap takes one tick, because at each the two joints pass on what they have one after the other. The gate is open
//! in that direction only. Joints and gate are QEMU's `filter-buffer` objects on the guest's own clock, so that a run is as repeatable
//! as without.

use std::time::Duration;

/// Which cards a guest has. All are `vmxnet3`: of the cards that QEMU emulates, one that has NAPI, checksum offload and XDP, and is no
/// artefact of QEMU's main loop as virtio is here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cards {
    /// None.
    #[default]
    None,
    /// `eth0` and `eth1`, on one wire.
    Pair,
    /// The same, and `eth2` with the ring behind it.
    Storm {
        /// The time between two ticks, in us: how long a frame takes around the ring.
        lap_us: u32,
    },
}

/// How the name of a test begins, or of its module, that needs cards: its guest has [`OF_TESTS`].
pub const TESTS: &str = "lab_cards";
/// See [`TESTS`].
pub const OF_TESTS: Cards = Cards::Storm { lap_us: 100 };

/// The hubs by their numbers.
const WIRE: u8 = 1;
const RING: u8 = 2;
const FAR: u8 = 3;
/// What comes from hub 1 waits at the gate for so long, in us: longer than any guest runs.
const FOR_EVER_US: u32 = 4_000_000_000;

impl Cards {
    /// How long a frame takes around the ring.
    pub const fn lap(self) -> Option<Duration> {
        match self {
            Self::Storm { lap_us } => Some(Duration::from_micros(lap_us as u64)),
            Self::None | Self::Pair => None,
        }
    }

    /// QEMU's options.
    pub(crate) fn options(self) -> Vec<String> {
        let mut options = Vec::new();
        let mut add = |option: &str, value: String| options.extend([option.to_owned(), value]);
        let count = match self {
            Self::None => 0,
            Self::Pair => 2,
            Self::Storm { .. } => 3,
        };
        if let Self::Storm { lap_us } = self {
            for (joint, from, to) in [("one", RING, FAR), ("other", RING, FAR), ("gate", RING, WIRE)] {
                add("-netdev", format!("hubport,id={joint}-to,hubid={to}"));
                add(
                    "-netdev",
                    format!("hubport,id={joint}-from,hubid={from},netdev={joint}-to"),
                );
            }
            for joint in ["one", "other"] {
                add(
                    "-object",
                    format!("filter-buffer,id={joint},netdev={joint}-from,queue=all,interval={lap_us}"),
                );
            }
            add(
                "-object",
                format!("filter-buffer,id=gate,netdev=gate-to,queue=tx,interval={FOR_EVER_US}"),
            );
        }
        for card in 0..count {
            let hub = if card == 2 { RING } else { WIRE };
            add("-netdev", format!("hubport,id=card{card},hubid={hub}"));
            add(
                "-device",
                format!("vmxnet3,netdev=card{card},mac=52:54:00:00:00:{card:02x},romfile="),
            );
        }
        options
    }
}
