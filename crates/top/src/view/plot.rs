//! A figure of every row of a table over time.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use tarn_watch::history::Track;
use tarn_watch::numbers::short_or_dash;
use tarn_watch::plot::{Plotted, PlottedRow};

use crate::styles::{Styles, TITLE};
use crate::text::{Scale, bars, fit};

/// Columns of a number.
const NUMBER: usize = 8;
/// A terminal that is far away is to have little to draw.
const BARS_MOST: usize = 60;

/// The plot, its rows on one scale, with a line of titles.
pub fn lines(plot: &Plotted<'_>, styles: &Styles, width: usize) -> Vec<Line<'static>> {
    let keys = plot.rows.iter().map(|row| row.key.chars().count());
    let longest = keys.max().unwrap_or(0);
    let key_width = longest.max(plot.title.chars().count()).min(width / 3);
    let room = width.saturating_sub(key_width + 3 * (NUMBER + 1) + 2).min(BARS_MOST);
    let tracks = || plot.rows.iter().filter_map(|row| row.track);
    let scale = Scale::of(tracks().flat_map(|track| track.latest(room)).flatten());
    let columns = tracks().map(Track::len).max().unwrap_or(0).min(room);
    let mut lines = vec![titles(plot, key_width)];
    for row in &plot.rows {
        let mut spans = vec![Span::raw(fit(&row.key, key_width))];
        spans.extend(numbers(row, styles));
        let drawn = row
            .track
            .map(|track| bars(track.latest(room), columns, scale, &styles.glyphs));
        spans.push(Span::raw(format!("  {}", drawn.unwrap_or_default())));
        lines.push(Line::from(spans));
    }
    lines
}

fn titles(plot: &Plotted<'_>, key_width: usize) -> Line<'static> {
    let columns: String = plot.columns.iter().map(|title| format!(" {title:>NUMBER$}")).collect();
    Line::styled(format!("{}{columns}  HISTORY", fit(&plot.title, key_width)), TITLE)
}

/// What is below its target is bad: the value, and by how much.
fn numbers(row: &PlottedRow<'_>, styles: &Styles) -> [Span<'static>; 3] {
    let bad = if row.is_bad { styles.bad } else { Style::new() };
    let [now, second, third] = row.numbers.map(|value| format!(" {:>NUMBER$}", short_or_dash(value)));
    [Span::styled(now, bad), Span::raw(second), Span::styled(third, bad)]
}
