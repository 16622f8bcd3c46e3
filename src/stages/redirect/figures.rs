//! The stage's figures, for `status`, `list` and the metrics.

use anyhow::Result;

use super::carrier::Counters;
use super::choice::Choice;
use super::rule::Rule;
use super::store::Store;
use crate::figures::{Field, FigureTable, Figures, Kind, Value};
use crate::runtime::monotonic_ns;
use crate::state::StateDirectory;

/// Beyond this many rules only the sums are shown: a page of metrics must stay one that can be fetched.
const RULES_SHOWN: usize = 1000;

static FIELDS: &[Field] = &[
    Field {
        name: "carrier",
        unit: "",
        kind: Kind::Label,
        about: "What carries the rules out: xdp or nftables",
    },
    Field {
        name: "deliver",
        unit: "",
        kind: Kind::Label,
        about: "How xdp delivers: tc, redirect or pass",
    },
    Field {
        name: "rules",
        unit: "",
        kind: Kind::Gauge,
        about: "Rules in force",
    },
    Field {
        name: "packets",
        unit: "packets",
        kind: Kind::Counter,
        about: "Clients' packets redirected",
    },
    Field {
        name: "bytes",
        unit: "bytes",
        kind: Kind::Counter,
        about: "Their length from the IP header on",
    },
    Field {
        name: "dropped",
        unit: "packets",
        kind: Kind::Counter,
        about: "Packets dropped, for all reasons",
    },
];

static RULE_FIELDS: &[Field] = &[
    Field {
        name: "id",
        unit: "",
        kind: Kind::Label,
        about: "The rule's number",
    },
    Field {
        name: "protocol",
        unit: "",
        kind: Kind::Label,
        about: "udp or tcp",
    },
    Field {
        name: "from",
        unit: "",
        kind: Kind::Label,
        about: "The address and ports that clients speak to",
    },
    Field {
        name: "to",
        unit: "",
        kind: Kind::Label,
        about: "Where their packets go",
    },
    Field {
        name: "source",
        unit: "",
        kind: Kind::Label,
        about: "The clients it is for; all when empty",
    },
    Field {
        name: "packets",
        unit: "packets",
        kind: Kind::Counter,
        about: "Clients' packets redirected by this rule",
    },
    Field {
        name: "bytes",
        unit: "bytes",
        kind: Kind::Counter,
        about: "Their length from the IP header on",
    },
    Field {
        name: "dropped",
        unit: "packets",
        kind: Kind::Counter,
        about: "Its packets dropped, for all reasons",
    },
    Field {
        name: "idle",
        unit: "s",
        kind: Kind::Gauge,
        about: "Time since its last packet, where it is known",
    },
];

static EVENT_FIELDS: &[Field] = &[
    Field {
        name: "event",
        unit: "",
        kind: Kind::Label,
        about: "What happened",
    },
    Field {
        name: "count",
        unit: "",
        kind: Kind::Counter,
        about: "How often, since the programs were loaded",
    },
];

/// What the kernel knows of what is up.
pub fn read(state: &StateDirectory) -> Result<Option<Figures>> {
    let Some(choice) = Choice::running(state)? else {
        return Ok(None);
    };
    let store = Store::open(state.path())?;
    let rules: Vec<Rule> = store.rules().cloned().collect();
    let counters = choice.carrier(state).counters(&rules)?;
    let sum = |part: fn(&Counters) -> u64| Value::Integer(counters.iter().map(part).sum());
    let (carrier, deliver) = match &choice {
        Choice::Xdp { deliver, .. } => ("xdp", Value::Text(deliver.name().into())),
        Choice::Nftables => ("nftables", Value::None),
    };
    let values = vec![
        Value::Text(carrier.into()),
        deliver,
        Value::Integer(rules.len() as u64),
        sum(|counters| counters.packets),
        sum(|counters| counters.bytes),
        sum(dropped),
    ];
    let mut tables = Vec::new();
    if rules.len() <= RULES_SHOWN {
        tables.push(rule_table(&rules, &counters));
    }
    if let Some(bpf) = choice.bpf(state) {
        tables.push(event_table(bpf.events()?));
    }
    Ok(Some(Figures {
        fields: FIELDS,
        values,
        tables,
    }))
}

/// The rules with their counters.
pub fn rule_table(rules: &[Rule], counters: &[Counters]) -> FigureTable {
    let now = monotonic_ns();
    let rows = rules
        .iter()
        .zip(counters)
        .map(|(rule, counters)| row(rule, counters, now))
        .collect();
    FigureTable {
        name: "rules",
        about: "The rules and what they have carried",
        fields: RULE_FIELDS,
        rows,
    }
}

fn row(rule: &Rule, counters: &Counters, now: u64) -> Vec<Value> {
    let idle = counters
        .last_used_ns
        .map(|used| Value::Integer(now.saturating_sub(used) / 1_000_000_000));
    vec![
        Value::Text(rule.id.to_string()),
        Value::Text(rule.protocol.to_string()),
        Value::Text(rule.match_text()),
        Value::Text(rule.target_text()),
        Value::Text(rule.source.map(|source| source.to_string()).unwrap_or_default()),
        Value::Integer(counters.packets),
        Value::Integer(counters.bytes),
        Value::Integer(dropped(counters)),
        idle.unwrap_or(Value::None),
    ]
}

fn dropped(counters: &Counters) -> u64 {
    counters.drops.iter().map(|(_, count)| count).sum()
}

fn event_table(events: Vec<(&'static str, u64)>) -> FigureTable {
    let rows = events
        .into_iter()
        .map(|(name, count)| vec![Value::Text(name.into()), Value::Integer(count)])
        .collect();
    FigureTable {
        name: "events",
        about: "What the programs met, over all rules",
        fields: EVENT_FIELDS,
        rows,
    }
}
