//! Makes the skeletons of this stage's BPF programs, and compiles the algorithm once more for the simulator.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

fn main() -> anyhow::Result<()> {
    if env::var_os("CARGO_FEATURE_PROOF").is_some() {
        tarn_bpf_build::user_space("tarn_pace_core", &["src/simulator/core.c"])?;
    }
    tarn_bpf_build::skeletons("src")?;
    println!("cargo:rustc-env=TARN_PACE_PROGRAM={:016x}", program()?);
    Ok(())
}

/// A number for the congestion control, which another one would not have.
fn program() -> anyhow::Result<u64> {
    let mut hasher = DefaultHasher::new();
    fs::read(PathBuf::from(env::var("OUT_DIR")?).join("pace.skel.rs"))?.hash(&mut hasher);
    Ok(hasher.finish())
}
