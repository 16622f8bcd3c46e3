//! Makes the skeletons of this stage's BPF programs, and compiles what its module does without the kernel, for unit tests.

fn main() -> anyhow::Result<()> {
    let files = [
        "kmod/choice.c",
        "kmod/finding.c",
        "kmod/limit.c",
        "kmod/spans.c",
        "src/tests/shim_limit.c",
    ];
    tarn_bpf_build::user_space("tarn_classes_module", &files)?;
    tarn_bpf_build::skeletons("src")
}
