//! A figure of every row of a table over time.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use tarn_base::figures::{Field, FigureTable, Kind, Plot, Value};

use crate::history::{History, Track};
use crate::styles::{Styles, TITLE};
use crate::text::{Scale, bars, fit, short_or_dash};

/// Columns of a number.
const NUMBER: usize = 8;
/// A terminal that is far away is to have little to draw.
const BARS_MOST: usize = 60;

/// The rows of a table that matter most, at most so many: all in their own order where there is room, or those with the greatest
/// value of the plot now.
pub fn rows_that_matter<'a>(table: &'a FigureTable, history: &History, most: usize) -> Vec<&'a Vec<Value>> {
    let mut rows: Vec<&Vec<Value>> = table.rows.iter().collect();
    let Some(plot) = table.plot.filter(|_| rows.len() > most) else {
        return rows;
    };
    let now = |row: &[Value]| history.of(table, row, plot.field).and_then(Track::now);
    rows.sort_by_cached_key(|row| std::cmp::Reverse(now(row).map(order)));
    rows.truncate(most);
    rows
}

/// A whole number in the order of the values.
fn order(value: f64) -> i64 {
    (value * 1e3) as i64
}

/// The plot of these rows, on one scale, with a line of titles.
pub fn lines(
    table: &FigureTable,
    rows: &[&Vec<Value>],
    history: &History,
    styles: &Styles,
    width: usize,
) -> Vec<Line<'static>> {
    let Some((plot, field)) = table
        .plot
        .and_then(|plot| Some((plot, &table.fields[table.position(plot.field)?])))
    else {
        return Vec::new();
    };
    let keys: Vec<String> = rows.iter().map(|row| table.key_of(row)).collect();
    let longest = keys.iter().map(|key| key.chars().count()).max().unwrap_or(0);
    let key_width = longest.max(title(field).chars().count()).min(width / 3);
    let room = width.saturating_sub(key_width + 3 * (NUMBER + 1) + 2).min(BARS_MOST);
    let tracks: Vec<Option<&Track>> = rows.iter().map(|row| history.of(table, row, plot.field)).collect();
    let scale = Scale::of(tracks.iter().flatten().flat_map(|track| track.latest(room)).flatten());
    let columns = tracks
        .iter()
        .flatten()
        .map(|track| track.len())
        .max()
        .unwrap_or(0)
        .min(room);
    let mut lines = vec![titles(plot, field, key_width)];
    for ((key, row), track) in keys.iter().zip(rows).zip(tracks) {
        let mut spans = vec![Span::raw(fit(key, key_width))];
        spans.extend(numbers(table, plot, row, track, styles));
        let drawn = track.map(|track| bars(track.latest(room), columns, scale, &styles.glyphs));
        spans.push(Span::raw(format!("  {}", drawn.unwrap_or_default())));
        lines.push(Line::from(spans));
    }
    lines
}

fn title(field: &Field) -> String {
    match field.kind {
        Kind::Counter => format!("{}/s", field.name.replace('_', " ").to_uppercase()),
        _ => field.heading(),
    }
}

fn titles(plot: Plot, field: &Field, key_width: usize) -> Line<'static> {
    let columns = match plot.target {
        Some(_) => ["NOW", "TARGET", "ABOVE"],
        None => ["NOW", "P95", "MAX"],
    };
    let columns: String = columns.iter().map(|title| format!(" {title:>NUMBER$}")).collect();
    Line::styled(format!("{}{columns}  HISTORY", fit(&title(field), key_width)), TITLE)
}

/// The value now, beside what is remembered of it, or beside its target. One below its target is bad.
fn numbers(
    table: &FigureTable,
    plot: Plot,
    row: &[Value],
    track: Option<&Track>,
    styles: &Styles,
) -> [Span<'static>; 3] {
    let now = track.and_then(Track::now);
    let number = |value, style| Span::styled(format!(" {:>NUMBER$}", short_or_dash(value)), style);
    let Some(target) = plot.target else {
        let quantile = |part| number(track.and_then(|track| track.quantile(part)), Style::new());
        return [number(now, Style::new()), quantile(0.95), quantile(1.0)];
    };
    let target = table.position(target).and_then(|at| row.get(at)?.as_f64());
    let above = now.zip(target).map(|(now, target)| now - target);
    let style = match above {
        Some(..0.0) => styles.bad,
        _ => Style::new(),
    };
    [number(now, style), number(target, Style::new()), number(above, style)]
}
