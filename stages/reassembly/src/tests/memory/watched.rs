//! Failures by source: what Space-Saving promises (Metwally, Agrawal and El Abbadi, ICDT 2005, section 3).

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::held::{FIRST, SECOND};
use super::{Address, Memory};

const PLACES: u64 = 4;

fn source(number: u64) -> Address {
    Address {
        address: number / 2,
        family: if number % 2 == 0 { FIRST } else { SECOND },
    }
}

/// Lets the sources fail one after the other; returns how often each did, and the memory.
fn run(failures: &[u64]) -> (BTreeMap<Address, u64>, Memory) {
    let mut memory = Memory::new(1 << 20, 1 << 17);
    let mut counts = BTreeMap::new();
    for number in failures {
        memory.failed(3, source(*number));
        *counts.entry(source(*number)).or_insert(0) += 1;
    }
    (counts, memory)
}

proptest! {
    #[test]
    fn memory_failures_are_counted_as_space_saving_promises(
        failures in proptest::collection::vec(prop_oneof![3 => 0..3_u64, 2 => 0..6_u64, 1 => 0..40_u64], 0..300),
    ) {
        let (counts, memory) = run(&failures);
        let watched: BTreeMap<Address, u64> = memory.watched(3).into_iter().collect();
        prop_assert_eq!(watched.values().sum::<u64>(), failures.len() as u64, "nothing is lost");
        prop_assert_eq!(watched.len() as u64, PLACES.min(counts.len() as u64), "each source once");
        let least = if counts.len() as u64 > PLACES { *watched.values().min().unwrap() } else { 0 };
        for (source, count) in &counts {
            match watched.get(source) {
                Some(counted) => prop_assert!(count <= counted && *counted <= count + least),
                None => prop_assert!(*count <= least),
            }
            // Who fails more often than the places' part is there.
            prop_assert!(*count <= failures.len() as u64 / PLACES || watched.contains_key(source));
        }
    }
}

/// The shards count by themselves.
#[test]
fn memory_failures_of_one_shard_are_not_anothers() {
    let (_, mut memory) = run(&[1, 1, 1]);
    memory.failed(4, source(1));
    assert_eq!(memory.watched(3), [(source(1), 3)]);
    assert_eq!(memory.watched(4), [(source(1), 1)]);
    assert_eq!(memory.watched(5), []);
}
