//! What a user would lose if the programs or the agent did not work in a kernel.

mod life;
mod sketch;
mod software;
mod verified;

use crate::{config, probe};

/// Whether this kernel is left alone: it serves on under overload.
fn is_left_alone() -> bool {
    let config = tarn_base::config::testing::section("poll", "[poll]\n", config::read).unwrap();
    probe::nothing_to_do(&config).is_some()
}
