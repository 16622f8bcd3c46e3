//! A series over time. A few cases share one picture; many get a strip each, below each other, on one scale.

use crate::experiment::{Lanes, Outcome};

use super::super::axis::{Axis, Tick, extent};
use super::super::distribution::thin_course;
use super::super::markup;
use super::super::number;
use super::super::result::{self, Line};
use super::legend::{self, Item};
use super::svg::{self, Area, Px};
use super::{Drawing, Width};

mod lanes;

/// Values within a column this wide, in pixels, are drawn as their extremes.
const COLUMN: f64 = 1.0;

/// Markers on each line.
const MARKERS: usize = 4;

/// More lines than this over each other cannot be followed.
const MOST_TOGETHER: usize = 3;

/// How the figures of the legend are called.
const HEADS: &[&str] = &["min.", "max."];

/// The scales that all lines share.
struct Scale<'a> {
    low: f64,
    high: f64,
    /// The ends of the horizontal axis.
    ends: (f64, f64),
    unit: &'a str,
    numbers: Numbers<'a>,
    width: Width,
}

/// How the values are numbered along the horizontal axis.
#[derive(Debug, Clone, Copy)]
pub struct Numbers<'a> {
    /// What the numbers are: the axis's title.
    pub title: &'a str,
    /// That of the first value.
    pub from: u32,
    /// From one to the next.
    pub step: u32,
}

impl Numbers<'_> {
    fn of(self, index: usize) -> f64 {
        f64::from(self.from) + index as f64 * f64::from(self.step)
    }
}

/// Whether the lanes of the values can be shown: every line has its companions.
pub fn shows(outcome: &Outcome, series: &str, lanes: &Lanes) -> bool {
    lanes::courses(outcome, lanes, &drawn(outcome, series)).is_some()
}

/// The lines that have values.
fn drawn<'a>(outcome: &'a Outcome, series: &str) -> Vec<Line<'a>> {
    let mut lines = result::lines(outcome, series);
    lines.retain(|line| line.values.iter().any(|value| value.is_finite()));
    lines
}

/// Draws the course of `series`, with the lanes of the values where they are known; `None` when it has no values.
pub fn draw(outcome: &Outcome, series: &str, numbers: Numbers, lanes: Option<&Lanes>, width: Width) -> Option<Drawing> {
    let lines = drawn(outcome, series);
    let (low, high) = extent(lines.iter().flat_map(|line| &line.values).copied())?;
    let low = if low > 0.0 && low < high / 2.0 { 0.0 } else { low };
    let length = lines.iter().map(|line| line.values.len()).max()?;
    let scale = Scale {
        low,
        high,
        ends: (numbers.of(0), numbers.of(length - 1)),
        unit: lines.first()?.unit,
        numbers,
        width,
    };
    if let Some((lanes, courses)) = lanes.and_then(|lanes| Some((lanes, lanes::courses(outcome, lanes, &lines)?))) {
        return Some(lanes::draw(lanes, &courses, scale));
    }
    let (body, height) = if lines.len() > MOST_TOGETHER {
        strips(&lines, &scale)
    } else {
        together(&lines, &scale)
    };
    Some(Drawing {
        height,
        body,
        description: describe(&lines),
    })
}

/// All lines in one picture, and a legend.
fn together(lines: &[Line], scale: &Scale) -> (String, f64) {
    let (top, bottom) = (26.0, if scale.width == Width::Wide { 268.0 } else { 228.0 });
    let ticks = Axis::linear(scale.low, scale.high, bottom, top).ticks(5);
    let area = Area {
        left: svg::label_room(&ticks),
        right: scale.width.pixels() - 10.0,
        top,
        bottom,
    };
    let (x, y) = scale.axes(&area);
    let mut body = svg::text(0.0, 12.0, "start", "small muted", scale.unit);
    body += &area.horizontal(&x, &x.ticks(scale.width.ticks()), scale.numbers.title);
    body += &area.vertical(&y, &ticks);
    let mut order: Vec<(usize, &Line)> = lines.iter().enumerate().collect();
    order.sort_by_key(|(_, line)| line.default);
    for (index, line) in order {
        body += &course(line, scale, (&x, &y), Some((index as f64 + 0.5) / lines.len() as f64));
    }
    let items: Vec<Item> = lines.iter().map(item).collect();
    let (key, height) = legend::draw(&items, area.bottom + 52.0, scale.width);
    (body + &key, height)
}

/// The height of a strip.
const STRIP: f64 = 44.0;

/// A strip a line with the case's title above it; the lowest carries the axis.
fn strips(lines: &[Line], scale: &Scale) -> (String, f64) {
    let ticks = ends(&Axis::linear(scale.low, scale.high, STRIP, 0.0).ticks(3));
    let (left, right) = (svg::label_room(&ticks), scale.width.pixels() - 10.0);
    let mut out = svg::text(0.0, 12.0, "start", "small muted", scale.unit);
    let mut bottom = 8.0;
    for (index, line) in lines.iter().enumerate() {
        let top = bottom + 24.0;
        bottom = top + STRIP;
        let area = Area {
            left,
            right,
            top,
            bottom,
        };
        let (x, y) = scale.axes(&area);
        let time = x.ticks(scale.width.ticks());
        out += &if index + 1 == lines.len() {
            area.horizontal(&x, &time, scale.numbers.title)
        } else {
            area.grid(&x, &time)
        };
        out += &area.vertical(&y, &ticks);
        out += &heading(line, &area);
        out += &course(line, scale, (&x, &y), None);
    }
    (out, bottom + 44.0)
}

/// The case's title above its strip.
fn heading(line: &Line, area: &Area) -> String {
    let title = markup::wrap(line.title, svg::NORMAL, area.right - area.left, 1).join("");
    let name = svg::text(area.left, area.top - 7.0, "start", "name", &title);
    item(line).group(&name)
}

/// The first and the last of some ticks: what a strip has room for.
fn ends(ticks: &[Tick]) -> Vec<Tick> {
    let mut ends: Vec<Tick> = ticks.first().into_iter().chain(ticks.last()).cloned().collect();
    ends.dedup();
    ends
}

impl Scale<'_> {
    fn axes(&self, area: &Area) -> (Axis, Axis) {
        let x = Axis::linear(self.ends.0, self.ends.1, area.left, area.right);
        (x, Axis::linear(self.low, self.high, area.bottom, area.top))
    }
}

/// One line; with markers, at places shifted by `stagger` in 0..1, where it shares the picture with others.
fn course(line: &Line, scale: &Scale, (x, y): (&Axis, &Axis), stagger: Option<f64>) -> String {
    let item = item(line);
    let place = |index: usize| (x.position(scale.numbers.of(index)), y.position(line.values[index]));
    let indices: Vec<usize> = (0..line.values.len())
        .filter(|&index| line.values[index].is_finite())
        .collect();
    let mut path = String::new();
    // Where a value is missing the line is interrupted.
    for run in indices.chunk_by(|a, b| a + 1 == *b) {
        let points: Vec<_> = run.iter().map(|&index| place(index)).collect();
        path += &joined(&thin_course(&points, COLUMN));
    }
    let Some(stagger) = stagger else {
        return item.group(&item.style.solid(&path));
    };
    let mut content = item.style.path(&path);
    for at in (0..MARKERS).map(|marker| (marker as f64 + stagger) / MARKERS as f64) {
        content += &indices
            .get((at * indices.len() as f64) as usize)
            .map_or(String::new(), |&index| item.style.marker(place(index)));
    }
    item.group(&content)
}

fn joined(points: &[(f64, f64)]) -> String {
    let Some(first) = points.first() else {
        return String::new();
    };
    // A value that stands alone is a dot: a line of no length with round ends.
    let mut path = format!("M{} {}h0", Px(first.0), Px(first.1));
    for point in &points[1..] {
        path += &format!("L{} {}", Px(point.0), Px(point.1));
    }
    path
}

fn item<'a>(line: &Line<'a>) -> Item<'a> {
    let (low, high) = extent(line.values.iter().copied()).unwrap_or((f64::NAN, f64::NAN));
    let figures = vec![number::significant(low, 3), number::significant(high, 3)];
    Item::new(line, HEADS, figures)
}

fn describe(lines: &[Line]) -> String {
    let items: Vec<Item> = lines.iter().map(item).collect();
    format!("Course of {} cases. {}.", lines.len(), legend::words(&items))
}
