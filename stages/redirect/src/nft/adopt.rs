//! From what the kernel holds to what is wanted: the steps in between, and no more.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;

use super::element::{Element, Key, Place, Role, by_key, elements, id_of, steering};
use super::layout::{self, Chain, FAMILY, TABLE};
use super::look_up::look_up;
use super::steps::Step;
use crate::STAGE;
use crate::rule::Rule;
use tarn_base::output::{Priority, log_at};
use tarn_kernel::nft::read::{self, Table};

/// Hands on the steps from `table`, which is ours or not there yet, to `rules` and `base` chains. Elements that are as they should be
/// stay, and with them their counters; those of someone else stay whatever they are, with one log line.
///
/// Returns what leads somewhere else from now on, as rules.
///
/// # Errors
/// No rights; what `each` returns.
pub fn steps(
    table: Option<&Table>,
    rules: &[Rule],
    base: &[Chain],
    last: bool,
    mut each: impl FnMut(Step) -> Result<()>,
) -> Result<Vec<Rule>> {
    let wanted: BTreeSet<Place> = rules.iter().flat_map(elements).map(|element| element.place).collect();
    let present = table.map(layout::places).unwrap_or_default();
    if table.is_none() {
        each(Step::Line(layout::table()))?;
    }
    wanted
        .difference(&present)
        .try_for_each(|&place| each(Step::Line(layout::set(place, last))))?;
    let found = Found::read(rules, &present)?;
    found.additions(rules, &mut each)?;
    let mut uncounted = found.uncounted();
    count(rules, &present, &mut uncounted, &mut each)?;
    let empty = Table::default();
    let chains = [&layout::chains(&wanted), base].concat();
    let lines = layout::chain_changes(&chains, table.unwrap_or(&empty));
    lines.into_iter().try_for_each(|line| each(Step::Line(line)))?;
    found
        .gone
        .values()
        .try_for_each(|&element| each(Step::Remove(element)))?;
    look_up(uncounted.into_values(), &present, |element, read| {
        match read.and_then(|read| id_of(read.comment)) {
            Some(_) => each(Step::Remove(element)),
            None => Ok(()),
        }
    })?;
    let stale = found.replaced().chain(found.gone.values());
    Ok(stale.map(Element::as_rule).collect())
}

/// What leads on is counted; counting elements that are wanted are taken out of `uncounted`.
fn count(
    rules: &[Rule],
    present: &BTreeSet<Place>,
    uncounted: &mut HashMap<(Place, Key), Element>,
    each: &mut impl FnMut(Step) -> Result<()>,
) -> Result<()> {
    let counting = rules.iter().flat_map(steering).map(|element| element.counting());
    look_up(counting, present, |element, read| {
        uncounted.remove(&element.full_key());
        match read.map(|read| id_of(read.comment)) {
            None => each(Step::Put(element)),
            Some(Some(id)) if id != element.id => each(Step::Replace(element)),
            Some(_) => Ok(()),
        }
    })
}

/// What the kernel holds of elements that lead on.
#[derive(Default)]
struct Found {
    /// Under wanted keys: `None` when it is as wanted, or someone else's.
    taken: HashMap<(Place, Key), Option<Element>>,
    /// Elements of ours that nobody wants any more.
    gone: HashMap<(Place, Key), Element>,
}

impl Found {
    fn read(rules: &[Rule], present: &BTreeSet<Place>) -> Result<Self> {
        let mut found = Found::default();
        let mut present = present.iter().filter(|place| place.role != Role::Count).peekable();
        if present.peek().is_none() {
            return Ok(found);
        }
        let wanted = by_key(rules.iter().flat_map(steering));
        present.try_for_each(|place| found.read_place(*place, &wanted))?;
        Ok(found)
    }

    fn read_place(&mut self, place: Place, wanted: &HashMap<(Place, Key), Element>) -> Result<()> {
        let mut foreign = 0u64;
        read::elements(FAMILY, TABLE, &place.to_string(), |read| {
            let Some(read) = read else {
                self.taken.retain(|(of, _), _| *of != place);
                self.gone.retain(|(of, _), _| *of != place);
                foreign = 0;
                return Ok(());
            };
            let id = id_of(read.comment);
            foreign += u64::from(id.is_none());
            let Some(element) = place.decode(read.key, read.data, id.unwrap_or(0)) else {
                return Ok(());
            };
            let key = element.full_key();
            match wanted.get(&key) {
                Some(wanted) => {
                    let other = id.is_some() && *wanted != element;
                    self.taken.insert(key, other.then_some(element));
                }
                None if id.is_some() => drop(self.gone.insert(key, element)),
                None => {}
            }
            Ok(())
        })?;
        if foreign > 0 {
            let text = format!("{foreign} elements of the map {FAMILY} {TABLE} {place} are not tarn's: left alone");
            log_at(Priority::Notice, STAGE, text);
        }
        Ok(())
    }

    /// What is to be added, in the order of the rules.
    fn additions(&self, rules: &[Rule], each: &mut impl FnMut(Step) -> Result<()>) -> Result<()> {
        rules
            .iter()
            .flat_map(steering)
            .try_for_each(|element| match self.taken.get(&element.full_key()) {
                None => each(Step::Put(element)),
                Some(Some(_)) => each(Step::Replace(element)),
                Some(None) => Ok(()),
            })
    }

    /// Elements of ours that others take the place of.
    fn replaced(&self) -> impl Iterator<Item = &Element> {
        self.taken.values().flatten()
    }

    /// The elements that counted what is replaced or gone.
    fn uncounted(&self) -> HashMap<(Place, Key), Element> {
        by_key(self.replaced().chain(self.gone.values()).map(Element::counting))
    }
}
