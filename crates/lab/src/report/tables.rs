//! The tables of the report.

use crate::experiment::{Case, Outcome};

use super::distribution::Distribution;
use super::markup::{Escaped, joined};
use super::result::{self, Column, Side};
use super::{Entry, number};

/// A table under a heading of its own, with a row a case; it scrolls sideways by itself where it does not fit.
fn scrolling(heading: &str, heads: &str, rows: &str) -> String {
    let heading = Escaped(heading);
    let table = format!(r#"<thead><tr><th scope="col">Case</th>{heads}</tr></thead><tbody>{rows}</tbody>"#);
    format!(
        r#"<h4>{heading}</h4>
<div class="scroll" role="region" tabindex="0" aria-label="{heading}"><table>{table}</table></div>"#
    )
}

/// A table whose rows become blocks where it does not fit: every cell says itself what it is.
pub fn stacked(class: &str, heads: &[&str], rows: &str) -> String {
    let head = |head: &&str| format!(r#"<th scope="col" role="columnheader">{head}</th>"#);
    let heads: String = heads.iter().map(head).collect();
    format!(
        concat!(
            r#"<table class="{class}" role="table"><thead role="rowgroup"><tr role="row">{heads}</tr></thead>"#,
            r#"<tbody role="rowgroup">{rows}</tbody></table>"#
        ),
        class = class,
        heads = heads,
        rows = rows
    )
}

/// Cases as rows, metrics as columns.
pub fn cases(entry: &Entry) -> String {
    let cases = entry.cases();
    let columns = result::columns(entry);
    if cases.is_empty() {
        return r#"<p class="muted">No case was run: no values.</p>"#.to_owned();
    }
    let heads: String = columns.iter().map(head).collect();
    let best: Vec<Option<f64>> = columns.iter().map(|column| column.best(cases)).collect();
    let rows: String = cases.iter().map(|case| case_row(case, &columns, &best)).collect();
    scrolling("Every case, every figure", &heads, &rows) + legend(&best)
}

fn legend(best: &[Option<f64>]) -> &'static str {
    if best.iter().all(Option::is_none) {
        ""
    } else {
        concat!(
            r#"<p class="small muted">↓ less is better, ↑ more is better. "#,
            r#"<b class="best">Bold</b> with a dot: the best figure of its column.</p>"#
        )
    }
}

fn head(column: &Column) -> String {
    format!(
        r#"<th scope="col" class="number">{} <span class="unit">{} {}</span></th>"#,
        Escaped(&column.title),
        Escaped(&column.unit),
        column.arrow()
    )
}

fn number_head(title: impl AsRef<str>) -> String {
    format!(r#"<th scope="col" class="number">{}</th>"#, Escaped(title.as_ref()))
}

fn case_row(case: &Case, columns: &[Column], best: &[Option<f64>]) -> String {
    let name = case_head(case, true);
    if let Some(reason) = &case.skipped {
        let span = columns.len().max(1);
        return format!(
            r#"<tr class="skipped">{name}<td colspan="{span}">skipped: {}</td></tr>"#,
            Escaped(reason)
        );
    }
    let cells: String = columns
        .iter()
        .zip(best)
        .map(|(column, best)| cell(case, column, *best))
        .collect();
    format!("<tr{}>{name}{cells}</tr>", row_class(case))
}

fn row_class(case: &Case) -> &'static str {
    if result::side(case) == Side::Default {
        r#" class="default""#
    } else {
        ""
    }
}

/// The case's title, and its name in results where that is asked for.
fn case_head(case: &Case, named: bool) -> String {
    let default = if result::side(case) == Side::Default {
        r#" <span class="tag">default</span>"#
    } else {
        ""
    };
    let name = if named {
        format!(" <code>{}</code>", Escaped(&case.name))
    } else {
        String::new()
    };
    format!(
        r#"<th scope="row">{}{default}{name}</th>"#,
        Escaped(result::title(case))
    )
}

fn cell(case: &Case, column: &Column, best: Option<f64>) -> String {
    match case.metrics.get(&column.name) {
        None => format!(r#"<td class="number muted">{}</td>"#, number::NO_VALUE),
        Some(value) if best == Some(*value) => {
            format!(
                r#"<td class="number"><b class="best">{}<span class="hidden"> (best)</span></b></td>"#,
                column.show(*value)
            )
        }
        Some(value) => format!(r#"<td class="number">{}</td>"#, column.show(*value)),
    }
}

/// The leading figures of several runs side by side; nothing for a single run.
pub fn compared(entries: &[Entry], names: &[String]) -> String {
    let Some(first) = entries.first().filter(|_| entries.len() > 1) else {
        return String::new();
    };
    result::leading(first)
        .iter()
        .map(|column| compared_by(column, entries, names))
        .collect()
}

fn compared_by(column: &Column, entries: &[Entry], names: &[String]) -> String {
    let heads: String = names.iter().map(number_head).collect();
    let best: Vec<_> = entries.iter().map(|entry| column.best(entry.cases())).collect();
    // A yardstick that has no figure of this metric on any kernel says nothing here.
    let says_something = |case: &&Case| {
        let cases = entries.iter().flat_map(|entry| entry.cases());
        let mut found = cases.filter(|other| other.name == case.name);
        found.any(|other| column.of(other).is_some() || other.skipped.is_some())
    };
    let rows: String = all_cases(entries)
        .into_iter()
        .filter(says_something)
        .map(|case| compared_row(case, column, entries, &best))
        .collect();
    let label = [column.title.clone(), column.unit.clone(), column.direction().to_owned()];
    scrolling(&format!("Side by side: {}", joined(&label, ", ")), &heads, &rows)
}

fn compared_row(case: &Case, column: &Column, entries: &[Entry], best: &[Option<f64>]) -> String {
    let of_run = |(entry, best): (&Entry, &Option<f64>)| {
        let cases = entry.cases();
        match cases.iter().find(|other| other.name == case.name) {
            Some(found) if found.skipped.is_none() => cell(found, column, *best),
            Some(_) => r#"<td class="number muted">skipped</td>"#.to_owned(),
            None => r#"<td class="number muted">not run</td>"#.to_owned(),
        }
    };
    let cells: String = entries.iter().zip(best).map(of_run).collect();
    format!("<tr{}>{}{cells}</tr>", row_class(case), case_head(case, false))
}

/// The cases of all runs, each once, in the order in which they first occur.
fn all_cases<'a>(entries: &[Entry<'a>]) -> Vec<&'a Case> {
    let mut all: Vec<&Case> = Vec::new();
    for case in entries.iter().flat_map(|entry| entry.cases()) {
        if all.iter().all(|other| other.name != case.name) {
            all.push(case);
        }
    }
    all
}

/// The quantiles of every series, folded away: the plots in figures.
pub fn quantiles(entry: &Entry) -> String {
    let tables: String = result::series_names(entry)
        .into_iter()
        .map(|name| quantile_table(entry.outcome, name))
        .collect();
    if tables.is_empty() {
        tables
    } else {
        format!(
            r#"<details><summary>The distributions in figures</summary>
<p class="small muted">{PERCENTILES}</p>{tables}</details>"#
        )
    }
}

const PERCENTILES: &str = concat!(
    "Percentiles by nearest rank: each is a value that was measured. ",
    "The median of an even number is the mean of the middle two."
);

/// How the columns of the quantile table are called.
const QUANTILES: [&str; 8] = [
    "Values", "Mean", "Minimum", "Median", "95 %", "99 %", "99.9 %", "Maximum",
];

fn quantile_table(outcome: &Outcome, name: &str) -> String {
    let lines = result::lines(outcome, name);
    let unit = lines.first().map_or("", |line| line.unit);
    let heads: String = QUANTILES.iter().map(number_head).collect();
    let rows: String = lines
        .iter()
        .map(|line| quantile_row(line.title, &line.distribution()))
        .collect();
    scrolling(&joined(&[name.to_owned(), unit.to_owned()], ", "), &heads, &rows)
}

fn quantile_row(title: &str, distribution: &Distribution) -> String {
    let show = |value: Option<f64>| value.map_or(number::NO_VALUE.to_owned(), |value| number::significant(value, 4));
    let number = |text: String| format!(r#"<td class="number">{text}</td>"#);
    let at = |share| distribution.quantile(share);
    let figures = [
        distribution.mean(),
        at(0.0),
        distribution.median(),
        at(0.95),
        at(0.99),
        at(0.999),
        at(1.0),
    ];
    let count = number(number::count(distribution.values().len()) + &left_out(distribution));
    let figures: String = figures.map(|figure| number(show(figure))).concat();
    format!(r#"<tr><th scope="row">{}</th>{count}{figures}</tr>"#, Escaped(title))
}

fn left_out(distribution: &Distribution) -> String {
    match distribution.left_out {
        0 => String::new(),
        count => format!(r#" <span class="muted">({} not finite)</span>"#, number::count(count)),
    }
}
