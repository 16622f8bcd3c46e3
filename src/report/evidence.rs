//! What a result is judged by: its checks, and the published figures that it is held against.

use crate::lab::experiment::{Check, Outcome, OutcomeReference};

use super::markup::Escaped;
use super::result::{self, Column, Side};
use super::tables::scrolling;
use super::{Entry, number};

/// Every check with its verdict; those that failed come first.
pub fn checks(outcome: &Outcome) -> String {
    let checks = &outcome.measurement.checks;
    if checks.is_empty() {
        return r#"<p class="muted">This run has no checks.</p>"#.to_owned();
    }
    let (passed, failed): (Vec<&Check>, Vec<&Check>) = checks.iter().partition(|check| check.passed);
    let items: String = failed.into_iter().chain(passed).map(check).collect();
    format!(r#"<h4>Checks</h4><ul class="checks">{items}</ul>"#)
}

fn check(check: &Check) -> String {
    let (class, sign, word) = if check.passed {
        ("pass", "✓", "passed")
    } else {
        ("fail", "✗", "failed")
    };
    format!(
        r#"<li class="{class}"><span class="sign"><span aria-hidden="true">{sign}</span> {word}</span>
<span>{} <span class="muted">{}</span></span></li>"#,
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
    let heads = concat!(
        r#"<th scope="col">Figure</th><th scope="col" class="number">Published</th>"#,
        r#"<th scope="col" class="number">tarn's default here</th>"#,
        r#"<th scope="col" class="wrap">Source and circumstances</th>"#,
    );
    scrolling(
        "Published figures",
        &format!("<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"),
    )
}

fn reference_row(reference: &OutcomeReference, entry: &Entry, columns: &[Column]) -> String {
    let column = columns.iter().find(|column| column.name == reference.metric);
    let default = entry
        .outcome
        .measurement
        .cases
        .iter()
        .find(|case| result::side(case) == Side::Default);
    let ours = column
        .zip(default)
        .and_then(|(column, case)| Some(column.show_with_unit(column.of(case)?)));
    let name = column.map_or_else(|| reference.metric.replace('_', " "), |column| column.title.clone());
    let unit = column.map_or("", |column| column.unit.as_str());
    let value = format!("{} {unit}", number::exact(reference.value));
    format!(
        r#"<tr><th scope="row">{}</th><td class="number">{}</td><td class="number">{}</td>
<td class="wrap">{} <span class="muted">{}</span></td></tr>"#,
        Escaped(&name),
        Escaped(value.trim_end()),
        ours.as_deref()
            .map_or(r#"<span class="muted">not measured</span>"#.to_owned(), |ours| Escaped(
                ours
            )
            .to_string()),
        Escaped(&reference.source),
        Escaped(&reference.note)
    )
}
