//! Makes the skeletons of this stage's BPF programs.

fn main() -> anyhow::Result<()> {
    tarn_bpf_build::skeletons("src")
}
