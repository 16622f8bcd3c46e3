//! Sources that are remembered after they have completed a datagram and hold nothing any more.

use super::held::FIRST;
use super::{Address, Memory};

fn address(number: u64) -> Address {
    Address {
        address: number,
        family: FIRST,
    }
}

/// A datagram of a source comes and is completed at once.
fn complete(memory: &mut Memory, number: u64, hash: u32, now: u32) {
    let entry = memory.begin(address(number), hash, u64::from(now) * 1000, now);
    memory.completed(entry, now);
    assert!(memory.end(entry));
}

fn is_known(memory: &mut Memory, number: u64, hash: u32, now: u32) -> bool {
    let entry = memory.begin(address(number), hash, u64::from(now) * 1000, now);
    let is_stranger = memory.is_stranger(entry);
    memory.end(entry);
    !is_stranger
}

#[test]
fn memory_a_source_is_known_for_a_minute_after_its_last_datagram() {
    for start in [0, 1, 1000, 86_400 * 365 * 10] {
        let mut memory = Memory::new(1 << 20, 1 << 17);
        assert!(!is_known(&mut memory, 7, 7 << 20, start));
        complete(&mut memory, 7, 7 << 20, start);
        assert!(is_known(&mut memory, 7, 7 << 20, start));
        assert!(is_known(&mut memory, 7, 7 << 20, start + 59));
        assert!(!is_known(&mut memory, 7, 7 << 20, start + 60));
        assert!(!is_known(&mut memory, 7, 7 << 20, start + 3600));
        complete(&mut memory, 7, 7 << 20, start + 3600);
        complete(&mut memory, 7, 7 << 20, start + 3630);
        assert!(is_known(&mut memory, 7, 7 << 20, start + 3689));
        assert!(!is_known(&mut memory, 7, 7 << 20, start + 3690));
    }
}

/// Its datagrams that are held since before stay a stranger's: what they hold was counted so.
#[test]
fn memory_a_datagram_that_began_as_a_strangers_stays_one() {
    let mut memory = Memory::new(1 << 20, 1 << 17);
    let (one, other) = (memory.begin(address(1), 1, 0, 0), memory.begin(address(1), 1, 0, 0));
    memory.charge(one, 100);
    memory.charge(other, 10);
    memory.completed(one, 0);
    memory.end(one);
    let third = memory.begin(address(1), 1, 0, 0);
    assert!(memory.is_stranger(other) && !memory.is_stranger(third));
    assert_eq!(memory.sums().strangers, 10);
}

/// The memory for remembering does not grow: a set has four places, and the one that was known longest ago makes room.
#[test]
fn memory_of_sources_that_share_a_set_four_are_remembered() {
    let mut memory = Memory::new(1 << 20, 1 << 17);
    // Bits 6 to 11 choose the set, 26 to 31 the shard.
    let hash = |number: u64| (5 << 26) | (number as u32) << 12 | 9 << 6;
    for number in 0..10 {
        complete(&mut memory, number, hash(number), 100 + number as u32);
    }
    let known: Vec<u64> = (0..10)
        .filter(|number| is_known(&mut memory, *number, hash(*number), 110))
        .collect();
    assert_eq!(known, [6, 7, 8, 9]);
    // Being known again takes no second place.
    for now in 111..120 {
        complete(&mut memory, 8, hash(8), now);
    }
    let known: Vec<u64> = (0..10)
        .filter(|number| is_known(&mut memory, *number, hash(*number), 120))
        .collect();
    assert_eq!(known, [6, 7, 8, 9]);
    complete(&mut memory, 10, hash(10), 121);
    assert!(!is_known(&mut memory, 6, hash(6), 121));
}

/// Each of a shard's 64 sets, in each of the 64 shards, has its four places.
#[test]
fn memory_sixteen_thousand_sources_are_remembered() {
    let mut memory = Memory::new(1 << 20, 1 << 17);
    let hash = |number: u64| ((number % 64) << 26 | (number / 4096) << 12 | (number / 64 % 64) << 6) as u32;
    for number in 0..16_384 {
        complete(&mut memory, number, hash(number) | 1 << 20, 100);
    }
    assert!((0..16_384).all(|number| is_known(&mut memory, number, hash(number) | 1 << 20, 159)));
}
