//! The section `[paths]` of `tarn.toml`.
//!
//! ```toml
//! [paths]
//! policy = "calmest"          # all new flows to the calmest uplink; or "proportional"
//! measure = "delay"           # what uplinks are compared by: round trips of probes; or "load", what their devices send
//! load_gain = 512             # K: how fast a measured load follows what is sent, 0 to 1024
//! rate = 20                   # probes a second to each target of an uplink in use: 1 to 100; of others, a quarter; at most 5000 in all.
//!                             # Without it, an uplink is asked every 1.7 s, and closely when something is wrong
//! memory = "2m"               # what is as old as this counts half, what is older less: 1s to 1h
//! margin = 10                 # percent that a better uplink's score has to be lower: 0 to 90,
//! hold = "5s"                 # for so long: at most 1h
//! stay = "30s"                # the least time between two moves to a calmer uplink: at most 1h
//! back_after = "10s"          # how long an uplink that was dead has to be well again: 100ms to 1h
//! reset_after = "30s"         # with pin, after which TCP connections of a dead uplink are reset that send something: at most 1h; 0s: never
//! timeout = "1s"              # after which a probe is lost: 50ms to 10s
//! mark_mask = 0xff000000      # the bits of packet marks that are tarn's
//! rule_priority = 1000        # where the rules of the uplinks' own tables begin: 1 to 30000
//! tcp = false                 # whether round trips of this host's TCP connections are shown by uplink
//!
//! [[paths.group]]
//! to = "default"              # or "::/0", or a prefix
//! metric = 0                  # of the route: the least one wins. 0 is the default of IPv4, 1 that of IPv6
//! targets = ["1.1.1.1", "udp:9.9.9.9:53"]   # who is asked, by pings or UDP, by each uplink that names none itself
//! pin = "auto"                # whether connections stay on the uplink that they began by: true, false, or where addresses are translated
//! adopt = false               # whether to take over the multipath route that is there, which names the uplinks
//!
//! [[paths.group.uplink]]      # at least two; with adopt, none, or those whose cost or targets are other ones
//! device = "wan0"
//! gateway = "192.0.2.1"       # none on a point-to-point device; "auto": that of the default route by this device
//! onlink = false              # whether the gateway is reached by the device though it is in none of its networks
//! metered = false             # whether volume is paid for: it is asked every 10 s then
//! cost = 100                  # percent: 200 makes it look twice as slow. 1 to 10000
//! targets = ["9.9.9.9"]
//! prefixes = ["2001:db8:b::/56"]   # what comes from there leaves by this uplink: prefixes that its provider has given
//! ```

use std::net::IpAddr;
use std::ops::RangeInclusive;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::judge::{RATE_MOST, Settings};
use super::target::Target;
use crate::foreign::ForeignRoute;
use tarn_kernel::route::Destination;

mod read;
#[cfg(test)]
mod tests;
mod written;

pub use read::read;

/// The configuration that is up, in the state directory.
pub const FILE: &str = "paths.json";
/// The most groups.
pub const GROUPS_MOST: usize = 32;
/// The most uplinks of a group.
pub const UPLINKS_MOST: usize = 64;
/// The most targets of an uplink.
pub const TARGETS_MOST: usize = 8;
/// The most prefixes of an uplink, and the most networks of its own.
pub const PREFIXES_MOST: usize = 16;
/// The most probes a second, to all targets of all uplinks of all groups.
pub const PROBES_MOST: u32 = 5000;
/// The default of `mark_mask`.
const MARK_MASK: u32 = 0xff00_0000;
/// The default of `rule_priority`.
const RULE_PRIORITY: u32 = 1000;
/// The greatest K of the published averages: one.
pub const GAIN_MOST: u32 = 1024;
/// What an uplink can cost, in percent.
pub const COST_RANGE: RangeInclusive<u32> = 1..=10_000;
/// The default of an uplink's `cost`, in percent.
pub const COST_DEFAULT: u32 = 100;

/// A valid section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// At least one.
    pub groups: Vec<Group>,
    /// What the judgement goes by.
    pub settings: Settings,
    /// The bits of packet marks that tell uplinks apart; adjacent ones.
    pub mark_mask: u32,
    /// The priority of the first rule.
    pub rule_priority: u32,
    /// Whether round trips of this host's TCP connections are shown.
    #[serde(default)]
    pub tcp: bool,
}

/// Uplinks for one destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What they lead to.
    pub to: Destination,
    /// The route's metric.
    pub metric: u32,
    /// Whether connections stay on the uplink that they began by.
    #[serde(default)]
    pub pin: bool,
    /// Whether that is found out by `translation.rs`, when it comes up.
    #[serde(default)]
    pub finds_pin: bool,
    /// Its number in the kernel, which `numbers.rs` gives.
    #[serde(default)]
    pub number: u32,
    /// At least two. With `adopt`, before the route is known: those that differ from what it has by default.
    pub uplinks: Vec<Uplink>,
    /// A multipath route that is taken over.
    #[serde(default)]
    pub adopt: Option<Adopt>,
}

/// A multipath route that is taken over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// The metric that it has to have, if the file names one.
    pub metric: Option<u32>,
    /// Targets of uplinks that the file does not name.
    pub targets: Vec<Target>,
    /// The route as it was; none before it was looked for.
    pub original: Option<ForeignRoute>,
}

/// One way out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uplink {
    /// The device's name.
    pub device: String,
    /// The router behind it.
    pub gateway: Option<IpAddr>,
    /// Whether the gateway is the one of the default route that somebody else has by this device.
    #[serde(default)]
    pub is_auto: bool,
    /// Whether the gateway is reached by the device though it is in none of its networks.
    #[serde(default)]
    pub is_onlink: bool,
    /// Whether volume is paid for: probes are as few as can be.
    #[serde(default)]
    pub is_metered: bool,
    /// In percent.
    pub cost: u32,
    /// Who is asked by it; nobody, if only the device tells whether it works.
    pub targets: Vec<Target>,
    /// What comes from there leaves by it.
    #[serde(default)]
    pub prefixes: Vec<Destination>,
    /// The same of networks that it has addresses in, which `networks.rs` finds.
    #[serde(default)]
    pub networks: Vec<Destination>,
    /// Its number within the group, which `numbers.rs` gives.
    #[serde(default)]
    pub number: u32,
    /// Its number among the uplinks of all groups.
    #[serde(default)]
    pub serial: u32,
}

/// How many uplinks can be told apart by marks in these adjacent bits: 0 is no mark.
pub fn marks(mask: u32) -> u32 {
    mask.checked_shr(mask.trailing_zeros()).unwrap_or(0)
}

impl Config {
    /// Why there are fewer marks than uplinks, if so; what to do is to give the mask more bits. A mask without any is another mistake.
    pub fn lack_of_marks(&self) -> Option<String> {
        let uplinks: usize = self.groups.iter().map(|group| group.uplinks.len()).sum();
        let (mask, marks) = (self.mark_mask, marks(self.mark_mask));
        (marks > 0 && uplinks > marks as usize)
            .then(|| format!("{uplinks} uplinks need more marks than the {marks} of mark_mask {mask:#x}"))
    }

    /// How many there are to ask: the targets of all uplinks.
    fn asked(&self) -> u32 {
        let uplinks = self.groups.iter().flat_map(|group| &group.uplinks);
        uplinks.map(|uplink| uplink.targets.len() as u32).sum()
    }

    /// Why probes would be more than [`PROBES_MOST`], and what to do about it. All uplinks may come to be in use.
    fn excess(&self) -> Option<(String, String)> {
        let (asked, rate) = (self.asked(), self.settings.rate.unwrap_or(1));
        let is_within = asked.saturating_mul(rate) <= PROBES_MOST;
        (!is_within).then(|| {
            let message = format!(
                "{asked} targets of uplinks, each asked {rate} times a second, are more than {PROBES_MOST} probes a second"
            );
            let remedy = match PROBES_MOST / asked {
                0 => "name fewer targets".to_owned(),
                most => format!("set rate to at most {most}, or name fewer targets"),
            };
            (message, remedy)
        })
    }

    /// Keeps probes within [`PROBES_MOST`], once all uplinks are known: also when one is missing, and more are sent.
    ///
    /// # Errors
    /// They cannot be kept within it, and what to do about it.
    pub fn bound_probes(&mut self) -> Result<()> {
        if let Some((message, remedy)) = self.excess() {
            bail!("{message}: {remedy}");
        }
        let each = PROBES_MOST / self.asked().max(1);
        self.settings.rate_most = each.min(RATE_MOST);
        Ok(())
    }
}
