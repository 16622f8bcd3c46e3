//! What the stock kernel goes by, which is the default of what the configuration leaves out.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::module::{MEMORY, TIMEOUT};
use tarn_base::{size, time};
use tarn_kernel::sysctl;

/// The memory for fragments of IPv4, in bytes.
pub const HIGH_THRESHOLD: &str = "net.ipv4.ipfrag_high_thresh";
/// How long IPv4 fragments are kept, in seconds.
pub const TIME4: &str = "net.ipv4.ipfrag_time";
/// The same for IPv6.
pub const TIME6: &str = "net.ipv6.ip6frag_time";
/// The kernel's default of [`TIME6`] (RFC 8200, 4.5), for hosts that were booted without IPv6.
const IPV6_FRAG_TIMEOUT: i64 = 60;

/// The parameters of this network namespace, within the bounds of the stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// In bytes.
    pub memory: u64,
    /// How long IPv4 fragments are kept.
    pub timeout4: Duration,
    /// The same for IPv6.
    pub timeout6: Duration,
    /// A line for each parameter that is out of bounds.
    pub notes: Vec<String>,
}

impl Defaults {
    /// Those of the calling thread's network namespace.
    ///
    /// # Errors
    /// A parameter that cannot be read.
    pub fn read() -> Result<Self> {
        Self::from(|name| parameter(&sysctl::path(name)))
    }

    /// Those that a reader of parameters returns; `None` where there is no such parameter.
    fn from(parameter: impl Fn(&str) -> Result<Option<i64>>) -> Result<Self> {
        let needed = |name: &str| parameter(name)?.with_context(|| format!("there is no sysctl {name}: mount /proc"));
        let mut notes = Vec::new();
        let memory = needed(HIGH_THRESHOLD)?;
        let bytes = u64::try_from(memory).unwrap_or(0).clamp(*MEMORY.start(), *MEMORY.end());
        if i64::try_from(bytes) != Ok(memory) {
            notes.push(note(HIGH_THRESHOLD, memory, "memory", &size::text(bytes)));
        }
        let mut timeout = |name, seconds: i64| {
            let found = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            let within = found.clamp(*TIMEOUT.start(), *TIMEOUT.end());
            if found != within || seconds < 0 {
                notes.push(note(name, seconds, "timeout", &time::text(within)));
            }
            within
        };
        let timeout4 = timeout(TIME4, needed(TIME4)?);
        let timeout6 = timeout(TIME6, parameter(TIME6)?.unwrap_or(IPV6_FRAG_TIMEOUT));
        Ok(Self {
            memory: bytes,
            timeout4,
            timeout6,
            notes,
        })
    }
}

fn note(name: &str, value: i64, key: &str, used: &str) -> String {
    format!(
        "{name} is {value}, out of range for this stage: {used} is used; set `{key}` in tarn.toml to choose another"
    )
}

/// A parameter that is a whole number; `None` when there is no such parameter.
fn parameter(path: &Path) -> Result<Option<i64>> {
    if !path.exists() {
        return Ok(None);
    }
    let value = sysctl::read(path)?;
    let number = value.parse();
    number
        .map(Some)
        .with_context(|| format!("the sysctl {} is {value}, no whole number", sysctl::name(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults(memory: i64, time4: i64, time6: Option<i64>) -> Defaults {
        Defaults::from(|name| {
            Ok(match name {
                HIGH_THRESHOLD => Some(memory),
                TIME4 => Some(time4),
                _ => time6,
            })
        })
        .unwrap()
    }

    #[test]
    fn a_stock_kernel_s_values_are_taken_as_they_are() {
        let expected = Defaults {
            memory: 4 << 20,
            timeout4: Duration::from_secs(30),
            timeout6: Duration::from_secs(60),
            notes: Vec::new(),
        };
        assert_eq!(defaults(4 << 20, 30, Some(60)), expected);
        assert_eq!(defaults(4 << 20, 30, None), expected, "a host without IPv6");
    }

    /// A host that was tuned beyond the bounds comes up all the same, and its administrator reads why.
    #[test]
    fn values_out_of_bounds_become_the_nearest_ones_and_are_told() {
        let found = defaults(1 << 30, 0, Some(3600));
        assert_eq!((found.memory, found.timeout4), (256 << 20, Duration::from_millis(100)));
        assert_eq!(found.timeout6, Duration::from_secs(120));
        assert_eq!(found.notes.len(), 3, "{:?}", found.notes);
        let told = &found.notes[0];
        assert!(
            told.contains("ipfrag_high_thresh is 1073741824") && told.contains("256MiB"),
            "{told}"
        );
        assert_eq!(defaults(-1, -5, None).memory, 256 << 10);
    }

    #[test]
    fn parameters_are_read_from_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("time");
        assert_eq!(parameter(&path).unwrap(), None);
        std::fs::write(&path, "30\n").unwrap();
        assert_eq!(parameter(&path).unwrap(), Some(30));
        std::fs::write(&path, "soon\n").unwrap();
        assert!(parameter(&path).is_err());
    }
}
