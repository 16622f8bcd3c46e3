//! The module `tarn_reassembly`, by its netlink interface (`uapi.h`).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use tarn_base::network::Prefix;
use tarn_frame::{Answer, KernelModule, Loaded};
use tarn_kernel::netlink::put;
use tarn_kernel::plain::Plain;

tarn_kernel::skeleton!(mod abi, "abi");

pub use abi::types::{
    tarn_reassembly_counts as Counts, tarn_reassembly_figures as Held, tarn_reassembly_source as Source,
};

/// `TARN_REASSEMBLY_FAMILY`, `TARN_REASSEMBLY_VERSION`, `TARN_REASSEMBLY_CMD_STOP`
pub const MODULE: KernelModule = KernelModule {
    name: "tarn_reassembly",
    version: 1,
    stop: Command::Stop as u8,
};

/// Bytes that held fragments may take.
pub const MEMORY: RangeInclusive<u64> = (256 << 10)..=(256 << 20);
/// How long a datagram's fragments have to arrive.
pub const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(120);
/// A source's share of the memory is 1 of these parts.
pub const SHARE: RangeInclusive<u32> = 2..=64;
/// The bits of an IPv6 address that make a source.
const SOURCE_BITS: u8 = 64;

/// `enum tarn_reassembly_command`
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Command {
    Set = 1,
    Stop,
    Get,
    GetSources,
}

/// `enum tarn_reassembly_attribute`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
enum Attribute {
    Memory = 2,
    Share,
    Timeout4,
    Timeout6,
    Datagrams,
    Figures,
    Ipv4,
    Ipv6,
    Sources,
}

// SAFETY: integers without padding between: see uapi.h.
unsafe impl Plain for Held {}
// SAFETY: integers without padding between: see uapi.h.
unsafe impl Plain for Counts {}
// SAFETY: integers without padding between: see uapi.h.
unsafe impl Plain for Source {}

/// Whose datagrams are reassembled: `enum tarn_reassembly_datagrams`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Datagrams {
    /// All where connection tracking reassembles, else this host's.
    #[default]
    Auto,
    /// Those that are addressed to this host.
    Host,
    /// All that arrive.
    All,
}

impl Datagrams {
    /// Each, in the order of its numbers.
    pub const CHOICES: [Self; 3] = [Self::Auto, Self::Host, Self::All];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Host => "host",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Datagrams {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// How fragments are reassembled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The most bytes that held fragments take, as the kernel accounts them; see [`MEMORY`].
    pub memory: u64,
    /// A source's share of a full memory is 1/`share`; see [`SHARE`].
    pub share: u32,
    /// The time from the first fragment of an IPv4 datagram until it is given up; see [`TIMEOUT`].
    pub timeout4: Duration,
    /// The same for IPv6.
    pub timeout6: Duration,
    /// Whose datagrams.
    pub datagrams: Datagrams,
}

/// What runs in a namespace.
#[derive(Debug, Clone)]
pub struct State {
    /// The settings in force.
    pub settings: Settings,
    /// What is held now.
    pub held: Held,
    /// What became of fragments and datagrams, since the beginning.
    pub ipv4: Counts,
    /// The same for IPv6.
    pub ipv6: Counts,
}

/// The module, as seen from one network namespace.
pub struct Module(Loaded);

impl Module {
    /// The module in the calling thread's namespace; `None` when it is not loaded.
    ///
    /// # Errors
    /// Those of netlink.
    pub fn find() -> Result<Option<Self>> {
        Ok(MODULE.find()?.map(Self))
    }

    /// The module, which has to be loaded.
    ///
    /// # Errors
    /// It is not.
    pub fn loaded() -> Result<Self> {
        MODULE.loaded().map(Self)
    }

    /// Begins, or changes what runs. Fragments that are held stay.
    ///
    /// # Errors
    /// What the kernel refuses, in its words; then nothing has changed.
    pub fn set(&mut self, settings: &Settings) -> Result<()> {
        let set = self.0.command("configure", Command::Set as u8, &settings.attributes());
        set.map(drop)
    }

    /// Ends, and frees what is held. Returns whether anything ran.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stop(&mut self) -> Result<bool> {
        self.0.stop()
    }

    /// What runs; `None` when nothing does.
    ///
    /// # Errors
    /// The kernel's, or an answer of another version.
    pub fn state(&mut self) -> Result<Option<State>> {
        let answer = self.0.ask(Command::Get as u8, &[])?;
        answer.as_ref().map(State::read).transpose()
    }

    /// The sources that hold most memory and those whose datagrams failed most, in no order; none when nothing runs.
    ///
    /// # Errors
    /// The kernel's, or an answer of another version.
    pub fn sources(&mut self) -> Result<Vec<Source>> {
        let answer = self.0.ask(Command::GetSources as u8, &[])?;
        let sources = answer.map(|answer| answer.array(Attribute::Sources as u16));
        Ok(sources.transpose()?.unwrap_or_default())
    }
}

impl Settings {
    /// The most memory that a source has of a full one, in bytes.
    pub fn source_share(&self) -> u64 {
        self.memory / u64::from(self.share.max(1))
    }

    fn attributes(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let mut add = |kind: Attribute, value: &[u8]| put(&mut message, kind as u16, value);
        add(Attribute::Memory, &self.memory.to_ne_bytes());
        add(Attribute::Share, &self.share.to_ne_bytes());
        add(Attribute::Timeout4, &nanoseconds(self.timeout4).to_ne_bytes());
        add(Attribute::Timeout6, &nanoseconds(self.timeout6).to_ne_bytes());
        add(Attribute::Datagrams, &(self.datagrams as u32).to_ne_bytes());
        message
    }
}

impl State {
    fn read(answer: &Answer) -> Result<Self> {
        let datagrams = answer.number(Attribute::Datagrams as u16)?;
        let Some(datagrams) = Datagrams::CHOICES.get(datagrams as usize).copied() else {
            bail!(
                "the loaded {} reassembles what this tarn does not know ({datagrams})",
                MODULE.name
            );
        };
        Ok(Self {
            settings: Settings {
                memory: answer.number64(Attribute::Memory as u16)?,
                share: answer.number(Attribute::Share as u16)?,
                timeout4: answer.time(Attribute::Timeout4 as u16)?,
                timeout6: answer.time(Attribute::Timeout6 as u16)?,
                datagrams,
            },
            held: answer.structure(Attribute::Figures as u16)?,
            ipv4: answer.structure(Attribute::Ipv4 as u16)?,
            ipv6: answer.structure(Attribute::Ipv6 as u16)?,
        })
    }

    /// Datagrams of both families that made room for others, since the beginning.
    pub fn evicted(&self) -> u64 {
        let of = |counts: &Counts| {
            let reasons = [counts.evicted_share, counts.evicted_stranger, counts.evicted_age];
            reasons.into_iter().fold(0, u64::saturating_add)
        };
        of(&self.ipv4).saturating_add(of(&self.ipv6))
    }
}

impl Source {
    /// Its address or, of IPv6, network, as people read it.
    pub fn name(&self) -> String {
        let [a, b, c, d, ..] = self.address;
        match i32::from(self.family) {
            libc::AF_INET6 => Prefix::of(Ipv6Addr::from(self.address).into(), SOURCE_BITS).to_string(),
            _ => IpAddr::from([a, b, c, d]).to_string(),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub mod tests {
    //! What the kernel and tarn would understand differently; and values for the tests of other files.

    use super::*;

    /// The settings of a stock kernel.
    pub const SETTINGS: Settings = Settings {
        memory: 4 << 20,
        share: 8,
        timeout4: Duration::from_secs(30),
        timeout6: Duration::from_secs(60),
        datagrams: Datagrams::Auto,
    };

    /// A source that holds and has failed so much.
    pub fn source(address: IpAddr, memory: u64, failed: u64) -> Source {
        let (mut bytes, family) = (
            [0; 16],
            if address.is_ipv4() {
                libc::AF_INET
            } else {
                libc::AF_INET6
            },
        );
        match address {
            IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes = address.octets(),
        }
        Source {
            address: bytes,
            memory,
            failed,
            datagrams: 1,
            family: family as u8,
            is_known: 0,
            padding: [0; 2],
        }
    }

    /// With another order, the kernel would take a timeout for the memory.
    #[test]
    fn attributes_are_those_of_uapi_h() {
        let uapi = include_str!("../uapi.h");
        let (_, list) = uapi.split_once("enum tarn_reassembly_attribute {").unwrap();
        let (list, _) = list.split_once('}').unwrap();
        let names: Vec<&str> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let at = |attribute: Attribute| names[attribute as usize].strip_prefix("TARN_REASSEMBLY_A_").unwrap();
        let ours = [
            (Attribute::Memory, "MEMORY"),
            (Attribute::Share, "SHARE"),
            (Attribute::Timeout4, "TIMEOUT4"),
            (Attribute::Timeout6, "TIMEOUT6"),
            (Attribute::Datagrams, "DATAGRAMS"),
            (Attribute::Figures, "FIGURES"),
            (Attribute::Ipv4, "IPV4"),
            (Attribute::Ipv6, "IPV6"),
            (Attribute::Sources, "SOURCES"),
        ];
        for (attribute, name) in ours {
            assert_eq!(at(attribute), name);
        }
        assert_eq!(
            (size_of::<Held>(), size_of::<Source>(), size_of::<Counts>()),
            (40, 40, 136)
        );
    }

    #[test]
    fn a_source_is_an_address_or_the_network_that_one_customer_has() {
        assert_eq!(source([192, 0, 2, 7].into(), 0, 0).name(), "192.0.2.7");
        let ipv6: IpAddr = "2001:db8:1:2::77".parse().unwrap();
        assert_eq!(source(ipv6, 0, 0).name(), "2001:db8:1:2::/64");
    }
}
