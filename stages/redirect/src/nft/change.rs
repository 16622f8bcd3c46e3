//! Rules taken away and added under traffic.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;

use super::element::{Key, Place, by_key, elements, id_of};
use super::layout::{self, FAMILY, TABLE};
use super::look_up::look_up;
use super::steps::Step;
use crate::STAGE;
use crate::rule::Rule;
use tarn_base::output::{Priority, log_at};
use tarn_kernel::nft::read::Table;

/// The steps that take `remove` away and add `add`; `places` are the table's before and after.
pub fn steps(table: &Table, places: &mut BTreeSet<Place>, add: &[Rule], remove: &[Rule], last: bool) -> Vec<Step> {
    let wanted: BTreeSet<Place> = add.iter().flat_map(elements).map(|element| element.place).collect();
    let mut steps: Vec<Step> = wanted
        .difference(places)
        .map(|&place| Step::Line(layout::set(place, last)))
        .collect();
    places.extend(wanted);
    let mut removed = by_key(remove.iter().flat_map(elements));
    let added = add.iter().flat_map(elements);
    steps.extend(added.map(|element| match removed.remove(&element.full_key()) {
        Some(_) => Step::Replace(element),
        None => Step::Put(element),
    }));
    let chains = layout::chain_changes(&layout::chains(places), table);
    steps.extend(chains.into_iter().map(Step::Line));
    steps.extend(removed.into_values().map(Step::Remove));
    steps
}

/// `steps` as the table allows them: elements that someone else put there stay, with one log line, and what they took
/// away is gone already. `present` are the places that there are now.
///
/// # Errors
/// No rights.
pub fn possible(steps: Vec<Step>, present: &BTreeSet<Place>) -> Result<Vec<Step>> {
    // By which rule each key is taken; by none of ours where it is `None`.
    let mut taken: HashMap<(Place, Key), Option<u32>> = HashMap::new();
    look_up(steps.iter().filter_map(Step::element), present, |element, read| {
        taken.extend(read.map(|read| (element.full_key(), id_of(read.comment))));
        Ok(())
    })?;
    let mut foreign = 0;
    let possible = |step: Step| {
        let Some(element) = step.element() else {
            return Some(step);
        };
        match (taken.get(&element.full_key()), step) {
            (Some(None), _) => {
                foreign += 1;
                None
            }
            (None, Step::Remove(_)) => None,
            (Some(Some(_)), Step::Put(element)) => Some(Step::Replace(element)),
            (None, Step::Replace(element)) => Some(Step::Put(element)),
            (_, step) => Some(step),
        }
    };
    let possible = steps.into_iter().filter_map(possible).collect();
    if foreign > 0 {
        log_at(
            Priority::Notice,
            STAGE,
            format!("{foreign} elements of {FAMILY} {TABLE} are not tarn's: left alone"),
        );
    }
    Ok(possible)
}
