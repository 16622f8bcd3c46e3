//! Changes to the table, one at a time, and their way into the kernel or onto the screen.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::element::{Element, Place, comment};
use super::layout::{FAMILY, TABLE};
use tarn_kernel::nft::Nft;
use tarn_kernel::nft::batch::Batch;

/// The most elements changed in one transaction: the kernel keeps what a transaction adds aside until it is whole.
const TRANSACTION_MAX: usize = 65_536;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Makes the table, a map or a set, before any element; or changes a chain, when the maps that it looks up are filled.
    Line(String),
    /// Adds an element.
    Put(Element),
    /// Adds an element in the place of one with the same key, without a moment in between.
    Replace(Element),
    /// Removes an element.
    Remove(Element),
}

impl Step {
    /// The element that is added or removed.
    pub fn element(&self) -> Option<Element> {
        match self {
            Step::Put(element) | Step::Replace(element) | Step::Remove(element) => Some(*element),
            Step::Line(_) => None,
        }
    }
}

/// Carries steps out: lines through `nft`, elements straight to the kernel, each as far as they follow one another in one
/// transaction, of at most [`TRANSACTION_MAX`] elements.
///
/// Steps come in an order that makes every prefix of them harmless: what is looked up is filled before it is looked
/// up, and what takes an element's place is there before the element goes.
pub struct Transaction<'a> {
    nft: &'a Nft,
    steps: Vec<Step>,
}

impl<'a> Transaction<'a> {
    /// An empty one.
    pub fn new(nft: &'a Nft) -> Self {
        Transaction { nft, steps: Vec::new() }
    }

    /// Takes a step in, and carries out what there is when it is enough.
    ///
    /// # Errors
    /// What the kernel or `nft` refuses.
    pub fn push(&mut self, step: Step) -> Result<()> {
        let enough = is_enough(&self.steps, &step);
        self.steps.push(step);
        if enough { self.flush() } else { Ok(()) }
    }

    /// Carries out what is left.
    ///
    /// # Errors
    /// What the kernel or `nft` refuses.
    pub fn flush(&mut self) -> Result<()> {
        let steps = std::mem::take(&mut self.steps);
        for part in steps.chunk_by(|one, next| one.element().is_some() == next.element().is_some()) {
            let lines = part.iter().filter_map(|step| match step {
                Step::Line(line) => Some(line.as_str()),
                _ => None,
            });
            match lines.collect::<String>() {
                script if script.is_empty() => write_elements(part)?,
                script => self.nft.apply(&script)?,
            }
        }
        Ok(())
    }
}

/// Whether steps are carried out with this one. Never with a line: a chain's rules go and come in one transaction.
fn is_enough(steps: &[Step], last: &Step) -> bool {
    steps.len() + 1 >= TRANSACTION_MAX && last.element().is_some()
}

/// What goes is written before what comes, which may have the same keys.
fn write_elements(steps: &[Step]) -> Result<()> {
    let mut batch = Batch::on(TABLE);
    let is_removed = |step: &&Step| !matches!(step, Step::Put(_));
    for (map, elements) in by_place(steps.iter().filter(is_removed)) {
        for element in elements {
            batch.remove(&map, &element.place.encode(&element.key));
        }
    }
    let is_added = |step: &&Step| !matches!(step, Step::Remove(_));
    for (map, elements) in by_place(steps.iter().filter(is_added)) {
        for element in elements {
            batch.put(
                &map,
                &element.place.encode(&element.key),
                &element.data(),
                &comment(element.id),
            );
        }
    }
    batch.commit().context("nftables refused a change")
}

/// The elements of each map and set.
fn by_place<'a>(steps: impl Iterator<Item = &'a Step>) -> Vec<(String, Vec<Element>)> {
    let mut places: BTreeMap<Place, Vec<Element>> = BTreeMap::new();
    for element in steps.filter_map(Step::element) {
        places.entry(element.place).or_default().push(element);
    }
    places
        .into_iter()
        .map(|(place, elements)| (place.to_string(), elements))
        .collect()
}

/// A step in the language of nft, a command a line.
pub fn lines(step: &Step) -> Vec<String> {
    let element =
        |verb: &str, place: Place, text: String| format!("{verb} element {FAMILY} {TABLE} {place} {{ {text} }}\n");
    match step {
        Step::Line(line) => vec![line.clone()],
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::element::steering;
    use crate::rule::samples::udp;

    /// Without its rules a chain would redirect nothing until the rest follows.
    #[test]
    fn a_chain_is_not_changed_in_two_transactions() {
        let line = || Step::Line("delete rule inet tarn steer4 handle 1".to_owned());
        let steps: Vec<Step> = std::iter::repeat_with(line).take(TRANSACTION_MAX).collect();
        let rule = udp("192.168.64.2:8080", "10.0.1.2:8083", None);
        let element = steering(&rule).next().unwrap();
        assert!(!is_enough(&steps, &line()));
        assert!(is_enough(&steps, &Step::Put(element)));
        assert!(!is_enough(&[], &Step::Put(element)));
    }
}
