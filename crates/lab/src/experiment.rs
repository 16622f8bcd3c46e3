//! What an experiment is and what it results in.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::cards::Cards;

/// How much of an experiment is run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// The cases that it is told by, in the quick size.
    Headline,
    /// Every case, in seconds.
    #[default]
    Quick,
    /// Every case, at length.
    Full,
}

impl Size {
    /// For people, in front of "size".
    pub fn name(self) -> &'static str {
        match self {
            Self::Headline => "headline",
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// The option of `tarn lab run` that asks for it.
    pub fn option(self) -> &'static str {
        match self {
            Self::Headline => " --headline",
            Self::Quick => "",
            Self::Full => " --full",
        }
    }
}

/// Called with what runs now, and how much of the whole is done, in 0..=1.
type Progress = Box<dyn FnMut(&str, f64)>;

/// What an experiment is given by the guest it runs in.
pub struct Guest {
    /// Which part of the experiment is wanted, from 0.
    pub part: usize,
    /// The seed of everything random, from 0.
    pub seed: u64,
    /// How much is wanted.
    pub size: Size,
    /// The Debian suite the guest was made of.
    pub suite: String,
    /// What [`Guest::progress`] does.
    pub(crate) progress: Progress,
}

impl Guest {
    /// Tells the host what runs now and how much of the whole is done, in 0..=1.
    pub fn progress(&mut self, step: &str, fraction: f64) {
        (self.progress)(step, fraction);
    }

    /// Measures cases one after the other, and tells the host which one runs. `describe` gives a case its name and title; `measure`
    /// gives it its figures, and adds its series and checks to the measurement of all.
    ///
    /// # Errors
    /// Those of `measure`, with the case's name.
    pub fn measure<C>(
        &mut self,
        cases: &[C],
        describe: impl Fn(&C) -> Case,
        mut measure: impl FnMut(&C, &mut Case, &mut Measurement) -> Result<()>,
    ) -> Result<Measurement> {
        let mut measurement = Measurement::default();
        for (number, contender) in cases.iter().enumerate() {
            let mut case = describe(contender);
            self.progress(&case.name, number as f64 / cases.len() as f64);
            measure(contender, &mut case, &mut measurement).with_context(|| case.name.clone())?;
            measurement.cases.push(case);
        }
        Ok(measurement)
    }
}

/// A repeatable measurement inside the lab's guest.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// The stage that it belongs to.
    pub stage: &'static str,
    /// The name on the command line and in the result.
    pub name: &'static str,
    /// What it shows, in one line.
    pub title: &'static str,
    /// How it is measured and what to make of it, in a few sentences for the report.
    pub method: &'static str,
    /// Virtual CPUs of the guest: 1 or 2. They take turns on one host thread.
    pub cpus: u8,
    /// Network cards of the guest.
    pub cards: Cards,
    /// Whether the guest has more real software than every guest: see [`crate::software`].
    pub software: bool,
    /// The metrics in the order of the table's columns; a metric that is not named here is not shown.
    pub metrics: &'static [Metric],
    /// The plots of the report.
    pub plots: &'static [Plot],
    /// The published figures that the result is compared with.
    pub references: &'static [Reference],
    /// Its main figures, shown on the screen that a run ends with.
    pub highlights: &'static [Highlight],
    /// The number of parts of a size, at least 1. Each runs in a guest of its own, several at a time; their measurements are joined in order.
    pub parts: fn(Size) -> usize,
    /// The parts that [`Size::Headline`] runs.
    pub headline: &'static [usize],
    /// Runs every case of the part that the guest names. Called in the guest, as root, with nothing configured but loopback.
    pub run: fn(&mut Guest) -> Result<Measurement>,
    /// What the parts together say: adds figures and checks to them. Called on the host.
    pub conclude: Option<fn(&mut Measurement)>,
}

/// A main figure of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Highlight {
    /// What was measured, with its unit: at most 22 characters, so that a line fits a terminal of 80 columns.
    pub what: &'static str,
    /// The metric, one of the experiment's.
    pub metric: &'static str,
    /// The case of the stock kernel.
    pub stock: Option<&'static str>,
    /// What a user would take today instead of tarn: its name, at most 7 characters, and its case.
    pub peer: Option<(&'static str, &'static str)>,
    /// The case of the published method.
    pub published: Option<&'static str>,
    /// The case of tarn.
    pub tarn: &'static str,
}

/// How a metric is called, measured and read.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// The key in [`Case::metrics`].
    pub name: &'static str,
    /// The column's title.
    pub title: &'static str,
    /// `instructions`, `packets`, `us`, ...
    pub unit: &'static str,
    /// Decimal places shown.
    pub decimals: u8,
    /// Whether less or more is better, or neither.
    pub better: Better,
}

impl Metric {
    /// A metric whose lower figures are better.
    pub const fn less(name: &'static str, title: &'static str, unit: &'static str, decimals: u8) -> Self {
        let better = Better::Less;
        Self {
            name,
            title,
            unit,
            decimals,
            better,
        }
    }

    /// A metric whose higher figures are better.
    pub const fn more(name: &'static str, title: &'static str, unit: &'static str, decimals: u8) -> Self {
        let better = Better::More;
        Self {
            better,
            ..Self::less(name, title, unit, decimals)
        }
    }

    /// A metric that is neither good nor bad.
    pub const fn neutral(name: &'static str, title: &'static str, unit: &'static str, decimals: u8) -> Self {
        let better = Better::Neither;
        Self {
            better,
            ..Self::less(name, title, unit, decimals)
        }
    }
}

/// Which way a metric is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Lower figures are better.
    Less,
    /// Higher figures are better.
    More,
    /// Neither is.
    Neither,
}

/// A plot of the report.
#[derive(Debug, Clone, Copy, Serialize)]
pub enum Plot {
    /// One horizontal bar a case.
    Bars {
        /// The plot's title.
        title: &'static str,
        /// The metric drawn.
        metric: &'static str,
        /// Published figures drawn as marked lines: names of [`Reference::metric`].
        references: &'static [&'static str],
    },
    /// The cumulative distribution of a series, one line a case.
    Cdf {
        /// The plot's title.
        title: &'static str,
        /// The series drawn: [`Series::name`].
        series: &'static str,
        /// Whether the x axis is logarithmic.
        logarithmic: bool,
    },
    /// A series over time, or over anything else at equal distances, one line a case.
    Timeline {
        /// The plot's title.
        title: &'static str,
        /// The series drawn: [`Series::name`].
        series: &'static str,
        /// What the values are numbered by: the axis's title.
        x: &'static str,
        /// The first value's number.
        from: u32,
        /// From one value's number to the next one's.
        step: u32,
        /// The sorts that the values are of, where they are to be seen.
        lanes: Option<Lanes>,
    },
    /// A series with a value for each of a few groups, side by side: one row a group, one marker a case.
    Groups {
        /// The plot's title.
        title: &'static str,
        /// The series drawn: [`Series::name`]. Its values are those of the groups, in their order.
        series: &'static str,
        /// The groups' names.
        groups: &'static [&'static str],
        /// What each group was promised at least, in the series' unit.
        promised: &'static [f64],
        /// What the promise is called.
        promise: &'static str,
    },
}

/// The sorts that the values of a timeline are of, as lanes below it: two more series of the same cases, value for value, and what
/// to call them. Where a case lacks one of them the timeline is drawn without.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Lanes {
    /// What the lanes are, in the plural and with a capital letter.
    pub noun: &'static str,
    /// The series that holds each value's lane, as its index in `names`.
    pub series: &'static str,
    /// The series that holds when each value was measured, in seconds.
    pub time: &'static str,
    /// What the seconds are counted from: the axis's title in place of [`Plot::Timeline`]'s.
    pub x: &'static str,
    /// The lanes: each in a word, and what it is like.
    pub names: &'static [(&'static str, &'static str)],
    /// What a lane is, and how it is known.
    pub note: &'static str,
}

/// A published figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Where it was published.
    pub source: Cow<'static, str>,
    /// The metric it corresponds to, or a name of its own.
    pub metric: Cow<'static, str>,
    /// The figure.
    pub value: f64,
    /// Its unit and circumstances.
    pub note: Cow<'static, str>,
}

impl Reference {
    /// A figure that is known when tarn is built.
    pub const fn new(source: &'static str, metric: &'static str, value: f64, note: &'static str) -> Self {
        Self {
            source: Cow::Borrowed(source),
            metric: Cow::Borrowed(metric),
            value,
            note: Cow::Borrowed(note),
        }
    }
}

/// What an experiment measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// One entry a case, in the order of the table's rows.
    pub cases: Vec<Case>,
    /// The distributions behind the figures.
    pub series: Vec<Series>,
    /// What must hold: an experiment whose check fails has failed.
    pub checks: Vec<Check>,
    /// What the stage aims at: one that is missed is reported as missed, and fails nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Check>,
}

impl Measurement {
    /// Puts the cases, series, checks and goals of another part behind these.
    pub fn append(&mut self, mut part: Self) {
        self.cases.append(&mut part.cases);
        self.series.append(&mut part.series);
        self.checks.append(&mut part.checks);
        self.goals.append(&mut part.goals);
    }

    /// A figure of a case, where the case was run and has it.
    pub fn figure(&self, case: &str, metric: &str) -> Option<f64> {
        let case = self.cases.iter().find(|known| known.name == case)?;
        case.metrics.get(metric).copied()
    }

    /// Whether it can be written and read: JSON has no infinity and no "not a number", and a case is found by its name.
    ///
    /// # Errors
    /// With the first figure or name that is wrong.
    pub fn check(&self) -> Result<()> {
        for (index, case) in self.cases.iter().enumerate() {
            if self.cases[..index].iter().any(|other| other.name == case.name) {
                bail!("two cases are called {:?}", case.name);
            }
            if let Some((metric, value)) = case.metrics.iter().find(|(_, value)| !value.is_finite()) {
                bail!("{metric} of the case {:?} is {value}, which is no figure", case.name);
            }
        }
        for series in &self.series {
            if let Some(value) = series.values.iter().find(|value| !value.is_finite()) {
                bail!(
                    "the series {} of the case {:?} holds {value}, which is no figure",
                    series.name,
                    series.case
                );
            }
        }
        Ok(())
    }
}

/// Figures by metric name; sorted, so that a result has one form.
pub type Metrics = BTreeMap<String, f64>;

/// The figures of these names.
pub fn metrics<const N: usize>(figures: [(&str, f64); N]) -> Metrics {
    figures.map(|(name, value)| (name.to_owned(), value)).into()
}

/// One way of doing the same thing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The stable name.
    pub name: String,
    /// The row's title.
    pub title: String,
    /// Its figures.
    pub metrics: Metrics,
    /// Why the case was not run here; its metrics are empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl Case {
    /// A case without figures yet.
    pub fn new(name: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            ..Self::default()
        }
    }
}

/// The values behind a distribution or a course over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The case it belongs to.
    pub case: String,
    /// What was measured.
    pub name: String,
    /// The values' unit.
    pub unit: String,
    /// In the order measured.
    pub values: Vec<f64>,
}

/// A condition on the result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What must hold, as a sentence.
    pub name: String,
    /// Whether it held.
    pub passed: bool,
    /// The figures it was judged by.
    pub detail: String,
}

/// The document that `tarn lab run --json` writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The experiment's name.
    pub experiment: String,
    /// The guest's kernel release.
    pub kernel: String,
    /// The Debian suite of the guest.
    pub suite: String,
    /// The seed of everything random.
    pub seed: u64,
    /// How much was run.
    #[serde(default)]
    pub size: Size,
    /// The compilers that built tarn, and how: `rustc 1.95.0, clang 14.0.6, debug build`.
    #[serde(default)]
    pub build: String,
    /// The version of tarn.
    pub tarn: String,
    /// Cases, series, checks and goals.
    #[serde(flatten)]
    pub measurement: Measurement,
    /// Published figures.
    pub reference: Vec<Reference>,
}

impl Outcome {
    /// Where and how it was measured.
    pub fn origin(&self) -> String {
        let Self {
            kernel, suite, seed, ..
        } = self;
        format!("{suite}, Linux {kernel}, seed {seed}, {} size", self.size.name())
    }
}

/// Says on the console how far a long case, or test, is: the lab ends a guest that has said nothing for 300 s of CPU time. Outside the lab
/// it says nothing.
pub fn sign_of_life(step: &str) {
    let _ = std::fs::write("/dev/console", format!("{step}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(value: f64, series: f64) -> Measurement {
        Measurement {
            cases: vec![Case {
                name: "plain".into(),
                metrics: [("rtt".to_owned(), value)].into(),
                ..Case::default()
            }],
            series: vec![Series {
                name: "rtt_us".into(),
                case: "plain".into(),
                values: vec![1.0, series],
                ..Series::default()
            }],
            ..Measurement::default()
        }
    }

    /// JSON would turn it into `null`, and the host could not read the result of a long run.
    #[test]
    fn a_figure_that_is_none_is_named() {
        assert!(measurement(1.0, 2.0).check().is_ok());
        let message = measurement(f64::NAN, 2.0).check().unwrap_err().to_string();
        assert_eq!(message, "rtt of the case \"plain\" is NaN, which is no figure");
        let message = measurement(1.0, f64::INFINITY).check().unwrap_err().to_string();
        assert_eq!(
            message,
            "the series rtt_us of the case \"plain\" holds inf, which is no figure"
        );
    }

    #[test]
    fn two_cases_of_one_name_are_refused() {
        let mut twice = measurement(1.0, 2.0);
        twice.cases.push(twice.cases[0].clone());
        assert!(twice.check().is_err());
    }
}
