//! The debug kernel: a suite's own source, compiled with every checker that finds a kernel module's bugs, which stock
//! kernels leave out because they cost too much.
//!
//! It boots with the suite's root file system in the place of the suite's kernel, and the modules under test are built
//! against its tree. Nearly everything is built in, from a configuration of our own ([`CONFIG`]): so it compiles in
//! minutes, not in hours.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::bootstrap::Bootstrap;
use super::builder;
use super::cache::{Slot, cannot_write};
use super::debug::DebugKernel;
use super::image::Image;
use super::parallel;
use super::progress::{Progress, Step};
use super::sandbox;
use super::suite::Suite;

#[cfg(test)]
mod tests;

const CONFIG: &str = include_str!("kernel.config");

/// What compiling a kernel needs besides what compiling a module does.
const PACKAGES: &[&str] = &[
    "bc",
    "bison",
    "diffutils",
    "flex",
    "gcc",
    "kmod",
    "libelf-dev",
    "lz4",
    "perl-base",
    "tar",
    "xz-utils",
];

/// Compiles in the chroot `$1`, with `$2` jobs at a time, by the script `$3`.
const ENTER: &str = r#"set -eu
mount --rbind /proc "$1/proc"
mount --bind /dev/null "$1/dev/null"
exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/usr/sbin HOME=/ LC_ALL=C JOBS="$2" \
    KBUILD_BUILD_TIMESTAMP=2026-01-01 KBUILD_BUILD_USER=tarn KBUILD_BUILD_HOST=lab sh -euc "$3" 2>&1
"#;

/// Compiles the kernel and its own test of reassembly, and leaves of its tree what modules are built with.
const COMPILE: &str = r#"mkdir /usr/src/linux
cd /usr/src/linux
tar -xf ../linux-source-*.tar.xz --strip-components=1
rm ../linux-source-*
make -s KCONFIG_ALLCONFIG=/usr/src/kernel.config allnoconfig
if grep '^CONFIG_' ../kernel.config | grep -vxFf .config; then
    echo 'tarn: the kernel does not take these lines of its configuration'
    exit 1
fi
make -j"$JOBS" bzImage modules
make -s modules_install
cp arch/x86/boot/bzImage ..
make -s kernelrelease >../release
gcc -O2 -static -I tools/testing/selftests -o ../ip_defrag tools/testing/selftests/net/ip_defrag.c
find . -type f -not -path './scripts/*' \
    \( -name '*.[acoS]' -o -name '*.cmd' -o -name '*.dts*' -o -name '*.rst' -o -name 'vmlinux*' \) -delete
"#;

/// Lines that compiling prints, about: one a file.
const LINES: f64 = 2000.0;

/// How much of the output an error shows, in lines.
const LAST_LINES: usize = 40;

/// Boots the debug kernel of an image's suite in the place of its own. It is made first where there is none or it was made
/// from something else; `again` makes it even if it is there, from the suite's newest source.
///
/// # Errors
/// [`tarn_base::error::Unsupported`] when this user cannot enter a chroot; those of fetching the packages, of compiling
/// (with the compiler's last lines), and of writing to the cache.
pub fn instead(image: Image, mirror: Option<&str>, again: bool, progress: &Progress) -> Result<Image> {
    sandbox::check()?;
    let suite = image.suite;
    let slot = Slot::new(suite.name, "debug-kernel")?;
    let bootstrap = Bootstrap {
        suite,
        mirror,
        packages: packages(suite),
        hook: builder::HOOK.into(),
    };
    let recipe = format!("{}{ENTER}{COMPILE}{CONFIG}", bootstrap.recipe());
    let task = format!("debug kernel {suite}");
    slot.ensure(&recipe, again, &task, progress, |new| {
        make(&bootstrap, new, &task, progress)
    })
    .with_context(|| format!("cannot make the debug kernel of {suite}"))?;
    image.with_debug_kernel(DebugKernel::at(slot.path()))
}

fn packages(suite: &Suite) -> Vec<String> {
    let packages = builder::PACKAGES.iter().chain(PACKAGES).map(ToString::to_string);
    packages.chain([suite.package("linux-source")]).collect()
}

fn make(bootstrap: &Bootstrap, directory: &Path, task: &str, progress: &Progress) -> Result<()> {
    let root = directory.join("root");
    bootstrap.run(directory, task, progress, |stream| builder::unpack(stream, &root))?;
    fs::write(root.join("usr/src/kernel.config"), CONFIG).with_context(|| cannot_write(&root))?;
    compile(&root, task, progress)
}

fn compile(root: &Path, task: &str, progress: &Progress) -> Result<()> {
    let mut command = sandbox::command_with_mounts("sh");
    command.args(["-c", ENTER, "compile"]).arg(root);
    command.args([&parallel::processors().to_string(), COMPILE]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the compiler")?;
    let output = child.stdout.take().context("the compiler has no output")?;
    let log = follow(output, task, progress);
    if !child.wait().context("cannot wait for the compiler")?.success() {
        bail!("{}", log[log.len().saturating_sub(LAST_LINES)..].join("\n"));
    }
    Ok(())
}

/// Shows what is compiled, and returns all that was said.
fn follow(output: impl Read, task: &str, progress: &Progress) -> Vec<String> {
    let mut log: Vec<String> = Vec::new();
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        log.push(line);
        progress.show(&Step {
            task,
            doing: "compiling",
            fraction: (log.len() as f64 / LINES).min(0.99),
            detail: "",
        });
    }
    log
}
