//! Which client belongs to which class, and where that is kept: in the module, which looks clients up by the longest prefix that they are
//! in. Where all requests wait in HAProxy there is no module, and it is kept in a file.
//!
//! What a file of configuration names is told from what a verb has added, so that the next `tarn up` knows what to take out.

use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use nix::errno::Errno;

use super::config::Config;
use super::module::{Entry, Module, Origin};
use super::network::Network;
use tarn_base::network::Prefix;
use tarn_frame::state::StateDirectory;
use tarn_kernel::netlink::refusal;

mod file;

use file::ClientFile;
pub use file::{FILE, NEW_FILE};

/// A network of clients and its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The addresses.
    pub network: Network,
    /// The class's number.
    pub class: usize,
    /// Who gave the class.
    pub origin: Origin,
    /// After which the class is lost, where it is.
    pub timeout: Option<Duration>,
}

impl Client {
    /// One that the configuration names.
    pub fn of_file((network, class): (Network, usize)) -> Self {
        Self {
            network,
            class,
            origin: Origin::File,
            timeout: None,
        }
    }

    /// As the module has it: a network may be several prefixes.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let (class, origin, timeout) = (self.class as u16, self.origin, self.timeout);
        self.network.prefixes().map(move |prefix| Entry {
            prefix,
            class: Some(class),
            origin,
            timeout,
        })
    }
}

/// A change, carried out whole or not at all: what each prefix is to have. A prefix of no class is taken out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// As they were noted, or settled.
    entries: Vec<Entry>,
}

impl Change {
    /// An empty change with room for `prefixes` entries.
    pub fn with_room(prefixes: usize) -> Self {
        Self {
            entries: Vec::with_capacity(prefixes),
        }
    }

    /// Gives a network a class, in place of the one that it has.
    pub fn add(&mut self, client: &Client) {
        self.entries.extend(client.entries());
    }

    /// Takes a network out, if it is not added by the same change.
    pub fn remove(&mut self, network: &Network) {
        self.entries.extend(network.prefixes().map(Entry::none));
    }

    /// Gives a prefix its class, or takes it out if the same change gives it none.
    pub fn note(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Each prefix once, in order: as it was added last, or else taken out.
    fn settle(&mut self) {
        self.entries.sort_by_key(|entry| (entry.prefix, entry.class.is_some()));
        last_of_each(&mut self.entries);
    }

    /// Leaves out what is so already, and returns what takes the rest back. `now` is sorted by prefix.
    pub fn against(&mut self, now: &[Entry]) -> Self {
        self.settle();
        let (mut now, mut before) = (now.iter().peekable(), Vec::new());
        self.entries.retain(|wanted| {
            while now.next_if(|found| found.prefix < wanted.prefix).is_some() {}
            let found = now.next_if(|found| found.prefix == wanted.prefix);
            let differs = found.map_or(wanted.class.is_some(), |found| found != wanted);
            if differs {
                before.push(found.copied().unwrap_or(Entry::none(wanted.prefix)));
            }
            differs
        });
        Self { entries: before }
    }

    /// What it takes out of what was added by command, given what takes it back.
    pub fn taken_from<'a>(&'a self, back: &'a Self) -> impl Iterator<Item = &'a Entry> {
        let pairs = self.entries.iter().zip(&back.entries);
        pairs
            .filter(|(after, before)| after.class.is_none() && before.origin == Origin::Command)
            .map(|(_, before)| before)
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What each prefix is to have, by prefix.
    pub fn into_entries(mut self) -> Vec<Entry> {
        self.settle();
        self.entries
    }
}

/// Of entries that are sorted by prefix, the last one of each.
fn last_of_each(entries: &mut Vec<Entry>) {
    entries.dedup_by(|later, earlier| {
        let is_same = later.prefix == earlier.prefix;
        if is_same {
            *earlier = *later;
        }
        is_same
    });
}

/// What a prefix has, of entries that are sorted by prefix.
pub fn find(entries: &[Entry], prefix: Prefix) -> Option<&Entry> {
    let index = entries.binary_search_by_key(&prefix, |entry| entry.prefix).ok()?;
    entries.get(index)
}

/// Where it is kept.
pub enum Store {
    /// In the module.
    Module(Module),
    /// In a file.
    File(ClientFile),
}

impl Store {
    /// That of a configuration that is up.
    ///
    /// # Errors
    /// The module is not loaded any more.
    pub fn of(config: &Config, state: &StateDirectory) -> Result<Self> {
        Ok(match config.services.is_empty() {
            true => Self::File(ClientFile::of(state)),
            false => Self::Module(Module::loaded()?),
        })
    }

    /// Carries out a change.
    ///
    /// # Errors
    /// There would be more prefixes than `most`; no memory, a full disk.
    pub fn apply(&mut self, change: Change, most: u32) -> Result<()> {
        let entries = change.into_entries();
        let applied = match self {
            Self::Module(module) => module.change_clients(&entries, most),
            Self::File(file) => file.change(&entries, most),
        };
        applied.map_err(|error| match refusal(&error) {
            Some(Errno::ENOSPC) => too_many(most),
            _ => error.context("cannot change the classes of clients"),
        })
    }

    /// The longest prefix around each one that has a class, itself included.
    ///
    /// # Errors
    /// The kernel's; a file that is damaged.
    pub fn find_each(&mut self, prefixes: &[Prefix]) -> Result<Vec<Option<Entry>>> {
        match self {
            Self::Module(module) => prefixes.iter().map(|prefix| module.find_client(*prefix)).collect(),
            Self::File(file) => file.find_each(prefixes),
        }
    }

    /// All of them, by prefix.
    ///
    /// # Errors
    /// Those of [`Self::find_each`].
    pub fn all(&mut self) -> Result<Vec<Entry>> {
        match self {
            Self::Module(module) => module.clients(),
            Self::File(file) => file.all(),
        }
    }

    /// Takes all out.
    ///
    /// # Errors
    /// Those of [`Self::find_each`].
    pub fn clear(&mut self) -> Result<()> {
        match self {
            Self::Module(module) => module.clear_clients(),
            Self::File(file) => file.clear(),
        }
    }

    /// Another number after each change; a class that is lost with time is none.
    ///
    /// # Errors
    /// Those of [`Self::find_each`].
    pub fn generation(&mut self) -> Result<u64> {
        match self {
            Self::Module(module) => module.clients_generation(),
            Self::File(file) => file.generation(),
        }
    }
}

/// The error of a change after which there would be more prefixes than `most`.
pub fn too_many(most: u32) -> Error {
    anyhow!("more than {most} networks of clients: raise max_clients in tarn.toml, then `tarn up`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(network: &str, class: usize, origin: Origin) -> Client {
        Client {
            network: network.parse().unwrap(),
            class,
            origin,
            timeout: None,
        }
    }

    fn entries(clients: &[Client]) -> Vec<Entry> {
        clients.iter().flat_map(Client::entries).collect()
    }

    /// A `tarn up` that fails would leave gold's network with another class, or with none.
    #[test]
    fn a_change_can_be_taken_back() {
        let now = entries(&[
            client("10.0.0.0/8", 0, Origin::File),
            client("192.0.2.1", 1, Origin::Command),
            client("192.0.2.2", 1, Origin::Command),
        ]);
        let mut change = Change::default();
        change.add(&client("10.0.0.0/8", 2, Origin::File));
        change.add(&client("192.0.2.1-192.0.2.2", 1, Origin::Command));
        change.remove(&"192.0.2.2".parse().unwrap());
        change.remove(&"203.0.113.0/24".parse().unwrap());
        let back = change.against(&now);
        assert_eq!(change.into_entries(), entries(&[client("10.0.0.0/8", 2, Origin::File)]));
        assert_eq!(back.into_entries(), entries(&[client("10.0.0.0/8", 0, Origin::File)]));
    }

    /// Whoever is both taken out and added is never without a class.
    #[test]
    fn what_is_added_is_not_removed() {
        let network = "10.0.0.0/8".parse().unwrap();
        for adds_first in [false, true] {
            let mut change = Change::default();
            if adds_first {
                change.add(&client("10.0.0.0/8", 1, Origin::File));
                change.remove(&network);
            } else {
                change.remove(&network);
                change.add(&client("10.0.0.0/8", 1, Origin::File));
            }
            assert_eq!(change.into_entries(), entries(&[client("10.0.0.0/8", 1, Origin::File)]));
        }
    }
}
