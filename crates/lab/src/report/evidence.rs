//! What a result is judged by: its checks and goals, and the published figures that it is held against.

use crate::experiment::{Check, Outcome, Reference};

use super::markup::Escaped;
use super::result::{self, Column};
use super::{Entry, number, tables};

/// Every check with its verdict: those that failed in the open, those that passed folded away.
pub fn checks(outcome: &Outcome) -> String {
    let checks = &outcome.measurement.checks;
    if checks.is_empty() {
        return r#"<p class="muted">This run has no checks.</p>"#.to_owned();
    }
    let (passed, failed): (Vec<&Check>, Vec<&Check>) = checks.iter().partition(|check| check.passed);
    let list = |checks: &[&Check]| list(checks, ("fail", "✗", "failed"));
    let mut out = String::new();
    if !failed.is_empty() {
        out += &format!(
            r#"<h4 class="fail"><span class="sign"><span aria-hidden="true">✗</span> {} of {} checks failed</span></h4>{}"#,
            failed.len(),
            checks.len(),
            list(&failed)
        );
    }
    if !passed.is_empty() {
        out += &format!(
            r#"<details class="pass"><summary><span class="sign"><span aria-hidden="true">✓</span> {} of {} checks passed</span></summary>{}</details>"#,
            passed.len(),
            checks.len(),
            list(&passed)
        );
    }
    out
}

/// Every goal, met or missed: nothing is folded away.
pub fn goals(outcome: &Outcome) -> String {
    let goals: Vec<&Check> = outcome.measurement.goals.iter().collect();
    let (missed, all) = result::goals(outcome);
    match (missed, all) {
        (_, 0) => String::new(),
        (0, _) => format!("<h4>Goals: all {all} met</h4>{}", list(&goals, MISSED)),
        _ => format!("<h4>Goals: {missed} of {all} missed</h4>{}", list(&goals, MISSED)),
    }
}

/// Class, sign and word of what does not hold.
type Verdict = (&'static str, &'static str, &'static str);

const MISSED: Verdict = ("missed", "○", "missed");

fn list(checks: &[&Check], otherwise: Verdict) -> String {
    let items: String = checks.iter().map(|one| check(one, otherwise)).collect();
    format!(r#"<ul class="checks">{items}</ul>"#)
}

fn check(check: &Check, otherwise: Verdict) -> String {
    let (class, sign, word) = match check.passed {
        true if otherwise == MISSED => ("pass", "✓", "met"),
        true => ("pass", "✓", "passed"),
        false => otherwise,
    };
    format!(
        r#"<li class="{class}"><span class="sign"><span aria-hidden="true">{sign}</span> {word}</span>
<span>{} <span class="detail muted">{}</span></span></li>"#,
        Escaped(&check.name),
        Escaped(&check.detail)
    )
}

/// The published figures beside ours.
pub fn references(entry: &Entry) -> String {
    let references = &entry.outcome.reference;
    if references.is_empty() {
        return String::new();
    }
    let columns = result::columns(entry);
    let rows: String = references
        .iter()
        .map(|reference| reference_row(reference, entry, &columns))
        .collect();
    let heads = ["Figure", "Published", "tarn's default here", "Circumstances and source"];
    format!(
        "<h4>Published figures</h4>{}",
        tables::stacked("stacked", &heads, &rows)
    )
}

fn reference_row(reference: &Reference, entry: &Entry, columns: &[Column]) -> String {
    let column = columns.iter().find(|column| column.name == reference.metric);
    let ours = column
        .zip(result::default_case(entry))
        .and_then(|(column, case)| Some(column.show_with_unit(column.of(case)?)));
    let name = column.map_or_else(|| reference.metric.replace('_', " "), |column| column.title.clone());
    let unit = column.map_or("", |column| column.unit.as_str());
    let value = format!("{} {unit}", number::exact(reference.value));
    let ours = match &ours {
        Some(ours) => format!(
            r#"{}<span class="label"> here, with tarn's default</span>"#,
            Escaped(ours)
        ),
        None => r#"<span class="muted">not measured<span class="label"> here</span></span>"#.to_owned(),
    };
    format!(
        concat!(
            r#"<tr role="row"><th scope="row" role="rowheader">{}</th>"#,
            r#"<td role="cell">{}<span class="label"> published</span></td><td role="cell">{}</td>"#,
            r#"<td role="cell">{} <span class="muted">{}</span></td></tr>"#,
        ),
        Escaped(&name),
        Escaped(value.trim_end()),
        ours,
        Escaped(&reference.note),
        Escaped(&reference.source)
    )
}
