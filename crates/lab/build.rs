//! Makes the skeletons of the lab's BPF programs.

fn main() -> anyhow::Result<()> {
    tarn_bpf_build::skeletons("src")
}
