//! What proves the stage.

use tarn_lab::Proof;

mod bench;
mod experiment;

/// The proof.
pub static PROOF: Proof = Proof {
    stage: crate::STAGE,
    modules: &[],
    experiments: &[&experiment::REDIRECT],
    bench: Some(&bench::Bench),
};
