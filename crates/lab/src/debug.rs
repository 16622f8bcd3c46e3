//! A debug kernel where it lies in the cache, and what is different in a guest that has it. How it is made: `debug_kernel`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::archive::GuestFile;

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

/// Where a guest with a debug kernel has the kernel's own test of reassembly, `tools/testing/selftests/net/ip_defrag.c`.
pub const IP_DEFRAG: &str = "/usr/libexec/ip_defrag";

/// A debug kernel in the cache.
#[derive(Debug, Clone)]
pub struct DebugKernel {
    directory: PathBuf,
}

impl DebugKernel {
    /// What was made in this directory.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
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

    /// Files for the guest: what modprobe reads, which finds there what is built in, and the kernel's own test.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub fn files(&self) -> Result<Vec<GuestFile>> {
        let place = format!("usr/lib/modules/{}", self.release()?);
        let directory = self.root().join(&place);
        let context = || format!("cannot read {}", directory.display());
        let test = self.root().join("usr/src/ip_defrag");
        let content = fs::read(&test).with_context(|| format!("cannot read {}", test.display()))?;
        let mut files = vec![(IP_DEFRAG[1..].to_owned(), 0o755, content)];
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
