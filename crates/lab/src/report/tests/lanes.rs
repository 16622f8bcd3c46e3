//! A timeline that shows by which lanes its values came.

use crate::experiment::{Experiment, Lanes, Outcome, Plot, Series};

use super::super::{Entry, page, plot};
use super::fixture::{DESCRIBED, outcome};
use super::xml;

const LANES: Lanes = Lanes {
    noun: "Paths",
    series: "path",
    time: "time",
    x: "seconds since the first",
    names: &[("wan1", "20 ms, dies"), ("wan2", "35 ms")],
    note: "colour and lane: the uplink",
};

const fn course(lanes: Option<Lanes>) -> Plot {
    Plot::Timeline {
        title: "Round trips",
        series: "course",
        x: "answer",
        from: 0,
        step: 1,
        lanes,
    }
}

static PLOTS: [Plot; 1] = [course(Some(LANES))];
static PLAIN: Plot = course(None);
static LANED: Experiment = Experiment {
    plots: &PLOTS,
    ..DESCRIBED
};

fn entry(outcome: &Outcome) -> Entry<'_> {
    Entry {
        outcome,
        experiment: Some(&LANED),
    }
}

fn drawing(outcome: &Outcome) -> String {
    let drawing = plot::standalone(&entry(outcome), &PLOTS[0]);
    assert_eq!(xml::check(&drawing), Ok(()));
    drawing
}

/// A result of some cases, all with the same values as (value, lane, time).
fn run(cases: usize, values: &[(f64, f64, f64)]) -> Outcome {
    let mut run = outcome("trixie", "6.12", cases);
    let series = |case: &str, name: &str, unit: &str, values: Vec<f64>| Series {
        case: case.into(),
        name: name.into(),
        unit: unit.into(),
        values,
    };
    run.measurement.series = run
        .measurement
        .cases
        .iter()
        .flat_map(|case| {
            [
                series(&case.name, "course", "ms", values.iter().map(|value| value.0).collect()),
                series(&case.name, "path", "", values.iter().map(|value| value.1).collect()),
                series(&case.name, "time", "s", values.iter().map(|value| value.2).collect()),
            ]
        })
        .collect();
    run
}

const MOVES: [(f64, f64, f64); 5] = [
    (20.0, 0.0, 0.0),
    (21.0, 0.0, 1.0),
    (36.0, 1.0, 2.0),
    (35.0, 1.0, 3.0),
    (20.5, 0.0, 4.0),
];

/// The lines that are drawn for a lane of the first case, each as its points, and its lane's bars as (from, to).
type Drawn = (Vec<Vec<(f64, f64)>>, Vec<(f64, f64)>);

fn of_lane(drawing: &str, lane: usize) -> Drawn {
    let tip = format!(
        "<g class=\"k k{lane} c{lane}\"><title>Client and server on one wire: wan{}</title>",
        lane + 1
    );
    let group = drawing
        .split(&tip)
        .nth(1)
        .and_then(|rest| rest.split("</g>").next())
        .unwrap();
    let of_class = |class: &str| -> Vec<String> {
        let start = format!("<path class=\"{class}\" d=\"");
        group
            .split(start.as_str())
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .collect()
    };
    let numbers = |text: &str| -> Vec<f64> { text.split([' ', 'h']).map(|number| number.parse().unwrap()).collect() };
    let lines = of_class("line thin")
        .iter()
        .flat_map(|commands| commands.split('M').skip(1).map(str::to_owned).collect::<Vec<_>>())
        .map(|line| {
            let points = line.split('L').map(|point| numbers(point.trim_end_matches("h0")));
            points.map(|point| (point[0], point[1])).collect()
        })
        .collect();
    let bars = of_class("lane").into_iter().map(|bar| {
        let bar = numbers(&bar[1..]);
        (bar[0], ((bar[0] + bar[2]) * 10.0).round() / 10.0)
    });
    (lines, bars.collect())
}

/// The whole point: a reader sees when a flow moved, and where to.
#[test]
fn values_have_the_colour_and_the_lane_of_their_lane() {
    let drawing = drawing(&run(4, &MOVES));
    let (lines, bars) = of_lane(&drawing, 0);
    assert_eq!(
        lines.iter().map(Vec::len).collect::<Vec<_>>(),
        [2, 1],
        "no line leads over the other lane"
    );
    assert_eq!(bars[0], (lines[0][0].0, lines[0][1].0));
    let (others, other_bars) = of_lane(&drawing, 1);
    assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [2]);
    assert_eq!(other_bars, [(others[0][0].0, others[0][1].0)]);
    assert!(others[0][0].1 < lines[0][0].1, "36 ms stands above 20 ms");
    assert!(lines[0][1].0 < others[0][0].0 && others[0][1].0 < lines[1][0].0);
}

/// Two uplinks can be told apart without colour only by what is written.
#[test]
fn the_lanes_are_named_in_legend_and_lanes() {
    let run = run(4, &MOVES);
    let drawing = drawing(&run);
    assert_eq!(drawing.matches(">wan1</text>").count(), 1 + 4);
    for text in [
        ">20 ms, dies</text>",
        ">35 ms</text>",
        "seconds since the first",
        "Paths: wan1, 20 ms, dies; wan2, 35 ms.",
    ] {
        assert!(drawing.contains(text), "{text}");
    }
    assert_eq!(
        plot::subtitle(&entry(&run), &PLOTS[0]),
        "by seconds since the first · colour and lane: the uplink"
    );
}

/// An uplink that is dead for a while must not look as if it were slow.
#[test]
fn nothing_is_drawn_over_a_pause() {
    let mut values: Vec<_> = (0..20).map(|second| (20.0, 0.0, f64::from(second))).collect();
    values[19].2 = 60.0;
    let (lines, bars) = of_lane(&drawing(&run(1, &values)), 0);
    assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [19, 1]);
    assert!(bars[1].1 - bars[1].0 > 0.9, "a value alone is a pixel long");
}

/// Results of another version, or of a case that has no such series, are still drawn.
#[test]
fn without_companions_it_is_drawn_as_before() {
    let lacks = |spoil: fn(&mut Vec<Series>)| {
        let mut run = run(4, &MOVES);
        spoil(&mut run.measurement.series);
        let plain = plot::standalone(&entry(&run), &PLAIN);
        assert_eq!(drawing(&run), plain);
        assert!(plain.contains("by answer") && !plain.contains("wan1"));
    };
    lacks(|series| series.retain(|series| series.name == "course"));
    lacks(|series| drop(series.remove(1)));
    lacks(|series| drop(series.remove(2)));
    lacks(|series| series[1].values.truncate(4));
    lacks(|series| series[1].values[0] = 2.0);
    lacks(|series| series[1].values[0] = 0.5);
    lacks(|series| series[2].values[0] = f64::NAN);
}

#[test]
fn without_values_there_is_no_course() {
    for empty in [run(0, &MOVES), run(4, &[]), run(1, &[(f64::NAN, 0.0, 0.0)])] {
        assert!(drawing(&empty).contains("no values"));
    }
}

/// Nobody asks for the median of an index.
#[test]
fn the_lanes_have_no_table_of_quantiles() {
    let run = run(4, &MOVES);
    let document = page::render(&[entry(&run)]);
    assert_eq!(xml::check(&document), Ok(()));
    assert!(document.contains("course, ms") && !document.contains("time, s"));
}

/// What all cases have in common is the plot's title; a phone has no room for it seven times.
#[test]
fn a_strip_is_titled_by_what_is_its_own() {
    let mut run = run(2, &MOVES);
    for (case, title) in run
        .measurement
        .cases
        .iter_mut()
        .zip(["tarn: one dies", "the kernel: one dies"])
    {
        case.title = title.into();
    }
    assert!(drawing(&run).contains(">the kernel</text>"));
    run.measurement.cases[0].title = "tarn: none dies".into();
    assert!(drawing(&run).contains(">the kernel: one dies</text>"));
}
