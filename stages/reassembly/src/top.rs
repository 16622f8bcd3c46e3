//! The sources of fragments, those first that hold most memory or whose datagrams failed most.

use std::cmp::Reverse;

use anyhow::Result;
use clap::ValueEnum;

use super::module::{Module, Settings, Source};
use tarn_base::described;
use tarn_base::figures::{FigureTable, Plot, Value, rounded};
use tarn_frame::state::StateDirectory;

/// What sources are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// What they hold now.
    Memory,
    /// Datagrams of theirs that were discarded.
    Failures,
}

described! {
    /// One source.
    struct Row {
        source: Label "" "The source: an IPv4 address, or the first 64 bits of an IPv6 address",
        memory: Gauge "bytes" "Memory that its fragments take now",
        of_memory: Gauge "%" "The same, of the memory that fragments may take" => "%",
        datagrams: Gauge "datagrams" "Datagrams of it that are not complete now",
        failed: Counter "datagrams" "Datagrams of it that were discarded, for any reason, since it was first noticed" => "FAILED",
        known: Label "" "Whether a datagram of it was completed within the last minute: yes or no",
    }
}

/// The first `count` of those that hold anything, or that failed.
pub fn ordered(mut sources: Vec<Source>, by: By, count: usize) -> Vec<Source> {
    let key = |source: &Source| match by {
        By::Memory => (source.memory, source.failed),
        By::Failures => (source.failed, source.memory),
    };
    sources.retain(|source| key(source).0 > 0);
    sources.sort_by_key(|source| (Reverse(key(source)), source.family, source.address));
    sources.truncate(count);
    sources
}

/// The sources that hold the most memory, at most `rows`; nothing when none holds any, or the stage is stopped.
///
/// # Errors
/// The kernel's.
pub fn detail(_: &StateDirectory, rows: usize) -> Result<Vec<FigureTable>> {
    let Some(mut module) = Module::find()? else {
        return Ok(Vec::new());
    };
    let Some(running) = module.state()? else {
        return Ok(Vec::new());
    };
    let sources = ordered(module.sources()?, By::Memory, rows);
    let is_empty = sources.is_empty();
    Ok((!is_empty)
        .then(|| table(&sources, &running.settings))
        .into_iter()
        .collect())
}

/// Sources, as people and programs read them.
pub fn table(sources: &[Source], settings: &Settings) -> FigureTable {
    let row = |source: &Source| {
        let share = source.memory as f64 * 100.0 / settings.memory.max(1) as f64;
        Row {
            source: Value::from(source.name()),
            memory: Value::from(source.memory),
            of_memory: Value::from(rounded(share, 1)),
            datagrams: Value::from(source.datagrams),
            failed: Value::from(source.failed),
            known: Value::from(if source.is_known > 0 { "yes" } else { "no" }),
        }
        .values()
    };
    FigureTable {
        name: "sources",
        about: "Sources of fragments",
        key: 1,
        plot: Plot::of("memory"),
        fields: Row::FIELDS,
        rows: sources.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::tests::{SETTINGS, source};

    fn sources() -> Vec<Source> {
        vec![
            source([192, 0, 2, 1].into(), 0, 9),
            source([192, 0, 2, 2].into(), 500, 0),
            source([192, 0, 2, 4].into(), 700, 3),
            source([192, 0, 2, 3].into(), 700, 3),
            source([192, 0, 2, 5].into(), 0, 0),
        ]
    }

    fn names(by: By, count: usize) -> Vec<String> {
        ordered(sources(), by, count).iter().map(Source::name).collect()
    }

    /// Who looks for an attacker reads the first line.
    #[test]
    fn the_largest_is_first_and_equals_are_in_the_order_of_their_addresses() {
        assert_eq!(names(By::Memory, 20), ["192.0.2.3", "192.0.2.4", "192.0.2.2"]);
        assert_eq!(names(By::Failures, 20), ["192.0.2.1", "192.0.2.3", "192.0.2.4"]);
        assert_eq!(names(By::Memory, 1), ["192.0.2.3"]);
    }

    #[test]
    fn a_row_fits_a_terminal_whatever_is_in_it() {
        let mut largest = source("2001:db8:1234:5678::1".parse().unwrap(), 256 << 20, u32::MAX.into());
        largest.datagrams = 1_000_000;
        let table = table(&[largest], &SETTINGS);
        assert_eq!(table.rows[0].len(), Row::FIELDS.len());
        let text = table.table().render(None);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("2001:db8:1234:5678::/64"), "{text}");
    }
}
