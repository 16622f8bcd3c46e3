//! What a table shows, as its opening comment says it, and the lines that this makes of a result.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::experiment::{Case, Check, Outcome};
use crate::table::grouped;

/// What a table shows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The titles of all columns: first those of the labels, then those of the figures.
    head: Vec<String>,
    /// A template for each column of figures.
    #[serde(default)]
    cells: Vec<String>,
    /// Labels and the name of a case, or the whole text of a row that shows none.
    #[serde(default)]
    rows: Vec<Vec<String>>,
    /// A row for each case whose name begins with this instead, labelled by the rest of its name.
    #[serde(default)]
    each: Option<String>,
    /// A row for each of the experiment's goals instead: what it is, what was measured, whether it is met.
    #[serde(default)]
    goals: bool,
}

/// A line of a table.
#[derive(Debug)]
pub struct Line {
    pieces: Vec<Piece>,
    /// Whether its figures stay the same from one build to the next.
    pub steady: bool,
}

/// A part of a line.
#[derive(Debug)]
enum Piece {
    Text(String),
    Figure { value: f64, unit: Unit },
}

/// What figures are rounded to a multiple of.
#[derive(Debug, Clone, Copy)]
struct Unit {
    size: f64,
    decimals: usize,
}

impl Template {
    /// The table's lines for a result, in Markdown.
    ///
    /// # Errors
    /// A row is too short or too long, or names a case, or a cell a metric, that is not in the result.
    pub fn lines(&self, outcome: &Outcome) -> Result<Vec<Line>> {
        if self.goals {
            return self.goals(outcome);
        }
        let labels = self.head.len().checked_sub(self.cells.len());
        let labels = labels.context("`head` has fewer titles than `cells` has columns")?;
        let ruler = (0..self.head.len()).map(|column| if column < labels { "---" } else { "---:" });
        let mut lines = vec![fixed(&self.head), fixed(&ruler.collect::<Vec<_>>())];
        for row in &self.rows {
            lines.push(self.line(row, labels, outcome)?);
        }
        if let Some(prefix) = &self.each {
            ensure!(labels == 1, "a table with `each` has one column of labels");
            let names = outcome.measurement.cases.iter().map(|case| case.name.as_str());
            for rest in names.filter_map(|name| name.strip_prefix(prefix.as_str())) {
                lines.push(self.each(prefix, rest, outcome)?);
            }
        }
        Ok(lines)
    }

    /// The row of a case whose name is `prefix` and `rest`.
    fn each(&self, prefix: &str, rest: &str, outcome: &Outcome) -> Result<Line> {
        let case = case(&format!("{prefix}{rest}"), outcome)?;
        let mut columns = vec![vec![Piece::Text(rest.to_owned())]];
        for cell in &self.cells {
            columns.push(pieces(&cell.replace('*', rest), case, outcome)?);
        }
        Ok(line(columns, false))
    }

    fn goals(&self, outcome: &Outcome) -> Result<Vec<Line>> {
        let goals = &outcome.measurement.goals;
        ensure!(self.head.len() == 3, "a table of goals has three columns");
        ensure!(!goals.is_empty(), "the experiment has no goals");
        let row = |goal: &Check| {
            let verdict = if goal.passed { "met" } else { "**missed**" };
            let mut line = fixed(&[goal.name.as_str(), goal.detail.as_str(), verdict]);
            line.steady = false;
            line
        };
        let mut lines = vec![fixed(&self.head), fixed(&["---"; 3])];
        lines.extend(goals.iter().map(row));
        Ok(lines)
    }

    fn line(&self, row: &[String], labels: usize, outcome: &Outcome) -> Result<Line> {
        let (name, labels) = match row.split_last() {
            Some(split) if split.1.len() == labels => split,
            _ if row.len() == self.head.len() => return Ok(fixed(row)),
            _ => bail!(
                "the row {row:?} has {} entries: {labels} labels and a case, or {} cells, are needed",
                row.len(),
                self.head.len()
            ),
        };
        let steady = !name.starts_with('~');
        let case = case(name.trim_start_matches('~'), outcome)?;
        let mut columns: Vec<_> = labels.iter().map(|label| vec![Piece::Text(label.clone())]).collect();
        for cell in &self.cells {
            columns.push(pieces(cell, case, outcome)?);
        }
        Ok(line(columns, steady))
    }
}

/// A line without figures.
fn fixed<T: AsRef<str>>(cells: &[T]) -> Line {
    let text = |cell: &T| vec![Piece::Text(cell.as_ref().to_owned())];
    line(cells.iter().map(text).collect(), true)
}

fn line(columns: Vec<Vec<Piece>>, steady: bool) -> Line {
    let mut pieces = vec![Piece::Text("|".into())];
    for column in columns {
        pieces.push(Piece::Text(" ".into()));
        pieces.extend(column);
        pieces.push(Piece::Text(" |".into()));
    }
    Line { pieces, steady }
}

fn case<'a>(name: &str, outcome: &'a Outcome) -> Result<&'a Case> {
    let cases = &outcome.measurement.cases;
    cases.iter().find(|case| case.name == name).with_context(|| {
        let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
        format!(
            "the result, of {} size, has no case {name:?}; it has {}",
            outcome.size.name(),
            names.join(", ")
        )
    })
}

/// The pieces of a cell; none where the case lacks a figure.
fn pieces(cell: &str, case: &Case, outcome: &Outcome) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = cell;
    while let Some((text, after)) = rest.split_once('{') {
        let (wanted, after) = after
            .split_once('}')
            .with_context(|| format!("the cell {cell:?} lacks a closing brace"))?;
        let Some(figure) = figure(wanted, case, outcome)? else {
            return Ok(Vec::new());
        };
        pieces.extend([Piece::Text(text.to_owned()), figure]);
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}

/// The figure that `metric`, `metric:UNIT` or `metric|other:UNIT` stands for, of another case with `case/` before it; `None` where the
/// case has none of them.
fn figure(wanted: &str, own: &Case, outcome: &Outcome) -> Result<Option<Piece>> {
    let (names, unit) = wanted.split_once(':').unwrap_or((wanted, "1"));
    let unit = Unit::parse(unit).with_context(|| format!("{{{wanted}}} needs a unit like 100 or 0.01"))?;
    let (case, names) = match names.split_once('/') {
        Some((other, names)) => (case(other, outcome)?, names),
        None => (own, names),
    };
    for name in names.split('|') {
        let cases = &outcome.measurement.cases;
        let known = cases.iter().any(|case| case.metrics.contains_key(name));
        ensure!(known, "no case of the result has the metric {name:?}");
    }
    let value = names.split('|').find_map(|name| case.metrics.get(name));
    Ok(value.map(|value| Piece::Figure { value: *value, unit }))
}

impl Line {
    /// The line, with every figure rounded to the nearest.
    pub fn text(&self) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Figure { value, unit } => unit.times((value / unit.size).round()),
        };
        self.pieces.iter().map(text).collect()
    }

    /// Whether `text` says the same: no figure in it is further from the measured one than the unit that it is rounded to. Wherever figures
    /// are rounded, some lie at the border, and the next build's differ.
    pub fn agrees(&self, text: &str) -> bool {
        agree(&self.pieces, text)
    }
}

fn agree(pieces: &[Piece], text: &str) -> bool {
    let Some((piece, rest)) = pieces.split_first() else {
        return text.is_empty();
    };
    let follows = |start: String| text.strip_prefix(&start).is_some_and(|text| agree(rest, text));
    match piece {
        Piece::Text(start) => follows(start.clone()),
        Piece::Figure { value, unit } => {
            let steps = value / unit.size;
            let (first, last) = ((steps - 1.0).ceil() as i64, (steps + 1.0).floor() as i64);
            (first..=last).any(|steps| follows(unit.times(steps as f64)))
        }
    }
}

impl Unit {
    fn parse(text: &str) -> Option<Self> {
        let size = text.parse().ok().filter(|size: &f64| size.is_finite() && *size > 0.0)?;
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        Some(Self { size, decimals })
    }

    /// A whole number of units, as it is written.
    fn times(self, steps: f64) -> String {
        // Adding zero makes a negative zero a positive one.
        grouped(steps * self.size + 0.0, self.decimals)
    }
}
