//! An experiment's result as a person reads it in a terminal.

use super::experiment::{Case, Check, Metric, Outcome, Reference};
use tarn_base::output::{Align, Table};

/// What the lab's costs are, said wherever they are shown.
pub const MODEL: &str = "Costs are instruction counts of an emulated CPU, one instruction a nanosecond: a model, not \
                         the speed of a real CPU.";

/// The width that a result is fitted to where the terminal does not tell its own.
const WIDTH: usize = 80;

/// The result as lines of text: a table of the cases, what the cases are, the published figures, the checks and the goals.
///
/// A table that is wider than `width` columns is continued below, with the cases' names repeated.
pub fn render(title: &str, metrics: &[Metric], outcome: &Outcome, width: Option<usize>) -> String {
    let width = width.unwrap_or(WIDTH);
    let mut text = wrap(&format!("{}: {title}", outcome.experiment), "", width);
    text += &wrap(&outcome.origin(), "", width);
    for columns in groups(metrics, outcome, width) {
        text += &format!("\n{}", table(columns, outcome).render(None));
    }
    text += &section(width, "", outcome.measurement.cases.iter().map(case));
    text += &section(
        width,
        "Published:",
        outcome.reference.iter().map(|figure| published(metrics, figure)),
    );
    let judged = |checks: &[Check], missed: &str| -> Vec<_> { checks.iter().map(|one| check(one, missed)).collect() };
    text += &section(
        width,
        "Checks:",
        judged(&outcome.measurement.checks, "FAILED").into_iter(),
    );
    text += &section(
        width,
        "Goals:",
        judged(&outcome.measurement.goals, "missed").into_iter(),
    );
    text + "\n" + &wrap(MODEL, "", width)
}

/// The metrics, split so that the table of each part fits the width.
fn groups<'a>(metrics: &'a [Metric], outcome: &Outcome, width: usize) -> Vec<&'a [Metric]> {
    let mut groups = Vec::new();
    let mut rest = metrics;
    while !rest.is_empty() {
        let fits = |count: &usize| {
            table(&rest[..*count], outcome)
                .render(None)
                .lines()
                .all(|line| length(line) <= width)
        };
        let count = (1..=rest.len()).rev().find(fits).unwrap_or(1);
        groups.push(&rest[..count]);
        rest = &rest[count..];
    }
    groups
}

/// The table of some metrics: a row of units, and a row a case.
fn table(metrics: &[Metric], outcome: &Outcome) -> Table {
    let mut columns = vec![("case", Align::Left)];
    columns.extend(metrics.iter().map(|metric| (metric.title, Align::Right)));
    let mut table = Table::new(&columns);
    table.row(std::iter::once("").chain(metrics.iter().map(|metric| metric.unit)));
    for case in &outcome.measurement.cases {
        let figures = metrics.iter().map(|metric| cell(metric, case.metrics.get(metric.name)));
        table.row(std::iter::once(case.name.clone()).chain(figures));
    }
    table
}

fn cell(metric: &Metric, value: Option<&f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| grouped(*value, metric.decimals.into()))
}

/// A number with its thousands set apart: `1,234,567.8`.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let digits = whole.trim_start_matches('-');
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return text;
    }
    let mut result = whole[..whole.len() - digits.len()].to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            result.push(',');
        }
        result.push(digit);
    }
    result + fraction
}

fn case(case: &Case) -> (String, String) {
    let skipped = case
        .skipped
        .as_ref()
        .map_or(String::new(), |reason| format!(" (not run here: {reason})"));
    (case.name.clone(), format!("{}{skipped}", case.title))
}

fn published(metrics: &[Metric], reference: &Reference) -> (String, String) {
    let metric = metrics.iter().find(|metric| metric.name == reference.metric);
    let name = metric.map_or_else(|| reference.metric.replace('_', " "), |metric| metric.title.to_owned());
    (
        name,
        format!(
            "{} ({}; {})",
            shortest(reference.value),
            reference.note,
            reference.source
        ),
    )
}

/// A published figure with the digits that it was published with: at most six decimal places, the last one not a zero.
fn shortest(value: f64) -> String {
    let text = format!("{value:.6}");
    let digits = text.trim_end_matches('0');
    grouped(value, digits.find('.').map_or(0, |point| digits.len() - point - 1))
}

fn check(check: &Check, missed: &str) -> (String, String) {
    let verdict = if check.passed { "ok" } else { missed };
    (verdict.to_owned(), format!("{}: {}", check.name, check.detail))
}

/// A heading and its entries: a word, and a text that is indented when it is broken.
fn section(width: usize, heading: &str, entries: impl Iterator<Item = (String, String)>) -> String {
    let entries: Vec<_> = entries.collect();
    if entries.is_empty() {
        return String::new();
    }
    let widest = entries
        .iter()
        .map(|(word, _)| length(word))
        .max()
        .unwrap_or(0)
        .min(width / 3);
    let mut text = if heading.is_empty() {
        "\n".to_owned()
    } else {
        format!("\n{heading}\n")
    };
    for (word, entry) in &entries {
        let padding = " ".repeat(widest.saturating_sub(length(word)));
        text += &wrap(&format!("  {word}{padding}  {entry}"), &" ".repeat(widest + 4), width);
    }
    text
}

/// Breaks a line between words so that it fits; the lines that follow begin with `indent`.
fn wrap(line: &str, indent: &str, width: usize) -> String {
    let mut text = String::new();
    let mut rest = line.to_owned();
    while length(&rest) > width {
        // The end of what fits, with the character behind it: a space there is as good as one before.
        let end = rest.char_indices().nth(width + 1).map_or(rest.len(), |(end, _)| end);
        let from = rest.len() - rest.trim_start().len();
        // A word that is longer than a line stays whole.
        let space = rest[from.min(end)..end].rfind(' ').or_else(|| rest[from..].find(' '));
        let Some(space) = space
            .map(|space| space + from)
            .filter(|space| *space > from && *space >= indent.len())
        else {
            break;
        };
        text += rest[..space].trim_end();
        text.push('\n');
        rest = format!("{indent}{}", rest[space..].trim_start());
    }
    text + &rest + "\n"
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Measurement, Size};

    const METRICS: &[Metric] = &[
        Metric::less("instructions_per_packet", "instructions a packet", "instructions", 0),
        Metric::less("host_instructions_per_packet", "of them the host's", "instructions", 0),
        Metric::less("delivered", "delivered", "packets", 0),
        Metric::less("rtt_p50_us", "round trip p50", "us", 1),
        Metric::less("rtt_p99_us", "round trip p99", "us", 1),
        Metric::less("rtt_max_us", "round trip max", "us", 1),
    ];

    fn outcome() -> Outcome {
        let case = |name: &str, instructions: f64| Case {
            name: name.into(),
            title: format!("packets by way of {name}, which takes a whole sentence of many words to say what it is"),
            metrics: [
                ("instructions_per_packet".to_owned(), instructions),
                ("rtt_p99_us".to_owned(), 12.345),
            ]
            .into(),
            skipped: None,
        };
        let skipped = Case {
            name: "xdp-forward".into(),
            skipped: Some("no flowtable mode".into()),
            ..Case::default()
        };
        Outcome {
            experiment: "redirect".into(),
            kernel: "6.12.1".into(),
            suite: "trixie".into(),
            seed: 1,
            size: Size::Quick,
            build: "rustc 1.95.0, clang 14.0.6, debug build".into(),
            tarn: "0.1.0".into(),
            measurement: Measurement {
                cases: vec![
                    case("nft-dnat", 35_618.0),
                    case("tarn-xdp-redirect", 1_028_887.4),
                    skipped,
                ],
                series: Vec::new(),
                checks: vec![
                    Check {
                        name: "every packet delivered".into(),
                        passed: true,
                        detail: "70,000 of 70,000".into(),
                    },
                    Check {
                        name: "at most a third".into(),
                        passed: false,
                        detail: "0.41".into(),
                    },
                ],
                goals: vec![Check {
                    name: "at most half".into(),
                    passed: false,
                    detail: "0.57".into(),
                }],
            },
            reference: vec![Reference {
                source: "a paper".into(),
                metric: "rtt_p99_us".into(),
                value: 14.25,
                note: "us, on other hardware".into(),
            }],
        }
    }

    /// In a terminal of the usual width, a broken table could not be read.
    #[test]
    fn everything_fits_80_columns_and_nothing_is_lost() {
        let text = render("what a redirect costs", METRICS, &outcome(), Some(80));
        for line in text.lines() {
            assert!(length(line) <= 80, "{line}");
        }
        for metric in METRICS {
            assert!(text.contains(metric.title), "{text}");
        }
        for part in [
            "35,618",
            "1,028,887",
            "12.3",
            "14.25",
            "no flowtable mode",
            "FAILED",
            "Goals:",
            "missed",
            "one instruction a nanosecond",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn a_wide_terminal_gets_one_table() {
        let text = render("what a redirect costs", METRICS, &outcome(), Some(200));
        assert_eq!(text.lines().filter(|line| line.starts_with("case ")).count(), 1);
    }

    #[test]
    fn numbers_are_rounded_and_grouped() {
        assert_eq!(grouped(1_234_567.89, 1), "1,234,567.9");
        assert_eq!(grouped(-1234.0, 0), "-1,234");
        assert_eq!(grouped(999.0, 0), "999");
        assert_eq!(grouped(f64::NAN, 0), "NaN");
        assert_eq!(shortest(14.25), "14.25");
        assert_eq!(shortest(14_000.0), "14,000");
        assert_eq!(shortest(0.01004 * 1e3), "10.04", "no digits of a computer's own");
    }

    #[test]
    fn a_word_that_is_too_long_stays_whole() {
        assert_eq!(wrap("aaa bbbbbbbbbbbb c", "  ", 5), "aaa\n  bbbbbbbbbbbb\n  c\n");
        assert_eq!(wrap("short", "", 80), "short\n");
    }

    /// A case's title may hold any character; a cut inside of one would end the program.
    #[test]
    fn any_text_can_be_broken() {
        for width in 1..12 {
            for text in ["aé bé cé", "éé éé éé éé", "    é é é", "ééééééééé é", "→→→ →→→"]
            {
                let broken = wrap(text, "  ", width);
                assert_eq!(
                    broken.split_whitespace().collect::<Vec<_>>(),
                    text.split_whitespace().collect::<Vec<_>>()
                );
            }
        }
    }
}
