//! Makes skeletons of BPF programs, and compiles C that the kernel shares with user space, for build scripts.
//!
//! The kernel's types come from `include` beside this crate (see `make vmlinux`), libbpf's own headers
//! (`bpf/bpf_helpers.h` and so on) from libbpf-cargo, which brings those of the libbpf that it links: nothing but clang
//! need be installed.
//!
//! `CLANG` names another clang than the one in the path. With `TARN_STRICT` set, clang's warnings are errors.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use libbpf_cargo::SkeletonBuilder;

/// The types of the kernel.
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

/// Turns every `<name>.bpf.c` below `directory` of the crate that is built into the skeleton `<name>.skel.rs` in `OUT_DIR`.
///
/// # Errors
/// There is no clang that can compile for BPF, or it refuses a program.
pub fn skeletons(directory: &str) -> Result<()> {
    // Cargo looks at everything below a directory: a program or a header that is added is seen too.
    println!("cargo:rerun-if-changed={directory}");
    println!("cargo:rerun-if-changed={HEADERS}");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=TARN_STRICT");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set: build with cargo")?);
    let clang = clang()?;
    programs(Path::new(directory))?
        .iter()
        .try_for_each(|source| build(source, &clang, &out))
}

/// Compiles C that is part of a BPF program or a module once more, for user space: the static library `name`.
///
/// In a debug build undefined behaviour ends the program, so that tests see it. As in BPF programs, paths begin at the crate:
/// a program with other paths in its line information is another one, and its figures in the lab are others.
///
/// # Errors
/// There is no current directory. When the compiler refuses a file, the build ends with what it says.
pub fn user_space(name: &str, files: &[&str]) -> Result<()> {
    let here = env::current_dir().context("looking for the crate's directory")?;
    let mut build = cc::Build::new();
    build.files(files).warnings_into_errors(true);
    build.flag(format!("-ffile-prefix-map={}=.", here.display()));
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        build.flag_if_supported("-fsanitize=undefined");
        // A trap, because a message would need the sanitizer's library. gcc before 13 has the second name only.
        build.flag_if_supported("-fsanitize-trap=all");
        build.flag_if_supported("-fsanitize-undefined-trap-on-error");
    }
    for directory in files.iter().filter_map(|file| Path::new(file).parent()) {
        println!("cargo:rerun-if-changed={}", directory.display());
    }
    build.compile(name);
    Ok(())
}

/// Every BPF program below a directory.
fn programs(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut programs = Vec::new();
    for path in entries(directory)? {
        if path.is_dir() {
            programs.extend(self::programs(&path)?);
        } else if file_name(&path).ends_with(".bpf.c") {
            programs.push(path);
        }
    }
    Ok(programs)
}

/// What a directory contains, sorted, so that a build does not depend on the file system.
fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The compiler of BPF programs, found working.
fn clang() -> Result<PathBuf> {
    let clang = PathBuf::from(env::var_os("CLANG").unwrap_or_else(|| "clang".into()));
    let targets = Command::new(&clang).arg("--print-targets").output();
    match targets {
        Ok(output)
            if String::from_utf8_lossy(&output.stdout)
                .lines()
                .any(|line| line.trim_start().starts_with("bpf ")) =>
        {
            Ok(clang)
        }
        Ok(_) => bail!(
            "{} cannot compile for BPF; install your distribution's clang (`make setup` does), or set CLANG",
            clang.display()
        ),
        Err(error) => bail!(
            "clang is needed to compile the BPF programs, and {} did not run ({error}); `make setup` installs it",
            clang.display()
        ),
    }
}

/// Compiles one program and writes its skeleton.
///
/// Paths in the program's line information begin at the crate, so that it is the same wherever it is built.
fn build(source: &Path, clang: &Path, out: &Path) -> Result<()> {
    let name = file_name(source).trim_end_matches(".bpf.c").to_owned();
    // A program's global functions are `__noinline`. From clang 17 on, one that is called with a constant would be cloned
    // for it, and the clone lacks that parameter, while the type information that the verifier goes by still has it
    // ("Caller passes invalid args"); what must not be duplicated is not cloned.
    let global_function = "-D__noinline=__attribute__((noinline,noduplicate))";
    let here = env::current_dir().context("looking for the crate's directory")?;
    let relative = format!("-ffile-prefix-map={}=.", here.display());
    let headers = format!("-ffile-prefix-map={HEADERS}=include");
    // The third version of the instruction set, which every kernel since 5.1 has, whatever this clang's default is.
    let mut arguments = vec![
        global_function,
        relative.as_str(),
        headers.as_str(),
        "-I",
        HEADERS,
        "-mcpu=v3",
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
    ];
    if env::var_os("TARN_STRICT").is_some() {
        arguments.push("-Werror");
    }
    SkeletonBuilder::new()
        .source(source)
        .clang(clang)
        .clang_args(arguments)
        // A path where nothing is: the skeleton is not for reading, and a rustup without the component would fail.
        .rustfmt(out.join("no-rustfmt"))
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .with_context(|| format!("building {}", source.display()))
}
