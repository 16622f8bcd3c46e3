//! Simulated attacks with a full memory: whose datagrams are completed. The clock's unit is 1 µs.

use std::collections::BTreeMap;

use super::held::FIRST;
use super::{Address, Entry, Memory};
use crate::tests::hash::Numbers;
use crate::tests::random::Random;

const CEILING: u64 = 4 << 20;
/// What a fragment of 1,480 bytes holds, and a datagram beside its fragments.
const TRUESIZE: i32 = 2304;
const DATAGRAM: i32 = 512;
/// Fragments of a datagram.
const NUMBER: u32 = 8;
/// `born` is in jiffies of 4 ms.
const JIFFY: u64 = 4000;
const SECOND: u64 = 1_000_000;

/// A datagram: its source and its number there.
type Key = ([u8; 4], u32);

/// What the module's table does, with memory.c's decisions.
struct Table {
    memory: Memory,
    numbers: Numbers,
    datagrams: BTreeMap<Key, (Entry, u32)>,
    keys: BTreeMap<Entry, Key>,
}

impl Table {
    fn new() -> Table {
        Table {
            memory: Memory::new(CEILING, CEILING / 8),
            numbers: Numbers::new(&mut Random(17)),
            datagrams: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    /// A fragment arrives; returns whether it completes its datagram.
    fn arrive(&mut self, at: u64, key: Key) -> bool {
        let now = (at / SECOND) as u32 + 1000;
        if !self.datagrams.contains_key(&key) {
            let (hash, _) = self.numbers.ipv4(key.0, 0);
            let source = Address {
                address: u32::from_le_bytes(key.0).into(),
                family: FIRST,
            };
            let entry = self.memory.begin(source, hash, at / JIFFY, now);
            self.memory.charge(entry, DATAGRAM);
            self.datagrams.insert(key, (entry, 0));
            self.keys.insert(entry, key);
        }
        let (entry, number) = self.datagrams.get_mut(&key).unwrap();
        let entry = *entry;
        *number += 1;
        if *number == NUMBER {
            self.memory.completed(entry, now);
            self.end(entry);
            return true;
        }
        self.memory.charge(entry, TRUESIZE);
        self.shed();
        false
    }

    fn end(&mut self, entry: Entry) {
        self.memory.end(entry);
        self.datagrams.remove(&self.keys.remove(&entry).unwrap());
    }

    fn shed(&mut self) {
        while self.memory.is_full() {
            let choice = self.memory.choose().unwrap();
            self.end(self.memory.victim(choice).unwrap());
        }
    }

    /// A source completes a datagram before anything else happens.
    fn make_known(&mut self, source: [u8; 4]) {
        assert_eq!((0..NUMBER).filter(|_| self.arrive(0, (source, u32::MAX))).count(), 1);
    }
}

/// Whose datagrams are counted.
#[derive(Clone, Copy)]
enum Legitimate {
    /// One source's, which has completed one before, or not.
    One { is_known: bool },
    /// A new source for each.
    Newcomers,
}

struct Attack {
    sources: u32,
    /// The attackers complete a datagram each now and then.
    are_known: bool,
    /// Between a datagram's first fragment and its last.
    spread: u64,
    legitimate: Legitimate,
}

/// 8,000 fragments a second, none of which is completed, for 11 s; from the first second on, 100 datagrams a second of
/// 8 fragments. Returns how many of these 1,000 are completed.
fn completed(attack: &Attack) -> usize {
    let mut table = Table::new();
    let hostile = |number: u32| {
        let [_, b, c, d] = number.to_be_bytes();
        [100, b, c, d]
    };
    if let Legitimate::One { is_known: true } = attack.legitimate {
        table.make_known([10, 0, 0, 0]);
    }
    if attack.are_known {
        (0..attack.sources).for_each(|number| table.make_known(hostile(number)));
    }
    let mut arrivals = Vec::new();
    for number in 0..88_000_u32 {
        arrivals.push((u64::from(number) * 125, (hostile(number % attack.sources), number)));
    }
    for number in 0..1000_u32 {
        let begins = SECOND + u64::from(number) * 10_000;
        let [_, _, c, d] = number.to_be_bytes();
        let source = if let Legitimate::Newcomers = attack.legitimate {
            [10, 1, c, d]
        } else {
            [10, 0, 0, 0]
        };
        for i in 0..NUMBER {
            arrivals.push((
                begins + attack.spread * u64::from(i) / u64::from(NUMBER - 1),
                (source, number),
            ));
        }
    }
    arrivals.sort_unstable();
    let mut completed = 0;
    for (at, key) in arrivals {
        completed += usize::from(table.arrive(at, key));
    }
    completed
}

/// At least 99.9 %.
fn nearly_all_complete(attack: &Attack) {
    let completed = completed(attack);
    assert!(completed >= 999, "{completed} of 1000");
}

#[test]
fn memory_one_attacker_delays_nobody() {
    for spread in [1000, 10_000, 100_000, 400_000] {
        for is_known in [false, true] {
            nearly_all_complete(&Attack {
                sources: 1,
                are_known: false,
                spread,
                legitimate: Legitimate::One { is_known },
            });
        }
    }
}

#[test]
fn memory_ten_thousand_attackers_leave_quick_datagrams_alone() {
    for is_known in [false, true] {
        nearly_all_complete(&Attack {
            sources: 10_000,
            are_known: false,
            spread: 10_000,
            legitimate: Legitimate::One { is_known },
        });
    }
    nearly_all_complete(&Attack {
        sources: 10_000,
        are_known: false,
        spread: 10_000,
        legitimate: Legitimate::Newcomers,
    });
}

/// 400 ms: twice the time in which the attackers fill the memory.
#[test]
fn memory_ten_thousand_attackers_leave_a_known_source_alone() {
    nearly_all_complete(&Attack {
        sources: 10_000,
        are_known: false,
        spread: 400_000,
        legitimate: Legitimate::One { is_known: true },
    });
}

/// Sixteen that have completed a datagram hold all of the memory, each less than its share: a quarter is for newcomers.
#[test]
fn memory_known_attackers_leave_newcomers_a_quarter() {
    for spread in [10_000, 100_000] {
        nearly_all_complete(&Attack {
            sources: 16,
            are_known: true,
            spread,
            legitimate: Legitimate::Newcomers,
        });
    }
}
