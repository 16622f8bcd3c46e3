//! The module's table of clients: see `uapi.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Result, bail};
use tarn_base::network::Prefix;
use tarn_kernel::netlink::put;
use tarn_kernel::plain::{Plain, bytes_of};

use super::abi::types::tarn_classes_client as Written;
use super::{Attribute, Command, Module, joined, nanoseconds};

// SAFETY: integers without padding between: see uapi.h.
unsafe impl Plain for Written {}

/// `TARN_CLASSES_NOBODY`
const NOBODY: u16 = 0xffff;
/// `enum tarn_classes_step`
const BEGIN: u32 = 1;
const COMMIT: u32 = 2;
/// Clients in a message: an attribute has up to 64 KiB.
const MESSAGE_MOST: usize = 2000;

/// Where a client's class is from: `origin` of `struct tarn_classes_client`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// Added by a verb.
    Command,
    /// The configuration.
    File,
}

impl Origin {
    /// What a reader is told: `"file"` of the configuration, `"command"` of a verb, on the command line or by a program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::File => "file",
        }
    }

    /// The one of this number; all unknown ones are from verbs, which `tarn up` leaves alone.
    pub fn numbered(number: u32) -> Self {
        match number == Self::File as u32 {
            true => Self::File,
            false => Self::Command,
        }
    }
}

/// A prefix of clients, and their class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Their addresses.
    pub prefix: Prefix,
    /// The class's number; `None` has it taken out.
    pub class: Option<u16>,
    /// Who gave it.
    pub origin: Origin,
    /// After which the class is lost, where it is.
    pub timeout: Option<Duration>,
}

impl Module {
    /// Changes the table, all of it or nothing; each prefix may be there once. `most` prefixes may be in it.
    ///
    /// # Errors
    /// The kernel's: `ENOSPC` when there would be more.
    pub fn change_clients(&mut self, entries: &[Entry], most: u32) -> Result<()> {
        let last = entries.len().div_ceil(MESSAGE_MOST).max(1) - 1;
        for number in 0..=last {
            let start = (number * MESSAGE_MOST).min(entries.len());
            let some = &entries[start..entries.len().min(start + MESSAGE_MOST)];
            let step = if number == 0 { BEGIN } else { 0 } | if number == last { COMMIT } else { 0 };
            self.change_some(some, step, most)?;
        }
        Ok(())
    }

    fn change_some(&mut self, entries: &[Entry], step: u32, most: u32) -> Result<()> {
        let written: Vec<Written> = entries.iter().map(Entry::written).collect();
        let mut message = Vec::new();
        put(&mut message, Attribute::Clients as u16, &joined(&written));
        put(&mut message, Attribute::Step as u16, bytes_of(&step));
        put(&mut message, Attribute::Most as u16, bytes_of(&most));
        self.loaded
            .command("change the clients of", Command::ChangeClients as u8, &message)
            .map(drop)
    }

    /// The first part of a change, which waits for the next ones.
    #[cfg(test)]
    pub fn begin_change(&mut self, entries: &[Entry]) -> Result<()> {
        self.change_some(entries, BEGIN, u32::from(u16::MAX))
    }

    /// The last part of a change.
    #[cfg(test)]
    pub fn end_change(&mut self, entries: &[Entry]) -> Result<()> {
        self.change_some(entries, COMMIT, u32::from(u16::MAX))
    }

    /// The longest prefix around this one that has a class, itself included.
    ///
    /// # Errors
    /// The kernel's.
    pub fn find_client(&mut self, prefix: Prefix) -> Result<Option<Entry>> {
        let mut message = Vec::new();
        put(
            &mut message,
            Attribute::Clients as u16,
            bytes_of(&Entry::none(prefix).written()),
        );
        let Some(answer) = self.loaded.ask(Command::FindClient as u8, &message)? else {
            return Ok(None);
        };
        let found: Vec<Written> = answer.array(Attribute::Clients as u16)?;
        found.first().map(Entry::read).transpose()
    }

    /// All of them, by prefix.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clients(&mut self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for part in self.loaded.dump(Command::GetClients as u8, &[])? {
            let written: Vec<Written> = part.array(Attribute::Clients as u16)?;
            for one in &written {
                entries.push(Entry::read(one)?);
            }
        }
        entries.sort_unstable_by_key(|entry| entry.prefix);
        // One may come twice, when there are changes meanwhile.
        entries.dedup_by_key(|entry| entry.prefix);
        Ok(entries)
    }

    /// Another number after each change; what is over is none.
    ///
    /// # Errors
    /// The kernel's; no service runs.
    pub fn clients_generation(&mut self) -> Result<u64> {
        let answer = self.loaded.command("ask", Command::Get as u8, &self.named())?;
        answer.number64(Attribute::Changes as u16)
    }

    /// Takes all out.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear_clients(&mut self) -> Result<()> {
        self.loaded
            .command("clear the clients of", Command::ClearClients as u8, &[])
            .map(drop)
    }
}

impl Entry {
    /// One that is to be taken out, or is not there.
    pub fn none(prefix: Prefix) -> Self {
        Self {
            prefix,
            class: None,
            origin: Origin::Command,
            timeout: None,
        }
    }

    fn written(&self) -> Written {
        let mut address = [0; 16];
        let family = match self.prefix.address {
            IpAddr::V4(v4) => {
                address[..4].copy_from_slice(&v4.octets());
                libc::AF_INET
            }
            IpAddr::V6(v6) => {
                address = v6.octets();
                libc::AF_INET6
            }
        };
        Written {
            address,
            family: family as u8,
            length: self.prefix.length,
            class: self.class.unwrap_or(NOBODY),
            origin: self.origin as u32,
            timeout: self.timeout.map_or(0, |timeout| nanoseconds(timeout).max(1)),
        }
    }

    fn read(written: &Written) -> Result<Self> {
        let address = match i32::from(written.family) {
            libc::AF_INET => {
                let [a, b, c, d, ..] = written.address;
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(written.address)),
            other => bail!("the module knows a client of the family {other}"),
        };
        let prefix = Prefix::of(address, written.length);
        if prefix.address != address || prefix.length != written.length {
            bail!(
                "the module knows a client by {address}/{}, which is no prefix",
                written.length
            );
        }
        Ok(Self {
            prefix,
            class: Some(written.class),
            origin: Origin::numbered(written.origin),
            timeout: (written.timeout > 0).then(|| Duration::from_nanos(written.timeout)),
        })
    }
}
