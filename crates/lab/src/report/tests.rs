//! What a reader of the report would lose.

use crate::experiment::{Case, Measurement, Outcome, Plot, Series, Size};

use super::{page, plot, result, section, write};

mod fixture;
mod lanes;
mod palette;
mod xml;

use fixture::{DESCRIBED, described, outcome, unknown};

/// The page of three kernels, an experiment without a description, and one with nothing in it. To look at it, run
/// the test with `TARN_REPORT_PREVIEW=FILE`.
#[test]
fn the_page_is_well_formed_whatever_the_results_are() {
    let runs = [
        outcome("bookworm", "6.1.0-40-cloud-amd64", 12),
        outcome("trixie", "6.12.48+deb13-cloud-amd64", 12),
        outcome("trixie-backports", "7.2.1+deb13-cloud-amd64", 10),
    ];
    let mut other = outcome("trixie", "6.12.48+deb13-cloud-amd64", 4);
    other.experiment = "loaned".into();
    let empty = Outcome {
        experiment: "empty".into(),
        measurement: Measurement::default(),
        reference: vec![],
        ..other.clone()
    };
    let mut entries: Vec<_> = runs.iter().map(described).collect();
    entries.extend([unknown(&other), unknown(&empty)]);
    let document = page::render(&entries);
    assert_eq!(xml::check(&document), Ok(()));
    if let Some(path) = std::env::var_os("TARN_REPORT_PREVIEW").map(std::path::PathBuf::from) {
        for (index, one) in DESCRIBED.plots.iter().enumerate() {
            std::fs::write(
                path.with_extension(format!("{index}.svg")),
                plot::standalone(&entries[1], one),
            )
            .unwrap();
        }
        std::fs::write(path, &document).unwrap();
    }
}

#[test]
fn the_page_asks_nobody_for_anything() {
    let run = outcome("trixie", "6.12", 12);
    let document = page::render(&[described(&run)]);
    for outside in [
        "http:",
        "https:",
        "url(",
        "@import",
        "<script",
        "src=",
        "@font-face",
        "javascript:",
    ] {
        assert!(!document.contains(outside), "{outside}");
    }
    assert!(document.contains("default-src 'none'"));
}

#[test]
fn the_same_results_give_the_same_page() {
    let (a, b) = (outcome("trixie", "6.12", 12), outcome("trixie", "6.12", 12));
    assert_eq!(page::render(&[described(&a)]), page::render(&[described(&b)]));
}

#[test]
fn hostile_names_do_not_become_markup() {
    let hostile = "</title><script>alert(1)</script>\"'&\u{0}";
    let mut run = outcome("trixie", "6.12", 10);
    for text in [
        &mut run.experiment,
        &mut run.kernel,
        &mut run.suite,
        &mut run.tarn,
        run.reference[0].note.to_mut(),
        &mut run.measurement.cases[1].title,
        &mut run.measurement.checks[0].detail,
        &mut run.measurement.series[0].unit,
    ] {
        *text = hostile.to_owned();
    }
    run.measurement.cases[3].name = hostile.to_owned();
    run.measurement.cases[2].skipped = Some(hostile.to_owned());
    let document = page::render(&[described(&run), unknown(&run)]);
    assert_eq!(xml::check(&document), Ok(()));
    assert!(!document.contains("<script"));
    DESCRIBED
        .plots
        .iter()
        .for_each(|one| assert_eq!(xml::check(&plot::standalone(&described(&run), one)), Ok(())));
}

#[test]
fn every_plot_stands_alone_as_a_document() {
    for cases in [0, 1, 2, 10, 12] {
        let run = outcome("trixie", "6.12.48+deb13-cloud-amd64", cases);
        for one in DESCRIBED.plots {
            let drawing = plot::standalone(&described(&run), one);
            assert_eq!(xml::check(&drawing), Ok(()), "{cases} cases");
            assert!(drawing.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
            assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{cases} cases");
            let without_figure = cases == 0 || (cases == 1 && matches!(one, Plot::Bars { .. }));
            assert_eq!(drawing.contains("no values"), without_figure);
        }
    }
}

#[test]
fn extreme_values_are_drawn_within_the_picture() {
    let extremes = [
        0.0,
        -0.0,
        1.0,
        -5.0,
        1e-300,
        -1e300,
        1e300,
        f64::MAX,
        f64::MIN_POSITIVE,
        f64::NAN,
        f64::INFINITY,
    ];
    for (first, second) in extremes
        .iter()
        .flat_map(|first| extremes.iter().map(move |second| (*first, *second)))
    {
        let mut run = outcome("trixie", "6.12", 2);
        run.measurement.cases[0]
            .metrics
            .insert("host_instructions_per_packet".into(), first);
        run.measurement.cases[1]
            .metrics
            .insert("host_instructions_per_packet".into(), second);
        run.measurement
            .series
            .iter_mut()
            .for_each(|series| series.values = vec![first, second]);
        let document = page::render(&[described(&run)]);
        assert_eq!(xml::check(&document), Ok(()));
        for wrong in ["\"NaN", " NaN", "\"inf", " inf", "HNaN", "VNaN", "\"-inf"] {
            assert!(!document.contains(wrong), "{wrong} for {first} and {second}");
        }
    }
}

#[test]
fn a_result_names_the_command_that_reproduces_it() {
    let mut run = outcome("trixie", "6.12", 1);
    assert_eq!(section::command(&run), "tarn lab run redirect --seed 1 --suite trixie");
    (run.size, run.suite) = (Size::Full, "my suite's".into());
    assert_eq!(
        section::command(&run),
        r"tarn lab run redirect --seed 1 --suite 'my suite'\''s' --full"
    );
}

#[test]
fn figures_are_called_a_model_wherever_they_stand() {
    let run = outcome("trixie", "6.12", 10);
    assert_eq!(
        page::render(&[described(&run), described(&run)])
            .matches(plot::MODEL)
            .count(),
        2
    );
    let drawing = plot::standalone(&described(&run), &DESCRIBED.plots[0]);
    let lines: Vec<&str> = drawing
        .split("</text>")
        .filter_map(|line| line.rsplit('>').next())
        .collect();
    assert!(lines.join(" ").contains(plot::MODEL));
}

#[test]
fn the_headline_compares_with_the_nearest_and_the_farthest_of_the_others() {
    let run = outcome("trixie", "6.12", 12);
    let headline = result::headline(&described(&run)).unwrap();
    let (nearest, farthest) = (headline.nearest.unwrap(), headline.farthest.unwrap());
    assert_eq!(
        (nearest.1.as_str(), farthest.1.as_str()),
        ("Plain routing, no redirect", "iptables DNAT")
    );
    assert!((nearest.0 - 2168.0 / 5054.0).abs() < 1e-9 && (farthest.0 - 2168.0 / 9420.0).abs() < 1e-9);
    assert_eq!(result::headline(&described(&outcome("trixie", "6.12", 3))), None);
}

#[test]
fn the_reader_is_told_why_a_case_was_skipped() {
    let run = outcome("trixie", "6.12", 12);
    assert!(
        page::render(&[described(&run)])
            .contains("skipped: the image&#39;s xdp-tools 1.3.1 has no flowtable mode; it came with 1.5")
    );
}

#[test]
fn an_unknown_experiment_still_shows_its_tables() {
    let run = outcome("trixie", "6.12", 10);
    let document = page::render(&[unknown(&run)]);
    for text in [
        "host instructions per packet",
        "tarn, as configured by default",
        "2\u{202f}168",
        "unknown to this build",
        "rtt_us, µs",
    ] {
        assert!(document.contains(text), "{text}");
    }
}

#[test]
fn several_kernels_stand_side_by_side() {
    let runs = [
        outcome("bookworm", "6.1.0-40-amd64", 12),
        outcome("trixie", "6.12.48+deb13", 10),
    ];
    let document = page::render(&runs.iter().map(described).collect::<Vec<_>>());
    assert!(document.contains("Side by side: Cost of the host in the middle, instructions, less is better"));
    assert!(document.contains("bookworm 6.1</th>") && document.contains("trixie 6.12</th>"));
    assert!(document.contains("not run") && document.contains("1 of 6 checks of 2 runs failed"));
}

/// Without it a yardstick would stand in the comparison as a row of nothing.
#[test]
fn a_case_without_the_figure_is_not_compared_by_it() {
    let runs = [outcome("bookworm", "6.1", 12), outcome("trixie", "6.12", 10)];
    let document = page::render(&runs.iter().map(described).collect::<Vec<_>>());
    let start = document.find("Side by side").unwrap();
    let table = &document[start..start + document[start..].find("</table>").unwrap()];
    assert!(table.contains("Plain routing") && table.contains("xdp-forward, flowtable mode"));
    assert!(!table.contains("Client and server on one wire"));
}

#[test]
fn failed_checks_stand_in_the_open() {
    let run = outcome("bookworm", "6.1", 12);
    let document = page::render(&[described(&run)]);
    let folded = document.find("<details class=\"pass\"").unwrap();
    let failed: Vec<_> = run.measurement.checks.iter().filter(|check| !check.passed).collect();
    assert!(!failed.is_empty());
    for check in failed {
        assert!(
            document.find(&check.name).is_some_and(|at| at < folded),
            "{}",
            check.name
        );
    }
}

/// A goal that is missed is no failure, and nothing to hide.
#[test]
fn missed_goals_stand_in_the_open() {
    let run = outcome("trixie", "6.12", 12);
    let document = page::render(&[described(&run)]);
    assert!(document.contains("All 3 checks of 1 run passed") && document.contains("1 of 2 goals missed."));
    let folded = document.find("<details class=\"pass\"").unwrap();
    let (before, after) = document.split_at(folded);
    assert!(before.contains("1 of 2 goals met"));
    assert!(after.contains("</span> missed</span>\n<span>The default costs nothing"));
    assert!(after.contains("</span> met</span>\n<span>The default costs less than tc alone"));
}

/// One slow value in thousands would otherwise press every line into the left edge.
#[test]
fn an_outlier_makes_the_axis_logarithmic() {
    let plot = Plot::Cdf {
        title: "Round trips",
        series: "rtt_us",
        logarithmic: false,
    };
    let mut run = outcome("trixie", "6.12", 2);
    let calm: Vec<f64> = (0..1000).map(|index| 30.0 + f64::from(index) / 100.0).collect();
    for series in &mut run.measurement.series {
        series.values.clone_from(&calm);
    }
    assert!(!plot::subtitle(&described(&run), &plot).contains("logarithmic"));
    run.measurement.series[0].values[500] = 2_600.0;
    assert!(plot::subtitle(&described(&run), &plot).contains("logarithmic"));
    assert!(plot::standalone(&described(&run), &plot).contains(">1\u{202f}000</text>"));
}

#[test]
fn the_best_is_marked_only_where_one_is_better() {
    let run = outcome("trixie", "6.12", 12);
    let best: Vec<_> = result::columns(&described(&run))
        .iter()
        .map(|column| column.best(&run.measurement.cases))
        .collect();
    assert_eq!(best[..5], [Some(2168.0), Some(26_717.0), None, None, None]);
}

#[test]
fn a_dozen_lines_can_be_told_apart_without_colour() {
    let run = outcome("trixie", "6.12", 12);
    let drawing = plot::standalone(&described(&run), &DESCRIBED.plots[1]);
    let looks: std::collections::HashSet<String> = drawing.rsplit("<g class=\"k ").take(11).map(look).collect();
    assert_eq!(looks.len(), 11);
}

/// Dash and marker of a legend's entry.
fn look(entry: &str) -> String {
    let dash = entry
        .split("stroke-dasharray=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap_or("");
    let marker = entry.split("class=\"marker").nth(1).unwrap_or("");
    let hollow = marker.starts_with(" hollow");
    let shape = marker
        .split('m')
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap_or("");
    format!("{dash}/{hollow}/{shape}")
}

#[test]
fn a_series_without_a_case_is_shown_by_its_name() {
    let mut run = outcome("trixie", "6.12", 1);
    run.measurement.cases = vec![Case::default()];
    run.measurement.series = vec![Series {
        case: "stray".into(),
        name: "rtt_us".into(),
        unit: "us".into(),
        values: vec![1.0],
    }];
    assert!(plot::standalone(&described(&run), &DESCRIBED.plots[1]).contains("stray"));
}

#[test]
fn nothing_at_all_is_a_page_that_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    write(&[], &[], &path).unwrap();
    let document = std::fs::read_to_string(&path).unwrap();
    assert_eq!(xml::check(&document), Ok(()));
    assert!(document.contains("No results"));
    let error = write(&[], &[], &directory.path().join("missing/report.html")).unwrap_err();
    assert!(format!("{error:#}").contains("missing/report.html"));
}
