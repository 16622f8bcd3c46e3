//! The report: results of the lab as one HTML file that needs nothing else.
//!
//! The page is a pure function of the results: the same results give the same bytes. It holds no script and asks
//! for nothing over the network; its plots are SVG, drawn here.

use std::path::Path;

use anyhow::{Context, Result};

use crate::experiment::{Case, Experiment, Outcome};
use crate::{Proofs, experiments};

mod axis;
mod distribution;
mod evidence;
mod markup;
mod number;
mod page;
mod plot;
mod result;
mod section;
mod tables;

#[cfg(test)]
mod tests;

/// A result, with its experiment where this build knows it.
#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    outcome: &'a Outcome,
    experiment: Option<&'static Experiment>,
}

impl<'a> Entry<'a> {
    fn of(proofs: Proofs, outcome: &'a Outcome) -> Self {
        let experiment = known(proofs, &outcome.experiment).map(|(_, experiment)| experiment);
        Self { outcome, experiment }
    }

    fn cases(&self) -> &'a [Case] {
        &self.outcome.measurement.cases
    }
}

/// Writes `results` to `path` as one self-contained HTML file, in packet order.
///
/// # Errors
/// The file cannot be written.
pub fn write(proofs: Proofs, results: &[Outcome], path: &Path) -> Result<()> {
    let mut entries: Vec<_> = results.iter().map(|outcome| Entry::of(proofs, outcome)).collect();
    entries.sort_by_key(|entry| known(proofs, &entry.outcome.experiment).map_or(usize::MAX, |(position, _)| position));
    save(&page::render(&entries), path)
}

/// Writes the first plot of a result's experiment to `path` as an SVG document of its own, with title and origin, for a
/// README or a slide.
///
/// # Errors
/// The experiment is unknown to this build or has no plot; the file cannot be written.
pub fn write_plot(proofs: Proofs, outcome: &Outcome, path: &Path) -> Result<()> {
    let entry = Entry::of(proofs, outcome);
    let name = &outcome.experiment;
    let experiment = entry
        .experiment
        .with_context(|| format!("this tarn knows no experiment `{name}`; `tarn lab list` names those it knows"))?;
    let plot = experiment
        .plots
        .first()
        .with_context(|| format!("`{name}` has no plot"))?;
    save(&plot::standalone(&entry, plot), path)
}

fn save(document: &str, path: &Path) -> Result<()> {
    std::fs::write(path, document).with_context(|| format!("cannot write the report to {}", path.display()))
}

/// An experiment and its position among all experiments.
fn known(proofs: Proofs, name: &str) -> Option<(usize, &'static Experiment)> {
    experiments(proofs)
        .enumerate()
        .find(|(_, experiment)| experiment.name == name)
}
