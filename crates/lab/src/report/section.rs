//! The part of the page about one experiment.

use crate::experiment::{Outcome, Plot, Size};

use super::markup::{Escaped, prose};
use super::page::Group;
use super::plot::{self, Width};
use super::{Entry, evidence, result, tables};

/// Title, method, then every run.
pub fn render(group: &Group) -> String {
    let Some(first) = group.entries.first() else {
        return String::new();
    };
    let runs: String = (0..group.entries.len()).map(|index| run(group, index)).collect();
    format!(
        r#"<section class="experiment" aria-labelledby="{id}"><h2 id="{id}">{title}</h2>
{origin}{method}{compared}{runs}</section>"#,
        id = group.id,
        title = Escaped(&group.title()),
        origin = origin(first),
        method = method(first),
        compared = tables::compared(&group.entries, &run_names(&group.entries)),
    )
}

fn origin(entry: &Entry) -> String {
    let name = Escaped(&entry.outcome.experiment);
    match entry.experiment {
        Some(experiment) => {
            format!(
                r#"<p class="origin">Experiment <code>{name}</code> of stage <code>{}</code></p>"#,
                Escaped(experiment.stage)
            )
        }
        None => format!(
            r#"<p class="origin">Experiment <code>{name}</code>, unknown to this build of tarn: its tables only.</p>"#
        ),
    }
}

fn method(entry: &Entry) -> String {
    let Some(experiment) = entry.experiment else {
        return String::new();
    };
    let paragraph = |text: &str| format!("<p>{}</p>", prose(text.trim()));
    let paragraphs: String = experiment
        .method
        .split("\n\n")
        .filter(|text| !text.trim().is_empty())
        .map(paragraph)
        .collect();
    format!(r#"<div class="method">{paragraphs}</div>"#)
}

/// How the runs are called where they stand side by side: by suite, and by what else tells them apart.
fn run_names(entries: &[Entry]) -> Vec<String> {
    let differ = |what: fn(&Outcome) -> String| {
        entries
            .windows(2)
            .any(|pair| what(pair[0].outcome) != what(pair[1].outcome))
    };
    let seeds = differ(|outcome| outcome.seed.to_string());
    let sizes = differ(|outcome| outcome.size.name().to_owned());
    let versions = differ(|outcome| outcome.tarn.clone());
    let name = |entry: &Entry| {
        let outcome = entry.outcome;
        let mut name = vec![format!("{} {}", outcome.suite, short(&outcome.kernel))];
        name.extend(seeds.then(|| format!("seed {}", outcome.seed)));
        name.extend(sizes.then(|| format!("{} size", outcome.size.name())));
        name.extend(versions.then(|| format!("tarn {}", outcome.tarn)));
        name.join(", ")
    };
    entries.iter().map(name).collect()
}

/// `6.12` of `6.12.48+deb13-cloud-amd64`; the whole release where it does not begin that way.
fn short(kernel: &str) -> &str {
    let ends = kernel
        .match_indices(|c: char| !c.is_ascii_digit())
        .map(|(end, _)| end)
        .take(2)
        .collect::<Vec<_>>();
    match ends[..] {
        [point, end] if kernel[point..].starts_with('.') => &kernel[..end],
        _ => kernel,
    }
}

/// The size, and the option that gives the other one.
fn size_with_option(outcome: &Outcome) -> &'static str {
    match outcome.size {
        Size::Headline => "headline (all cases without --headline)",
        Size::Quick => "quick (full with --full)",
        Size::Full => "full (quick without --full)",
    }
}

fn run(group: &Group, index: usize) -> String {
    let entry = &group.entries[index];
    let outcome = entry.outcome;
    let id = group.run_id(index);
    format!(
        concat!(
            r#"<article class="run" aria-labelledby="{id}"><h3 id="{id}">{suite} "#,
            r#"<span class="muted">Linux {kernel}</span></h3>"#,
            r#"{facts}{checks}{goals}{plots}<p class="model">{model}</p>{table}{references}{quantiles}</article>"#
        ),
        id = id,
        suite = Escaped(&outcome.suite),
        kernel = Escaped(&outcome.kernel),
        facts = facts(entry),
        checks = evidence::checks(outcome),
        goals = evidence::goals(outcome),
        model = plot::MODEL,
        plots = plots(entry, &id),
        table = tables::cases(entry),
        references = evidence::references(entry),
        quantiles = tables::quantiles(entry),
    )
}

/// Where the figures come from, and the command that gives them again.
fn facts(entry: &Entry) -> String {
    let outcome = entry.outcome;
    let mut facts = vec![
        ("Seed", outcome.seed.to_string()),
        ("Size", size_with_option(outcome).to_owned()),
        ("tarn", outcome.tarn.clone()),
    ];
    if let Some(experiment) = entry.experiment {
        facts.push(("Virtual CPUs", experiment.cpus.to_string()));
    }
    let facts: String = facts
        .iter()
        .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>", Escaped(value)))
        .collect();
    // A line breaks between words only, not at the hyphens of an option.
    let words: Vec<String> = command(outcome)
        .split(' ')
        .map(|word| format!(r#"<span class="word">{}</span>"#, Escaped(word)))
        .collect();
    format!(
        r#"<dl class="facts">{facts}<div class="command"><dt>Reproduce</dt><dd><code>{}</code></dd></div></dl>"#,
        words.join(" ")
    )
}

/// The command that reproduces a result.
pub fn command(outcome: &Outcome) -> String {
    let size = outcome.size.option();
    let (name, suite) = (quoted(&outcome.experiment), quoted(&outcome.suite));
    format!("tarn lab run {name} --seed {} --suite {suite}{size}", outcome.seed)
}

/// A word of a shell command; in quotes where it is not plain.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn plots(entry: &Entry, id: &str) -> String {
    let figure = |(index, plot): (usize, &Plot)| {
        let drawn = |width, class: &str| {
            let drawing = plot::inline(entry, plot, width, &format!("{id}-p{}{class}", index + 1));
            format!(r#"<div class="{class}">{drawing}</div>"#)
        };
        format!(
            r#"<figure><figcaption><strong>{}</strong> <span class="muted">{}</span></figcaption>{}{}</figure>"#,
            Escaped(plot::title(plot)),
            Escaped(&plot::subtitle(entry, plot)),
            drawn(Width::Wide, "wide"),
            drawn(Width::Narrow, "narrow")
        )
    };
    let figures: String = result::plots(entry).iter().enumerate().map(figure).collect();
    if figures.is_empty() {
        figures
    } else {
        format!(r#"<div class="figures">{figures}</div>"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_called_by_their_series() {
        assert_eq!(
            ["6.12.48+deb13-cloud-amd64", "6.1.0-40-amd64", "7.2", "next", ""].map(short),
            ["6.12", "6.1", "7.2", "next", ""]
        );
    }
}
