//! What a user would lose if the programs or the agent did not work in a kernel.

mod changes;
mod life;
mod sketch;
mod software;
mod verified;
mod weights;

use std::time::{Duration, Instant};

use crate::{config, probe};

/// Whether this kernel is left alone: it serves on under overload.
fn is_left_alone() -> bool {
    let config = tarn_base::config::testing::section("poll", "[poll]\n", config::read).unwrap();
    probe::nothing_to_do(&config).is_some()
}

/// Waits for so long of the guest's time.
fn wait_until(what: &str, patience: Duration, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !happened() {
        assert!(Instant::now() < end, "{what}: it has not happened");
        std::thread::sleep(Duration::from_millis(20));
    }
}
