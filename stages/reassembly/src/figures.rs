//! The stage's figures, for `status` and the metrics.

use anyhow::Result;

use super::known::Known;
use super::module::{Counts, Datagrams, Module, State};
use tarn_base::described;
use tarn_base::figures::{Combine, FigureTable, Figures, Headline, Plot, Value};
use tarn_base::network::Family;
use tarn_frame::state::StateDirectory;

described! {
    /// What holds for all datagrams.
    struct Reassembly {
        reassembling: Label "" "Whether fragments are reassembled here: yes, or stopped by someone else than tarn",
        trouble: Note "" "Why they are not, though they should be, and what to do",
        whose: Label "" "Whose datagrams: auto, host or all, as `datagrams` is set",
        whose_ipv4: Label "" "Whose datagrams are reassembled now: all, or those to this host, IPv4",
        whose_ipv6: Label "" "The same, IPv6",
        share: Label "" "The part of a full memory that one source has at most",
        timeout_ipv4: Gauge "s" "Time from the first fragment of a datagram until it is given up, IPv4",
        timeout_ipv6: Gauge "s" "The same, IPv6",
        ceiling: Gauge "bytes" "Memory that held fragments may take",
        memory: Gauge "bytes" "Memory that held fragments take now",
        memory_max: Gauge "bytes" "The most memory that they took since the start",
        strangers: Gauge "bytes" "Memory that sources take now that completed no datagram within a minute",
        datagrams: Gauge "datagrams" "Datagrams that are not complete now",
        sources: Gauge "sources" "Sources of these",
    }
}

described! {
    /// A family's fragments, and the datagrams that were completed.
    struct FamilyRow {
        family: Label "" "IPv4 or IPv6",
        fragments: Counter "fragments" "Fragments taken",
        passed: Counter "fragments" "Fragments left to others: forwarded ones, and those of datagrams that had begun before",
        duplicates: Counter "fragments" "Fragments ignored, because their bytes were there",
        no_memory: Counter "fragments" "Fragments dropped, because the kernel had no memory for a new datagram",
        completed: Counter "datagrams" "Datagrams completed",
    }
}

described! {
    /// Datagrams that were discarded for one reason.
    struct Discarded {
        family: Label "" "IPv4 or IPv6",
        reason: Label "" "Why they were discarded",
        datagrams: Counter "datagrams" "Datagrams discarded",
    }
}

/// What the kernel knows of what is up; `None` when nothing is.
///
/// # Errors
/// The kernel's, or a file that is damaged.
pub fn read(state: &StateDirectory) -> Result<Option<Figures>> {
    if Known::load(state)?.is_none() {
        return Ok(None);
    }
    let running = Module::find()?.map(|mut module| module.state()).transpose()?;
    Ok(Some(running.flatten().map_or_else(stopped, |running| of(&running))))
}

fn stopped() -> Figures {
    let mut values = vec![Value::Null; Reassembly::FIELDS.len()];
    values[0] = Value::from("stopped");
    values[1] = Value::from(
        "left alone: someone else has stopped the reassembly or removed the module; `tarn up` begins it again",
    );
    Figures {
        fields: Reassembly::FIELDS,
        values,
        tables: Vec::new(),
        headline: None,
        alarms: &[],
    }
}

/// What runs, in figures.
fn of(running: &State) -> Figures {
    let families = [(Family::V4, &running.ipv4), (Family::V6, &running.ipv6)];
    Figures {
        fields: Reassembly::FIELDS,
        values: values(running),
        tables: vec![
            FigureTable {
                name: "families",
                about: "Fragments and complete datagrams",
                key: 1,
                plot: Plot::of("completed"),
                fields: FamilyRow::FIELDS,
                rows: families.map(|(family, counts)| family_row(family, counts)).to_vec(),
            },
            FigureTable {
                name: "discarded",
                about: "Discarded datagrams, by reason",
                key: 2,
                plot: None,
                fields: Discarded::FIELDS,
                rows: families
                    .iter()
                    .flat_map(|(family, counts)| discarded(*family, counts))
                    .collect(),
            },
        ],
        headline: Some(Headline {
            table: "families",
            field: "completed",
            less: None,
            what: "datagrams/s",
            combine: Combine::Sum,
        }),
        alarms: &DISCARDED,
    }
}

/// What is discarded now.
static DISCARDED: [Headline; 1] = [Headline {
    table: "discarded",
    field: "datagrams",
    less: None,
    what: "discarded/s",
    combine: Combine::Sum,
}];

fn values(running: &State) -> Vec<Value> {
    let (settings, held) = (&running.settings, &running.held);
    Reassembly {
        reassembling: Value::from("yes"),
        trouble: Value::Null,
        whose: Value::from(settings.datagrams.name()),
        whose_ipv4: Value::from(whose_now(held.whose[0])),
        whose_ipv6: Value::from(whose_now(held.whose[1])),
        share: Value::from(format!("1/{}", settings.share)),
        timeout_ipv4: Value::from(settings.timeout4.as_secs_f64()),
        timeout_ipv6: Value::from(settings.timeout6.as_secs_f64()),
        ceiling: Value::from(settings.memory),
        memory: Value::from(held.memory),
        memory_max: Value::from(held.memory_max),
        strangers: Value::from(held.strangers),
        datagrams: Value::from(held.datagrams),
        sources: Value::from(held.sources),
    }
    .values()
}

/// `enum tarn_reassembly_datagrams` in force.
fn whose_now(number: u32) -> &'static str {
    match number == Datagrams::All as u32 {
        true => "all",
        false => "host",
    }
}

fn family_row(family: Family, counts: &Counts) -> Vec<Value> {
    FamilyRow {
        family: Value::from(family.to_string()),
        fragments: Value::from(counts.fragments),
        passed: Value::from(counts.passed),
        duplicates: Value::from(counts.duplicates),
        no_memory: Value::from(counts.no_memory),
        completed: Value::from(counts.completed),
    }
    .values()
}

/// A row for each reason, under its name in `uapi.h`.
fn discarded(family: Family, counts: &Counts) -> impl Iterator<Item = Vec<Value>> + use<> {
    let reasons = [
        ("timeout", counts.timeout),
        ("evicted_share", counts.evicted_share),
        ("evicted_stranger", counts.evicted_stranger),
        ("evicted_age", counts.evicted_age),
        ("overlap", counts.overlap),
        ("bad_end", counts.bad_end),
        ("bad_length", counts.bad_length),
        ("reused", counts.reused),
        ("ecn", counts.ecn),
        ("security", counts.security),
        ("allocation", counts.allocation),
        ("stopped", counts.stopped),
    ];
    reasons.into_iter().map(move |(reason, datagrams)| {
        Discarded {
            family: Value::from(family.to_string()),
            reason: Value::from(reason),
            datagrams: Value::from(datagrams),
        }
        .values()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::Held;
    use crate::module::tests::SETTINGS;
    use tarn_base::figures::Exposition;
    use tarn_base::figures::testing::assert_whole;

    fn running() -> State {
        State {
            settings: SETTINGS,
            held: Held {
                memory: 1000,
                memory_max: 2000,
                strangers: 300,
                datagrams: 2,
                sources: 1,
                whose: [Datagrams::All as u32, Datagrams::Host as u32],
            },
            ipv4: Counts {
                fragments: 8,
                completed: 1,
                evicted_share: 7,
                ..Counts::default()
            },
            ipv6: Counts {
                overlap: 3,
                ..Counts::default()
            },
        }
    }

    #[test]
    fn every_figure_has_its_description() {
        let figures = of(&running());
        assert_whole(&figures);
        assert_whole(&stopped());
        let json = figures.json();
        assert_eq!(
            (&json["memory"], &json["ceiling"]),
            (&Value::from(1000), &Value::from(4 << 20))
        );
        assert_eq!(json["families"][0]["completed"], 1);
    }

    /// A reason that uapi.h counts and nobody shows would be a drop that is lost silently.
    #[test]
    fn every_reason_of_uapi_h_is_shown() {
        let uapi = include_str!("../uapi.h");
        let (_, reasons) = uapi
            .split_once("/* datagrams that were discarded, by reason */")
            .unwrap();
        let (reasons, _) = reasons.split_once("};").unwrap();
        let declared = reasons
            .lines()
            .filter_map(|line| line.trim().strip_prefix("__u64 ")?.split(';').next());
        let shown: Vec<String> = discarded(Family::V4, &Counts::default())
            .map(|row| row[1].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(declared.collect::<Vec<_>>(), shown);
    }

    /// Dashboards sum over families and reasons; no series appears for a sender.
    #[test]
    fn metrics_have_a_family_and_a_reason_and_no_other_label() {
        let mut exposition = Exposition::default();
        exposition.add_figures("reassembly", &of(&running()));
        let text = exposition.render();
        for line in [
            "tarn_reassembly_memory_bytes 1000\n",
            "tarn_reassembly_families_completed_total{family=\"IPv4\"} 1\n",
            "tarn_reassembly_discarded_datagrams_total{family=\"IPv4\",reason=\"evicted_share\"} 7\n",
            "tarn_reassembly_discarded_datagrams_total{family=\"IPv6\",reason=\"overlap\"} 3\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert_eq!(text.matches("discarded_datagrams_total{").count(), 24);
    }
}
