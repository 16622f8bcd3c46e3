//! What proves the stage in the lab.

use tarn_lab::Proof;

use crate::STAGE;

mod contender;
mod crowd;
pub mod rig;
mod storm;

/// Its experiments.
pub static PROOF: Proof = Proof {
    stage: STAGE,
    modules: &[],
    experiments: &[&storm::STORM],
    bench: None,
};
