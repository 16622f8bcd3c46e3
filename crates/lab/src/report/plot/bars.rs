//! Horizontal bars, one a case, with published figures as marked lines.

use crate::experiment::{Case, Reference};

use super::super::Entry;
use super::super::axis::{Axis, extent};
use super::super::markup::{self, wrap};
use super::super::number;
use super::super::result::{self, Column, Side};
use super::svg;
use super::{Drawing, Width};

const BAR: f64 = 20.0;
const LINE: f64 = 16.0;
const REASON_LINE: f64 = 14.0;
/// The lines that a reason may take.
const REASON_LINES: usize = 3;
/// The room for labels beside the bars of a wide plot.
const LABELS: f64 = 210.0;

/// A row: a case, and its figure unless it was skipped.
struct Row<'a> {
    case: &'a Case,
    value: Option<f64>,
    label: Vec<String>,
    /// Why there is no value.
    reason: Vec<String>,
}

/// Where things lie.
struct Layout<'a> {
    width: Width,
    column: &'a Column,
    axis: Axis,
    /// The left end of the room for bars.
    left: f64,
}

/// Draws the bars of `metric`; `None` when no case has a figure.
pub fn draw(entry: &Entry, metric: &str, references: &[&str], width: Width) -> Option<Drawing> {
    let column = result::column(entry, metric);
    let marks: Vec<&Reference> = entry
        .outcome
        .reference
        .iter()
        .filter(|reference| references.contains(&&*reference.metric) && reference.value.is_finite())
        .collect();
    let rows = rows(entry.cases(), &column, width);
    if rows.iter().all(|row| row.value.is_none()) {
        return None;
    }
    let layout = layout(&rows, &marks, &column, width);
    let badges = badge_rows(&marks, &layout);
    let top = 4.0 + 22.0 * badges.iter().map(|badge| badge + 1).max().unwrap_or(0) as f64;
    let (bars, texts, bottom) = draw_rows(&rows, &layout, top);
    let ground = layout.axis.position(0.0);
    let axis = svg::line((ground, top - 2.0), (ground, bottom), "axis");
    // A marked line crosses bars, but no text.
    let mut body = axis + &bars + &draw_marks(&marks, &badges, &layout, bottom) + &texts;
    let (key, height) = key(&rows, &marks, &layout, bottom + 10.0);
    body += &key;
    Some(Drawing {
        height,
        body,
        description: describe(&rows, &marks, &column),
    })
}

/// The cases that have a figure or a reason why not.
fn rows<'a>(cases: &'a [Case], column: &Column, width: Width) -> Vec<Row<'a>> {
    let (room, beside) = match width {
        Width::Wide => (LABELS, width.pixels() - LABELS - 18.0),
        Width::Narrow => (width.pixels() - 2.0, width.pixels() - 6.0),
    };
    let row = |case: &'a Case| Row {
        case,
        value: column.of(case),
        label: wrap(result::title(case), svg::NORMAL * svg::BOLD, room, 2),
        reason: case.skipped.as_ref().map_or(Vec::new(), |reason| {
            wrap(&format!("skipped: {reason}"), svg::SMALL, beside, REASON_LINES)
        }),
    };
    cases
        .iter()
        .map(row)
        .filter(|row| row.value.is_some() || row.case.skipped.is_some())
        .collect()
}

fn layout<'a>(rows: &[Row], marks: &[&Reference], column: &'a Column, width: Width) -> Layout<'a> {
    let widest = |texts: &mut dyn Iterator<Item = String>| {
        texts
            .map(|text| markup::width(&text, svg::NORMAL * svg::BOLD))
            .fold(0.0, f64::max)
    };
    let left = match width {
        Width::Wide => widest(&mut rows.iter().flat_map(|row| row.label.iter().cloned())) + 12.0,
        Width::Narrow => 0.0,
    };
    let values = || rows.iter().filter_map(|row| row.value);
    let label = widest(&mut values().map(|value| column.show(value))) + 8.0;
    let all = values().chain(marks.iter().map(|mark| mark.value));
    let (low, high) = extent(all.chain([0.0])).unwrap_or_default();
    // Labels stand beyond the ends of the bars, on the left as well when a figure is below zero.
    let from = if low < 0.0 { left + label } else { left };
    let to = width.pixels() - label;
    Layout {
        width,
        column,
        axis: Axis::linear(low, high, from, to),
        left,
    }
}

/// In which row above the bars the letter of each reference goes, so that none lies on another.
fn badge_rows(marks: &[&Reference], layout: &Layout) -> Vec<usize> {
    let mut placed: Vec<(usize, f64)> = Vec::new();
    for mark in marks {
        let x = layout.axis.position(mark.value);
        let taken = |row: usize| placed.iter().any(|(other, at)| *other == row && (at - x).abs() < 20.0);
        let row = (0..).find(|row| !taken(*row)).unwrap_or(0);
        placed.push((row, x));
    }
    placed.into_iter().map(|(row, _)| row).collect()
}

/// The bars, the texts, and where they end.
fn draw_rows(rows: &[Row], layout: &Layout, top: f64) -> (String, String, f64) {
    let (mut bars, mut texts) = (String::new(), String::new());
    let mut y = top;
    for row in rows {
        let place = place(row, layout.width);
        let words = words(row, layout.column);
        bars += &svg::group(class(row), &words, &draw_bar(row, layout, y + place.middle));
        let label = draw_label(row, layout, y + place.first_line) + &draw_figure(row, layout, y + place.middle);
        texts += &svg::group(class(row), &words, &label);
        y += place.height;
    }
    (bars, texts, y)
}

/// Where the parts of a row lie, from its upper edge.
struct RowLayout {
    first_line: f64,
    middle: f64,
    height: f64,
}

/// On a wide plot the label stands beside the bar, on a narrow one above it.
fn place(row: &Row, width: Width) -> RowLayout {
    let label = LINE * row.label.len() as f64;
    let bar = BAR.max(REASON_LINE * row.reason.len() as f64);
    match width {
        Width::Wide => {
            let height = label.max(bar) + 10.0;
            RowLayout {
                first_line: (height - label + LINE) / 2.0 + 4.5,
                middle: height / 2.0,
                height,
            }
        }
        Width::Narrow => RowLayout {
            first_line: 14.0,
            middle: label + 4.0 + bar / 2.0,
            height: label + bar + 13.0,
        },
    }
}

fn draw_label(row: &Row, layout: &Layout, y: f64) -> String {
    let (x, anchor) = match layout.width {
        Width::Wide => (layout.left - 12.0, "end"),
        Width::Narrow => (2.0, "start"),
    };
    let size = svg::NORMAL * emphasis(row);
    let line =
        |(index, line): (usize, &String)| svg::text_on_paper(x, y + LINE * index as f64, anchor, "name", line, size);
    row.label.iter().enumerate().map(line).collect()
}

fn draw_bar(row: &Row, layout: &Layout, middle: f64) -> String {
    let Some(value) = row.value else { return String::new() };
    let (ground, end) = (layout.axis.position(0.0), layout.axis.position(value));
    svg::rectangle(ground, middle - BAR / 2.0, end - ground, BAR, "bar")
}

/// The figure at the end of the bar, or why there is none.
fn draw_figure(row: &Row, layout: &Layout, middle: f64) -> String {
    let Some(value) = row.value else {
        let first = middle + 4.5 - REASON_LINE * (row.reason.len() as f64 - 1.0) / 2.0;
        let line = |(index, line): (usize, &String)| {
            let y = first + REASON_LINE * index as f64;
            svg::text_on_paper(layout.left + 6.0, y, "start", "small muted figure", line, svg::SMALL)
        };
        return row.reason.iter().enumerate().map(line).collect();
    };
    let end = layout.axis.position(value);
    let (x, anchor) = if value < 0.0 {
        (end - 6.0, "end")
    } else {
        (end + 6.0, "start")
    };
    let size = svg::NORMAL * emphasis(row);
    svg::text_on_paper(x, middle + 4.5, anchor, "figure", &layout.column.show(value), size)
}

/// How much wider the row's texts are than plain ones.
fn emphasis(row: &Row) -> f64 {
    if result::side(row.case) == Side::Default {
        svg::BOLD
    } else {
        1.0
    }
}

fn words(row: &Row, column: &Column) -> String {
    let title = result::title(row.case);
    match (row.value, &row.case.skipped) {
        (Some(value), _) => format!("{title}: {}", column.show_with_unit(value)),
        (None, Some(reason)) => format!("{title}: skipped, {reason}"),
        (None, None) => format!("{title}: no value"),
    }
}

fn class(row: &Row) -> &'static str {
    match result::side(row.case) {
        Side::Default => "row default ours",
        Side::Ours => "row own",
        Side::Others => "row",
    }
}

/// The lines of the published figures with their letters, over the bars.
fn draw_marks(marks: &[&Reference], badges: &[usize], layout: &Layout, bottom: f64) -> String {
    let mut out = String::new();
    for (index, (mark, row)) in marks.iter().zip(badges).enumerate() {
        let x = layout.axis.position(mark.value);
        let y = 12.0 + 22.0 * *row as f64;
        let content = svg::line((x, y + 9.0), (x, bottom), "mark")
            + &svg::rectangle(x - 9.0, y - 9.0, 18.0, 18.0, "badge")
            + &svg::text(x, y + 4.5, "middle", "small letter", &letter(index));
        let tip = format!("{}: {} ({})", mark.source, number::exact(mark.value), mark.note);
        out += &svg::group("reference", &tip, &content);
    }
    out
}

/// What the colours and letters mean, from `top` on: the drawing, and where it ends.
fn key(rows: &[Row], marks: &[&Reference], layout: &Layout, top: f64) -> (String, f64) {
    let mut y = top;
    let mut out = String::new();
    let names = [
        (Side::Default, "row default", "tarn's default"),
        (Side::Ours, "row own", "another way of tarn's"),
        (Side::Others, "row", "others"),
    ];
    let is_present = |name: &(Side, _, _)| rows.iter().any(|row| result::side(row.case) == name.0);
    let present: Vec<_> = names.into_iter().filter(is_present).collect();
    if present.len() > 1 {
        let mut x = 0.0;
        for (_, class, name) in present {
            let content = svg::rectangle(x, y + 2.0, 12.0, 12.0, "bar")
                + &svg::text(x + 17.0, y + 12.5, "start", "small muted", name);
            out += &svg::group(class, name, &content);
            x += 17.0 + markup::width(name, svg::SMALL) + 12.0;
        }
        y += 26.0;
    }
    for (index, mark) in marks.iter().enumerate() {
        let text = format!(
            "{} published: {}, {}",
            number::exact(mark.value),
            mark.source,
            mark.note
        );
        out += &svg::rectangle(0.0, y, 18.0, 18.0, "badge");
        out += &svg::text(9.0, y + 13.5, "middle", "small letter", &letter(index));
        let lines = wrap(&text, svg::SMALL, layout.width.pixels() - 26.0, 4);
        out += &svg::paragraph(26.0, y + 13.5, LINE, "small", &lines);
        y += LINE * lines.len() as f64 + 8.0;
    }
    (out, y)
}

/// `a`, `b`, ... `z`, then numbers.
fn letter(index: usize) -> String {
    let letter = u8::try_from(index)
        .ok()
        .filter(|index| *index < 26)
        .map(|index| char::from(b'a' + index));
    letter.map_or_else(|| (index + 1).to_string(), String::from)
}

fn describe(rows: &[Row], marks: &[&Reference], column: &Column) -> String {
    let of_mark = |mark: &&Reference| format!("published, {}: {}", mark.source, number::exact(mark.value));
    let parts: Vec<String> = rows
        .iter()
        .map(|row| words(row, column))
        .chain(marks.iter().map(of_mark))
        .collect();
    format!("Bars of {}. {}.", column.title, parts.join("; "))
}
