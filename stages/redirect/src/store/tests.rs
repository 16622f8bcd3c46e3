use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::overlap::conflicts;
use crate::rule::samples::{any_rule, crowded_rule, udp};

fn configured(rules: &[Rule]) -> Vec<Rule> {
    rules
        .iter()
        .map(|rule| Rule {
            origin: Origin::Config,
            ..rule.clone()
        })
        .collect()
}

/// The store of a file that was written anew.
fn replaced(directory: &tempfile::TempDir, rules: &[Rule], limit: u32) -> Store {
    Store::replace(directory.path(), rules, limit).unwrap();
    Store::open(directory.path()).unwrap()
}

fn ids(rules: &[Rule]) -> Vec<u32> {
    rules.iter().map(|rule| rule.id).collect()
}

fn distinct(count: u16) -> Vec<Rule> {
    (1..=count)
        .map(|port| udp(&format!("192.0.2.1:{port}"), "10.0.1.2", None))
        .collect()
}

#[test]
fn a_rule_keeps_its_id_and_a_free_one_is_given_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    assert_eq!(ids(&store.add(distinct(4), false).unwrap().0), [0, 1, 2, 3]);
    assert_eq!(ids(&store.remove(&[1, 2]).unwrap()), [1, 2]);
    let mut store = Store::open(directory.path()).unwrap();
    assert_eq!(
        (store.count, store.get(1), store.get(3).map(|rule| rule.ports.first)),
        (2, None, Some(4))
    );
    let rule = udp("192.0.2.9:53", "10.0.1.2", None);
    assert_eq!(ids(&store.add(vec![rule], false).unwrap().0), [1]);
    assert_eq!(
        ids(&Store::open(directory.path())
            .unwrap()
            .rules()
            .cloned()
            .collect::<Vec<_>>()),
        [0, 1, 3]
    );
}

#[test]
fn rules_that_cannot_stand_together_are_refused_whole() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    store.add(distinct(2), false).unwrap();
    let new = vec![
        udp("192.0.2.7:1", "10.0.1.2", None),
        udp("192.0.2.8:9", "192.0.2.1:2", None),
    ];
    let error = store.add(new, false).unwrap_err();
    assert_eq!(
        error.downcast_ref::<Usage>().map(|usage| usage.0.as_str()),
        Some(
            "udp 192.0.2.8:9 to 192.0.2.1:2 (new): the target 192.0.2.1:2 is the match of udp 192.0.2.1:2 to 10.0.1.2:2 \
             (rule 1, added by command); a packet is redirected once: name the last target, 10.0.1.2:2"
        )
    );
    assert_eq!(Store::open(directory.path()).unwrap().count, 2);
    assert!(store.remove(&[0, 7]).is_err());
    assert_eq!(store.count, 2);
}

#[test]
fn no_more_rules_than_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = replaced(&directory, &[], 3);
    assert!(
        store
            .add(distinct(4), false)
            .unwrap_err()
            .to_string()
            .contains("4 rules are more than max_rules = 3")
    );
    store.add(distinct(3), false).unwrap();
    assert!(store.reconciled(distinct(4), 3).is_err());
}

/// A new configuration takes its own rules with it and leaves those that were added by hand.
#[test]
fn a_configuration_replaces_what_was_configured_before() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let first = store.reconciled(configured(&distinct(3)), 8).unwrap();
    let mut store = replaced(&directory, &first.rules, 8);
    let (by_hand, _) = store.add(vec![udp("192.0.2.9:53", "10.0.1.2", None)], false).unwrap();
    let mut next = distinct(5);
    next.remove(1);
    let second = store.reconciled(configured(&next), 8).unwrap();
    assert_eq!((ids(&second.added), ids(&second.removed)), (vec![4, 5], vec![1]));
    assert_eq!(ids(&second.rules), [0, 2, 3, 4, 5]);
    assert_eq!(second.rules[2], by_hand[0]);
    let store = replaced(&directory, &second.rules, 8);
    let third = store.reconciled(configured(&next), 8).unwrap();
    assert_eq!((third.added, third.removed), (vec![], vec![]));
    // What was added by hand and is now configured changes its owner, not its id.
    next.push(udp("192.0.2.9:53", "10.0.1.2", None));
    let fourth = store.reconciled(configured(&next), 8).unwrap();
    assert_eq!(
        (&fourth.added, &fourth.removed, fourth.rules[2].origin),
        (&vec![], &vec![], Origin::Config)
    );
    // What contradicts it is refused, with both named.
    let other = configured(&[udp("192.0.2.9:50-60", "10.0.1.3", None)]);
    let error = store.reconciled(other, 8).unwrap_err().to_string();
    assert!(
        error.contains("(of the configuration)")
            && error.contains("(rule 3, added by command)")
            && error.ends_with("; change the configuration, or `tarn redirect del 3`"),
        "{error}"
    );
    // A lower limit moves rules to slots below it.
    let fifth = store.reconciled(configured(&next[..2]), 3).unwrap();
    assert_eq!(ids(&fifth.rules), [0, 1, 2]);
    assert!(fifth.rules.iter().any(|rule| rule.origin == Origin::Command));
}

fn elsewhere(rules: &[Rule]) -> Vec<Rule> {
    let led = |rule: &Rule| Rule {
        to: "10.0.1.9".parse().unwrap(),
        ..rule.clone()
    };
    rules.iter().map(led).collect()
}

/// With as many rules as there may be, each led elsewhere keeps its number; and nobody gets a number twice.
#[test]
fn rules_are_led_elsewhere_where_there_is_no_room_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let three = configured(&distinct(3));
    let store = replaced(&directory, &store.reconciled(three.clone(), 3).unwrap().rules, 3);
    let led = store.reconciled(elsewhere(&three), 3).unwrap();
    assert_eq!(
        (ids(&led.rules), ids(&led.added), ids(&led.removed)),
        (vec![0, 1, 2], vec![0, 1, 2], vec![0, 1, 2])
    );
    let ports: Vec<u16> = led.rules.iter().map(|rule| rule.ports.first).collect();
    assert_eq!(ports, [1, 2, 3], "each in its own place");
    // One goes, one is led elsewhere, one is new: the new one gets what is left.
    let mut mixed = elsewhere(&three[1..2]);
    mixed.insert(
        0,
        Rule {
            origin: Origin::Config,
            ..udp("192.0.2.9:53", "10.0.1.2", None)
        },
    );
    mixed.push(three[2].clone());
    let mixed = store.reconciled(mixed, 3).unwrap();
    let places: Vec<(u32, u16)> = mixed.rules.iter().map(|rule| (rule.id, rule.ports.first)).collect();
    assert_eq!(places, [(0, 53), (1, 2), (2, 3)]);
}

/// `add --replace` leads a rule elsewhere in its place; what cannot be is refused whole, and what failed is taken back.
#[test]
fn a_rule_takes_the_place_of_one_for_the_same_packets() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let (first, _) = store.add(distinct(3), false).unwrap();
    let mut new = elsewhere(&first[1..2]);
    new.extend([first[0].clone(), udp("192.0.2.9:53", "10.0.1.2", None)]);
    let (added, replaced) = store.add(new.clone(), true).unwrap();
    assert_eq!((ids(&added), ids(&replaced)), (vec![1, 3], vec![1]));
    assert_eq!(store.add(new, true).unwrap(), (vec![], vec![]), "all are there");
    let again = Store::open(directory.path()).unwrap();
    assert_eq!(again.slots, store.slots);
    assert_eq!(again.get(1).map(Rule::target_text).as_deref(), Some("10.0.1.9:2"));
    let overlapping = vec![udp("192.0.2.1:3-9", "10.0.1.2", None)];
    let refused = store.add(overlapping, true).unwrap_err().to_string();
    assert!(refused.contains("(rule 2, added by command) too"), "{refused}");
    store.take_back(&added, &replaced).unwrap();
    let again = Store::open(directory.path()).unwrap();
    assert_eq!((again.rules().cloned().collect::<Vec<_>>(), again.count), (first, 3));
    // Without the word, the same is a mistake, and the way out is told.
    let refused = store.add(elsewhere(&distinct(1)), false).unwrap_err().to_string();
    assert!(
        refused.ends_with("`tarn redirect add --replace` leads that rule elsewhere"),
        "{refused}"
    );
}

/// A crash in the middle of a write costs what was being written, and nothing else.
#[test]
fn a_file_torn_anywhere_in_its_last_line_is_read_and_written_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    store.add(distinct(3), false).unwrap();
    let path = directory.path().join(FILE);
    let whole = std::fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap()
        + 1;
    for length in last..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        assert_eq!(store.count, 2, "{length} of {} bytes", whole.len());
        store.add(vec![udp("192.0.2.9:53", "10.0.1.2", None)], false).unwrap();
        let again = Store::open(directory.path()).unwrap();
        assert_eq!(
            again.rules().map(|rule| rule.ports.first).collect::<Vec<_>>(),
            [1, 2, 53]
        );
    }
    let mut damaged = whole.clone();
    damaged[last - 3] = b'#';
    std::fs::write(&path, &damaged).unwrap();
    let error = Store::open(directory.path()).unwrap_err().to_string();
    assert!(
        error.starts_with("line 3 of ") && error.contains("is damaged"),
        "{error}"
    );
}

#[test]
fn a_million_rules_are_read_in_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let template = udp("192.0.2.1:8080", "10.0.1.2:8083", None);
    let address = |id: u32| super::super::rule::Address::Ip(std::net::Ipv4Addr::from_bits(0xac10_0000 + id).into());
    let rules: Vec<Rule> = (0..1_000_000)
        .map(|id| Rule {
            id,
            address: address(id),
            ..template.clone()
        })
        .collect();
    Store::replace(directory.path(), &rules, 1_000_000).unwrap();
    let start = Instant::now();
    let mut store = Store::open(directory.path()).unwrap();
    println!("1,000,000 rules read in {:?}", start.elapsed());
    assert!(start.elapsed().as_secs() < 30);
    let start = Instant::now();
    let reconciled = store.reconciled(configured(&rules), 1_000_001).unwrap();
    println!("and reconciled in {:?}", start.elapsed());
    assert_eq!((reconciled.added.len(), reconciled.removed.len()), (0, 0));
    let start = Instant::now();
    store.limit = 1_000_001;
    store.add(vec![udp("192.0.2.9:53", "10.0.1.2", None)], false).unwrap();
    println!("one more added in {:?}", start.elapsed());
}

proptest! {
    /// Whatever is added and removed, the file says the same as the store that wrote it.
    #[test]
    fn the_file_and_the_store_agree(rules in prop::collection::vec(any_rule(), 0..20), removed in any::<u32>()) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        for rule in rules {
            let _ = store.add(vec![rule], false);
        }
        let gone: Vec<u32> = ids(&store.rules().cloned().collect::<Vec<_>>())
            .into_iter().filter(|id| removed >> id & 1 != 0).collect();
        store.remove(&gone).unwrap();
        let again = Store::open(directory.path()).unwrap();
        prop_assert_eq!(&again.slots[..], &store.slots[..]);
        prop_assert_eq!((again.count, again.limit, again.whole), (store.count, store.limit, store.whole));
    }

    /// Adding rules one by one keeps out what the check of all at once keeps out.
    #[test]
    fn one_by_one_is_as_strict_as_all_at_once(rules in prop::collection::vec(crowded_rule(), 0..8)) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        let refused = rules.iter().any(|rule| store.add(vec![rule.clone()], false).is_err());
        prop_assert_eq!(refused, !conflicts(&rules).is_empty());
    }
}
