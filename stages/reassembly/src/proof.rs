//! What proves the stage.

use tarn_lab::Proof;

mod attack;
mod bench;
mod module;
mod order;
mod published;
mod scene;
mod slabs;

/// The proof.
pub static PROOF: Proof = Proof {
    stage: crate::STAGE,
    modules: &[module::MODULE, bench::BENCH],
    experiments: &[&published::PUBLISHED, &order::ORDER, &attack::ATTACK],
    bench: None,
};
