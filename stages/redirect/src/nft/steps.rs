//! Changes to the table, one at a time, and their way into the kernel or onto the screen.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;

use super::element::{Element, Place};
use super::layout::{FAMILY, TABLE};
use tarn_kernel::nft::Nft;

/// The most elements changed in one transaction. `nft` needs about 2 KiB for each, and the kernel keeps what a
/// transaction adds aside until it is whole.
const TRANSACTION_MAX: usize = 65_536;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Makes the table, a map or a set: before any element.
    Make(String),
    /// Adds an element.
    Put(Element),
    /// Adds an element in the place of one with the same key, without a moment in between.
    Replace(Element),
    /// Changes a chain: when the maps that it looks up are filled.
    Chain(String),
    /// Removes an element.
    Remove(Element),
}

impl Step {
    /// The element that is added or removed.
    pub fn element(&self) -> Option<Element> {
        match self {
            Step::Put(element) | Step::Replace(element) | Step::Remove(element) => Some(*element),
            Step::Make(_) | Step::Chain(_) => None,
        }
    }
}

/// Carries steps out, in one transaction up to [`TRANSACTION_MAX`] elements, beyond that in several.
///
/// Steps come in an order that makes every prefix of them harmless: what is looked up is filled before it is looked
/// up, and what takes an element's place is there before the element goes.
pub struct Transaction<'a> {
    nft: &'a Nft,
    made: String,
    removed: BTreeMap<Place, String>,
    added: BTreeMap<Place, String>,
    chains: String,
    elements: usize,
}

impl<'a> Transaction<'a> {
    /// An empty one.
    pub fn new(nft: &'a Nft) -> Self {
        let (made, chains) = (String::new(), String::new());
        Transaction {
            nft,
            made,
            removed: BTreeMap::new(),
            added: BTreeMap::new(),
            chains,
            elements: 0,
        }
    }

    /// Takes a step in, and carries out what there is when it is enough.
    ///
    /// # Errors
    /// What the kernel or `nft` refuses.
    pub fn push(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Make(line) => self.made.push_str(line),
            Step::Chain(line) => self.chains.push_str(line),
            Step::Put(element) => listed(&mut self.added, element.place, &element.to_string()),
            Step::Remove(element) => listed(&mut self.removed, element.place, &element.deletion()),
            Step::Replace(element) => {
                listed(&mut self.removed, element.place, &element.deletion());
                listed(&mut self.added, element.place, &element.to_string());
            }
        }
        self.elements += usize::from(step.element().is_some());
        if self.elements < TRANSACTION_MAX {
            Ok(())
        } else {
            self.flush()
        }
    }

    /// Carries out what is left.
    ///
    /// # Errors
    /// What the kernel or `nft` refuses.
    pub fn flush(&mut self) -> Result<()> {
        let mut script = std::mem::take(&mut self.made);
        write_elements(&mut script, "delete", std::mem::take(&mut self.removed));
        write_elements(&mut script, "add", std::mem::take(&mut self.added));
        script.push_str(&std::mem::take(&mut self.chains));
        self.elements = 0;
        if script.is_empty() {
            Ok(())
        } else {
            self.nft.apply(&script)
        }
    }
}

fn listed(lists: &mut BTreeMap<Place, String>, place: Place, element: &str) {
    let list = lists.entry(place).or_default();
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(element);
}

fn write_elements(script: &mut String, verb: &str, lists: BTreeMap<Place, String>) {
    for (place, list) in lists {
        // Writing into a String cannot fail.
        let _ = writeln!(script, "{verb} element {FAMILY} {TABLE} {place} {{ {list} }}");
    }
}

/// A step as commands for a shell.
pub fn commands(step: &Step) -> Vec<String> {
    let nft = |line: &str| format!("nft '{}'", line.trim_end());
    let element =
        |verb: &str, place: Place, text: String| nft(&format!("{verb} element {FAMILY} {TABLE} {place} {{ {text} }}"));
    match step {
        Step::Make(line) | Step::Chain(line) => vec![nft(line)],
        Step::Put(new) => vec![element("add", new.place, new.to_string())],
        Step::Remove(old) => vec![element("delete", old.place, old.deletion())],
        Step::Replace(new) => {
            vec![
                element("delete", new.place, new.deletion()),
                element("add", new.place, new.to_string()),
            ]
        }
    }
}
