//! What proves the stage in the lab.

use tarn_lab::Proof;

use crate::STAGE;

pub mod both_ways;
mod control;
mod cost;
mod drained;
mod drops;
mod everywhere;
mod fair;
mod floor;
mod goal;
mod networks;
mod path;
mod published;
mod scene;
pub mod sharing;
mod simulated;
mod table;
mod transfers;
pub mod tuning;

/// Its experiments.
pub static PROOF: Proof = Proof {
    stage: STAGE,
    modules: &[],
    experiments: &[
        &drops::DROPS,
        &published::PUBLISHED,
        &fair::FAIR,
        &everywhere::EVERYWHERE,
        &transfers::TRANSFERS,
        &both_ways::BOTH_WAYS,
        &cost::COST,
    ],
    bench: None,
};
