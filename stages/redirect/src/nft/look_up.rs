//! Elements asked for by their keys.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;

use super::element::{Element, Place};
use super::layout::{FAMILY, TABLE};
use tarn_kernel::nft::read;

/// Elements of one place that are looked up together.
const TOGETHER: usize = 4096;

/// Looks up under the key of each of `elements` what the kernel holds in `present`, the places that there are, and
/// hands both on, in no particular order.
///
/// # Errors
/// No rights; what `each` returns.
pub fn look_up(
    elements: impl Iterator<Item = Element>,
    present: &BTreeSet<Place>,
    mut each: impl FnMut(Element, Option<read::Element<'_>>) -> Result<()>,
) -> Result<()> {
    let mut waiting: HashMap<Place, Vec<Element>> = HashMap::new();
    for element in elements {
        if !present.contains(&element.place) {
            each(element, None)?;
            continue;
        }
        let of_place = waiting.entry(element.place).or_default();
        of_place.push(element);
        if of_place.len() == TOGETHER {
            find(element.place, &std::mem::take(of_place), &mut each)?;
        }
    }
    waiting
        .into_iter()
        .try_for_each(|(place, elements)| find(place, &elements, &mut each))
}

fn find(
    place: Place,
    elements: &[Element],
    each: &mut impl FnMut(Element, Option<read::Element<'_>>) -> Result<()>,
) -> Result<()> {
    let keys: Vec<Vec<u8>> = elements.iter().map(|element| place.encode(&element.key)).collect();
    read::find(FAMILY, TABLE, &place.to_string(), &keys, |index, found| {
        each(elements[index], found)
    })
}
