//! Values of a few groups side by side, each beside what it was promised: a row a group, a marker a case.

use crate::experiment::Outcome;

use super::super::axis::{Axis, extent};
use super::super::markup;
use super::super::number;
use super::super::result::{self, Line};
use super::legend::{self, Item};
use super::svg::{self, Area};
use super::{Drawing, Width};

/// The height of a marker, and of the room below and above all of a row.
const MARKER: f64 = 10.0;
const MARGIN: f64 = 5.0;

/// The groups' names, and what they were promised.
type Groups<'a> = (&'a [&'a str], &'a [f64]);

/// Draws `series`, whose values are those of the groups; `None` when it has no values.
pub fn draw(outcome: &Outcome, series: &str, groups: Groups, width: Width) -> Option<Drawing> {
    let (names, promised) = groups;
    let mut lines = result::lines(outcome, series);
    for line in &mut lines {
        line.values.truncate(names.len());
    }
    lines.retain(|line| line.values.iter().any(|value| value.is_finite()));
    let unit = lines.first()?.unit;
    let row = MARKER * lines.len() as f64 + 2.0 * MARGIN;
    let room = names.iter().map(|name| markup::width(name, svg::NORMAL));
    let area = Area {
        left: room.fold(0.0, f64::max) + 12.0,
        right: width.pixels() - 10.0,
        top: 4.0,
        bottom: 4.0 + row * names.len() as f64,
    };
    let x = axis(&lines, promised, &area);
    let mut body = area.horizontal(&x, &x.ticks(width.ticks()), unit);
    for (index, name) in names.iter().enumerate() {
        let top = area.top + row * index as f64;
        body += &svg::line((0.0, top), (area.right, top), "grid");
        body += &svg::text(0.0, top + row / 2.0 + 4.0, "start", "", name);
        if let Some(promised) = promised.get(index).map(|value| x.position(*value)) {
            body += &svg::line((promised, top + 2.0), (promised, top + row - 2.0), "mark");
        }
    }
    let items: Vec<Item> = lines.iter().map(|line| item(line, promised)).collect();
    for (place, (line, item)) in lines.iter().zip(&items).enumerate() {
        body += &markers(line, item, place, (&x, &area), row);
    }
    let (key, height) = legend::draw(&items, area.bottom + 52.0, width);
    Some(Drawing {
        height,
        body: body + &key,
        description: format!("Groups beside what they were promised. {}.", legend::words(&items)),
    })
}

/// How the figures of the legend are called.
const HEADS: &[&str] = &["kept", "min.", "max."];

/// From zero, so that places compare as values do.
fn axis(lines: &[Line], promised: &[f64], area: &Area) -> Axis {
    let values = lines.iter().flat_map(|line| &line.values).chain(promised);
    let (low, high) = extent(values.copied().chain([0.0])).unwrap_or_default();
    Axis::linear(low, high, area.left, area.right)
}

/// A case's markers, at a height of its own in every row, so that no case covers another.
fn markers(line: &Line, item: &Item, place: usize, (x, area): (&Axis, &Area), row: f64) -> String {
    let within = MARGIN + MARKER * (place as f64 + 0.5);
    let values = line.values.iter().enumerate().filter(|(_, value)| value.is_finite());
    let content: String = values
        .map(|(group, value)| {
            item.style
                .marker((x.position(*value), area.top + row * group as f64 + within))
        })
        .collect();
    item.group(&content)
}

fn item<'a>(line: &Line<'a>, promised: &[f64]) -> Item<'a> {
    let (low, high) = extent(line.values.iter().copied()).unwrap_or((f64::NAN, f64::NAN));
    let kept = line
        .values
        .iter()
        .zip(promised)
        .filter(|(value, promised)| value >= promised);
    let figures = vec![
        format!("{} of {}", kept.count(), promised.len()),
        number::significant(low, 3),
        number::significant(high, 3),
    ];
    Item::new(line, HEADS, figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader takes for kept has been.
    #[test]
    fn a_promise_is_kept_from_its_value_on() {
        let line = |values: &[f64]| Line {
            place: 0,
            case: "tarn",
            title: "tarn",
            default: true,
            unit: "%",
            values: values.to_vec(),
        };
        let kept = |values: &[f64]| item(&line(values), &[90.0, 80.0]).figures[0].clone();
        assert_eq!(kept(&[90.0, 81.0]), "2 of 2");
        assert_eq!(kept(&[89.9, 81.0]), "1 of 2");
        assert_eq!(kept(&[99.0]), "1 of 2");
    }
}
