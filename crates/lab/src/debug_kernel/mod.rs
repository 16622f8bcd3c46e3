//! The debug kernel: a suite's own source, compiled with every checker that finds a kernel module's bugs, which stock
//! kernels leave out because they cost too much.
//!
//! It boots with the suite's root file system in the place of the suite's kernel, and the modules under test are built
//! against its tree. Nearly everything is built in, from a configuration of our own ([`CONFIG`]): so it compiles in
//! minutes, not in hours.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::bootstrap::Bootstrap;
use super::builder::{self, GuestFile};
use super::cache::{Slot, cannot_write};
use super::image::Image;
use super::parallel;
use super::progress::{Progress, Step};
use super::sandbox;
use super::suite::Suite;

#[cfg(test)]
mod tests;

/// The memory of a guest, in MiB: KASAN takes an eighth, and keeps what was freed for a while.
pub const MEMORY: u32 = 1536;

/// What the kernel is told at boot besides the lab's own arguments: every bad access is reported, not the first alone.
pub const ARGUMENTS: &str = "kasan_multi_shot";

/// Set for tests on a debug kernel, which executes several times as much for the same.
pub const VARIABLE: &str = "TARN_LAB_DEBUG_KERNEL";

/// Whether this test runs on a debug kernel: sheer size may be less there, and nothing is measured.
#[cfg(any(test, feature = "testing"))]
pub fn is_here() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// The tests that break the kernel on purpose, by the beginning of their names: see tests.rs.
pub const TESTS: &str = "lab_debug_kernel_";

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

/// Compiles the kernel, and leaves of its tree what modules are built with.
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
find . -type f -not -path './scripts/*' \
    \( -name '*.[acoS]' -o -name '*.cmd' -o -name '*.dts*' -o -name '*.rst' -o -name 'vmlinux*' \) -delete
"#;

/// Lines that compiling prints, about: one a file.
const LINES: f64 = 2000.0;

/// How much of the output an error shows, in lines.
const LAST_LINES: usize = 40;

/// A debug kernel in the cache.
#[derive(Debug, Clone)]
pub struct DebugKernel {
    directory: PathBuf,
}

impl DebugKernel {
    /// The cached debug kernel of a suite, made first where there is none or it was made from something else. `again`
    /// makes it even if it is there, from the suite's newest source.
    ///
    /// # Errors
    /// [`tarn_base::error::Unsupported`] when this user cannot enter a chroot; those of fetching the packages, of compiling
    /// (with the compiler's last lines), and of writing to the cache.
    pub fn ensure(suite: &'static Suite, mirror: Option<&str>, again: bool, progress: &Progress) -> Result<Self> {
        sandbox::check()?;
        let slot = Slot::new(suite.name, "debug-kernel")?;
        let bootstrap = Bootstrap {
            suite,
            mirror,
            packages: packages(suite),
            hook: builder::HOOK.into(),
        };
        let recipe = format!("{}{ENTER}{COMPILE}{CONFIG}", bootstrap.recipe());
        if again || !slot.holds(&recipe) {
            let task = format!("debug kernel {suite}");
            let _lock = slot.lock(|| progress.line(&format!("{task}: waiting for another tarn that is making it")))?;
            if again || !slot.holds(&recipe) {
                slot.fill(&recipe, |new| make(&bootstrap, new, &task, progress))
                    .with_context(|| format!("cannot make the debug kernel of {suite}"))?;
                progress.end(&task);
            }
        }
        Ok(Self { directory: slot.path() })
    }

    /// The kernel, as `-kernel` takes it.
    pub fn kernel(&self) -> PathBuf {
        self.root().join("usr/src/bzImage")
    }

    /// The kernel's release, as `uname -r` tells it.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub fn release(&self) -> Result<String> {
        let path = self.root().join("usr/src/release");
        let release = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(release.trim().to_owned())
    }

    /// Where modules are built for it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The chroot with its tree and the compiler that it was compiled with.
    pub fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    /// What modprobe reads, as files for the guest: it finds there what is built in.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub fn files(&self) -> Result<Vec<GuestFile>> {
        let place = format!("usr/lib/modules/{}", self.release()?);
        let directory = self.root().join(&place);
        let context = || format!("cannot read {}", directory.display());
        let mut files = Vec::new();
        for entry in fs::read_dir(&directory).with_context(context)? {
            let entry = entry.with_context(context)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("modules.") {
                files.push((
                    format!("{place}/{name}"),
                    0o644,
                    fs::read(entry.path()).with_context(context)?,
                ));
            }
        }
        files.sort();
        Ok(files)
    }
}

/// Boots the debug kernel of an image's suite in the place of its own.
///
/// # Errors
/// As [`DebugKernel::ensure`].
pub fn instead(image: Image, mirror: Option<&str>, again: bool, progress: &Progress) -> Result<Image> {
    let kernel = DebugKernel::ensure(image.suite, mirror, again, progress)?;
    image.with_debug_kernel(kernel)
}

fn packages(suite: &Suite) -> Vec<String> {
    let mut packages: Vec<String> = builder::PACKAGES
        .iter()
        .chain(PACKAGES)
        .map(ToString::to_string)
        .collect();
    packages.push(match suite.backports {
        Some(backports) => format!("linux-source/{backports}"),
        None => "linux-source".into(),
    });
    packages
}

fn make(bootstrap: &Bootstrap, directory: &Path, task: &str, progress: &Progress) -> Result<()> {
    progress.show(&Step::first(task, "starting"));
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
