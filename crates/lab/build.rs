//! Makes the skeletons of the lab's BPF programs, and records what compiles tarn.

use std::env;
use std::process::Command;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    println!("cargo:rustc-env=TARN_BUILD={}", build()?);
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
