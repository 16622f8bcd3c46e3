//! Makes the skeleton of this stage's BPF programs, and compiles the sketch once more for tests.

fn main() -> anyhow::Result<()> {
    if std::env::var_os("CARGO_FEATURE_PROOF").is_some() {
        tarn_bpf_build::user_space("tarn_poll_sketch", &["src/shed/sketch.c"])?;
    }
    tarn_bpf_build::skeletons("src")
}
