//! Makes the skeletons of this stage's BPF programs, and compiles what its module does without the kernel, for unit tests.

fn main() -> anyhow::Result<()> {
    let files = [
        "kmod/core.c",
        "kmod/memory.c",
        "src/tests/shim_core.c",
        "src/tests/shim_memory.c",
    ];
    tarn_bpf_build::user_space("tarn_reassembly_module", &files)?;
    tarn_bpf_build::skeletons("src")
}
