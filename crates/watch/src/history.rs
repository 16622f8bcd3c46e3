//! Figures over time: those of a stage that the screen shows so.

use std::collections::{HashMap, VecDeque};

use tarn_base::figures::{Combine, Field, FigureTable, Figures, Headline, Kind, Value};

/// Samples that are remembered: what a wide terminal can show.
pub const REMEMBERED: usize = 256;
/// Series of a stage that are remembered.
const SERIES_MOST: usize = 1024;

/// The last values of one figure, oldest first; not a number where it was not known.
#[derive(Debug, Clone, Default)]
pub struct Track(VecDeque<f64>);

impl Track {
    fn push(&mut self, value: Option<f64>) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0
            .push_back(value.filter(|value| value.is_finite()).unwrap_or(f64::NAN));
    }

    /// The last one.
    pub fn now(&self) -> Option<f64> {
        self.0.back().copied().filter(|value| !value.is_nan())
    }

    /// How many there are, gaps included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was noted yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last ones, as many as there is room for.
    pub fn latest(&self, room: usize) -> impl Iterator<Item = Option<f64>> + '_ {
        let latest = self.0.iter().skip(self.0.len().saturating_sub(room));
        latest.map(|value| Some(*value).filter(|value| !value.is_nan()))
    }

    /// The value that this part of the known ones does not exceed: the greatest one for 1.0.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let mut known: Vec<f64> = self.0.iter().copied().filter(|value| !value.is_nan()).collect();
        known.sort_by(f64::total_cmp);
        let rank = (part * known.len() as f64).ceil() as usize;
        known.get(rank.max(1) - 1).copied()
    }
}

/// A figure: its table, empty when it stands alone, what identifies its row, and its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name {
    table: &'static str,
    row: String,
    field: &'static str,
}

#[derive(Debug, Clone, Default)]
struct Series {
    /// The value when it was seen last, and when: ns on the monotonic clock.
    seen: Option<(f64, u64)>,
    track: Track,
    /// Samples since then that had no such figure.
    missed: usize,
    is_here: bool,
}

impl Series {
    fn add(&mut self, kind: Kind, value: Option<f64>, now_ns: u64) {
        self.is_here = true;
        let shown = match kind {
            Kind::Counter => value.and_then(|value| rate(self.seen, value, now_ns)),
            _ => value,
        };
        self.seen = value.map(|value| (value, now_ns)).or(self.seen);
        self.track.push(shown);
    }
}

/// The growth of a counter a second; `None` when it is not known.
fn rate(seen: Option<(f64, u64)>, value: f64, now_ns: u64) -> Option<f64> {
    let (before, since_ns) = seen?;
    let elapsed_s = now_ns.checked_sub(since_ns).filter(|ns| *ns > 0)? as f64 / 1e9;
    // One that is less has begun anew, or is a sum of which a part has gone: how much the others have grown, it does not say.
    (value >= before).then(|| (value - before) / elapsed_s)
}

/// How the figures of a stage were.
#[derive(Debug, Clone, Default)]
pub struct History {
    series: HashMap<Name, Series>,
    headline: Track,
    alarms: Vec<(f64, &'static str)>,
}

impl History {
    /// Adds what a stage says at a moment of the monotonic clock, in ns. `detail` are its tables beside the figures.
    pub fn add(&mut self, figures: &Figures, detail: &[FigureTable], now_ns: u64) {
        self.series.values_mut().for_each(|series| series.is_here = false);
        for headline in figures.headline.iter().chain(figures.alarms) {
            match figures.tables.iter().find(|table| table.name == headline.table) {
                Some(table) => self.add_column(table, headline.field, now_ns),
                None if headline.table.is_empty() => self.add_alone(figures, headline, now_ns),
                None => {}
            }
        }
        for table in figures.tables.iter().chain(detail) {
            if let Some(plot) = table.plot {
                self.add_column(table, plot.field, now_ns);
            }
        }
        self.forget();
        match &figures.headline {
            Some(headline) => self.headline.push(self.sum_up(figures, headline)),
            None => self.headline = Track::default(),
        }
        let alarms = figures.alarms.iter();
        let alarms = alarms.filter_map(|alarm| Some((self.sum_up(figures, alarm)?, alarm.what)));
        self.alarms = alarms.filter(|(value, _)| *value > 0.0).collect();
    }

    /// Adds that the figures could not be read: a gap.
    pub fn miss(&mut self) {
        self.series.values_mut().for_each(|series| series.is_here = false);
        self.forget();
        self.headline.push(None);
        self.alarms.clear();
    }

    fn add_alone(&mut self, figures: &Figures, headline: &Headline, now_ns: u64) {
        let mut figures = figures.fields.iter().zip(&figures.values);
        if let Some((field, value)) = figures.find(|(field, _)| field.name == headline.field) {
            self.add_value("", String::new(), field, value, now_ns);
        }
    }

    fn add_column(&mut self, table: &FigureTable, field: &str, now_ns: u64) {
        let Some(at) = table.position(field) else { return };
        for row in &table.rows {
            if let Some(value) = row.get(at) {
                self.add_value(table.name, table.key_of(row), &table.fields[at], value, now_ns);
            }
        }
    }

    fn add_value(&mut self, table: &'static str, row: String, field: &Field, value: &Value, now_ns: u64) {
        let field_name = field.name;
        let name = Name {
            table,
            row,
            field: field_name,
        };
        if self.series.len() >= SERIES_MOST && !self.series.contains_key(&name) && !self.make_room() {
            return;
        }
        let series = self.series.entry(name).or_default();
        // A figure may be a headline and a plot.
        if !series.is_here {
            series.add(field.kind, value.as_f64(), now_ns);
            series.missed = 0;
        }
    }

    /// Forgets what was not there for longest; fails when all of it is there still.
    fn make_room(&mut self) -> bool {
        let gone = self.series.iter().filter(|(_, series)| series.missed > 0);
        let longest = gone
            .max_by_key(|(_, series)| series.missed)
            .map(|(name, _)| name.clone());
        longest.is_some_and(|name| self.series.remove(&name).is_some())
    }

    /// What was not there has a gap. It is forgotten when nothing else is left of it: a row may come back.
    fn forget(&mut self) {
        for series in self.series.values_mut().filter(|series| !series.is_here) {
            series.track.push(None);
            series.missed += 1;
        }
        self.series.retain(|_, series| series.missed < REMEMBERED);
    }

    /// How a figure of a row was.
    pub fn of(&self, table: &FigureTable, row: &[Value], field: &'static str) -> Option<&Track> {
        self.track(table.name, table.key_of(row), field)
    }

    fn track(&self, table: &'static str, row: String, field: &'static str) -> Option<&Track> {
        self.series.get(&Name { table, row, field }).map(|series| &series.track)
    }

    /// How the headline was.
    pub fn headline(&self) -> &Track {
        &self.headline
    }

    /// What is worth a look now: a value above 0 and what follows it.
    pub fn alarms(&self) -> &[(f64, &'static str)] {
        &self.alarms
    }

    fn sum_up(&self, figures: &Figures, headline: &Headline) -> Option<f64> {
        let Some(table) = figures.tables.iter().find(|table| table.name == headline.table) else {
            return self.track(headline.table, String::new(), headline.field)?.now();
        };
        let of = |row: &[Value], field: &str| row.get(table.position(field)?)?.as_f64();
        let value = |row: &[Value]| {
            let now = self.of(table, row, headline.field)?.now()?;
            Some(now - headline.less.map_or(Some(0.0), |less| of(row, less))?)
        };
        let values = table.rows.iter().filter_map(|row| value(row));
        match headline.combine {
            Combine::Sum => values.reduce(|sum, value| sum + value),
            Combine::Least => values.reduce(f64::min),
            Combine::Mean(weight) => {
                let weighted = table
                    .rows
                    .iter()
                    .filter_map(|row| Some((value(row)?, of(row, weight)?)));
                mean(weighted)
            }
        }
    }
}

fn mean(weighted: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weights) = weighted.fold((0.0, 0.0), |(sum, weights), (value, weight)| {
        (sum + value * weight, weights + weight)
    });
    (weights > 0.0).then(|| sum / weights)
}

#[cfg(test)]
mod tests;
