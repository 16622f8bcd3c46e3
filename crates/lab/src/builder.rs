//! Builds kernel modules for a suite's kernel, with that suite's own compiler and headers.
//!
//! The builder is a directory with the unpacked packages, entered with chroot: as root directly, otherwise in a user
//! namespace. Its mounts are its own, so nothing stays mounted behind it and nothing of the host can be changed.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::archive::GuestFile;
use super::bootstrap::Bootstrap;
use super::cache::Slot;
use super::image::Image;
use super::kept::Kept;
use super::progress::Progress;
use super::sandbox;

/// What kbuild needs besides the kernel's headers, which bring the compiler that the kernel was built with.
pub(super) const PACKAGES: &[&str] = &[
    "binutils",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "libc-bin",
    "libc6-dev",
    "make",
    "mawk",
    "sed",
];

/// What the packages' own scripts would have made. `sh` is dash.
pub(super) const HOOK: &str = r#"cd "$1"
[ -e usr/bin/sh ] || ln -s dash usr/bin/sh
ln -sf mawk usr/bin/awk
mkdir -p build dev proc tmp
: >dev/null
chroot . ldconfig
rm -rf usr/share/doc usr/share/man usr/share/locale usr/share/info
"#;

/// Builds in the chroot `$1` what lies in `$2`, for the kernel `$3`, with `$4` for make.
const BUILD: &str = r#"set -eu
mount --rbind /proc "$1/proc"
mount --bind /dev/null "$1/dev/null"
mount --bind "$2" "$1/build"
chroot "$1" /usr/bin/env -i PATH=/usr/bin:/usr/sbin HOME=/build LC_ALL=C \
    sh -c "make -j \$(nproc) -C '/lib/modules/$3/build' M=/build $4 modules && strip --strip-debug /build/*.ko"
"#;

/// What a module begins with (ELF's magic number).
const ELF: &[u8] = b"\x7fELF";

/// Modules that a builder keeps: of each stage, of both kinds, and of a few states of the sources.
const MOST_KEPT: usize = 32;

/// A module's source, part of this program so that it can be built wherever the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The module's name: that of the file that comes out of it, without `.ko`.
    pub module: &'static str,
    /// File names and contents; one of them is `Kbuild`.
    pub files: &'static [(&'static str, &'static [u8])],
}

impl Source {
    /// Whether it tests itself when it is loaded, built for debugging.
    pub fn has_selftest(&self) -> bool {
        self.files.iter().any(|(name, _)| name.starts_with("selftest/"))
    }

    /// All that a builder makes a module from.
    fn identity(&self, kind: Kind) -> Vec<Vec<u8>> {
        let names = [BUILD, kind.variable(), self.module].map(|text| text.as_bytes().to_vec());
        let files = self.files.iter();
        let files = files.flat_map(|(name, content)| [name.as_bytes().to_vec(), content.to_vec()]);
        names.into_iter().chain(files).collect()
    }
}

/// How a module is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As it is used.
    Release,
    /// With `DEBUG`: it tests itself when it is loaded.
    Debug,
}

impl Kind {
    /// Where the guest has modules of this kind.
    fn directory(self) -> &'static str {
        match self {
            Self::Release => "tarn/modules",
            Self::Debug => "tarn/modules/debug",
        }
    }

    /// What make is told; the module's Kbuild takes it up.
    fn variable(self) -> &'static str {
        match self {
            Self::Release => "",
            Self::Debug => "TARN_DEBUG=y",
        }
    }
}

/// The lab's own module, which proves the builder.
pub const PROBE: Source = Source {
    module: "tarn_probe",
    files: &[
        ("Kbuild", include_bytes!("kmod-probe/Kbuild")),
        ("faults.c", include_bytes!("kmod-probe/faults.c")),
        ("faults.h", include_bytes!("kmod-probe/faults.h")),
        ("probe.c", include_bytes!("kmod-probe/probe.c")),
    ],
};

/// A suite's compiler and headers, of exactly the kernel that the image boots.
#[derive(Debug, Clone)]
pub struct Builder {
    root: PathBuf,
    release: String,
    scratch: PathBuf,
}

impl Builder {
    /// The cached builder for an image, made first where there is none or the image's kernel is another one.
    ///
    /// # Errors
    /// [`tarn_base::error::Unsupported`] when this user cannot enter it; those of fetching and unpacking the packages, and
    /// of writing to the cache.
    pub fn ensure(image: &Image, mirror: Option<&str>, progress: &Progress) -> Result<Self> {
        sandbox::check()?;
        if let Some(kernel) = image.debug_kernel() {
            return Ok(Self {
                root: kernel.root(),
                release: image.release.clone(),
                scratch: kernel.directory().to_owned(),
            });
        }
        let suite = image.suite;
        let slot = Slot::new(suite.name, "builder")?;
        let headers = format!("linux-headers-{}", image.release);
        let packages = PACKAGES.iter().map(ToString::to_string).chain([headers]).collect();
        let bootstrap = Bootstrap {
            suite,
            mirror,
            packages,
            hook: HOOK.into(),
        };
        let task = format!("builder {suite}");
        let make = |new: &Path| bootstrap.run(new, &task, progress, |stream| unpack(stream, &new.join("root")));
        slot.ensure(&bootstrap.recipe(), false, &task, progress, make).with_context(|| {
            format!(
                "cannot make the module builder of {suite} (if Debian no longer has the headers of {}, get its present \
                 kernel with `tarn lab image --again --suite {suite}`)",
                image.release
            )
        })?;
        Ok(Self {
            root: slot.path().join("root"),
            release: image.release.clone(),
            scratch: slot.path(),
        })
    }

    /// A module's `.ko` file, built where this builder has not built the same before. What it has built goes with it.
    ///
    /// # Errors
    /// What the compiler says, whole. Those of writing to the cache.
    pub fn build(&self, source: &Source, kind: Kind) -> Result<Vec<u8>> {
        let identity = [source.identity(kind), vec![self.release.clone().into_bytes()]].concat();
        let kept = Kept::of(&self.scratch.join("modules"), &identity, "ko", MOST_KEPT);
        if let Some(module) = kept.read().filter(|module| module.starts_with(ELF)) {
            return Ok(module);
        }
        let module = self.build_anew(source, kind)?;
        kept.write(&module)?;
        Ok(module)
    }

    fn build_anew(&self, source: &Source, kind: Kind) -> Result<Vec<u8>> {
        let directory = self
            .scratch
            .join(format!("build-{}-{}", source.module, std::process::id()));
        let result = self.build_in(&directory, source, kind);
        let _ = fs::remove_dir_all(&directory);
        result.with_context(|| format!("cannot build the module {} for {}", source.module, self.release))
    }

    /// Builds a module as a file for the guest.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn file(&self, source: &Source, kind: Kind) -> Result<GuestFile> {
        let path = format!("{}/{}.ko", kind.directory(), source.module);
        Ok((path, 0o644, self.build(source, kind)?))
    }

    fn build_in(&self, directory: &Path, source: &Source, kind: Kind) -> Result<Vec<u8>> {
        let context = || format!("cannot write {}", directory.display());
        for (name, content) in source.files {
            let file = directory.join(name);
            fs::create_dir_all(file.parent().unwrap_or(directory)).with_context(context)?;
            fs::write(file, content).with_context(context)?;
        }
        let mut command = sandbox::command_with_mounts("sh");
        command
            .args(["-c", BUILD, "build"])
            .arg(&self.root)
            .arg(directory)
            .arg(&self.release)
            .arg(kind.variable());
        let output = command
            .stdin(Stdio::null())
            .output()
            .context("cannot start the builder")?;
        if !output.status.success() {
            bail!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let module = directory.join(format!("{}.ko", source.module));
        fs::read(&module).with_context(|| format!("the build made no {}.ko", source.module))
    }
}

/// Unpacks the tree as this user's, who is root in the builder.
pub(super) fn unpack(stream: &mut dyn Read, root: &Path) -> Result<()> {
    let mut archive = tar::Archive::new(stream);
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive
        .unpack(root)
        .with_context(|| format!("cannot unpack to {}", root.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without this, no stage that is a module could be measured or tested: the builder's headers and compiler
    /// have to be those of the guest's kernel.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_kernel_a_module_built_for_this_kernel_is_loaded_and_unloaded() {
        let run = |program: &str, argument: &str| {
            let output = std::process::Command::new(program).arg(argument).output().unwrap();
            assert!(
                output.status.success(),
                "{program}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        };
        let parameter = Path::new("/sys/module/tarn_probe/parameters/answer");
        assert!(!parameter.exists());
        run("insmod", "/tarn/modules/tarn_probe.ko");
        assert_eq!(fs::read_to_string(parameter).unwrap().trim(), "42");
        run("rmmod", "tarn_probe");
        assert!(!parameter.exists());
    }
}
