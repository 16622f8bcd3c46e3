//! Makes the skeletons of the lab's BPF programs and the library that QEMU loads, and records what compiles tarn.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

fn main() -> Result<()> {
    println!("cargo:rustc-env=TARN_BUILD={}", build()?);
    library("src/turns.c")?;
    tarn_bpf_build::skeletons("src")
}

/// The compilers and the profile: what a figure that counts instructions depends on besides the source.
fn build() -> Result<String> {
    let rustc = version(&env::var("RUSTC")?)?;
    let clang = version(&env::var("CLANG").unwrap_or_else(|_| "clang".into()))?;
    Ok(format!("rustc {rustc}, clang {clang}, {} build", env::var("PROFILE")?))
}

/// The first number that a compiler prints when it is asked for its version.
fn version(compiler: &str) -> Result<String> {
    let output = Command::new(compiler).arg("--version").output();
    let output = output.with_context(|| format!("{compiler} does not run; `make setup` installs it"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let number = words.find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    Ok(number
        .with_context(|| format!("{compiler} prints no version"))?
        .to_owned())
}

/// Compiles the shared library `turns.so`, for dynamically linked programs of this host: without the flags of tarn itself,
/// which is linked statically.
fn library(source: &str) -> Result<()> {
    println!("cargo:rerun-if-changed={source}");
    let output = PathBuf::from(env::var("OUT_DIR")?).join("turns.so");
    let mut compiler = Command::new(cc::Build::new().get_compiler().path());
    compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Wl,--build-id=none"]);
    if env::var_os("TARN_STRICT").is_some() {
        compiler.arg("-Werror");
    }
    let status = compiler.arg(source).arg("-o").arg(output).status();
    let status = status.context("the C compiler does not run; `make setup` installs one")?;
    ensure!(status.success(), "{source} does not compile");
    Ok(())
}
