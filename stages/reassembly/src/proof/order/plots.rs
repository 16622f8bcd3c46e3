//! The plots: how many times as much a fragment costs in the stock kernel, beside the goal.

use super::goals::{FUNCTION_BOUNDS, PATH_BOUNDS};
use super::load::{self, Order, PATH_SHAPES};
use super::{FUNCTION, PATH};
use tarn_lab::experiment::{Measurement, Plot, Series};

const FUNCTION_RATIO: &str = "function_ratio";
const PATH_RATIO: &str = "path_ratio";
const TRACKED_RATIO: &str = "path_ratio_conntrack";

/// The plots of the report.
pub static PLOTS: &[Plot] = &[
    groups(
        "The function: what a fragment costs in the stock kernel, in times of what it costs in tarn",
        FUNCTION_RATIO,
        FUNCTION_GROUPS,
        &FUNCTION_PROMISED,
    ),
    groups(
        "The whole path: the same",
        PATH_RATIO,
        PATH_GROUPS,
        &[100.0 / PATH_BOUNDS[0].1; PATH_GROUPS.len()],
    ),
    groups(
        "The whole path: the same, where the stock kernel tracks connections",
        TRACKED_RATIO,
        PATH_GROUPS,
        &[100.0 / PATH_BOUNDS[1].1; PATH_GROUPS.len()],
    ),
];

/// [`FUNCTION_BOUNDS`], in words.
static FUNCTION_GROUPS: &[&str] = &[
    "2, reverse",
    "2, random",
    "8, in-order",
    "8, reverse",
    "8, random",
    "45, in-order",
    "45, reverse",
    "45, random",
    "200, in-order",
    "200, reverse",
    "200, random",
    "1000, in-order",
    "1000, reverse",
    "1000, random",
];

/// What goes over the whole path, in words.
static PATH_GROUPS: &[&str] = &[
    "8, in-order",
    "8, reverse",
    "8, random",
    "8, halves",
    "45, in-order",
    "45, reverse",
    "45, random",
    "45, halves",
    "200, in-order",
    "200, reverse",
    "200, random",
    "200, halves",
];

static FUNCTION_PROMISED: [f64; FUNCTION_BOUNDS.len()] = promised();

const fn promised() -> [f64; FUNCTION_BOUNDS.len()] {
    let mut promised = [0.0; FUNCTION_BOUNDS.len()];
    let mut index = 0;
    while index < promised.len() {
        promised[index] = 100.0 / FUNCTION_BOUNDS[index].2;
        index += 1;
    }
    promised
}

const fn groups(
    title: &'static str,
    series: &'static str,
    groups: &'static [&'static str],
    promised: &'static [f64],
) -> Plot {
    Plot::Groups {
        title,
        series,
        groups,
        promised,
        promise: "the goal",
    }
}

fn function_points() -> Vec<(u32, Order)> {
    FUNCTION_BOUNDS
        .iter()
        .map(|(fragments, order, _)| (*fragments, *order))
        .collect()
}

fn path_points() -> Vec<(u32, Order)> {
    let shapes = PATH_SHAPES.iter();
    shapes
        .flat_map(|(fragments, _)| Order::ALL.map(|order| (*fragments, order)))
        .collect()
}

/// The series of the plots, as far as all of their points were measured.
pub fn series(measurement: &Measurement) -> Vec<Series> {
    let plots = [
        (FUNCTION_RATIO, function_points(), FUNCTION, "mainline"),
        (PATH_RATIO, path_points(), PATH, "mainline"),
        (TRACKED_RATIO, path_points(), PATH, "mainline-conntrack"),
    ];
    let mut all = Vec::new();
    for (name, points, metric, other) in plots {
        for (is_v6, family) in [(false, "IPv4"), (true, "IPv6")] {
            let ratio = |(fragments, order): &(u32, Order)| {
                let of = |who| measurement.figure(&load::name(who, *order, *fragments, is_v6), metric);
                Some(of(other)? / of("tarn")?)
            };
            if let Some(values) = points.iter().map(ratio).collect() {
                all.push(Series {
                    case: family.to_owned(),
                    name: name.to_owned(),
                    unit: "times".to_owned(),
                    values,
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a figure would stand beside the name of another.
    #[test]
    fn the_plots_name_the_points_in_their_order() {
        let names = |points: Vec<(u32, Order)>| -> Vec<String> {
            points
                .iter()
                .map(|(fragments, order)| format!("{fragments}, {}", order.name()))
                .collect()
        };
        assert_eq!(names(function_points()), FUNCTION_GROUPS);
        assert_eq!(names(path_points()), PATH_GROUPS);
    }
}
