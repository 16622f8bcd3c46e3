//! Makes the skeletons of this stage's BPF programs, and compiles what its module does without the kernel, for unit tests.

fn main() -> anyhow::Result<()> {
    tarn_bpf_build::user_space("tarn_classes_module", &["kmod/choice.c", "kmod/spans.c"])?;
    tarn_bpf_build::skeletons("src")
}
