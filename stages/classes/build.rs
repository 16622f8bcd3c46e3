//! Makes the skeletons of this stage's BPF programs, and compiles what its module does without the kernel, for unit tests.

fn main() -> anyhow::Result<()> {
    println!("cargo:rerun-if-changed=kmod/choice.c");
    println!("cargo:rerun-if-changed=kmod/choice.h");
    cc::Build::new()
        .file("kmod/choice.c")
        .warnings_into_errors(true)
        .compile("tarn_classes_module");
    tarn_bpf_build::skeletons("src")
}
