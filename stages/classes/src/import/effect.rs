//! What an import does to clients that have a class already, found out before anything changes.

use std::collections::HashMap;
use std::time::Duration;

use super::{Customer, Plan};
use crate::clients::find;
use crate::module::{Entry, Origin};
use crate::network::Network;
use tarn_base::network::Prefix;

/// What becomes of the clients.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Of each class that customers get, by its number.
    pub classes: HashMap<usize, Counts>,
    /// Clients that get another class than they have, or keep it for ever.
    pub changes: Vec<Changed>,
    /// Prefixes that have no class of their own yet.
    pub added: usize,
    /// Who has no line, and loses a class that was added for good. Not told where a line is wrong: it may be theirs.
    pub removed: Vec<Removed>,
}

/// A client that loses its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// The client.
    pub network: Network,
    /// The class that it has, by its number.
    pub from: usize,
}

/// How many customers get a class.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Without a class of their own before.
    pub new: usize,
    /// Of this class already.
    pub same: usize,
    /// Of another one, or of this one for a while.
    pub changed: usize,
}

/// A client that is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// The line's number.
    pub line: usize,
    /// The client, or that part of the line's addresses which has a class.
    pub network: Network,
    /// The class that it has, by its number.
    pub from: usize,
    /// The time left until it would lose that.
    pub left: Option<Duration>,
    /// The class that it gets.
    pub to: usize,
}

impl Counts {
    /// All customers of the class.
    pub fn all(&self) -> usize {
        self.new + self.same + self.changed
    }
}

impl Effect {
    /// That of a file, where `now` is what clients have, by prefix.
    pub fn of(plan: &Plan, now: &[Entry]) -> Self {
        let mut effect = Self::default();
        for customer in &plan.customers {
            effect.add(customer, now);
        }
        effect
    }

    /// That of a file that replaces what was added before. What the configuration names stays, and so does who has logged in for a while.
    pub fn replacing(plan: &Plan, now: &[Entry]) -> Self {
        let customers = plan.customers.iter();
        let mut named: Vec<Prefix> = customers.flat_map(|customer| customer.network.prefixes()).collect();
        named.sort_unstable();
        let is_left_out = |entry: &&Entry| {
            entry.origin == Origin::Command && entry.timeout.is_none() && named.binary_search(&entry.prefix).is_err()
        };
        let judged = if plan.wrong.is_empty() { now } else { &[] };
        let removed = judged.iter().filter(is_left_out).filter_map(|entry| {
            Some(Removed {
                network: entry.prefix.into(),
                from: entry.class?.into(),
            })
        });
        Self {
            removed: removed.collect(),
            ..Self::of(plan, now)
        }
    }

    fn add(&mut self, customer: &Customer, now: &[Entry]) {
        let (changes_before, added_before) = (self.changes.len(), self.added);
        for prefix in customer.network.prefixes() {
            match find(now, prefix) {
                Some(entry) => self.changes.extend(customer.changes(entry)),
                None => self.added += 1,
            }
        }
        let counts = self.classes.entry(customer.class).or_default();
        match (self.changes.len() > changes_before, self.added > added_before) {
            (true, _) => counts.changed += 1,
            (false, false) => counts.same += 1,
            (false, true) => counts.new += 1,
        }
    }
}

impl Customer {
    /// What the import changes of an entry that is one of the customer's; `None` where that stays.
    fn changes(&self, entry: &Entry) -> Option<Changed> {
        let from = usize::from(entry.class?);
        let is_changed = from != self.class || entry.timeout.is_some();
        is_changed.then_some(Changed {
            line: self.line,
            network: entry.prefix.into(),
            from,
            left: entry.timeout,
            to: self.class,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(prefix: &str, class: u16, timeout: Option<Duration>) -> Entry {
        Entry {
            prefix: prefix.parse().unwrap(),
            class: Some(class),
            origin: Origin::Command,
            timeout,
        }
    }

    /// An operator would find out that gold became silver when gold complains.
    #[test]
    fn a_line_that_meets_a_client_who_has_a_class_is_said_to_change_it_or_not() {
        let hour = Duration::from_secs(3600);
        let now = [
            // Around the others, and no customer's own.
            entry("10.0.0.0/8", 1, None),
            entry("10.0.0.1/32", 0, None),
            entry("10.0.0.2/32", 1, None),
            entry("10.0.0.3/32", 1, Some(hour)),
            entry("10.0.0.4/31", 1, None),
        ];
        let customer = |line, network: &str, class| Customer {
            line,
            network: network.parse().unwrap(),
            class,
        };
        let customers = vec![
            customer(2, "10.0.0.1", 0),
            customer(3, "10.0.0.2", 0),
            customer(4, "10.0.0.3", 1),
            customer(5, "10.0.0.4-10.0.0.6", 1),
            customer(6, "10.0.0.4-10.0.0.5", 1),
            customer(7, "10.0.0.7", 0),
        ];
        let wrong = Vec::new();
        let effect = Effect::of(&Plan { customers, wrong }, &now);
        let changed = |line, network: &str, from, left, to| Changed {
            line,
            network: network.parse().unwrap(),
            from,
            left,
            to,
        };
        assert_eq!(
            effect.changes,
            [
                changed(3, "10.0.0.2", 1, None, 0),
                changed(4, "10.0.0.3", 1, Some(hour), 1)
            ]
        );
        let counts = |new, same, changed| Counts { new, same, changed };
        assert_eq!(
            effect.classes,
            HashMap::from([(0, counts(1, 1, 1)), (1, counts(1, 1, 1))])
        );
        assert_eq!(effect.added, 2, "10.0.0.6 and 10.0.0.7");
    }
}
