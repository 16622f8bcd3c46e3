//! What proves the stage in the lab.

use tarn_lab::Proof;

use crate::STAGE;

pub(crate) mod contender;
mod cost;
mod crowd;
mod module;
mod outside;
mod places;
mod published;
pub mod rig;
mod storm;
mod timely;

/// Its experiments.
pub static PROOF: Proof = Proof {
    stage: STAGE,
    modules: &[module::MODULE],
    experiments: &[&storm::STORM, &timely::TIMELY, &published::PUBLISHED, &cost::COST],
    bench: None,
};
