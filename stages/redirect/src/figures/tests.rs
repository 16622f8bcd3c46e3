//! What people see of rules.

use super::*;
use crate::rule::samples::udp;

fn counted(packets: u64) -> Counters {
    Counters {
        packets,
        bytes: packets * 64,
        last_used_ns: (packets > 0).then_some(5_000_000_000),
        drops: vec![("fragments lost", 2), ("other", 1)],
    }
}

/// Of 100,000 rules, a screen has room for those that clients use.
#[test]
fn the_busiest_rules_are_first() {
    let rule = |id| Rule {
        id,
        ..udp("192.168.64.2:8080", "10.0.1.2:8083", None)
    };
    let (rules, counters) = busiest(
        vec![rule(0), rule(1), rule(2)],
        vec![counted(5), counted(0), counted(7)],
        2,
    );
    let found: Vec<(u32, u64)> = rules
        .iter()
        .zip(&counters)
        .map(|(rule, it)| (rule.id, it.packets))
        .collect();
    assert_eq!(found, [(2, 7), (0, 5)]);
}

/// Ordinary rules stand on one line each in a terminal of 80 columns.
#[test]
fn ordinary_rules_fit_on_a_line() {
    let rules = [
        udp("192.168.64.2:8080", "10.0.1.2:8083", None),
        Rule {
            id: 17,
            ..udp("0.0.0.0:53", "10.0.1.2", None)
        },
    ];
    let text = listing(&rules, &[counted(123_456), Counters::default()], 9_000_000_000).render(Some(80));
    let expected = "\
ID  FROM                   TO             PACKETS    BYTES  DROPPED  IDLE (s)
 0  udp 192.168.64.2:8080  10.0.1.2:8083   123456  7901184        3         4
17  udp 0.0.0.0:53         10.0.1.2:53          0        0        0         -
";
    assert_eq!(text, expected);
}

/// Columns that one rule needs are there for all, and everything is in the table.
#[test]
fn sources_and_notes_are_shown_where_there_are_some() {
    let rule = Rule {
        note: Some("the new server".to_owned()),
        ..udp(
            "[2001:db8::1]:8000-8100",
            "[2001:db8::2]:9000-9100",
            Some("2001:db8:1::/48"),
        )
    };
    let text = listing(&[rule], &[counted(1)], 0).render(None);
    for part in [
        "SOURCE",
        "NOTE",
        "2001:db8:1::/48",
        "the new server",
        "[2001:db8::2]:9000-9100",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
