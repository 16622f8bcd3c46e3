//! The page: what was run, what came out, and how to read it.

use super::markup::{Escaped, slug};
use super::{Entry, number, plot, result, section, tables};

pub const STYLE: &str = include_str!("style.css");

/// Refuses everything from outside the file, and scripts: the page cannot ask anybody for anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The results of one experiment, on one or several kernels.
#[derive(Debug)]
pub struct Group<'a> {
    /// The element's id.
    pub id: String,
    /// The results, in the order given.
    pub entries: Vec<Entry<'a>>,
}

impl Group<'_> {
    /// The experiment's title as a heading, or its name where this build does not know it.
    pub fn title(&self) -> String {
        let Some(entry) = self.entries.first() else {
            return String::new();
        };
        match entry.experiment {
            Some(experiment) => heading(experiment.title),
            None => entry.outcome.experiment.clone(),
        }
    }

    /// The element's id of the run at `index`.
    pub fn run_id(&self, index: usize) -> String {
        format!("{}-{}", self.id, index + 1)
    }
}

/// The whole page.
pub fn render(entries: &[Entry]) -> String {
    let groups = groups(entries);
    let sections: String = groups.iter().map(section::render).collect();
    format!(
        concat!(
            "<!DOCTYPE html>\n",
            r#"<html lang="en"><head><meta charset="utf-8"/>"#,
            r#"<meta name="viewport" content="width=device-width, initial-scale=1"/>"#,
            r#"<meta http-equiv="Content-Security-Policy" content="{policy}"/>"#,
            r#"<meta name="color-scheme" content="light dark"/><title>tarn: report of the lab</title>"#,
            r#"<link rel="icon" href="data:,"/><style>{plot_style}{style}</style></head>"#,
            r##"<body><a class="skip" href="#results">To the results</a>{header}"##,
            r#"<main id="results">{summary}{sections}</main>{footer}</body></html>"#,
            "\n",
        ),
        policy = POLICY,
        plot_style = plot::STYLE,
        style = STYLE,
        header = HEADER,
        summary = summary(&groups),
        sections = sections,
        footer = footer(entries),
    )
}

/// The entries by experiment, in the order in which the experiments first occur.
fn groups<'a>(entries: &[Entry<'a>]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for entry in entries {
        let name = &entry.outcome.experiment;
        match groups
            .iter_mut()
            .find(|group| group.entries.iter().all(|other| other.outcome.experiment == *name))
        {
            Some(group) => group.entries.push(*entry),
            None => {
                let id = format!("e{}-{}", groups.len() + 1, slug(name));
                groups.push(Group {
                    id,
                    entries: vec![*entry],
                });
            }
        }
    }
    groups
}

/// A title that begins as a sentence does; tarn is never written with a capital.
fn heading(title: &str) -> String {
    if title.starts_with("tarn") {
        return title.to_owned();
    }
    let mut characters = title.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}

const HEADER: &str = concat!(
    r#"<header><p class="brand">tarn</p><h1>Report of the lab</h1>"#,
    r#"<p class="lead">tarn keeps the network latency of a Linux host still: low jitter for the people who "#,
    "use it, and the promised response time for the clients who were promised one. It runs on stock kernels, ",
    "6.1 and newer.</p>",
    "</header>",
);

/// The verdict over all checks and goals, then one row a result.
fn summary(groups: &[Group]) -> String {
    if groups.is_empty() {
        return concat!(
            "<section><h2>No results</h2><p>Nothing was run yet. <code>tarn lab run --json results.json</code> runs ",
            "every experiment and keeps the results.</p></section>"
        )
        .to_owned();
    }
    let rows: String = groups
        .iter()
        .flat_map(|group| (0..group.entries.len()).map(move |index| row(group, index)))
        .collect();
    format!(
        concat!(
            r#"<section aria-labelledby="summary"><h2 id="summary">Summary</h2>{verdict}"#,
            r#"{table}{reading}</section>"#,
        ),
        verdict = verdict(groups),
        table = tables::stacked("stacked wide-cells", &HEADS, &rows),
        reading = READING,
    )
}

const HEADS: [&str; 4] = [
    "Experiment",
    "Kernel",
    "Checks",
    "tarn's default, beside the best and the worst of the others",
];

const READING: &str = concat!(
    r#"<aside class="reading"><h3>How the figures come about</h3>"#,
    "<p>The lab boots a stock Debian kernel in an emulated machine whose clock counts instructions: one instruction ",
    "is one nanosecond, and idle time is skipped. Hosts are network namespaces in that one guest. A run comes out ",
    "the same to the last digit on any machine, however busy it is, so that anybody can check a figure with the ",
    "command beside it.</p>",
    "<p>The price: costs are <strong>exact instruction counts, a model, not the speed of a real CPU</strong>. There ",
    "are no caches, no pipelines, no sleep states and no network card in them. Compare figures of one run with each ",
    "other, not with a stopwatch.</p>",
    "<p>The 99 % figure (p99) of a distribution is the value that 99 of 100 measured ones do not exceed; p50 is the ",
    "median. RTT is the round-trip time, from sending a request to receiving its answer.</p></aside>",
);

fn verdict(groups: &[Group]) -> String {
    let totals = groups
        .iter()
        .flat_map(|group| &group.entries)
        .map(|entry| result::checks(entry.outcome));
    let (passed, all) = totals.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let runs: usize = groups.iter().map(|group| group.entries.len()).sum();
    let runs = format!("{} {}", number::count(runs), if runs == 1 { "run" } else { "runs" });
    let checks = match all - passed {
        _ if all == 0 => format!(r#"<p class="verdict">{runs}, without checks.</p>"#),
        0 => format!(
            r#"<p class="verdict pass"><span aria-hidden="true">✓</span> All {} checks of {runs} passed.</p>"#,
            number::count(all)
        ),
        failed => format!(
            r#"<p class="verdict fail"><span aria-hidden="true">✗</span> {} of {} checks of {runs} failed.</p>"#,
            number::count(failed),
            number::count(all)
        ),
    };
    let goals = groups
        .iter()
        .flat_map(|group| &group.entries)
        .map(|entry| result::goals(entry.outcome))
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    match goals {
        (0, _) => checks,
        (missed, all) => format!(
            r#"{checks}<p class="verdict missed"><span aria-hidden="true">○</span> {} of {} goals missed.</p>"#,
            number::count(missed),
            number::count(all)
        ),
    }
}

fn row(group: &Group, index: usize) -> String {
    let entry = &group.entries[index];
    let outcome = entry.outcome;
    let (passed, all) = result::checks(outcome);
    let (class, sign) = match all {
        0 => ("", ""),
        _ if passed == all => ("pass", "✓ "),
        _ => ("fail", "✗ "),
    };
    let checks = if all == 0 {
        "none".to_owned()
    } else {
        format!("{passed} of {all} passed")
    };
    let goals = match result::goals(outcome) {
        (_, 0) => String::new(),
        (missed, all) => format!(r#"<br/><span class="muted">{} of {all} goals met</span>"#, all - missed),
    };
    format!(
        concat!(
            r##"<tr role="row"><th scope="row" role="rowheader"><a href="#{}">{}</a></th>"##,
            r#"<td role="cell">{} <span class="muted">{}</span></td><td role="cell" class="{}">{}{}{}</td>"#,
            r#"<td role="cell">{}</td></tr>"#,
        ),
        group.run_id(index),
        Escaped(&outcome.experiment),
        Escaped(&outcome.suite),
        Escaped(&outcome.kernel),
        class,
        sign,
        checks,
        goals,
        headline(entry)
    )
}

/// The figure of tarn's default, and what part of others' it is.
fn headline(entry: &Entry) -> String {
    let Some(headline) = result::headline(entry) else {
        return r#"<span class="muted">no one case stands for it: see its tables</span>"#.to_owned();
    };
    let ours = headline.column.show_with_unit(headline.ours);
    let mut out = format!(
        r#"<strong>{}</strong> <span class="muted">{}</span>"#,
        Escaped(&ours),
        Escaped(&headline.column.title)
    );
    for (ratio, title) in headline.nearest.iter().chain(&headline.farthest) {
        out += &format!("<br/>{} of “{}”", number::share(*ratio), Escaped(title));
    }
    out
}

const REPEATABLE: &str = "The same results give the same page, byte for byte. It needs no network and runs no script.";

fn footer(entries: &[Entry]) -> String {
    let mut versions: Vec<&str> = entries.iter().map(|entry| entry.outcome.tarn.as_str()).collect();
    versions.push(env!("CARGO_PKG_VERSION"));
    versions.sort_unstable();
    versions.dedup();
    format!(
        "<footer><p>Written by tarn {}. {REPEATABLE}</p></footer>",
        Escaped(&versions.join(", "))
    )
}

#[cfg(test)]
mod tests {
    use super::heading;

    #[test]
    fn a_heading_begins_with_a_capital_unless_it_begins_with_tarn() {
        assert_eq!(
            ["the cost", "tarn at work", "Ω", ""].map(heading),
            ["The cost", "tarn at work", "Ω", ""]
        );
    }
}
