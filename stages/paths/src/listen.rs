//! Listens to what goes by uplinks: whether it is answered (`judge/traffic.rs`).

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;

use super::uplink::Uplink;
use tarn_kernel::links::{PacketCounters, Packets};

/// The time from one look to the next while there is traffic that is answered,
const OFTEN: Duration = Duration::from_millis(20);
/// and while there is none.
const SELDOM: Duration = Duration::from_millis(100);
/// The kernel tells the counters of all devices at once: where there are more than so many, it is asked less often.
const MANY: usize = 300;

/// The counters, and when they are looked at again.
pub struct Listener {
    counters: PacketCounters,
    next: Duration,
    /// What was seen last of each device.
    last: HashMap<String, Packets>,
}

impl Listener {
    /// Of the calling thread's namespace.
    ///
    /// # Errors
    /// A host without /proc.
    pub fn new() -> Result<Self> {
        Ok(Self {
            counters: PacketCounters::open()?,
            next: Duration::ZERO,
            last: HashMap::new(),
        })
    }

    /// Looks, if it is time to, at what these uplinks have sent and received. Returns when it is time again.
    ///
    /// # Errors
    /// A kernel that does not tell.
    pub fn listen<'a>(&mut self, uplinks: impl Iterator<Item = &'a mut Uplink>, now: Duration) -> Result<Duration> {
        if now < self.next {
            return Ok(self.next);
        }
        let mut uplinks: Vec<&mut Uplink> = uplinks.collect();
        // Probes of all groups by the same device are no traffic.
        let mut seen: HashMap<String, Packets> = HashMap::new();
        for uplink in &uplinks {
            let probes = seen.entry(uplink.link.way.device.clone()).or_default();
            probes.sent += uplink.link.probes.sent;
            probes.received += uplink.link.probes.received;
        }
        let count = self.counters.read(|name, packets| {
            let Some(probes) = seen.get_mut(name) else { return };
            let last = self.last.get(name).copied().unwrap_or_default();
            // A probe may be in one of the counters only: then there was nothing else.
            let besides = |all: u64, probes: u64, last: u64| match all.saturating_sub(probes) {
                besides if all < last => besides, // a device that was made anew
                besides => besides.max(last),
            };
            *probes = Packets {
                sent: besides(packets.sent, probes.sent, last.sent),
                received: besides(packets.received, probes.received, last.received),
            };
        })?;
        for uplink in &mut uplinks {
            if let Some(packets) = seen.get(&uplink.link.way.device) {
                uplink.traffic.look(now, *packets);
            }
        }
        self.last = seen;
        let often = if count > MANY { SELDOM } else { OFTEN };
        let is_any_heard = uplinks.iter().any(|uplink| uplink.traffic.is_heard());
        self.next = now + if is_any_heard { often } else { SELDOM };
        Ok(self.next)
    }
}
