//! The program that tests run as tarn: for those of a stage its example, tarn with that stage alone; for those of all stages, tarn.

use std::path::{Path, PathBuf};

/// Tells a test that its sweeps and loops are wanted at full length.
pub const THOROUGH_VARIABLE: &str = "TARN_LAB_THOROUGH";

/// Tells a test the seed of its guest.
pub const SEED_VARIABLE: &str = "TARN_LAB_SEED";

/// Where guests have it.
pub const PLACE: &str = "/tarn/tarn";

/// What cargo has built beside the harness; `None` for that of a crate that is no program.
pub fn of(harness: &Path) -> Option<PathBuf> {
    let name = harness.file_name()?.to_str()?;
    let (name, _) = name.split_once('-')?;
    let built = match name.strip_prefix("tarn_") {
        Some(stage) => harness.with_file_name("../examples").join(stage),
        None => harness.with_file_name("..").join(name),
    };
    built.is_file().then_some(built)
}

/// The program, in a guest and elsewhere.
#[cfg(feature = "testing")]
pub fn of_this_harness() -> PathBuf {
    let harness = std::env::current_exe().unwrap_or_default();
    of(&harness).unwrap_or_else(|| PLACE.into())
}
