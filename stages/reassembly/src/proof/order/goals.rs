//! What the figures are held against: the goal of the stage.

use super::load::{self, Order, PATH_SHAPES, SHAPES};
use super::{FUNCTION, PATH};
use tarn_lab::experiment::{Case, Check, Measurement};

/// Of the stock kernel's function, what tarn's may be in percent, by fragments and order.
pub const FUNCTION_BOUNDS: [(u32, Order, f64); 14] = [
    (2, Order::Reverse, 70.0),
    (2, Order::Random, 70.0),
    (8, Order::Forward, 65.0),
    (8, Order::Reverse, 65.0),
    (8, Order::Random, 65.0),
    (45, Order::Forward, 65.0),
    (45, Order::Reverse, 55.0),
    (45, Order::Random, 55.0),
    (200, Order::Forward, 65.0),
    (200, Order::Reverse, 50.0),
    (200, Order::Random, 50.0),
    (1000, Order::Forward, 65.0),
    (1000, Order::Reverse, 50.0),
    (1000, Order::Random, 50.0),
];
/// So far apart may the orders be, in percent, from so many fragments on.
const APART: f64 = 5.0;
const ALIKE_FROM: u32 = 8;
/// Of the whole path, in percent: of the stock kernel's, and of its with connection tracking.
pub const PATH_BOUNDS: [(&str, f64); 2] = [("mainline", 50.0), ("mainline-conntrack", 80.0)];

/// Makes one row of what both parts of a family know of a case, and adds the goals.
pub fn conclude(measurement: &mut Measurement) {
    join_rows(&mut measurement.cases);
    let mut goals = Vec::new();
    for is_v6 in [false, true] {
        let function = |(fragments, order, bound)| function(measurement, fragments, order, is_v6, bound);
        goals.extend(FUNCTION_BOUNDS.into_iter().filter_map(function));
        for (fragments, _) in SHAPES.into_iter().filter(|(fragments, _)| *fragments >= ALIKE_FROM) {
            goals.extend(alike(measurement, fragments, is_v6));
        }
        for (other, bound) in PATH_BOUNDS {
            goals.extend(path(measurement, other, is_v6, bound));
        }
    }
    measurement.goals.extend(goals);
}

fn join_rows(cases: &mut Vec<Case>) {
    for case in std::mem::take(cases) {
        match cases.iter_mut().find(|known| known.name == case.name) {
            Some(known) => known.metrics.extend(case.metrics),
            None => cases.push(case),
        }
    }
}

fn family(is_v6: bool) -> &'static str {
    if is_v6 { ", IPv6" } else { "" }
}

/// Tarn's by another's, in percent.
fn percent(
    measurement: &Measurement,
    metric: &str,
    other: &str,
    order: Order,
    fragments: u32,
    is_v6: bool,
) -> Option<f64> {
    let of = |who| measurement.figure(&load::name(who, order, fragments, is_v6), metric);
    Some(100.0 * of("tarn")? / of(other)?)
}

fn function(measurement: &Measurement, fragments: u32, order: Order, is_v6: bool, bound: f64) -> Option<Check> {
    let percent = percent(measurement, FUNCTION, "mainline", order, fragments, is_v6)?;
    Some(Check {
        name: format!(
            "function, {fragments} fragments, {}{}: at most {bound:.0} % of the stock kernel's",
            order.name(),
            family(is_v6)
        ),
        passed: percent <= bound,
        detail: format!("{percent:.1} %"),
    })
}

fn alike(measurement: &Measurement, fragments: u32, is_v6: bool) -> Option<Check> {
    let of = |order| measurement.figure(&load::name("tarn", order, fragments, is_v6), FUNCTION);
    let costs: Vec<f64> = Order::ALL.into_iter().filter_map(of).collect();
    let (least, most) = (
        costs.iter().copied().reduce(f64::min)?,
        costs.iter().copied().reduce(f64::max)?,
    );
    let apart = 100.0 * (most / least - 1.0);
    Some(Check {
        name: format!(
            "function, {fragments} fragments{}: the orders are within {APART:.0} % of one another",
            family(is_v6)
        ),
        passed: apart <= APART,
        detail: format!("{apart:.1} %: {least:.0} to {most:.0} instructions a fragment"),
    })
}

fn path(measurement: &Measurement, other: &str, is_v6: bool, bound: f64) -> Option<Check> {
    let of = |(fragments, _): (u32, u32), order| percent(measurement, PATH, other, order, fragments, is_v6);
    let shares: Vec<f64> = PATH_SHAPES
        .into_iter()
        .flat_map(|shape| Order::ALL.into_iter().filter_map(move |order| of(shape, order)))
        .collect();
    let (least, most) = (
        shares.iter().copied().reduce(f64::min)?,
        shares.iter().copied().reduce(f64::max)?,
    );
    Some(Check {
        name: format!(
            "whole path above the control, 8 to 200 fragments{}: at most {bound:.0} % of {other}'s",
            family(is_v6)
        ),
        passed: most <= bound,
        detail: format!("{least:.1} to {most:.1} %"),
    })
}
