//! A course whose values are of several sorts: a strip a case, drawn in the colour of the sort, and below it a lane a sort that is
//! filled while values are of that sort, so that it can be read without colour.
//!
//! ```text
//!   wan1 ━━━  20 ms; dies            what the lanes are
//!   tarn, calmest                    the case
//!    35 │           ____________
//!     0 │__________                  the values
//!  wan1 │━━━━━━━━━                   the lanes
//!  wan2 │           ━━━━━━━━━━━━
//! ```

use crate::experiment::{Lanes, Outcome};

use super::super::super::axis::{Axis, Tick, extent};
use super::super::super::distribution::thin_course;
use super::super::super::markup;
use super::super::super::result::{self, Line};
use super::super::Drawing;
use super::super::legend::COLOURS;
use super::super::svg::{self, Area, Px};
use super::{COLUMN, Numbers, STRIP, Scale, describe, ends, heading, joined};

/// From one lane to the next.
const LANE: f64 = 12.0;
/// Between a strip and its lanes.
const ABOVE_LANES: f64 = 9.0;
/// Above a strip, for the case's title.
const TITLE: f64 = 32.0;
/// Between the lines of the legend, and the length of its samples.
const ROW: f64 = 18.0;
const SAMPLE: f64 = 26.0;
/// Values this many times the mean distance apart, and more, have a pause between them, over which no line is drawn. Of values thinned by
/// [`crate::stats::thin`] two that follow each other are less than four apart.
const PAUSE: f64 = 4.0;

/// A line with the lane and the time of each of its values.
pub struct Course<'a> {
    line: Line<'a>,
    /// Indices in [`Lanes::names`].
    lanes: Vec<usize>,
    /// In seconds.
    times: Vec<f64>,
}

/// The lines with their companions; `None` where one lacks them.
pub fn courses<'a>(outcome: &Outcome, lanes: &Lanes, lines: &[Line<'a>]) -> Option<Vec<Course<'a>>> {
    let (indices, times) = (result::lines(outcome, lanes.series), result::lines(outcome, lanes.time));
    let of = |companions: &[Line], line: &Line| {
        let companion = companions.iter().find(|companion| companion.case == line.case)?;
        (companion.values.len() == line.values.len()).then(|| companion.values.clone())
    };
    let index = |value: f64| (0..lanes.names.len()).find(|&index| value == index as f64);
    let said = said_by_all(lines);
    let course = |line: &Line<'a>| {
        Some(Course {
            line: Line {
                title: line.title.strip_suffix(said).unwrap_or(line.title),
                ..line.clone()
            },
            lanes: of(&indices, line)?.into_iter().map(index).collect::<Option<_>>()?,
            times: of(&times, line).filter(|times| times.iter().all(|time| time.is_finite()))?,
        })
    };
    lines.iter().map(course).collect()
}

/// What all titles say behind a colon, with the colon: the plot's own title says it, too.
fn said_by_all<'a>(lines: &[Line<'a>]) -> &'a str {
    let of = |line: &Line<'a>| line.title.find(": ").map_or("", |colon| &line.title[colon..]);
    let first = lines.first().map_or("", of);
    let is_common = lines.len() > 1 && lines.iter().all(|line| of(line) == first);
    if is_common { first } else { "" }
}

/// The legend, and below it a strip and the lanes of each course.
pub fn draw(lanes: &Lanes, courses: &[Course], scale: Scale) -> Drawing {
    let scale = Scale {
        ends: extent(courses.iter().flat_map(|course| &course.times).copied()).unwrap_or_default(),
        numbers: Numbers {
            title: lanes.x,
            ..scale.numbers
        },
        ..scale
    };
    let (mut body, mut bottom) = legend(lanes, &scale);
    let unit = (left(lanes, &scale) - 7.0, bottom + TITLE - 7.0);
    body += &svg::text(unit.0, unit.1, "end", "small muted", scale.unit);
    for (index, course) in courses.iter().enumerate() {
        let is_last = index + 1 == courses.len();
        body += &course.draw(lanes, &scale, bottom + TITLE, is_last);
        bottom += TITLE + height(lanes);
    }
    let lines: Vec<Line> = courses.iter().map(|course| course.line.clone()).collect();
    Drawing {
        height: bottom + 44.0,
        body,
        description: format!("{} {}", describe(&lines), words(lanes)),
    }
}

/// The height of a strip with its lanes.
fn height(lanes: &Lanes) -> f64 {
    STRIP + ABOVE_LANES + LANE * lanes.names.len() as f64
}

/// The vertical axis of a strip.
fn ticks(scale: &Scale) -> Vec<Tick> {
    ends(&Axis::linear(scale.low, scale.high, STRIP, 0.0).ticks(3))
}

/// The left edge of strips and lanes: before it stand the names of the lanes and the labels of the vertical axis.
fn left(lanes: &Lanes, scale: &Scale) -> f64 {
    let names = lanes
        .names
        .iter()
        .map(|(name, _)| markup::width(name, svg::SMALL) + 9.0);
    names.fold(svg::label_room(&ticks(scale)), f64::max)
}

fn words(lanes: &Lanes) -> String {
    let names: Vec<String> = lanes
        .names
        .iter()
        .map(|(name, what)| format!("{name}, {what}"))
        .collect();
    format!("{}: {}.", lanes.noun, names.join("; "))
}

/// The classes of everything that belongs to a lane: its colour, and what stays in sight under the pointer.
fn class(lane: usize) -> String {
    format!("k k{lane} c{}", lane % COLOURS)
}

/// What the lanes are, a line each; and where it ends.
fn legend(lanes: &Lanes, scale: &Scale) -> (String, f64) {
    let left = left(lanes, scale);
    let mut out = String::new();
    let mut y = 8.0;
    for (lane, (name, what)) in lanes.names.iter().enumerate() {
        let mut content = svg::text(left - 7.0, y + 4.0, "end", "small", name) + &bar(left, left + SAMPLE, y);
        let text = left + SAMPLE + 9.0;
        let lines = markup::wrap(what, svg::SMALL, scale.width.pixels() - text, 2);
        content += &svg::paragraph(text, y + 4.0, ROW, "small", &lines);
        y += ROW * lines.len() as f64;
        out += &svg::group(&class(lane), &format!("{name}, {what}"), &content);
    }
    (out, y)
}

/// A bar in a lane.
fn bar(from: f64, to: f64, y: f64) -> String {
    // What is shorter than a pixel would hardly be seen.
    format!(
        r#"<path class="lane" d="M{} {}h{}"/>"#,
        Px(from),
        Px(y),
        Px((to - from).max(1.0))
    )
}

impl Course<'_> {
    /// Title, strip and lanes; the last course carries the axis.
    fn draw(&self, lanes: &Lanes, scale: &Scale, top: f64, is_last: bool) -> String {
        let strip = Area {
            left: left(lanes, scale),
            right: scale.width.pixels() - 10.0,
            top,
            bottom: top + STRIP,
        };
        let whole = Area {
            bottom: top + height(lanes),
            ..strip
        };
        let (x, y) = scale.axes(&strip);
        let time = x.ticks(scale.width.ticks());
        let mut out = if is_last {
            whole.horizontal(&x, &time, scale.numbers.title)
        } else {
            whole.grid(&x, &time)
        };
        out += &strip.vertical(&y, &ticks(scale));
        out += &heading(&self.line, &strip);
        for (lane, (name, _)) in lanes.names.iter().enumerate() {
            let middle = strip.bottom + ABOVE_LANES + LANE * (lane as f64 + 0.5);
            out += &svg::text(strip.left - 7.0, middle + 4.0, "end", "small muted", name);
            let content = self.of_lane(lane, (&x, &y), middle);
            out += &svg::group(&class(lane), &format!("{}: {name}", self.line.title), &content);
        }
        out
    }

    /// The values that came by one lane, and its lane around `middle`.
    fn of_lane(&self, lane: usize, (x, y): (&Axis, &Axis), middle: f64) -> String {
        let place = |&index: &usize| (x.position(self.times[index]), y.position(self.line.values[index]));
        let (mut values, mut lanes) = (String::new(), String::new());
        for run in self.runs().iter().filter(|run| self.lanes[run[0]] == lane) {
            let points: Vec<_> = run.iter().map(place).collect();
            values += &joined(&thin_course(&points, COLUMN));
            lanes += &bar(points[0].0, points[points.len() - 1].0, middle);
        }
        format!(r#"<path class="line thin" d="{values}"/>{lanes}"#)
    }

    /// Values that follow each other by the same lane without a pause.
    fn runs(&self) -> Vec<Vec<usize>> {
        let indices: Vec<usize> = (0..self.lanes.len())
            .filter(|&index| self.line.values[index].is_finite())
            .collect();
        let whole = self
            .times
            .last()
            .zip(self.times.first())
            .map_or(0.0, |(last, first)| last - first);
        let pause = PAUSE * whole / self.times.len().max(1) as f64;
        let together = |a: usize, b: usize| self.lanes[a] == self.lanes[b] && self.times[b] - self.times[a] <= pause;
        indices
            .chunk_by(|&a, &b| together(a, b))
            .map(<[usize]>::to_vec)
            .collect()
    }
}
