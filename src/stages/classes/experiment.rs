//! The experiments of the stage.

use crate::lab::experiment::Experiment;

mod cost;
mod load;
mod overload;
mod published;
mod scene;
mod service;

/// In the order of the report.
pub static ALL: &[&dyn Experiment] = &[&published::Published, &overload::Overload, &cost::Cost];
