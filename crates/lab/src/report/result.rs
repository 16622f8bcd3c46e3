//! What the report reads from a result: columns, our own case, the headline.

use std::collections::BTreeSet;

use crate::experiment::{Better, Case, Metric, Outcome, Plot};

use super::Entry;
use super::distribution::Distribution;
use super::number;

/// The case that is tarn as configured by default; [`OURS`] begins the names of its other ways.
const DEFAULT: &str = "tarn";
const OURS: &str = "tarn-";

/// Whose way of doing it a case is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// tarn's default.
    Default,
    /// Another way that tarn offers.
    Ours,
    /// The stock kernel, a peer, a published method, a yardstick.
    Others,
}

/// Whose way `case` is.
pub fn side(case: &Case) -> Side {
    match case.name.as_str() {
        DEFAULT => Side::Default,
        name if name.starts_with(OURS) => Side::Ours,
        _ => Side::Others,
    }
}

/// The case that is tarn's default.
pub fn default_case<'a>(entry: &Entry<'a>) -> Option<&'a Case> {
    entry.cases().iter().find(|case| side(case) == Side::Default)
}

/// A metric, described by its experiment or else guessed from the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The key in [`Case::metrics`].
    pub name: String,
    /// The title.
    pub title: String,
    /// The unit as it is written; may be empty.
    pub unit: String,
    /// Which way the metric is good.
    pub better: Better,
    /// Decimal places; `None` where nobody said.
    decimals: Option<u8>,
}

impl Column {
    fn described(metric: &Metric) -> Self {
        Self {
            name: metric.name.to_owned(),
            title: metric.title.to_owned(),
            unit: number::unit(metric.unit).to_owned(),
            better: metric.better,
            decimals: Some(metric.decimals),
        }
    }

    fn guessed(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: name.replace('_', " "),
            unit: String::new(),
            better: Better::Neither,
            decimals: None,
        }
    }

    /// A figure of this metric, without its unit.
    pub fn show(&self, value: f64) -> String {
        match self.decimals {
            Some(decimals) => number::fixed(value, decimals),
            None if value.fract() == 0.0 => number::fixed(value, 0),
            None => number::significant(value, 4),
        }
    }

    /// A figure of this metric with its unit.
    pub fn show_with_unit(&self, value: f64) -> String {
        if self.unit.is_empty() {
            self.show(value)
        } else {
            format!("{} {}", self.show(value), self.unit)
        }
    }

    /// The direction in words, empty where there is none.
    pub fn direction(&self) -> &'static str {
        match self.better {
            Better::Less => "less is better",
            Better::More => "more is better",
            Better::Neither => "",
        }
    }

    /// The direction as an arrow and in words, empty where there is none.
    pub fn arrow(&self) -> &'static str {
        match self.better {
            Better::Less => "<span aria-label=\"less is better\">↓</span>",
            Better::More => "<span aria-label=\"more is better\">↑</span>",
            Better::Neither => "",
        }
    }

    /// The finite figure of `case`.
    pub fn of(&self, case: &Case) -> Option<f64> {
        case.metrics.get(&self.name).copied().filter(|value| value.is_finite())
    }

    /// The best figure among `cases`, where one is better than another.
    pub fn best(&self, cases: &[Case]) -> Option<f64> {
        let mut values: Vec<f64> = cases.iter().filter_map(|case| self.of(case)).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        match self.better {
            _ if least == most => None,
            Better::Less => Some(least),
            Better::More => Some(most),
            Better::Neither => None,
        }
    }
}

/// The columns of a result's table: those its experiment describes, or else every metric in the result.
pub fn columns(entry: &Entry) -> Vec<Column> {
    if let Some(experiment) = entry.experiment {
        return experiment.metrics.iter().map(Column::described).collect();
    }
    let names: BTreeSet<&String> = entry.cases().iter().flat_map(|case| case.metrics.keys()).collect();
    names.into_iter().map(|name| Column::guessed(name)).collect()
}

/// The column called `name`, also where nobody described it.
pub fn column(entry: &Entry, name: &str) -> Column {
    columns(entry)
        .into_iter()
        .find(|column| column.name == name)
        .unwrap_or_else(|| Column::guessed(name))
}

/// The plots that the experiment asks for.
pub fn plots(entry: &Entry) -> &'static [Plot] {
    entry.experiment.map_or(&[], |experiment| experiment.plots)
}

/// The columns that stand for the result: those drawn as bars, or else the first that has a good direction.
pub fn leading(entry: &Entry) -> Vec<Column> {
    let drawn: Vec<_> = plots(entry)
        .iter()
        .filter_map(|plot| match plot {
            Plot::Bars { metric, .. } => Some(column(entry, metric)),
            _ => None,
        })
        .collect();
    if !drawn.is_empty() {
        return drawn;
    }
    columns(entry)
        .into_iter()
        .filter(|column| column.better != Better::Neither)
        .take(1)
        .collect()
}

/// A case's title; its name where it has none.
pub fn title(case: &Case) -> &str {
    if case.title.is_empty() { &case.name } else { &case.title }
}

/// The title of the case called `name`.
pub fn title_of<'a>(outcome: &'a Outcome, name: &'a str) -> &'a str {
    outcome
        .measurement
        .cases
        .iter()
        .find(|case| case.name == name)
        .map_or(name, title)
}

/// A series of one case.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// The case's place among those that have the series: its colour, dash and marker.
    pub place: usize,
    /// The case's name.
    pub case: &'a str,
    /// The case's title.
    pub title: &'a str,
    /// Whether it is tarn's default, or tarn under some load: `tarn-140`.
    pub default: bool,
    /// The unit as it is written.
    pub unit: &'a str,
    /// In the order measured; several series of one case follow each other.
    pub values: Vec<f64>,
}

impl Line<'_> {
    /// The values, sorted.
    pub fn distribution(&self) -> Distribution {
        Distribution::new(self.values.iter().copied())
    }
}

/// The series called `name`, one line a case, in the order of the cases. tarn's default takes place 0.
pub fn lines<'a>(outcome: &'a Outcome, name: &str) -> Vec<Line<'a>> {
    let mut lines: Vec<Line> = Vec::new();
    let mut places = 1..;
    for series in outcome.measurement.series.iter().filter(|series| series.name == name) {
        if let Some(line) = lines.iter_mut().find(|line| line.case == series.case) {
            line.values.extend(&series.values);
            continue;
        }
        let default = is_default(&series.case);
        let line = Line {
            place: if default { 0 } else { places.next().unwrap_or_default() },
            case: &series.case,
            title: title_of(outcome, &series.case),
            default,
            unit: number::unit(&series.unit),
            values: series.values.clone(),
        };
        lines.push(line);
    }
    lines
}

fn is_default(case: &str) -> bool {
    let load = case.strip_prefix(DEFAULT).and_then(|rest| rest.strip_prefix('-'));
    case == DEFAULT || load.is_some_and(|load| load.parse::<u32>().is_ok())
}

/// The names of a result's series, each once, in their order. What a plot shows of lanes is left out: nobody asks how that is
/// distributed.
pub fn series_names<'a>(entry: &Entry<'a>) -> Vec<&'a str> {
    let is_of_lanes = |name: &str| {
        plots(entry).iter().any(|plot| match plot {
            Plot::Timeline { lanes: Some(lanes), .. } => [lanes.series, lanes.time].contains(&name),
            _ => false,
        })
    };
    let mut names: Vec<&str> = Vec::new();
    for series in &entry.outcome.measurement.series {
        if !is_of_lanes(&series.name) && !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    names
}

/// tarn's default against the nearest and the farthest of the others, in the metric that stands for the result.
pub fn headline(entry: &Entry) -> Option<Headline> {
    let column = leading(entry).into_iter().next()?;
    let ours = column.of(default_case(entry)?)?;
    let mut others: Vec<(f64, String)> = entry
        .cases()
        .iter()
        .filter(|case| side(case) == Side::Others)
        .filter_map(|case| Some((column.of(case)?, title(case).to_owned())))
        .filter(|(value, _)| *value > 0.0)
        .map(|(value, title)| (ours / value, title))
        .collect();
    others.sort_by(|a, b| b.0.total_cmp(&a.0));
    if column.better == Better::More {
        others.reverse();
    }
    Some(Headline {
        column,
        ours,
        nearest: others.first().cloned(),
        farthest: others.into_iter().skip(1).last(),
    })
}

/// The figure that stands for a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// The metric.
    pub column: Column,
    /// The figure of tarn's default.
    pub ours: f64,
    /// Ours divided by that of the best of the others, and its title.
    pub nearest: Option<(f64, String)>,
    /// The same for the worst of the others, when there are several.
    pub farthest: Option<(f64, String)>,
}

/// How many checks passed, of how many.
pub fn checks(outcome: &Outcome) -> (usize, usize) {
    let checks = &outcome.measurement.checks;
    (checks.iter().filter(|check| check.passed).count(), checks.len())
}

/// How many goals are missed, of how many.
pub fn goals(outcome: &Outcome) -> (usize, usize) {
    let goals = &outcome.measurement.goals;
    (goals.iter().filter(|goal| !goal.passed).count(), goals.len())
}
