//! The screen that a run ends with: a line for each main figure of a stage, beside what the stock kernel, a peer and the
//! published method come to.

use std::collections::BTreeSet;

use super::experiment::{Better, Experiment, Highlight, Measurement, Metric, Outcome, Size};
use super::table::grouped;
use tarn_base::output::{Align, Table};

/// A highlight's figures, as they are shown; empty where a case was not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// The stock kernel's.
    pub stock: String,
    /// The peer's, behind its name.
    pub peer: String,
    /// The published method's.
    pub published: String,
    /// tarn's.
    pub tarn: String,
    /// How many times better tarn's is than the stock kernel's, as `6.9x`.
    pub gain: String,
}

/// The figures of a highlight in a result; `None` where tarn has none.
pub fn figures(highlight: &Highlight, metrics: &[Metric], measurement: &Measurement) -> Option<Figures> {
    let metric = metrics.iter().find(|metric| metric.name == highlight.metric)?;
    let figure = |case: &str| measurement.figure(case, highlight.metric);
    let show = |value: f64| grouped(value, metric.decimals.into());
    let shown = |case: Option<&str>| case.and_then(figure).map_or_else(String::new, show);
    let peer = highlight.peer.and_then(|(name, case)| Some((name, figure(case)?)));
    let ours = figure(highlight.tarn)?;
    Some(Figures {
        stock: shown(highlight.stock),
        peer: peer.map_or_else(String::new, |(name, value)| format!("{name} {}", show(value))),
        published: shown(highlight.published),
        tarn: show(ours),
        gain: highlight
            .stock
            .and_then(figure)
            .map_or_else(String::new, |stock| gain(stock, ours, metric.better)),
    })
}

/// The cases that an experiment's highlights show and that its result lacks: the screen would be silent about the stage. Other sizes
/// than the headline may leave out what tarn is compared with.
pub fn missing(experiment: &Experiment, outcome: &Outcome) -> Option<String> {
    let shown = experiment.highlights.iter().flat_map(|highlight| {
        let peer = highlight.peer.map(|(_, case)| case);
        let others = [highlight.stock, peer, highlight.published].into_iter().flatten();
        let others = others.filter(|_| outcome.size == Size::Headline);
        others.chain([highlight.tarn])
    });
    let was_run = |name: &str| outcome.measurement.cases.iter().any(|case| case.name == name);
    let missing: BTreeSet<&str> = shown.filter(|case| !was_run(case)).collect();
    (!missing.is_empty()).then(|| {
        let names: Vec<&str> = missing.into_iter().collect();
        format!(
            "{} on {}: not run, though the last screen shows it: {}",
            outcome.experiment,
            outcome.suite,
            names.join(", ")
        )
    })
}

/// How many times better `ours` is; empty where that cannot be said.
fn gain(stock: f64, ours: f64, better: Better) -> String {
    let times = match better {
        Better::Less => stock / ours,
        Better::More => ours / stock,
        Better::Neither => f64::NAN,
    };
    if !times.is_finite() {
        return String::new();
    }
    let decimals = if times < 9.95 { 1 } else { 0 };
    format!("{times:.decimals$}x")
}

/// The screen: the highlights of all results, then what failed. Empty where no result has a highlight and nothing failed.
pub fn screen(results: &[(&Experiment, &Outcome)], failures: &[String], width: Option<usize>) -> String {
    let mut columns = vec![("STAGE", Align::Left), ("MEASURED", Align::Left)];
    columns.extend(["STOCK", "PEER", "PAPER", "TARN", "GAIN"].map(|title| (title, Align::Right)));
    let mut table = Table::new(&columns);
    let mut rows = 0;
    for (experiment, outcome) in results {
        for highlight in experiment.highlights {
            let Some(shown) = figures(highlight, experiment.metrics, &outcome.measurement) else {
                continue;
            };
            let Figures {
                stock,
                peer,
                published,
                tarn,
                gain,
            } = shown;
            let shown =
                [stock, peer, published, tarn, gain].map(|text| if text.is_empty() { "-".into() } else { text });
            table.row(
                [experiment.stage.to_owned(), highlight.what.to_owned()]
                    .into_iter()
                    .chain(shown),
            );
            rows += 1;
        }
    }
    let mut text = if rows > 0 { table.render(width) } else { String::new() };
    if !failures.is_empty() {
        text += "\nFAILED\n";
        text.extend(failures.iter().map(|failure| format!("  {failure}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::Cards;
    use crate::experiment::Case;

    const METRICS: &[Metric] = &[
        Metric::less("rtt_ms", "RTT", "ms", 0),
        Metric::more("answered", "answered", "%", 1),
    ];

    fn measurement(cases: &[(&str, f64)]) -> Measurement {
        let case = |(name, value): &(&str, f64)| Case {
            metrics: [("rtt_ms".to_owned(), *value), ("answered".to_owned(), *value)].into(),
            ..Case::new(*name, *name)
        };
        Measurement {
            cases: cases.iter().map(case).collect(),
            ..Measurement::default()
        }
    }

    const HIGHLIGHT: Highlight = Highlight {
        what: "RTT, ms",
        metric: "rtt_ms",
        stock: Some("stock"),
        peer: Some(("nft", "peer")),
        published: Some("published"),
        tarn: "tarn",
    };

    fn experiment(highlights: &'static [Highlight]) -> Experiment {
        Experiment {
            stage: "reassembly",
            name: "reassembly-order",
            title: "",
            method: "",
            cpus: 1,
            cards: Cards::None,
            software: false,
            metrics: METRICS,
            plots: &[],
            references: &[],
            highlights,
            parts: |_| 1,
            headline: &[],
            run: |_| unreachable!("it is made up"),
            conclude: None,
        }
    }

    fn outcome(cases: &[(&str, f64)]) -> Outcome {
        Outcome {
            experiment: "reassembly-order".into(),
            kernel: String::new(),
            suite: "trixie".into(),
            seed: 1,
            size: Size::Headline,
            build: String::new(),
            tarn: String::new(),
            measurement: measurement(cases),
            reference: Vec::new(),
        }
    }

    /// A stage whose headline runs other cases than the screen shows would be missing from it, and nobody would notice.
    #[test]
    fn a_case_that_the_screen_shows_has_to_be_run() {
        let experiment = experiment(&[HIGHLIGHT]);
        let missing = |cases, size| missing(&experiment, &Outcome { size, ..outcome(cases) });
        let all = [("stock", 1.0), ("peer", 1.0), ("published", 1.0), ("tarn", 1.0)];
        assert_eq!(missing(&all, Size::Headline), None);
        assert_eq!(missing(&all[3..], Size::Quick), None);
        let told = missing(&all[1..3], Size::Headline).unwrap();
        assert!(told.ends_with("the last screen shows it: stock, tarn"), "{told}");
        assert!(missing(&all[..3], Size::Full).is_some());
    }

    #[test]
    fn a_gain_is_how_many_times_better_ours_is() {
        let cases = measurement(&[("stock", 1300.0), ("peer", 40.0), ("tarn", 100.0)]);
        let shown = figures(&HIGHLIGHT, METRICS, &cases).unwrap();
        assert_eq!(
            [shown.stock, shown.peer, shown.published, shown.tarn, shown.gain],
            ["1,300", "nft 40", "", "100", "13x"]
        );
        let more = Highlight {
            metric: "answered",
            ..HIGHLIGHT
        };
        let cases = measurement(&[("stock", 50.0), ("tarn", 100.0)]);
        assert_eq!(figures(&more, METRICS, &cases).unwrap().gain, "2.0x");
    }

    /// Nobody would believe a screen with "infx" on it.
    #[test]
    fn no_gain_is_claimed_over_nothing() {
        let more = Highlight {
            metric: "answered",
            ..HIGHLIGHT
        };
        let cases = measurement(&[("stock", 0.0), ("tarn", 100.0)]);
        assert_eq!(figures(&more, METRICS, &cases).unwrap().gain, "");
        assert_eq!(figures(&HIGHLIGHT, METRICS, &measurement(&[("stock", 1.0)])), None);
    }

    /// It is read in a terminal of 80 columns, each figure on one line.
    #[test]
    fn a_line_fits_a_terminal() {
        let highlights: &'static [Highlight] = &[Highlight {
            what: "22 characters, no more",
            peer: Some(("HAProxy", "peer")),
            ..HIGHLIGHT
        }];
        let cases = [("stock", 12_345.0), ("peer", 12_345.0), ("tarn", 1_234.0)];
        let (experiment, outcome) = (experiment(highlights), outcome(&cases));
        let text = screen(&[(&experiment, &outcome)], &[], Some(80));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn what_failed_is_in_the_same_screen() {
        let text = screen(
            &[],
            &["paths-jitter on trixie: 1 of 29 checks do not hold".into()],
            None,
        );
        assert!(text.contains("FAILED\n  paths-jitter"), "{text}");
        assert_eq!(screen(&[], &[], None), "");
    }
}
