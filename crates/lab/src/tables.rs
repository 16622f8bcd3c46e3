//! Tables of figures in Markdown files: written from results, and held against them.
//!
//! A table stands between two comments. The first says what it shows, in TOML, the second what it was made from:
//!
//! ```text
//! <!-- table of redirect
//! head = ["case", "64 B", "TCP"]
//! cells = ["{host_64:100}", "{host_tcp:100}"]
//! rows = [["no redirect", "plain"], ["tarn", "tarn"]]
//! -->
//!
//! | case | 64 B | TCP |
//! ...
//!
//! <!-- end of table: trixie, Linux 6.12.1, seed 1, quick size, rustc 1.95.0, clang 14.0.6, debug build -->
//! ```
//!
//! A row has a label for each column without a template in `cells`, and the name of the case that it shows; or it is the whole row,
//! where it shows none. `{metric:100}` is a figure in hundreds, `{metric:0.01}` one with two decimals, `{a|b}` the first of the two
//! that the case has, in ones; a cell is empty where the case has none. The figures of a case whose name is written `~case` depend
//! on the build by more than their unit: they are written, and never wrong. The same holds for a table of an experiment's goals, which
//! has `goals = true` and a head of three columns, and no cells and rows; and for one that has `each = "tarn-"` instead of rows: a
//! row of each case whose name begins so, labelled by the rest of it. In its cells `*` is that rest, and `{bbr-*/metric}` a figure of
//! another case.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::experiment::Outcome;
use crate::results;
use crate::suite::DEFAULT;
use crate::tables::template::{Line, Template};

mod template;
#[cfg(test)]
mod tests;

const BEGINNING: &str = "<!-- table of ";
const END: &str = "<!-- end of table";
const CLOSE: &str = "-->";

/// A table in a file. Lines are counted from 0.
struct Table {
    /// The line of its first comment.
    line: usize,
    experiment: String,
    template: Template,
    /// The lines between the two comments.
    body: Range<usize>,
    /// What the second comment says that it was made from.
    origin: String,
}

/// How a file's tables compare with results.
#[derive(Default)]
pub struct Comparison {
    /// What differs, and what could not be compared, to be printed.
    pub report: Vec<String>,
    /// Tables that say something else than results that were made just as they were.
    pub wrong: usize,
}

/// Writes the tables of `outcomes` into a file. Returns how many there are, and those of other experiments, which stay as they are.
///
/// # Errors
/// The file cannot be read or written, or a table in it is not well formed, or shows what is not in the result.
pub fn write(path: &Path, outcomes: &[Outcome]) -> Result<(usize, Vec<String>)> {
    let text = read(path)?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (mut written, mut left) = (0, Vec::new());
    // From the last one on, so that the lines of those before it keep their numbers.
    for table in tables(path, &text)?.iter().rev() {
        let Some(outcome) = table.outcome(outcomes) else {
            left.insert(0, table.experiment.clone());
            continue;
        };
        let mut new: Vec<String> = table.lines(path, outcome)?.iter().map(Line::text).collect();
        new.insert(0, String::new());
        new.extend([String::new(), format!("{END}: {} {CLOSE}", origin(outcome))]);
        lines.splice(table.body.start..=table.body.end, new);
        written += 1;
    }
    let new = lines.join("\n") + "\n";
    if new != text {
        results::replace(path, new.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok((written, left))
}

/// Holds the tables of a file against `outcomes`.
///
/// # Errors
/// The file cannot be read, or a table in it is not well formed, or shows what is not in the result.
pub fn compare(path: &Path, outcomes: &[Outcome]) -> Result<Comparison> {
    let text = read(path)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut comparison = Comparison::default();
    for table in tables(path, &text)? {
        let place = place(path, table.line);
        let Some(outcome) = table.outcome(outcomes) else {
            let note = format!("{place}: not compared: no result of {} is given", table.experiment);
            comparison.report.push(note);
            continue;
        };
        let wanted = table.lines(path, outcome)?;
        comparison.add(
            &place,
            &table,
            outcome,
            &differences(&lines[table.body.clone()], &wanted),
        );
    }
    Ok(comparison)
}

/// A line that a table has, and what it should say; and whether that is the same from one build to the next.
type Difference = (String, bool);

fn differences(found: &[&str], wanted: &[Line]) -> Vec<Difference> {
    let found: Vec<&str> = found.iter().copied().filter(|line| !line.is_empty()).collect();
    let mut differences = Vec::new();
    for index in 0..found.len().max(wanted.len()) {
        match (found.get(index), wanted.get(index)) {
            (Some(found), Some(wanted)) if wanted.agrees(found) => {}
            (Some(found), Some(wanted)) => {
                differences.push((format!("  - {found}\n  + {}", wanted.text()), wanted.steady));
            }
            (Some(found), None) => differences.push((format!("  - {found}"), true)),
            (None, Some(wanted)) => differences.push((format!("  + {}", wanted.text()), true)),
            (None, None) => {}
        }
    }
    differences
}

impl Comparison {
    fn add(&mut self, place: &str, table: &Table, outcome: &Outcome, differences: &[Difference]) {
        if differences.is_empty() {
            return;
        }
        let origin = origin(outcome);
        // A table that does not say what it was made from was never written.
        let same = table.origin.is_empty() || table.origin == origin;
        let wrong = same && differences.iter().any(|(_, steady)| *steady);
        let why = match (wrong, same) {
            (true, _) => String::new(),
            (_, true) => ", only in rows that depend on the build (~), which is no error".to_owned(),
            _ => format!(
                ", which is no error: it was made with {}, the result with {origin}",
                table.origin
            ),
        };
        let experiment = &table.experiment;
        self.report.push(format!(
            "{place}: the table differs from the result of {experiment}{why}"
        ));
        self.report.extend(differences.iter().map(|(text, _)| text.clone()));
        self.wrong += usize::from(wrong);
    }
}

/// What a result was made with. Where that is the same, so are the figures.
fn origin(outcome: &Outcome) -> String {
    format!("{}, {}", outcome.origin(), outcome.build)
}

impl Table {
    /// The result that it shows: if there are several, one that was made as it was, or else of its suite, or of the default one.
    fn outcome<'a>(&self, outcomes: &'a [Outcome]) -> Option<&'a Outcome> {
        let own = outcomes.iter().filter(|outcome| outcome.experiment == self.experiment);
        own.max_by_key(|outcome| {
            let same_suite = self.origin.starts_with(&format!("{},", outcome.suite));
            (origin(outcome) == self.origin, same_suite, outcome.suite == DEFAULT)
        })
    }

    fn lines(&self, path: &Path, outcome: &Outcome) -> Result<Vec<Line>> {
        let lines = self.template.lines(outcome);
        lines.with_context(|| format!("{}: the table of {}", place(path, self.line), self.experiment))
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// `FILE:LINE`, where the first line is 1.
fn place(path: &Path, line: usize) -> String {
    format!("{}:{}", path.display(), line + 1)
}

/// The tables of a file, in their order.
fn tables(path: &Path, text: &str) -> Result<Vec<Table>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut tables: Vec<Table> = Vec::new();
    for (line, text) in lines.iter().enumerate() {
        let inside = tables.last().is_some_and(|table| line <= table.body.end);
        if let Some(experiment) = text.strip_prefix(BEGINNING) {
            let table = table(&lines, line, experiment.trim());
            tables.push(table.with_context(|| place(path, line))?);
        } else if text.starts_with(END) && !inside {
            bail!("{}: the end of a table that does not begin", place(path, line));
        }
    }
    Ok(tables)
}

/// The table whose first comment begins in a line.
fn table(lines: &[&str], line: usize, experiment: &str) -> Result<Table> {
    let following = |from: usize, wanted: fn(&str) -> bool| {
        let ahead = lines[from..].iter().position(|line| wanted(line))?;
        // Another table's end is not this one's.
        let own = lines[from..from + ahead]
            .iter()
            .all(|line| !line.starts_with(BEGINNING));
        own.then_some(from + ahead)
    };
    let close = following(line + 1, |line| line.trim_end() == CLOSE);
    let close = close.context("the comment is not closed by a line `-->`")?;
    let template = toml::from_str(&lines[line + 1..close].join("\n"))
        .map_err(|error| anyhow::anyhow!("what the table shows cannot be read: {}", error.message()))?;
    let end = following(close + 1, |line| line.starts_with(END));
    let end = end.with_context(|| format!("the table has no end: a line `{END} {CLOSE}` after it"))?;
    let origin = lines[end].trim_start_matches(END).trim_end().trim_end_matches(CLOSE);
    Ok(Table {
        line,
        experiment: experiment.to_owned(),
        template,
        body: close + 1..end,
        origin: origin.trim_matches([':', ' ']).to_owned(),
    })
}
