//! What a stage with a kernel module does with it: load it, and talk to it over generic netlink.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tarn_kernel::features::{Ability, Host, OLDEST};
use tarn_kernel::genl::Family;
use tarn_kernel::modules;
use tarn_kernel::netlink::{Attributes, integer32, integer64};
use tarn_kernel::plain::{Plain, from_bytes};

use crate::journal::{Change, Journal};
use crate::modules::{family, loader_elsewhere, unless_nothing_runs};

/// A module, and its family of the same name, as its `uapi.h` describes them.
#[derive(Debug, Clone, Copy)]
pub struct KernelModule {
    /// The name of both.
    pub name: &'static str,
    /// The family's version.
    pub version: u8,
    /// The command that ends what runs in a namespace. As every other about what runs, it is refused with `ENOENT` when
    /// nothing does.
    pub stop: u8,
}

impl KernelModule {
    /// What a stage with this module needs of this host; nothing is changed.
    pub fn abilities(&self) -> Vec<Ability> {
        let host = Host::this();
        let mut abilities = vec![
            host.kernel_since(OLDEST).ability("kernel", true),
            host.network_administration().ability("network administration", true),
        ];
        if !modules::is_loaded(self.name) {
            abilities.push(host.module_loading().ability("module loading", true));
        }
        abilities.push(modules::finding(self.name).ability(self.name, true));
        abilities
    }

    /// Loads the module. Where tarn has loaded it for several namespaces, the last of them takes it out.
    ///
    /// # Errors
    /// It is nowhere, or the kernel refuses it; a full disk.
    pub fn load(&self, stage: &str, journal: &mut Journal) -> Result<()> {
        if !modules::is_loaded(self.name) || loader_elsewhere(self.name)?.is_some() {
            let name = self.name.to_owned();
            journal.record_once(stage, Change::Module { name })?;
        }
        modules::load(self.name)?;
        match family(self.name, self.version)? {
            Some(family) if !family.is_of_version() => bail!(
                "the module {} that is loaded is of another version than this tarn: `tarn down`, then `tarn up`",
                self.name
            ),
            _ => Ok(()),
        }
    }

    /// Writes down that the module is about to be configured in this namespace, where `tarn down` stops it.
    ///
    /// # Errors
    /// A full disk.
    pub fn record_configuration(&self, stage: &str, journal: &mut Journal) -> Result<()> {
        let change = Change::ModuleConfiguration {
            family: self.name.to_owned(),
            version: self.version,
            stop: self.stop,
        };
        journal.record_once(stage, change)
    }

    /// The module in the calling thread's namespace; `None` when it is not loaded, which asking does not change.
    ///
    /// # Errors
    /// Those of netlink.
    pub fn find(&self) -> Result<Option<Loaded>> {
        let module = *self;
        let family = family(self.name, self.version)?;
        Ok(family.map(|family| Loaded { module, family }))
    }

    /// The module in the calling thread's namespace, where it has to be.
    ///
    /// # Errors
    /// It is not loaded, or those of netlink.
    pub fn loaded(&self) -> Result<Loaded> {
        let name = self.name;
        self.find()?
            .with_context(|| format!("the module {name} is not loaded any more: `tarn up` loads it again"))
    }
}

/// A module that is loaded, as seen from one network namespace.
pub struct Loaded {
    module: KernelModule,
    family: Family,
}

impl Loaded {
    /// Has the module do something, with these attributes; `what` is that, for people.
    ///
    /// # Errors
    /// What the kernel refuses, in its words.
    pub fn command(&mut self, what: &str, command: u8, attributes: &[u8]) -> Result<Answer> {
        let name = self.module.name;
        let answer = self.family.request(command, attributes);
        let attributes = answer.with_context(|| format!("{what} {name}"))?;
        Ok(Answer { name, attributes })
    }

    /// Asks about what runs; `None` when nothing does.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ask(&mut self, command: u8, attributes: &[u8]) -> Result<Option<Answer>> {
        unless_nothing_runs(self.command("ask", command, attributes))
    }

    /// Asks for a list. Returns each part of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn dump(&mut self, command: u8, attributes: &[u8]) -> Result<Vec<Answer>> {
        let name = self.module.name;
        let parts = self.family.dump(command, attributes);
        let parts = parts.with_context(|| format!("ask {name}"))?;
        Ok(parts
            .into_iter()
            .map(|attributes| Answer { name, attributes })
            .collect())
    }

    /// Ends what runs. Returns whether anything did.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stop(&mut self) -> Result<bool> {
        let answer = self.command("stop", self.module.stop, &[]);
        Ok(unless_nothing_runs(answer)?.is_some())
    }
}

/// What a module has answered.
#[derive(Debug)]
pub struct Answer {
    name: &'static str,
    attributes: Vec<u8>,
}

impl Answer {
    /// An attribute of 32 bits.
    ///
    /// # Errors
    /// There is none: the module is of another version. So for all others.
    pub fn number(&self, kind: u16) -> Result<u32> {
        self.read(kind, integer32)
    }

    /// An attribute of 64 bits.
    ///
    /// # Errors
    /// See [`Answer::number`].
    pub fn number64(&self, kind: u16) -> Result<u64> {
        self.read(kind, integer64)
    }

    /// A time in nanoseconds, of 64 bits.
    ///
    /// # Errors
    /// See [`Answer::number`].
    pub fn time(&self, kind: u16) -> Result<Duration> {
        self.number64(kind).map(Duration::from_nanos)
    }

    /// An attribute that is a structure. What a newer module has added at its end is left out.
    ///
    /// # Errors
    /// See [`Answer::number`].
    pub fn structure<T: Plain>(&self, kind: u16) -> Result<T> {
        self.read(kind, from_bytes)
    }

    /// An attribute that is a row of structures.
    ///
    /// # Errors
    /// See [`Answer::number`].
    pub fn array<T: Plain>(&self, kind: u16) -> Result<Vec<T>> {
        self.read(kind, |bytes| {
            let is_whole = bytes.len() % size_of::<T>() == 0;
            is_whole.then(|| bytes.chunks_exact(size_of::<T>()).filter_map(from_bytes).collect())
        })
    }

    fn read<T>(&self, kind: u16, read: impl Fn(&[u8]) -> Option<T>) -> Result<T> {
        match Attributes(&self.attributes).get(kind).and_then(read) {
            Some(value) => Ok(value),
            None => bail!(
                "the loaded {} is of another version: load the one that came with this tarn",
                self.name
            ),
        }
    }
}
