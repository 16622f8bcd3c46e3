//! The experiments of the stage.

use crate::lab::experiment::Experiment;

mod cost;
mod jitter;

/// In the order of the report.
pub static ALL: &[&dyn Experiment] = &[&jitter::Jitter, &cost::Cost];
