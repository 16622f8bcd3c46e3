//! Cumulative distributions: one stepped line a case, and above them the slowest tenth, magnified.

use std::cmp::Ordering;

use crate::experiment::Outcome;

use super::super::axis::{Axis, Tick, extent};
use super::super::distribution::{Distribution, thin};
use super::super::number;
use super::super::result::{self, Line};
use super::legend::{self, Item};
use super::svg::{self, Area, Px};
use super::{Drawing, Width};

/// Steps closer than this, in pixels, are drawn as one.
const TOLERANCE: f64 = 0.7;

/// Markers on each line.
const MARKERS: usize = 3;

/// The share of values that the magnified part shows.
const TAIL: f64 = 0.1;

/// With fewer values than this the magnified part would show single values, and is left out.
const VALUES_FOR_TAIL: usize = 100;

/// A case's line and its values in order.
struct Curve<'a> {
    line: Line<'a>,
    distribution: Distribution,
}

/// Draws the distributions of `series`; `None` when it has no values.
pub fn draw(outcome: &Outcome, series: &str, logarithmic: bool, width: Width) -> Option<Drawing> {
    let mut curves: Vec<Curve> = result::lines(outcome, series).into_iter().map(Curve::of).collect();
    curves.retain(|curve| !curve.distribution.values().is_empty());
    // In the legend as in the picture, from left to right.
    curves.sort_by(|a, b| {
        a.distribution
            .median()
            .partial_cmp(&b.distribution.median())
            .unwrap_or(Ordering::Equal)
    });
    let unit = curves.first()?.line.unit;
    let most_values = curves.iter().map(|curve| curve.distribution.values().len()).max()?;
    let (left, right) = (58.0, width.pixels() - 10.0);
    let x = horizontal_axis(&curves, logarithmic || has_outliers(&curves), left, right);
    let mut body = String::new();
    let mut top = 8.0;
    if most_values >= VALUES_FOR_TAIL {
        let tail = Area {
            left,
            right,
            top: 22.0,
            bottom: 128.0,
        };
        body += &draw_tail(&curves, &x, &tail, most_values, width);
        top = tail.bottom + 34.0;
        body += &svg::text(left, top - 9.0, "start", "small muted", "all values");
    }
    let area = Area {
        left,
        right,
        top,
        bottom: top + 220.0,
    };
    body += &draw_whole(&curves, &x, &area, unit, width);
    let items: Vec<Item> = curves.iter().map(Curve::item).collect();
    let (key, height) = legend::draw(&items, area.bottom + 52.0, width);
    Some(Drawing {
        height,
        body: body + &key,
        description: format!(
            "Cumulative distribution of {} cases. {}.",
            items.len(),
            legend::words(&items)
        ),
    })
}

/// How the figures of the legend are called.
const HEADS: &[&str] = &["median", "99 %", "max."];

impl<'a> Curve<'a> {
    fn of(line: Line<'a>) -> Self {
        Self {
            distribution: line.distribution(),
            line,
        }
    }

    fn item(&self) -> Item<'a> {
        let figures = [
            self.distribution.median(),
            self.distribution.quantile(0.99),
            self.distribution.quantile(1.0),
        ];
        let show =
            |value: Option<f64>| value.map_or(number::NO_VALUE.to_owned(), |value| number::significant(value, 3));
        Item::new(&self.line, HEADS, figures.map(show).to_vec())
    }
}

/// The cumulative distribution from 0 to 100 %.
fn draw_whole(curves: &[Curve], x: &Axis, area: &Area, unit: &str, width: Width) -> String {
    let y = Axis::linear(0.0, 1.0, area.bottom, area.top);
    let tick = |percent: u8| Tick {
        value: f64::from(percent) / 100.0,
        label: format!("{percent} %"),
    };
    let mut out = area.horizontal(x, &x.ticks(width.ticks()), unit);
    out += &area.vertical(&y, &[0, 25, 50, 75, 100].map(tick));
    for (index, curve) in in_drawing_order(curves) {
        let item = curve.item();
        let points = curve
            .distribution
            .cumulative()
            .map(|(value, share)| (x.position(value), y.position(share)));
        let mut content = item.style.path(&steps(&thin(points, TOLERANCE), area.bottom));
        // Each line carries its markers at heights of its own, so that they do not cover each other.
        let stagger = (index as f64 + 0.5) / curves.len() as f64;
        let shares = (0..MARKERS).map(|marker| (marker as f64 + stagger) / MARKERS as f64);
        content.extend(shares.filter_map(|share| {
            Some(
                item.style
                    .marker((x.position(curve.distribution.quantile(share)?), y.position(share))),
            )
        }));
        out += &item.group(&content);
    }
    out
}

/// The slowest tenth: 90, 99, 99.9 % ... at equal distances.
fn draw_tail(curves: &[Curve], x: &Axis, area: &Area, most_values: usize, width: Width) -> String {
    let least = 1.0 / most_values as f64;
    let y = Axis::logarithmic(least, TAIL, area.top, area.bottom);
    let nines = (1..)
        .map(|power| 0.1f64.powi(power))
        .take_while(|share| *share >= least * 0.999);
    let ticks: Vec<Tick> = nines
        .map(|share| Tick {
            value: share,
            label: format!(
                "{} %",
                number::significant(100.0 - share * 100.0, 8)
                    .trim_end_matches('0')
                    .trim_end_matches('.')
            ),
        })
        .collect();
    let mut out = svg::text(
        area.left,
        area.top - 9.0,
        "start",
        "small muted",
        "the slowest tenth, magnified",
    );
    out += &area.grid(x, &x.ticks(width.ticks()));
    out += &area.vertical(&y, &ticks);
    for (_, curve) in in_drawing_order(curves) {
        let item = curve.item();
        // The share above the greatest value is none; the line ends at the share that the greatest value is.
        let own_least = 1.0 / curve.distribution.values().len() as f64;
        let above = curve.distribution.cumulative().filter(|(_, share)| 1.0 - share <= TAIL);
        let points: Vec<_> = above
            .map(|(value, share)| (x.position(value), y.position((1.0 - share).max(own_least))))
            .collect();
        let end = points.last().map_or(String::new(), |end| item.style.marker(*end));
        out += &item.group(&(item.style.path(&steps(&thin(points, TOLERANCE), area.bottom)) + &end));
    }
    out
}

/// tarn's default last, on top of the others.
fn in_drawing_order<'a, 'b>(curves: &'b [Curve<'a>]) -> Vec<(usize, &'b Curve<'a>)> {
    let mut order: Vec<_> = curves.iter().enumerate().collect();
    order.sort_by_key(|(_, curve)| curve.line.default);
    order
}

/// The steps through `points`, from the ground up.
fn steps(points: &[(f64, f64)], ground: f64) -> String {
    let Some(first) = points.first() else {
        return String::new();
    };
    let mut path = format!("M{} {}V{}", Px(first.0), Px(ground), Px(first.1));
    for point in &points[1..] {
        path += &format!("H{}V{}", Px(point.0), Px(point.1));
    }
    path
}

/// From the least to the greatest value; from zero when that costs less than a third of the room.
fn horizontal_axis(curves: &[Curve], logarithmic: bool, left: f64, right: f64) -> Axis {
    let values = || curves.iter().flat_map(|curve| curve.distribution.values()).copied();
    let (low, high) = extent(values()).unwrap_or_default();
    let least_positive = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    if logarithmic && least_positive.is_finite() {
        return Axis::logarithmic(least_positive, high, left, right);
    }
    let low = if low > 0.0 && low < high / 3.0 { 0.0 } else { low };
    Axis::linear(low, high, left, right)
}

/// How far beyond the calm part of every case the slowest value may lie on a linear axis.
const OUTLIER: f64 = 8.0;

/// Whether `series` is drawn with a logarithmic axis although nobody asked for one.
pub fn is_widened(outcome: &Outcome, series: &str) -> bool {
    let curves: Vec<Curve> = result::lines(outcome, series).into_iter().map(Curve::of).collect();
    has_outliers(&curves)
}

/// Whether a few slow values would squeeze everything else into the left edge of a linear axis.
fn has_outliers(curves: &[Curve]) -> bool {
    let most = |share| {
        curves
            .iter()
            .filter_map(|curve| curve.distribution.quantile(share))
            .fold(0.0, f64::max)
    };
    let least = curves
        .iter()
        .filter_map(|curve| curve.distribution.quantile(0.0))
        .fold(f64::INFINITY, f64::min);
    least > 0.0 && most(1.0) > OUTLIER * most(0.95)
}
