//! A figure of every row of a table over time.

use std::cmp::Reverse;

use tarn_base::figures::{Field, FigureTable, Kind, Value};

use crate::history::{History, Track};

/// The rows of a table that matter most, at most so many: all in their own order where there is room; those with the greatest
/// value of the plot now; or the first ones, where the table has none.
pub fn rows_that_matter<'a>(table: &'a FigureTable, history: &History, most: usize) -> Vec<&'a Vec<Value>> {
    let mut rows: Vec<&Vec<Value>> = table.rows.iter().collect();
    let Some(plot) = table.plot.filter(|_| rows.len() > most) else {
        rows.truncate(most);
        return rows;
    };
    let now = |row: &[Value]| history.of(table, row, plot.field).and_then(Track::now);
    rows.sort_by_cached_key(|row| Reverse(now(row).map(order)));
    rows.truncate(most);
    rows
}

/// A whole number in the order of the values.
fn order(value: f64) -> i64 {
    (value * 1e3) as i64
}

/// The figure of some rows of a table.
pub struct Plotted<'a> {
    /// Which figure it is.
    pub title: String,
    /// What the numbers of each row are.
    pub columns: [&'static str; 3],
    /// One of each row.
    pub rows: Vec<PlottedRow<'a>>,
}

/// The figure of a row.
pub struct PlottedRow<'a> {
    /// What identifies the row.
    pub key: String,
    /// The value now, beside what is remembered of it, or beside its target.
    pub numbers: [Option<f64>; 3],
    /// How it was.
    pub track: Option<&'a Track>,
    /// Whether it is below its target.
    pub is_bad: bool,
}

impl<'a> Plotted<'a> {
    /// That of these rows; `None` when the table shows no figure over time.
    pub fn of(table: &FigureTable, rows: &[&Vec<Value>], history: &'a History) -> Option<Self> {
        let plot = table.plot?;
        let field = &table.fields[table.position(plot.field)?];
        let target = |row: &[Value]| table.position(plot.target?).and_then(|at| row.get(at)?.as_f64());
        let plotted = |row: &&Vec<Value>| {
            let track = history.of(table, row, plot.field);
            let now = track.and_then(Track::now);
            let above = now.zip(target(row)).map(|(now, target)| now - target);
            let quantile = |part| track.and_then(|track| track.quantile(part));
            PlottedRow {
                key: table.key_of(row),
                numbers: match plot.target {
                    Some(_) => [now, target(row), above],
                    None => [now, quantile(0.95), quantile(1.0)],
                },
                track,
                is_bad: matches!(above, Some(..0.0)),
            }
        };
        Some(Self {
            title: title(field),
            columns: match plot.target {
                Some(_) => ["NOW", "TARGET", "ABOVE"],
                None => ["NOW", "P95", "MAX"],
            },
            rows: rows.iter().map(plotted).collect(),
        })
    }
}

fn title(field: &Field) -> String {
    match field.kind {
        Kind::Counter => format!("{}/s", field.name.replace('_', " ").to_uppercase()),
        _ => field.heading(),
    }
}
