//! What devices have sent, from one look at their counters to the next.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;

use tarn_kernel::links;
use tarn_kernel::netlink::Netlink;

/// Looks that are nearer to each other tell little of a second.
const LEAST: Duration = Duration::from_millis(500);

/// Rates by the devices' indices.
#[derive(Default)]
pub struct Rates(HashMap<u32, Sent>);

#[derive(Clone, Copy)]
struct Sent {
    at: Duration,
    bytes: u64,
    per_second: Option<f64>,
}

impl Rates {
    /// Looks at these devices' counters, and forgets all others.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn update(&mut self, devices: impl Iterator<Item = u32>, now: Duration, netlink: &mut Netlink) -> Result<()> {
        let mut seen = HashMap::new();
        for device in devices {
            let before = self.0.get(&device).copied();
            let recent = before.filter(|before| now < before.at + LEAST);
            let sent = match links::sent_bytes(device, netlink)? {
                None => continue,
                Some(bytes) => recent.unwrap_or(Sent {
                    at: now,
                    bytes,
                    per_second: before.and_then(|before| before.until(now, bytes)),
                }),
            };
            seen.insert(device, sent);
        }
        self.0 = seen;
        Ok(())
    }

    /// What a device sent between the last two looks, in bytes a second; `None` when there were not two.
    pub fn of(&self, device: u32) -> Option<f64> {
        self.0.get(&device)?.per_second
    }
}

impl Sent {
    fn until(&self, now: Duration, bytes: u64) -> Option<f64> {
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        // A counter that goes backwards is that of another device.
        let sent = bytes.checked_sub(self.bytes)?;
        (seconds > 0.0).then(|| sent as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_between_two_looks_at_the_same_device() {
        let sent = Sent {
            at: Duration::from_secs(1),
            bytes: 1000,
            per_second: None,
        };
        assert_eq!(sent.until(Duration::from_secs(3), 5000), Some(2000.0));
        assert_eq!(sent.until(Duration::from_secs(3), 999), None);
        assert_eq!(sent.until(Duration::from_secs(1), 5000), None);
    }
}
