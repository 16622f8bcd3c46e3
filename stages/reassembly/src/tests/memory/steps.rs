//! Any steps, beside a plain list of what is held. Every sum and hint must be the list's after each step.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;

use super::held::{FIRST, SECOND};
use super::{Address, Entry, Memory, NONE, Reason, SHARDS};

/// `MEMORY_REMEMBERED`, seconds
const REMEMBERED: u64 = 60;
const CEILING: u64 = 64 << 10;
const SHARE: u64 = CEILING / 8;

/// Twelve sources: some in one shard, in one bucket of it, with one address in both families. No two use one set of
/// remembered sources.
fn source(index: usize) -> (Address, u32) {
    let index = index as u32 % 12;
    let (shard, bucket) = (index % 4 * 21, index / 4 % 2);
    let family = if index % 3 == 0 { SECOND } else { FIRST };
    let number = if index % 4 == 2 { index } else { index % 8 };
    let address = Address {
        address: u64::from(number),
        family,
    };
    (address, (shard << 26) | (index << 6) | bucket)
}

#[derive(Debug, Clone)]
enum Step {
    Begin(usize),
    Charge(Index, i32),
    Complete(Index),
    End(Index),
    /// Milliseconds pass.
    Wait(u64),
    /// Gives datagrams up until the memory is below its ceiling.
    Shed,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12_usize).prop_map(Step::Begin),
        8 => (any::<Index>(), 1..4000_i32).prop_map(|(entry, bytes)| Step::Charge(entry, bytes)),
        2 => any::<Index>().prop_map(Step::Complete),
        1 => any::<Index>().prop_map(Step::End),
        2 => prop_oneof![8 => 0..50_u64, 1 => 1000..70_000_u64].prop_map(Step::Wait),
        3 => Just(Step::Shed),
    ]
}

/// What is held, as a list.
#[derive(Debug, Clone)]
struct Held {
    source: usize,
    born: u64,
    bytes: u64,
    is_stranger: bool,
}

struct Run {
    memory: Memory,
    list: BTreeMap<Entry, Held>,
    /// When each source completed one, in seconds.
    completed: BTreeMap<usize, u64>,
    most: u64,
    /// Milliseconds
    now: u64,
}

impl Run {
    fn seconds(&self) -> u64 {
        self.now / 1000
    }

    fn pick(&self, index: &Index) -> Option<Entry> {
        (!self.list.is_empty()).then(|| *self.list.keys().nth(index.index(self.list.len())).unwrap())
    }

    fn begin(&mut self, index: usize) -> Entry {
        let (address, hash) = source(index);
        let entry = self.memory.begin(address, hash, self.now, self.seconds() as u32);
        let known = self
            .completed
            .get(&index)
            .is_some_and(|at| self.seconds() < at + REMEMBERED);
        assert_eq!(self.memory.is_stranger(entry), !known);
        self.list.insert(
            entry,
            Held {
                source: index,
                born: self.now,
                bytes: 0,
                is_stranger: !known,
            },
        );
        entry
    }

    fn charge(&mut self, entry: Entry, bytes: i32) {
        self.memory.charge(entry, bytes);
        let held = self.list.get_mut(&entry).unwrap();
        held.bytes = held.bytes.checked_add_signed(i64::from(bytes)).unwrap();
        self.most = self.most.max(self.held());
    }

    fn end(&mut self, entry: Entry) {
        let held = self.list.remove(&entry).unwrap();
        let others = self.list.values().any(|other| other.source == held.source);
        assert_eq!(self.memory.end(entry), !others, "the source goes with its last entry");
    }

    fn complete(&mut self, entry: Entry) {
        self.memory.completed(entry, self.seconds() as u32);
        self.completed.insert(self.list[&entry].source, self.seconds());
        self.end(entry);
    }

    fn held(&self) -> u64 {
        self.list.values().map(|held| held.bytes).sum()
    }

    fn strangers(&self) -> u64 {
        self.list
            .values()
            .filter(|held| held.is_stranger)
            .map(|held| held.bytes)
            .sum()
    }

    fn of_source(&self, index: usize) -> u64 {
        self.list
            .values()
            .filter(|held| held.source == index)
            .map(|held| held.bytes)
            .sum()
    }

    fn oldest(&self, which: impl Fn(&Held) -> bool) -> u64 {
        self.list
            .values()
            .filter(|held| which(held))
            .map(|held| held.born)
            .min()
            .unwrap_or(NONE)
    }

    /// The most that a source over its share holds, or 0.
    fn largest(&self, which: impl Fn(usize) -> bool) -> u64 {
        let over = |index: &usize| which(*index) && self.of_source(*index) > SHARE;
        (0..12)
            .filter(over)
            .map(|index| self.of_source(index))
            .max()
            .unwrap_or(0)
    }

    /// The one that goes next, which must be the one of memory.h's rule.
    fn victim(&self) -> Option<Entry> {
        let choice = self.memory.choose()?;
        let victim = self.memory.victim(choice).expect("the hints are true");
        let held = &self.list[&victim];
        let largest = self.largest(|_| true);
        let expected = match largest {
            1.. => Reason::Share,
            0 if self.strangers() > CEILING / 4 => Reason::Stranger,
            0 => Reason::Age,
        };
        assert_eq!(choice.0, expected);
        match expected {
            Reason::Share => {
                assert_eq!(self.of_source(held.source), largest);
                let first = self.list.iter().find(|(_, other)| other.source == held.source);
                assert_eq!(first.map(|(entry, _)| *entry), Some(victim), "the source's oldest");
            }
            Reason::Stranger => {
                assert!(held.is_stranger);
                assert_eq!(held.born, self.oldest(|held| held.is_stranger));
            }
            Reason::Age => assert_eq!(held.born, self.oldest(|_| true)),
        }
        Some(victim)
    }

    fn shed(&mut self) {
        while self.memory.is_full() {
            assert!(self.held() > CEILING);
            let victim = self.victim().expect("something is held");
            self.end(victim);
            self.check();
        }
        assert!(self.held() <= CEILING);
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Begin(index) => {
                self.begin(*index);
            }
            Step::Charge(entry, bytes) => {
                if let Some(entry) = self.pick(entry) {
                    self.charge(entry, *bytes);
                    // The core gives some of its own back when it changes over.
                    self.charge(entry, -(*bytes / 8));
                }
            }
            Step::Complete(entry) => {
                if let Some(entry) = self.pick(entry) {
                    self.complete(entry);
                }
            }
            Step::End(entry) => {
                if let Some(entry) = self.pick(entry) {
                    self.end(entry);
                }
            }
            Step::Wait(time) => self.now += time,
            Step::Shed => self.shed(),
        }
    }

    fn check(&self) {
        let sums = self.memory.sums();
        assert_eq!(
            (sums.held, sums.strangers, sums.most),
            (self.held(), self.strangers(), self.most)
        );
        for (entry, held) in &self.list {
            assert_eq!(self.memory.bytes(*entry), held.bytes);
            assert_eq!(self.memory.source_bytes(*entry), self.of_source(held.source));
        }
        for shard in 0..SHARDS {
            self.check_shard(shard);
        }
        assert_eq!(self.victim().is_none(), self.list.is_empty());
    }

    fn check_shard(&self, shard: u32) {
        let is_here = |index: usize| source(index).1 >> 26 == shard;
        let of = self.memory.shard(shard);
        assert_eq!(
            of.oldest_known,
            self.oldest(|held| is_here(held.source) && !held.is_stranger)
        );
        assert_eq!(
            of.oldest_stranger,
            self.oldest(|held| is_here(held.source) && held.is_stranger)
        );
        assert_eq!(of.largest, self.largest(is_here));
        let here: Vec<usize> = self
            .list
            .values()
            .map(|held| held.source)
            .filter(|index| is_here(*index))
            .collect();
        assert_eq!(of.datagrams as usize, here.len());
        assert_eq!(of.sources as usize, here.iter().collect::<BTreeSet<_>>().len());
        for kind in 0..4 {
            let (is_stranger, is_second) = (kind / 2 == 1, kind % 2 == 1);
            let mut list = self.list.iter();
            let oldest = list.find(|(_, held)| {
                let family = source(held.source).0.family;
                is_here(held.source) && held.is_stranger == is_stranger && (family == SECOND) == is_second
            });
            assert_eq!(
                self.memory.oldest(shard, is_stranger, is_second),
                oldest.map(|(entry, _)| *entry)
            );
        }
    }
}

proptest! {
    #[test]
    fn memory_sums_hints_and_choices_are_those_of_the_list(
        known in proptest::collection::btree_set(0..12_usize, 0..12),
        steps in proptest::collection::vec(step(), 1..250),
    ) {
        let memory = Memory::new(CEILING, SHARE);
        let mut run = Run { memory, list: BTreeMap::new(), completed: BTreeMap::new(), most: 0, now: 5000 };
        for index in known {
            let entry = run.begin(index);
            run.complete(entry);
        }
        for step in &steps {
            run.take(step);
            run.check();
        }
        let rest: Vec<Entry> = run.list.keys().copied().collect();
        for entry in rest {
            run.end(entry);
        }
        run.check();
        prop_assert_eq!(run.memory.sums().held, 0);
        prop_assert_eq!(run.memory.choose(), None);
    }
}

/// Shares and quarters are borders: what is just as large is not over them.
#[test]
fn memory_borders_belong_to_what_is_below() {
    let mut memory = Memory::new(CEILING, SHARE);
    let (address, hash) = source(1);
    let one = memory.begin(address, hash, 10, 0);
    memory.charge(one, SHARE as i32);
    assert_eq!(memory.choose(), Some((Reason::Age, hash >> 26)));
    memory.charge(one, 1);
    assert_eq!(memory.choose(), Some((Reason::Share, hash >> 26)));
    memory.charge(one, -1);
    let (address, hash) = source(2);
    let other = memory.begin(address, hash, 11, 0);
    memory.charge(other, SHARE as i32);
    assert_eq!(memory.choose().unwrap().0, Reason::Age, "a quarter");
    let (address, hash) = source(3);
    let third = memory.begin(address, hash, 12, 0);
    memory.charge(third, 1);
    assert_eq!(memory.choose().unwrap().0, Reason::Stranger, "more than a quarter");
    assert!(!memory.is_full());
    let (address, hash) = source(4);
    for _ in 0..6 {
        let entry = memory.begin(address, hash, 13, 0);
        memory.charge(entry, SHARE as i32);
    }
    memory.charge(third, -1);
    assert_eq!(memory.sums().held, CEILING);
    assert!(!memory.is_full());
    memory.charge(third, 1);
    assert!(memory.is_full());
}
