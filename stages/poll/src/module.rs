//! The module `tarn_poll`, by its netlink interface (`uapi.h`): how many packets a poll may take.

use std::ops::RangeInclusive;

use anyhow::{Context, Result};
use tarn_frame::{KernelModule, Loaded};
use tarn_kernel::netlink::put;
use tarn_kernel::plain::Plain;

tarn_kernel::skeleton!(mod abi, "abi");

pub use abi::types::tarn_poll_napi as Weighed;

/// `TARN_POLL_FAMILY`, `TARN_POLL_VERSION`, `TARN_POLL_CMD_STOP`
pub const MODULE: KernelModule = KernelModule {
    name: "tarn_poll",
    version: 1,
    stop: Command::Stop as u8,
};

/// The weight that the kernel gives a NAPI, in packets: `NAPI_POLL_WEIGHT`.
pub const KERNEL_WEIGHT: u32 = 64;
/// The weights that may be configured.
pub const WEIGHT: RangeInclusive<u32> = 8..=KERNEL_WEIGHT;

/// `enum tarn_poll_command`
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Command {
    Set = 1,
    Stop,
    Get,
}

/// `enum tarn_poll_attribute`
#[derive(Debug, Clone, Copy)]
#[repr(u16)]
enum Attribute {
    Device = 1,
    Rule,
    Weight,
    Napis,
}

// SAFETY: integers without padding between: see uapi.h.
unsafe impl Plain for Weighed {}

/// How the weight of a device's NAPIs comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// As it is given, in packets.
    Fixed(u32),
    /// As published: it grows after a full poll and shrinks after a short one, from 16 to 256.
    #[cfg(feature = "proof")]
    Published,
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

    /// Sets the weight of a device's NAPIs, those too that have come since it was set.
    ///
    /// # Errors
    /// What the kernel refuses, in its words.
    pub fn set(&mut self, device: u32, rule: Rule) -> Result<()> {
        let mut message = Vec::new();
        let mut add = |kind: Attribute, value: u32| put(&mut message, kind as u16, &value.to_ne_bytes());
        add(Attribute::Device, device);
        match rule {
            Rule::Fixed(weight) => {
                add(Attribute::Rule, 0);
                add(Attribute::Weight, weight);
            }
            #[cfg(feature = "proof")]
            Rule::Published => add(Attribute::Rule, 1),
        }
        let set = self.0.command("configure", Command::Set as u8, &message);
        set.map(drop)
            .with_context(|| format!("cannot set how much a poll of device {device} may take"))
    }

    /// Gives all NAPIs of this namespace their weight back. Returns whether there were any.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stop(&mut self) -> Result<bool> {
        self.0.stop()
    }

    /// The NAPIs whose weight is set in this namespace.
    ///
    /// # Errors
    /// The kernel's, or an answer of another version.
    pub fn napis(&mut self) -> Result<Vec<Weighed>> {
        let answer = self.0.ask(Command::Get as u8, &[])?;
        let napis = answer.map(|answer| answer.array(Attribute::Napis as u16));
        Ok(napis.transpose()?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With another order, the kernel would take a rule for a weight.
    #[test]
    fn numbers_are_those_of_uapi_h() {
        let uapi = include_str!("../uapi.h");
        let list = |name: &str| {
            let (_, list) = uapi.split_once(&format!("enum tarn_poll_{name} {{")).unwrap();
            let names = list.split_once('}').unwrap().0.split(',').map(str::trim);
            names
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        for (attribute, name) in [
            (Attribute::Device, "DEVICE"),
            (Attribute::Rule, "RULE"),
            (Attribute::Weight, "WEIGHT"),
            (Attribute::Napis, "NAPIS"),
        ] {
            assert_eq!(list("attribute")[attribute as usize], format!("TARN_POLL_A_{name}"));
        }
        for (command, name) in [(Command::Set, "SET"), (Command::Stop, "STOP"), (Command::Get, "GET")] {
            assert_eq!(list("command")[command as usize], format!("TARN_POLL_CMD_{name}"));
        }
        assert_eq!(size_of::<Weighed>(), 16);
    }
}
