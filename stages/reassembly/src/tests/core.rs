//! The core: what it takes, discards and hands back, against a model that is exact to the byte.

mod fates;
mod held;
mod memory;
mod model;
mod orders;

use self::held::{Held, Verdict};
use self::model::{Fate, Model};

/// Offset and length in bytes, and whether more follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fragment {
    offset: u32,
    length: u32,
    more: bool,
}

/// A fragment that is not the last.
fn more(offset: u32, length: u32) -> Fragment {
    Fragment {
        offset,
        length,
        more: true,
    }
}

/// The last fragment.
fn last(offset: u32, length: u32) -> Fragment {
    Fragment {
        offset,
        length,
        more: false,
    }
}

/// A datagram of `total` bytes as a router cuts it, in order.
fn cut(total: u32, size: u32) -> Vec<Fragment> {
    (0..total.div_ceil(size))
        .map(|i| piece(i * size, size.min(total - i * size), total))
        .collect()
}

/// The part of a datagram of `total` bytes.
fn piece(offset: u32, length: u32, total: u32) -> Fragment {
    Fragment {
        offset,
        length,
        more: offset + length < total,
    }
}

/// Inserts the fragments of a whole datagram, the last of which completes it; they come back in order, and nothing is
/// left.
fn completes(fragments: &[Fragment]) {
    let mut held = Held::new(fragments.len());
    let (newest, others) = fragments.split_last().unwrap();
    for fragment in others {
        assert_eq!(held.insert(*fragment), Verdict::Held, "{fragment:?} of {fragments:?}");
    }
    assert_eq!(held.insert(*newest), Verdict::Whole, "{newest:?} of {fragments:?}");
    let mut expected: Vec<u32> = (0..fragments.len() as u32).collect();
    expected.sort_by_key(|number| fragments[*number as usize].offset);
    assert_eq!(held.first(), Some(expected[0]));
    is_handed_back(&mut held, &expected, others.len() as u32);
}

fn is_handed_back(held: &mut Held, expected: &[u32], newest: u32) {
    let at = expected.iter().position(|number| *number == newest).unwrap();
    let (chain, before) = held.link();
    assert_eq!(chain, expected);
    assert_eq!(before, at.checked_sub(1).map(|before| expected[before]));
    assert!(held.is_empty());
}

/// Inserts until the datagram is whole or discarded, beside the model. Returns how it ended; `Held` where it did not.
fn run(fragments: &[Fragment]) -> Fate {
    let (mut held, mut model) = (Held::new(fragments.len()), Model::new());
    for (number, fragment) in (0..).zip(fragments) {
        let fate = Fate::from(held.insert(*fragment));
        assert_eq!(
            fate,
            model.insert(number, *fragment),
            "{fragment:?}, the {number}th of {fragments:?}"
        );
        match fate {
            Fate::Held | Fate::Duplicate => assert_eq!(held.first(), model.first()),
            // One fragment alone is none: see core_link().
            Fate::Whole if model.held().len() == 1 => {
                is_given_up(&mut held, &model);
                return fate;
            }
            Fate::Whole => {
                is_handed_back(&mut held, &model.in_order(), number);
                return fate;
            }
            Fate::Discarded => {
                is_given_up(&mut held, &model);
                return fate;
            }
        }
    }
    is_given_up(&mut held, &model);
    Fate::Held
}

/// All packets come back, each once, and the core is as new.
fn is_given_up(held: &mut Held, model: &Model) {
    assert_eq!(held.take(), model.held());
    assert!(held.is_empty());
    assert_eq!(held.first(), None);
}
