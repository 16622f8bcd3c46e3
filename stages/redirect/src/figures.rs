//! The stage's figures, for `status`, `list` and the metrics.

use std::cmp::Reverse;

use anyhow::Result;

use super::carrier::Counters;
use super::choice::Choice;
use super::rule::Rule;
use super::store::Store;
use super::watch;
use tarn_base::described;
use tarn_base::figures::{Combine, FigureTable, Figures, Headline, Plot, Value};
use tarn_base::output::{Align, Table};
use tarn_base::runtime::monotonic_ns;
use tarn_frame::state::StateDirectory;

/// Beyond this many rules only the sums are shown: a page of metrics must stay one that can be fetched.
const RULES_SHOWN: usize = 1000;

described! {
    /// What holds for all rules.
    struct Redirection {
        carrier: Label "" "What carries the rules out: bpf or nftables",
        deliver: Label "" "How bpf delivers: tc or redirect",
        rules: Gauge "" "Rules in force; `tarn redirect list` shows each",
        packets: Counter "packets" "Clients' packets redirected",
        bytes: Counter "bytes" "Length of these packets, from the IP header on",
        dropped: Counter "packets" "Clients' packets dropped, for all reasons",
        trouble: Label "" "Why packets do not pass, as far as can be seen; empty when they do",
    }
}

described! {
    /// A rule and what it has carried.
    struct RuleNow {
        id: Label "" "The rule's number",
        protocol: Label "" "udp or tcp",
        from: Label "" "The address and ports that clients speak to",
        to: Label "" "Where their packets go",
        source: Label "" "The clients it is for; all when empty",
        packets: Counter "packets" "Clients' packets redirected by this rule",
        bytes: Counter "bytes" "Length of the packets redirected by this rule, from the IP header on",
        dropped: Counter "" "Clients' packets that this rule matched and that were dropped, for all reasons",
        idle: Gauge "s" "Time since this rule's last packet, where it is known",
    }
}

described! {
    /// What the programs met.
    struct Event {
        event: Label "" "What happened",
        count: Counter "" "How often the event happened, since the programs were loaded",
    }
}

/// What the kernel knows of what is up.
pub fn read(state: &StateDirectory) -> Result<Option<Figures>> {
    let Some(choice) = Choice::running(state)? else {
        return Ok(None);
    };
    let store = Store::open(state.path())?;
    let rules: Vec<Rule> = store.rules().cloned().collect();
    let carrier = choice.carrier(state);
    let counters = carrier.counters(&rules)?;
    let sum = |part: fn(&Counters) -> u64| Value::from(counters.iter().map(part).sum::<u64>());
    let trouble = match carrier.trouble()? {
        Some(text) => Some(text),
        None => watch::trouble(&rules)?,
    };
    let deliver = match &choice {
        Choice::Bpf { deliver, .. } => Value::from(deliver.name()),
        Choice::Nftables { .. } => Value::Null,
    };
    let values = Redirection {
        carrier: Value::from(carrier.name()),
        deliver,
        rules: Value::from(rules.len() as u64),
        packets: sum(|counters| counters.packets),
        bytes: sum(|counters| counters.bytes),
        dropped: sum(dropped),
        trouble: trouble.map_or(Value::Null, Value::from),
    }
    .values();
    let mut tables = Vec::new();
    if rules.len() <= RULES_SHOWN {
        tables.push(rule_table(&rules, &counters));
    }
    let events = carrier.events()?;
    if !events.is_empty() {
        tables.push(event_table(events));
    }
    Ok(Some(Figures {
        fields: Redirection::FIELDS,
        values,
        tables,
        headline: Some(headline("packets", "packets/s", rules.len())),
        alarms: &DROPPED,
    }))
}

/// The rules that have carried the most, at most `rows`, when there are more than have figures.
///
/// # Errors
/// As [`read`].
pub fn detail(state: &StateDirectory, rows: usize) -> Result<Vec<FigureTable>> {
    let Some(choice) = Choice::running(state)? else {
        return Ok(Vec::new());
    };
    let rules: Vec<Rule> = Store::open(state.path())?.rules().cloned().collect();
    if rules.len() <= RULES_SHOWN {
        return Ok(Vec::new());
    }
    let counters = choice.carrier(state).counters(&rules)?;
    let (rules, counters) = busiest(rules, counters, rows);
    Ok(vec![rule_table(&rules, &counters)])
}

/// The first `most` rules by packets, with their counters.
fn busiest(rules: Vec<Rule>, counters: Vec<Counters>, most: usize) -> (Vec<Rule>, Vec<Counters>) {
    let mut both: Vec<(Rule, Counters)> = rules.into_iter().zip(counters).collect();
    both.sort_by_key(|(_, counters)| Reverse(counters.packets));
    both.truncate(most);
    both.into_iter().unzip()
}

/// By rule, because the sum falls when a rule is deleted; of the sum when there are more rules than have rows.
const fn headline(field: &'static str, what: &'static str, rules: usize) -> Headline {
    Headline {
        table: if rules <= RULES_SHOWN { "rules" } else { "" },
        field,
        less: None,
        what,
        combine: Combine::Sum,
    }
}

/// What is dropped now, by all rules.
static DROPPED: [Headline; 1] = [headline("dropped", "dropped/s", usize::MAX)];

/// The rules with their counters, for machines.
fn rule_table(rules: &[Rule], counters: &[Counters]) -> FigureTable {
    let now = monotonic_ns();
    let rows = rules
        .iter()
        .zip(counters)
        .map(|(rule, counters)| row(rule, counters, now))
        .collect();
    FigureTable {
        name: "rules",
        about: "The rules and what they have carried",
        key: 1,
        plot: Plot::of("packets"),
        fields: RuleNow::FIELDS,
        rows,
    }
}

/// The rules with their counters, for people: columns that no rule needs are left out.
pub fn listing(rules: &[Rule], counters: &[Counters], now: u64) -> Table {
    let sources = rules.iter().any(|rule| rule.source.is_some());
    let notes = rules.iter().any(|rule| rule.note.is_some());
    let columns = [
        ("ID", Align::Right, true),
        ("FROM", Align::Left, true),
        ("TO", Align::Left, true),
        ("SOURCE", Align::Left, sources),
        ("PACKETS", Align::Right, true),
        ("BYTES", Align::Right, true),
        ("DROPPED", Align::Right, true),
        ("IDLE (s)", Align::Right, true),
        ("NOTE", Align::Left, notes),
    ];
    let titles: Vec<(&str, Align)> = columns
        .iter()
        .filter(|(.., shown)| *shown)
        .map(|(title, align, _)| (*title, *align))
        .collect();
    let mut table = Table::new(&titles);
    for (rule, counters) in rules.iter().zip(counters) {
        let cells = [
            rule.id.to_string(),
            format!("{} {}", rule.protocol, rule.match_text()),
            rule.target_text(),
            rule.source.map(|source| source.to_string()).unwrap_or_default(),
            counters.packets.to_string(),
            counters.bytes.to_string(),
            dropped(counters).to_string(),
            idle(counters, now).map_or_else(|| "-".to_owned(), |seconds| seconds.to_string()),
            rule.note.clone().unwrap_or_default(),
        ];
        let shown = cells.into_iter().zip(&columns).filter(|(_, (.., shown))| *shown);
        table.row(shown.map(|(cell, _)| cell));
    }
    table
}

/// Seconds since the rule's last packet, where it is known.
pub fn idle(counters: &Counters, now: u64) -> Option<u64> {
    counters
        .last_used_ns
        .map(|used| now.saturating_sub(used) / 1_000_000_000)
}

fn row(rule: &Rule, counters: &Counters, now: u64) -> Vec<Value> {
    RuleNow {
        id: Value::from(rule.id.to_string()),
        protocol: Value::from(rule.protocol.to_string()),
        from: Value::from(rule.match_text()),
        to: Value::from(rule.target_text()),
        source: Value::from(rule.source.map(|source| source.to_string()).unwrap_or_default()),
        packets: Value::from(counters.packets),
        bytes: Value::from(counters.bytes),
        dropped: Value::from(dropped(counters)),
        idle: idle(counters, now).into(),
    }
    .values()
}

/// Packets of a rule that were dropped, for all reasons.
pub fn dropped(counters: &Counters) -> u64 {
    counters.drops.iter().map(|(_, count)| count).sum()
}

fn event_table(events: Vec<(&'static str, u64)>) -> FigureTable {
    let rows = events
        .into_iter()
        .map(|(name, count)| {
            Event {
                event: Value::from(name),
                count: Value::from(count),
            }
            .values()
        })
        .collect();
    FigureTable {
        name: "events",
        about: "What the programs met, over all rules",
        key: 1,
        plot: None,
        fields: Event::FIELDS,
        rows,
    }
}

#[cfg(test)]
mod tests;
