//! The bench module (`kmod/`), as the experiments use it: what a function costs, and hooks in the place of the module's.

use std::fs;

use anyhow::{Context, Result};

use super::module;
use tarn_kernel::modules;
use tarn_lab::builder::Source;
use tarn_lab::topology::Namespace;

/// Its source: all files of the module, and its own.
pub const BENCH: Source = Source {
    module: "tarn_reassembly_bench",
    files: &joined(module::MODULE.files, &OWN),
};

type File = (&'static str, &'static [u8]);

/// Its own files; its Kbuild stands in place of the module's.
const OWN: [File; 7] = [
    ("Kbuild", include_bytes!("kmod/Kbuild")),
    ("bench.c", include_bytes!("kmod/bench.c")),
    ("bench.h", include_bytes!("kmod/bench.h")),
    ("lists.c", include_bytes!("kmod/lists.c")),
    ("lists.h", include_bytes!("kmod/lists.h")),
    ("packets.c", include_bytes!("kmod/packets.c")),
    ("stand.c", include_bytes!("kmod/stand.c")),
];

/// Of two files of one name the later one is written last.
const fn joined(files: &[File], own: &[File]) -> [File; module::MODULE.files.len() + OWN.len()] {
    let mut all: [File; module::MODULE.files.len() + OWN.len()] = [("", &[]); module::MODULE.files.len() + OWN.len()];
    let mut index = 0;
    while index < all.len() {
        all[index] = if index < files.len() {
            files[index]
        } else {
            own[index - files.len()]
        };
        index += 1;
    }
    all
}

/// The module, loaded; it goes with the value.
pub struct Bench(());

/// What putting datagrams together came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Instructions a fragment.
    pub per_fragment: f64,
    /// Datagrams that became whole.
    pub completed: u32,
}

/// Datagrams of one sort.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Whether they are IPv6's.
    pub is_v6: bool,
    /// Fragments of each.
    pub fragments: u32,
    /// Bytes of each fragment.
    pub size: u32,
    /// How they arrive, as the module calls it.
    pub order: &'static str,
    /// How many.
    pub datagrams: u32,
}

impl Bench {
    /// Loads it. The product's module must not be loaded: the bench has all of it.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn load() -> Result<Self> {
        modules::load(BENCH.module)?;
        Ok(Self(()))
    }

    /// Has it put datagrams together by a function, `mainline` or `tarn`.
    ///
    /// # Errors
    /// It is refused.
    pub fn cost(&self, function: &str, load: &Load) -> Result<Cost> {
        let Load {
            is_v6,
            fragments,
            size,
            order,
            datagrams,
        } = *load;
        let version = if is_v6 { 6 } else { 4 };
        write(
            "run",
            &format!("{function} {version} {fragments} {size} {order} {datagrams}"),
        )?;
        let result = read("result")?;
        let mut figures = result.split_whitespace();
        let mut next = || figures.next().and_then(|figure| figure.parse::<u64>().ok());
        let (instructions, completed) = next().zip(next()).with_context(|| format!("no result: {result:?}"))?;
        Ok(Cost {
            per_fragment: instructions as f64 / f64::from(fragments) / f64::from(datagrams),
            completed: completed as u32,
        })
    }

    /// Drops every fragment that arrives in the namespace, until the value goes.
    ///
    /// # Errors
    /// Another hook is there.
    pub fn drop_in(&self, namespace: &Namespace) -> Result<Hook<'_>> {
        self.hook(namespace, "drop", "1", "0")
    }

    /// Has a list put datagrams together in the namespace, until the value goes: `head` or `tail`.
    ///
    /// # Errors
    /// Another hook is there.
    pub fn lists_in(&self, namespace: &Namespace, strategy: &str) -> Result<Hook<'_>> {
        self.hook(namespace, "strategy", strategy, "none")
    }

    fn hook(&self, namespace: &Namespace, name: &'static str, begin: &str, end: &'static str) -> Result<Hook<'_>> {
        namespace.enter(|| write(name, begin))?;
        Ok(Hook {
            _bench: self,
            name,
            end,
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What is left of it only fails the next one that wants to load it.
        let _ = modules::unload(BENCH.module);
    }
}

/// A hook of the bench.
pub struct Hook<'a> {
    _bench: &'a Bench,
    name: &'static str,
    end: &'static str,
}

impl Hook<'_> {
    /// Comparisons of offsets since it began.
    ///
    /// # Errors
    /// None that is expected.
    pub fn comparisons(&self) -> Result<u64> {
        let text = read("comparisons")?;
        text.parse()
            .with_context(|| format!("no number of comparisons: {text:?}"))
    }
}

impl Drop for Hook<'_> {
    fn drop(&mut self) {
        // The module cannot be taken out then, which says so.
        let _ = write(self.name, self.end);
    }
}

fn path(parameter: &str) -> String {
    format!("/sys/module/{}/parameters/{parameter}", BENCH.module)
}

fn write(parameter: &str, value: &str) -> Result<()> {
    fs::write(path(parameter), value).with_context(|| format!("the bench refuses {parameter} {value:?}"))
}

fn read(parameter: &str) -> Result<String> {
    let text = fs::read_to_string(path(parameter)).with_context(|| format!("the bench has no {parameter}"))?;
    Ok(text.trim().to_owned())
}
