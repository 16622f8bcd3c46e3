//! What proves the stage.

use tarn_lab::Proof;

mod cost;
mod jitter;

/// The proof.
pub static PROOF: Proof = Proof {
    stage: crate::STAGE,
    modules: &[],
    experiments: &[&jitter::JITTER, &cost::COST],
    bench: None,
};
