//! The program that a stage's tests run as tarn: the stage's example, tarn with that stage alone.

use std::path::{Path, PathBuf};

/// Tells a test that its sweeps and loops are wanted at full length.
pub const THOROUGH_VARIABLE: &str = "TARN_LAB_THOROUGH";

/// Tells a test the seed of its guest.
pub const SEED_VARIABLE: &str = "TARN_LAB_SEED";

/// Where guests have it.
pub const PLACE: &str = "/tarn/tarn";

/// What cargo has built beside the harness of a stage's tests; `None` for a crate that is no stage.
pub fn of(harness: &Path) -> Option<PathBuf> {
    let name = harness.file_name()?.to_str()?;
    let stage = name.strip_prefix("tarn_")?.split('-').next()?;
    let program = harness.with_file_name("../examples").join(stage);
    program.is_file().then_some(program)
}

/// The program, in a guest and elsewhere.
#[cfg(feature = "testing")]
pub fn of_this_harness() -> PathBuf {
    let harness = std::env::current_exe().unwrap_or_default();
    of(&harness).unwrap_or_else(|| PLACE.into())
}
